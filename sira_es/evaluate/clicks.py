"""Judgments from clicks: how often a document was clicked, beside how often any document is clicked at its positions.

Clicks over expected clicks (V. W. Zhang, R. Jones: Comparing click logs and editorial labels for training query
rewriting, WWW 2007 workshop on query log analysis), smoothed:

    rate(r)     = clicks at position r / impressions at position r           over the whole file
    expected    = sum over r of impressions(query, document, r) * rate(r)
    COEC        = (clicks(query, document) + 1) / (expected + 1)

A document that is clicked as often as its positions explain has 1, wherever it stood. Grades: below 0.5 is 0, below 1 is
1, below 2 is 2, from 2 on 3. The one added on both sides draws pairs that were seen little to 1, and pairs that were seen
less than `LEAST_IMPRESSIONS` times are no judgment at all.

What it cannot see: documents that were never shown have no grade; and as the rate of a position also holds how good the
documents there usually are, documents that always stand on top are graded rather too low.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sira_es.errors import InputError
from sira_es.evaluate.collections import Queries
from sira_es.evaluate.findings import Tally
from sira_es.evaluate.judgments import Judgments
from sira_es.evaluate.reading import as_id, at, pick, read_rows, whole
from sira_es.vocabulary import normalise

__all__ = ["LEAST_IMPRESSIONS", "read_clicks"]

LEAST_IMPRESSIONS = 10
_LIMITS = (0.5, 1.0, 2.0)


@dataclass(frozen=True, slots=True)
class _Shown:
    query: str
    document: str
    position: int
    impressions: int
    clicks: int


def read_clicks(path: str | Path, queries: Queries | None = None) -> tuple[Queries, Judgments]:
    """Read a table of query, id, position (from 1), impressions and clicks; return queries and their grades.

    `queries`: the file's queries are ids of these, or their texts. Without it, the texts in the file are the queries,
    with ids clicks-1, clicks-2, ... Raises InputError naming file and line: a column is missing, a number is none or makes no sense.
    """
    path = Path(path)
    tally = Tally(str(path))
    rows = list(_rows(path, tally))
    if not rows:
        raise InputError(f"{path}: the file holds no row")
    queries = queries or _numbered(path, rows)
    ids = {_key(text): query for query, text in reversed(list(queries.texts.items()))}
    ids |= {_key(query): query for query in queries.texts}
    grades: dict[str, dict[str, int]] = {}
    for (text, document), (impressions, found) in _coec(rows).items():
        if impressions < LEAST_IMPRESSIONS:
            tally.note(f"pairs shown less than {LEAST_IMPRESSIONS} times, not judged", f"{text!r}, {document!r}")
            continue
        query = ids.get(_key(text), text)
        grades.setdefault(query, {})[document] = sum(found >= limit for limit in _LIMITS)
    if not grades:
        raise InputError(f"{path}: no document was shown {LEAST_IMPRESSIONS} times for a query; collect more clicks")
    return queries, Judgments(path, grades, tally.findings)


def _coec(rows: list[_Shown]) -> dict[tuple[str, str], tuple[int, float]]:
    """By query and document, how often it was shown and its smoothed clicks over expected clicks."""
    shown: dict[int, int] = defaultdict(int)
    clicked: dict[int, int] = defaultdict(int)
    for row in rows:
        shown[row.position] += row.impressions
        clicked[row.position] += row.clicks
    sums: dict[tuple[str, str], tuple[int, int, float]] = {}
    for row in rows:
        rate = clicked[row.position] / shown[row.position] if shown[row.position] else 0.0
        impressions, clicks, expected = sums.get((row.query, row.document), (0, 0, 0.0))
        sums[row.query, row.document] = (
            impressions + row.impressions,
            clicks + row.clicks,
            expected + row.impressions * rate,
        )
    return {pair: (seen, (clicks + 1) / (expected + 1)) for pair, (seen, clicks, expected) in sums.items()}


def _rows(path: Path, tally: Tally) -> Iterator[_Shown]:
    seen: set[tuple[str, str, int]] = set()
    for line, row in read_rows(path, tally):
        query = pick(path, line, row, ("query", "query_id", "qid", "text"), "query")[1]
        if not isinstance(query, str) or not query.strip():
            raise InputError(f"{at(path, line)}: the query is empty")
        document = pick(path, line, row, ("id", "_id", "document_id", "doc_id", "document"), "document id")[1]
        position, impressions, clicks = (
            _count(path, line, row, name) for name in ("position", "impressions", "clicks")
        )
        if position < 1:
            raise InputError(f"{at(path, line)}: position {position}; the first is 1")
        if clicks > impressions:
            tally.note("rows with more clicks than impressions, clicks counted as that many", f"line {line}")
        found = _Shown(query, as_id(path, line, document, tally), position, impressions, min(clicks, impressions))
        if (query, found.document, position) in seen:
            tally.note("rows of a query, document and position that stood before, added up", f"line {line}")
        seen.add((query, found.document, position))
        yield found


def _count(path: Path, line: int, row: dict[str, Any], name: str) -> int:
    value = pick(path, line, row, (name,), name)[1]
    number = whole(value)
    if number is None or number < 0:
        raise InputError(f"{at(path, line)}: {name} {value!r} is not a whole number from 0 on")
    return number


def _numbered(path: Path, rows: list[_Shown]) -> Queries:
    texts = {_key(row.query): row.query for row in reversed(rows)}
    first = dict.fromkeys(_key(row.query) for row in rows)
    return Queries(path, {f"clicks-{place}": texts[key] for place, key in enumerate(first, 1)})


def _key(text: str) -> str:
    return normalise(text).casefold()
