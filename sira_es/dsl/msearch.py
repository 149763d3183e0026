"""An `_msearch` body: which searches it holds, and how some are replaced while every other byte stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sira_es.dsl.clauses import Reason
from sira_es.dsl.locate import Passed
from sira_es.dsl.spans import MAX_VALUES, Malformed, is_costly, scan

__all__ = ["Search", "join_msearch", "split_msearch"]


@dataclass(frozen=True, slots=True)
class Search:
    """One search of an `_msearch`: its header and the line body[start:end], without the line's end.

    `readable`: it is known what the header says, and so which indices are searched.
    """

    header: Mapping[str, Any]
    line: bytes
    start: int
    end: int

    @property
    def index(self) -> tuple[str, ...]:
        """The names that the header gives; empty: those of the URL."""
        given = self.header.get("index", [])
        return tuple(given.split(",") if isinstance(given, str) else given)

    @property
    def readable(self) -> bool:
        if not self.header.keys() <= _HARMLESS:
            return False
        given = self.header.get("index", "the URL's")
        names = given if isinstance(given, list) else [given]
        return bool(names) and all(isinstance(name, str) and name for name in names)

    @property
    def params(self) -> dict[str, str]:
        """The header's options as `locate` takes them."""
        return {key: str(value) for key, value in self.header.items() if isinstance(value, str)}


_HARMLESS = frozenset(
    {"index", "preference", "routing", "search_type", "request_cache", "ccs_minimize_roundtrips"}
    | {"ignore_unavailable", "ignore_throttled", "allow_no_indices", "allow_partial_search_results", "expand_wildcards"}
)
"""What a header may say without changing which index it is; not `indices`, which engines take for another `index`."""


def split_msearch(body: bytes) -> tuple[Search, ...] | Passed:
    """The searches of an `_msearch` in their order; a reason where any line cannot be read: then the whole passes.

    As engines do, a blank first line and blank last lines are skipped, and a blank header stands for an empty one.
    """
    if not body.strip():
        return Passed(Reason.NO_BODY)
    try:
        if body.count(b"\n") > MAX_VALUES or is_costly(body.decode()):
            return Passed(Reason.COSTLY)
        return _split(body)
    except (UnicodeDecodeError, Malformed):
        return Passed(Reason.NOT_JSON)


def _split(body: bytes) -> tuple[Search, ...] | Passed:
    lines = body.split(b"\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    first = 0 if lines[0].strip() else 1
    last = max(i for i, line in enumerate(lines) if line.strip()) + 1
    if last == len(lines) or (last - first) % 2:  # no newline at the end, or half a search
        return Passed(Reason.NOT_JSON)
    searches = []
    for i in range(first, last, 2):
        header = scan(lines[i].decode(), follow=()).plain() if lines[i].strip() else {}
        line, start = lines[i + 1], starts[i + 1]
        scan(line.decode(), follow=())
        searches.append(Search(header, line, start, start + len(line)))
    return tuple(searches)


def join_msearch(body: bytes, searches: tuple[Search, ...], replaced: Mapping[int, bytes]) -> bytes:
    """The body with the lines of some searches (by their position) replaced, and all other bytes as they were."""
    parts, at = [], 0
    for i, search in enumerate(searches):
        if i in replaced:
            parts += [body[at : search.start], replaced[i]]
            at = search.end
    return b"".join([*parts, body[at:]])
