"""Somebody else's search body with better text clauses: spliced in around the group, every other byte as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sira_es.dsl.compile import RESCORE_WINDOW, Shape, expansion_clauses, fit, reach
from sira_es.dsl.locate import Group, Located, Mode, Path
from sira_es.vocabulary.model import Expansion

__all__ = ["Rewritten", "encoded", "rewrite", "rewrite_dict"]

Clauses = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What to send: the body, the mode in effect, each text's expansion after the cut to the clause limit.

    In mode `rescue` the body is the wider one, for when the original finds too little. `changed` is False where nothing
    was there to add: the body is then the caller's own.
    """

    body: bytes
    mode: Mode
    expansions: Mapping[str, Expansion]
    changed: bool


def rewrite(
    located: Located,
    expansions: Mapping[str, Expansion],
    shape: Shape,
) -> Rewritten:
    """Splice reach and expansions into a located body; a group whose text has no expansion stays as it is.

    The fields of the clauses are those of the group, whatever the shape says.
    """
    added, cut = _added(located, expansions, shape)
    parts, at = [], 0
    for start, end, text in sorted(_splices(located, added)):
        parts += [located.body[at:start], text]
        at = end
    parts.append(located.body[at:])
    return Rewritten("".join(parts).encode(), located.mode, cut, bool(added))


def encoded(body: Mapping[str, Any]) -> bytes:
    """A body of Python values as `locate` takes it; empty, which passes, where it is no JSON. Dates become strings."""
    try:
        return json.dumps(body, default=str).encode()
    except (TypeError, ValueError, RecursionError):
        return b""


def rewrite_dict(
    body: Mapping[str, Any],
    located: Located,
    expansions: Mapping[str, Expansion],
    shape: Shape,
) -> dict[str, Any]:
    """The same for a body of Python values, located in its `encoded` form.

    The body itself is never changed. What is not rewritten is shared with the result, values that JSON does not know
    (dates, decimals) included.
    """
    added, _ = _added(located, expansions, shape)
    if not added:
        return dict(body)
    if located.mode == "rescore":
        return {**body, "rescore": _rescore(added[0][1])}
    changed: Any = body
    for group, clauses in added:
        changed = _put(changed, group.place.path, partial(_wrapped, clauses=clauses, mode=located.mode))
    for place in located.highlights:
        changed = _put(changed, place.path, lambda found: {"highlight_query": body["query"], **found})
    return dict(changed)


def _added(
    located: Located, expansions: Mapping[str, Expansion], shape: Shape
) -> tuple[list[tuple[Group, Clauses]], dict[str, Expansion]]:
    """The clauses to stand beside each group, and the expansions as far as they fit."""
    taken, added, cut = located.leaves, [], {}
    coverage, limit = shape.coverage, shape.clause_limit
    for group in located.groups:
        expansion = expansions.get(group.text)
        if expansion is None:
            continue
        width = len(group.fields) + (coverage != "none")
        unread = 0 if expansion.own or coverage == "none" else len(set(re.findall(r"\w+", group.text))) * width * 2
        if limit is not None and taken + unread > limit:
            continue
        kept, reaching = fit(expansion, replace(shape, fields=group.fields), taken=taken + unread, limit=limit)
        clauses = [] if group.enriched else reach(group.text, group.fields, coverage)[:reaching]
        words = expansion_clauses(kept, group.fields, coverage, group.factor, shape.enriched_weight, shape.one_analyzer)
        own = sum(len(w.tokens) for w in expansion.own)
        taken += unread + len(words) * width + own * (width + 1) * bool(clauses)
        cut[group.text] = kept
        if clauses or words:
            added.append((group, clauses + words))
    return added, cut


def _splices(located: Located, added: list[tuple[Group, Clauses]]) -> list[tuple[int, int, str]]:
    """What to put where: text[start:end] -> text, in places that do not overlap."""
    if not added:
        return []
    body = located.body
    if located.mode == "rescore":
        start = body.index("{") + 1
        return [(start, start, f'"rescore":{_json(_rescore(added[0][1]))},')]
    splices = []
    for group, clauses in added:
        # The wrapped query is written with a stand-in, which then makes room for the bytes of the original.
        before, after = _json(_wrapped(None, clauses, located.mode)).split("null", 1)
        start, end = group.place.start, group.place.end
        splices.append((start, end, before + body[start:end] + after))
    original = body[located.query.start : located.query.end]
    for place in located.highlights:
        comma = "" if body[place.start + 1 : place.end - 1].isspace() or place.end - place.start == 2 else ","
        splices.append((place.start + 1, place.start + 1, f'"highlight_query":{original}{comma}'))
    return splices


def _rescore(clauses: Clauses) -> dict[str, Any]:
    query = {"rescore_query": {"bool": {"should": clauses}}, "query_weight": 1, "rescore_query_weight": 1}
    return {"window_size": RESCORE_WINDOW, "query": query}


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _wrapped(query: Any, clauses: Clauses, mode: Mode) -> dict[str, Any]:
    if mode == "rerank":
        return {"bool": {"must": [query], "should": clauses}}
    return {"bool": {"should": [query, *clauses], "minimum_should_match": 1}}


def _put(value: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """A copy in which the value at the end of the path is changed; all that is off the path is shared."""
    if not path:
        return change(value)
    copied: Any = dict(value) if isinstance(value, Mapping) else list(value)
    copied[path[0]] = _put(value[path[0]], path[1:], change)
    return copied
