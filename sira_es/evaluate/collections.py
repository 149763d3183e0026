"""Documents and queries from files: JSON lines with `_id` or `id`, or TSV/CSV with such columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sira_es.errors import InputError
from sira_es.evaluate.findings import Finding, Tally
from sira_es.evaluate.reading import Row, as_id, at, pick, read_rows

__all__ = ["Documents", "Queries", "read_documents", "read_queries"]

_MAX_ID_BYTES = 512  # what both engines accept as `_id`


@dataclass(frozen=True, slots=True)
class Documents:
    """A file of documents that was read once and found usable; iterating reads it again, a line at a time.

    `count` is the number of documents in the file. Iterating yields (id, source), where `source` is everything but the
    id. Where an id stands twice, both are yielded in order, so that the last one stands in an index.
    """

    path: Path
    count: int
    findings: tuple[Finding, ...]

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        tally = Tally(str(self.path))
        for row in read_rows(self.path, tally):
            yield _document(self.path, row, tally)


@dataclass(frozen=True, slots=True)
class Queries:
    """The texts of queries by id, in the order of the file."""

    path: Path
    texts: Mapping[str, str]
    findings: tuple[Finding, ...] = ()


def read_documents(path: str | Path) -> Documents:
    """Read a whole file of documents and say what is odd in it, so that nothing is half indexed.

    Raises InputError naming file and line: no id or one that an engine refuses, not JSON, a row of another length.
    """
    path = Path(path)
    tally = Tally(str(path))
    seen: set[str] = set()
    for line, row in read_rows(path, tally):
        name, source = _document(path, (line, row), tally)
        if name in seen:
            tally.note("documents whose id stood before, the last one stands", f"line {line}, {name!r}")
        seen.add(name)
        if not any(isinstance(value, str) and value.strip() for value in source.values()):
            tally.note("documents without any text", f"line {line}, {name!r}")
    if not seen:
        raise InputError(f"{path}: the file holds no document")
    return Documents(path, len(seen), tally.findings)


def _document(path: Path, numbered: Row, tally: Tally) -> tuple[str, dict[str, Any]]:
    line, row = numbered
    key, value = pick(path, line, row, ("_id", "id"), "id")
    name = as_id(path, line, value, tally)
    if len(name.encode()) > _MAX_ID_BYTES:
        raise InputError(f"{at(path, line)}: the id is longer than {_MAX_ID_BYTES} bytes, which no engine accepts")
    return name, {field: value for field, value in row.items() if field != key}


def read_queries(path: str | Path) -> Queries:
    """Read queries. Raises InputError naming file and line: no id, no text, one id with two texts."""
    path = Path(path)
    tally = Tally(str(path))
    texts: dict[str, str] = {}
    for line, row in read_rows(path, tally):
        name = as_id(path, line, pick(path, line, row, ("_id", "id", "query_id", "qid"), "id")[1], tally)
        text = pick(path, line, row, ("text", "query"), "text")[1]
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{at(path, line)}: query {name!r} has no text")
        if name not in texts:
            texts[name] = text
        elif texts[name] == text:
            tally.note("queries that stood before, counted once", f"line {line}, {name!r}")
        else:
            raise InputError(f"{at(path, line)}: query id {name!r} stood before with another text; make the ids unique")
    if not texts:
        raise InputError(f"{path}: the file holds no query")
    return Queries(path, texts, tally.findings)
