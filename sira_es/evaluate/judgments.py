"""Relevance judgments from files: TREC qrels, or a table whose header names query, document and grade."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sira_es.errors import InputError
from sira_es.evaluate.findings import Finding, Tally
from sira_es.evaluate.reading import Line, as_id, at, content, pick, read_lines, rows_of, whole

__all__ = ["Judgments", "read_judgments"]

_QUERY = ("query_id", "qid", "query", "topic")
_DOCUMENT = ("corpus_id", "document_id", "doc_id", "docid", "document", "doc", "id", "_id")
_GRADE = ("score", "grade", "rating", "relevance", "rel", "label", "judgment")


@dataclass(frozen=True, slots=True)
class Judgments:
    """Grades by query id and document id: whole numbers, 0 not relevant, above that relevant."""

    path: Path
    grades: Mapping[str, Mapping[str, int]]
    findings: tuple[Finding, ...] = ()


def read_judgments(path: str | Path) -> Judgments:
    """Read judgments. A grade below 0 counts as 0; of a pair judged twice the last grade stands; both are noted.

    Raises InputError naming file and line: a header without the columns needed, a grade that is no whole number.
    """
    path = Path(path)
    tally = Tally(str(path))
    grades: dict[str, dict[str, int]] = {}
    bad: list[tuple[int, object]] = []
    for line, query, document, value in _rows(path, tally):
        grade = whole(value)
        if grade is None:
            bad.append((line, value))
            continue
        if grade < 0:
            tally.note("grades below 0, counted as 0", f"line {line}, {grade}")
        judged = grades.setdefault(as_id(path, line, query, tally), {})
        name, grade = as_id(path, line, document, tally), max(grade, 0)
        if name in judged:
            same = "the same grade" if judged[name] == grade else "another grade, the last one stands"
            tally.note(f"judgments of a pair judged before with {same}", f"line {line}, {query!r} {name!r}")
        judged[name] = grade
    if bad:
        more = f" ({len(bad)} such lines)" if len(bad) > 1 else ""
        raise InputError(f"{at(path, bad[0][0])}: grade {bad[0][1]!r} is not a whole number{more}; use 0, 1, 2 ...")
    if not grades:
        raise InputError(f"{path}: the file holds no judgment")
    return Judgments(path, grades, tally.findings)


def _rows(path: Path, tally: Tally) -> Iterator[tuple[int, Any, Any, Any]]:
    """Yield (line, query, document, grade)."""
    first, lines = content(path, read_lines(path, tally))
    fields = _trec_fields(first)
    if len(fields) == 4 and whole(fields[3]) is not None:
        yield from _trec(path, lines, tally)
        return
    for line, row in rows_of(path, first, lines, tally):
        query = pick(path, line, row, _QUERY, "query id")[1]
        document = pick(path, line, row, _DOCUMENT, "document id")[1]
        yield line, query, document, pick(path, line, row, _GRADE, "grade")[1]


def _trec(path: Path, lines: Iterator[Line], tally: Tally) -> Iterator[tuple[int, str, str, str]]:
    for number, line in lines:
        fields = _trec_fields(line)
        if len(fields) == 4:
            yield number, fields[0], fields[2], fields[3]
        elif fields:
            raise InputError(f"{at(path, number)}: {len(fields)} fields; TREC qrels have 4: query 0 document grade")
        else:
            tally.note("blank lines, skipped", f"line {number}")


def _trec_fields(line: str) -> list[str]:
    fields = line.split("\t")
    return fields if len(fields) == 4 else line.split()
