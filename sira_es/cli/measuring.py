"""What `eval` and `tune` share: their options for queries and judgments, and the reading of these files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson

from sira_es.errors import InputError
from sira_es.evaluate import Judgments, Queries, read_judgments, read_queries
from sira_es.evaluate.clicks import read_clicks

__all__ = ["judged", "measuring_options", "template_of"]

F = TypeVar("F", bound=Callable[..., Any])


def measuring_options(command: F) -> F:
    """Add --queries, --qrels, --clicks and --baseline."""
    path = click.Path(path_type=Path)
    for option in (
        click.option("--baseline", "template", type=path, help="Search body (JSON) with {{query}}: your own search."),
        click.option(
            "--clicks", type=path, help="Instead of --qrels: CSV of query, id, position, impressions, clicks."
        ),
        click.option("--qrels", type=path, help="Judgments: TREC qrels, or TSV/CSV with a header."),
        click.option("--queries", type=path, help="Queries: JSON lines, TSV or CSV with id and text."),
    ):
        command = option(command)
    return command


def judged(queries: Path | None, qrels: Path | None, clicks: Path | None) -> tuple[Queries, Judgments]:
    """Queries and judgments of these files. Raises click.UsageError for a combination that makes no sense, InputError."""
    if (qrels is None) == (clicks is None):
        raise click.UsageError("give judgments as --qrels or as --clicks, or compare with --no-judgments")
    if clicks is not None:
        return read_clicks(clicks, read_queries(queries) if queries else None)
    if queries is None or qrels is None:
        raise click.UsageError("give the queries as --queries")
    return read_queries(queries), read_judgments(qrels)


def template_of(path: Path | None) -> dict[str, Any] | None:
    """The search body in a file, None where there is none. Raises InputError."""
    if path is None:
        return None
    try:
        body = orjson.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; check --baseline") from None
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path} is not JSON ({error}); give a search body with {{{{query}}}}") from None
    if not isinstance(body, dict):
        raise InputError(f"{path} is not a JSON object; give a search body with {{{{query}}}}")
    return body
