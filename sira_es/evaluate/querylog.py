"""The most frequent queries of a log, for figures without judgments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from sira_es.errors import InputError
from sira_es.evaluate.collections import Queries
from sira_es.evaluate.findings import Tally
from sira_es.evaluate.reading import at, content, is_plain, pick, read_lines, rows_of, whole
from sira_es.vocabulary import normalise

__all__ = ["read_log"]

_TEXT = ("text", "query")
_ID = ("_id", "id", "query_id", "qid")
_COUNT = ("count", "frequency", "searches", "impressions")


def read_log(path: str | Path, top: int | None = None) -> Queries:
    """Read queries that may repeat, the most frequent first, at most `top`.

    A file ending in .txt (.gz) has one query a line; any other one rows with `text` or `query` and, if it has such a
    column, `count`. Letter case and white space make no other query. A query keeps the id that the file has for it, else
    it is log-1, log-2, ... Raises InputError naming file and line.
    """
    path = Path(path)
    tally = Tally(str(path))
    counts: Counter[str] = Counter()
    texts: dict[str, str] = {}
    ids: dict[str, str] = {}
    for line, text, count, name in _searches(path, tally):
        key = normalise(text).casefold()
        if not key:
            tally.note("rows without a query, skipped", f"line {line}")
            continue
        texts.setdefault(key, text)
        ids.setdefault(key, name)
        counts[key] += count
    if not texts:
        raise InputError(f"{path}: the file holds no query")
    for text, _ in counts.most_common()[top:] if top is not None else ():
        tally.note(f"queries beyond the {top} most frequent, left out", repr(text))
    found: dict[str, str] = {}
    for place, (key, _) in enumerate(counts.most_common(top), 1):
        name = ids[key]
        found[name if name and name not in found else f"log-{place}"] = texts[key]
    return Queries(path, found, tally.findings)


def _searches(path: Path, tally: Tally) -> Iterator[tuple[int, str, int, str]]:
    """Yield (line, text, how often, id or nothing)."""
    first, lines = content(path, read_lines(path, tally))
    if is_plain(path):
        yield from ((number, line, 1, "") for number, line in lines)
        return
    for line, row in rows_of(path, first, lines, tally):
        text = pick(path, line, row, _TEXT, "query")[1]
        if not isinstance(text, str):
            raise InputError(f"{at(path, line)}: the query is no text")
        named = next((row[key] for key in row if key.strip().casefold() in _COUNT), 1)
        count = whole(named)
        if count is None:
            raise InputError(f"{at(path, line)}: count {named!r} is not a whole number")
        yield line, text, max(count, 0), next((str(row[key]) for key in _ID if row.get(key)), "")
