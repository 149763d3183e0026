"""`sira-es warm`: expansions computed ahead, so that serving calls no model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import orjson

from sira_es.cli.common import Limit, Options, common_options, print_json, recorded_option, run_async, say
from sira_es.expand import Warmed


@click.command()
@click.option("--index", required=True, help="Index, alias or data stream.")
@click.option(
    "--queries",
    required=True,
    type=click.Path(path_type=Path),
    help="Queries: JSON lines, TSV or CSV with id and text, or .txt (.gz) with one query a line.",
)
@click.option("--max-cost", type=Limit(), help="Stop once so many US dollars are spent.")
@click.option("--concurrency", type=click.IntRange(min=1), help="Questions to the model at a time [as configured].")
@recorded_option
@common_options
def warm(
    options: Options,
    index: str,
    queries: Path,
    max_cost: float | None,
    concurrency: int | None,
    recorded: Path | None,
) -> int:
    """Ask the model about the queries of a file now, and keep its answers.

    With --recorded the answers of that file are kept, as those of the configured model. Exit code 3 where some queries
    failed, 4 where --max-cost was reached.

    Example: sira-es warm --index docs --queries head-queries.txt --max-cost 2
    """
    report = run_async(_warm(options, index, texts_of(queries), max_cost, concurrency, recorded))
    if options.json:
        print_json(report.to_json())
    else:
        click.echo(
            f"{report.new} answers are new, {report.known} were known; {_counted('skipped', report.skipped)}"
            f"{_counted('failed', report.failed)}{report.tokens} tokens, {_cost(report)}, {report.seconds:.1f} s"
        )
    if report.left:
        options.say(f"sira-es: stopped at --max-cost; {report.left} queries were not asked, the same command goes on")
        return 4
    if report.failed:
        options.say(f"sira-es: {sum(report.failed.values())} queries failed, the first: {report.problem}")
        return 3
    return 0


async def _warm(
    options: Options,
    index: str,
    texts: list[str],
    max_cost: float | None,
    concurrency: int | None,
    recorded: Path | None,
) -> Warmed:
    from sira_es.sira import AsyncSira

    with _progress(options, len(texts)) as report:
        async with AsyncSira(options.settings(), query_answers=recorded) as sira:
            return await sira.warm(index, texts, max_cost=max_cost, concurrency=concurrency, on_progress=report)


def texts_of(file: Path) -> list[str]:
    """The queries of a file, in their order. Raises InputError."""
    from sira_es.evaluate import read_queries
    from sira_es.evaluate.findings import Tally
    from sira_es.evaluate.reading import is_plain, read_lines

    if is_plain(file):
        return [line.strip() for _, line in read_lines(file, Tally(str(file))) if line.strip()]
    return list(read_queries(file).texts.values())


class _progress:  # noqa: N801  used like a function, as a context manager
    """Progress for a person at a terminal, a JSON line a second for a program, nothing with -q."""

    def __init__(self, options: Options, total: int) -> None:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        self._quiet = options.quiet
        self._bar = Progress(console=console) if console.is_terminal and not options.quiet else None
        self._task = self._bar.add_task("warm", total=total) if self._bar else None
        self._said = 0.0

    def __enter__(self) -> Callable[[Warmed], None]:
        if self._bar is not None:
            self._bar.__enter__()
        return self._report

    def __exit__(self, *error: Any) -> None:
        if self._bar is not None:
            self._bar.__exit__(*error)

    def _report(self, so_far: Warmed) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=so_far.done, description=f"warm, {_cost(so_far)}")
        elif not self._quiet and so_far.seconds - self._said >= 1:
            self._said = so_far.seconds
            say(orjson.dumps({"done": so_far.done, **so_far.to_json()}).decode())


def _cost(report: Warmed) -> str:
    unknown = f" and {report.unpriced} calls of unknown price" if report.unpriced else ""
    return f"{report.cost:.4f} USD{unknown}"


def _counted(what: str, reasons: Any) -> str:
    return "".join(f"{count} {what} ({reason}), " for reason, count in sorted(reasons.items()))
