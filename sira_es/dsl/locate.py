"""Where a person's words sit in any search body, and where they must not be touched.

`locate` finds the clauses that carry the text and, for each query that scores, the group: the lowest query object above
all clauses with that text. Around it `rewrite` puts its clauses. Whatever is not understood is left alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from sira_es.dsl.clauses import Clause, Reason, number, same, short
from sira_es.dsl.fields import Fields
from sira_es.dsl.leaves import count_leaves
from sira_es.dsl.spans import Malformed, Node, escaped_letters, scan
from sira_es.dsl.tree import Path, Query, alone, lowest, read_query, weight

__all__ = ["Group", "Located", "Mode", "Passed", "Path", "Place", "Reason", "locate"]

Mode = Literal["rerank", "recall", "rescore", "rescue"]


@dataclass(frozen=True, slots=True)
class Passed:
    """The request stays as it is."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Place:
    """An object of the body: text[start:end], and the keys that lead to it."""

    start: int
    end: int
    path: Path


@dataclass(frozen=True, slots=True)
class Group:
    """The query object to wrap, and what is to stand beside it.

    `fields` are the text fields of its clauses, each with its highest weight; `factor` is what the boosts of expansions
    are multiplied by, > 0. `enriched`: the group asks our own field already, so no reach is needed. `alone`: it holds
    nothing but the text. `plain`: above it are only bools without a boost.
    """

    place: Place
    text: str
    fields: tuple[tuple[str, float], ...]
    factor: float
    enriched: bool
    alone: bool
    plain: bool


@dataclass(frozen=True, slots=True)
class Located:
    """What `rewrite` needs to know of a body.

    `mode` is the asked one, or rerank where the body does not allow it. `query` is the whole original query,
    `highlights` the `highlight` objects that need it as their `highlight_query`, `leaves` its leaves as engines count.
    """

    body: str
    mode: Mode
    groups: tuple[Group, ...]
    query: Place
    highlights: tuple[Place, ...]
    leaves: int

    @property
    def texts(self) -> tuple[str, ...]:
        """The distinct texts, in document order: one expansion each."""
        return tuple(dict.fromkeys(group.text for group in self.groups))


def locate(
    body: bytes,
    fields: Fields,
    *,
    mode: Mode = "rerank",
    params: Mapping[str, str] | None = None,
    explained: bool = False,
) -> Located | Passed:
    """Find the texts of a `_search` body (or of an `_msearch` line), or the reason why it passes.

    `params` are the decoded parameters of the URL, or the line's header; a `_count` is a search with size 0.
    `explained`: rewrite also what asks for explain or profile. Never raises, whatever the body.
    """
    params = params or {}
    if params.get("q") is not None or params.get("source") is not None:
        return Passed(Reason.URL_QUERY)
    if not body.strip():
        return Passed(Reason.NO_BODY)
    try:
        text = body.decode()
        root = scan(text, follow=_FOLLOWED)
        if _patterns(text) * fields.count > _MOST_FIELDS:
            return Passed(Reason.COSTLY)
        return _locate(text, root, _without_runtime(fields, root), mode, params, explained)
    except UnicodeDecodeError:
        return Passed(Reason.NOT_JSON)
    except RecursionError:
        return Passed(Reason.DEEP)
    except Malformed as error:
        reason = str(error)
        return Passed(Reason(reason) if reason in _REASONS else Reason.NOT_JSON)


_HIGHLIGHTS = 16
_COPIED = 1 << 20
"""Highlights that are given the original query, each a copy of its own, and characters of these copies."""
_MOST_FIELDS = 50_000
"""What `_patterns` counts, times the fields there are: 50 of them where there are 1,000."""
_FOLLOWED = frozenset({"query", "retriever", "highlight", "collapse", "rescore"})
_REASONS = frozenset(Reason)


def _locate(
    text: str, root: Node, fields: Fields, mode: Mode, params: Mapping[str, str], explained: bool
) -> Located | Passed:
    refused = _refused(text, root, params, explained)
    if refused is not None:
        return Passed(refused)
    roots, single = _scoring_roots(root, fields)
    if not roots:
        return Passed(Reason.NO_QUERY)
    if _is_ours(root, roots):
        return Passed(Reason.OURS)
    found = [_group(query) for query in roots]
    groups = tuple(f for f in found if isinstance(f, Group))
    if not groups:
        return Passed(next(f for f in found if isinstance(f, Reason)))
    mode = _possible(mode, root, params, groups)
    if mode in {"rerank", "rescore"} and _is_zero(root, params):
        return Passed(Reason.EMPTY)
    highlights = _highlights(root)
    if len(highlights) > (_HIGHLIGHTS if single else 0):
        return Passed(Reason.HIGHLIGHT)
    place = Place(roots[0].node.start, roots[0].node.end, roots[0].path)
    if len(highlights) * (place.end - place.start) > _COPIED:
        return Passed(Reason.COSTLY)
    return Located(text, mode, groups, place, highlights, sum(count_leaves(q.node, fields) for q in roots))


def _patterns(text: str) -> int:
    """How many things in a body may name fields by a pattern: stars, clauses that may leave it to the default."""
    return sum(map(text.count, ("*", '_string"', 'multi_match"', 'combined_fields"'))) + escaped_letters(text)


# What refuses a whole request


def _refused(text: str, root: Node, params: Mapping[str, str], explained: bool) -> Reason | None:
    if not explained and (_true(root, params, "explain") or _true(root, params, "profile")):
        return Reason.EXPLAINED
    if not _by_score(root.get("sort"), params.get("sort")):
        return Reason.SORTED
    if root.get("min_score") is not None:
        return Reason.MIN_SCORE
    for key in ("aggs", "aggregations"):
        node = root.get(key)
        if node is not None and _SCORED_FACETS.search(text, node.start, node.end):
            return Reason.SCORED_FACETS
    return None


_SCORED_FACETS = re.compile(r'"(?:top_hits|sampler|diversified_sampler)"|(?<!\w)_score\b|\\u00[4-7]')
"""Names that may stand there as numbers, too: 005f is an underscore."""


def _true(root: Node, params: Mapping[str, str], key: str) -> bool:
    node = root.get(key)
    given = [params.get(key), node.value if node is not None else None]
    return any(v is not None and v is not False and str(v).lower() != "false" for v in given)


def _by_score(node: Node | None, param: str | None) -> bool:
    """Whether the first thing hits are sorted by is their score, the highest first."""
    if param:
        return param.split(",")[0].strip() in {"_score", "_score:desc"}
    sort = node.value if node is not None else None
    if sort is None or sort == []:
        return True
    first = sort[0] if isinstance(sort, list) else sort
    if isinstance(first, dict):
        order = first.get("_score") if len(first) == 1 else None
        order = order.get("order", "desc") if isinstance(order, dict) else order
        return isinstance(order, str) and order.lower() == "desc"
    return isinstance(first, str) and first == "_score"


def _is_zero(root: Node, params: Mapping[str, str]) -> bool:
    size = params.get("size")
    return size == "0" if size is not None else number(root.get("size")) == 0


def _without_runtime(fields: Fields, root: Node) -> Fields:
    """Fields that the request maps for itself are not what the index says they are."""
    for key in ("runtime_mappings", "derived"):
        node = root.get(key)
        if node is not None and isinstance(node.value, dict):
            fields = fields.without(node.value)
    return fields


# Which queries score


def _scoring_roots(root: Node, fields: Fields) -> tuple[list[Query], bool]:
    """The top queries whose scores rank the hits; with whether the first is the one query that highlights speak of."""
    query, retriever = root.get("query"), root.get("retriever")
    if query is None and retriever is not None:
        return _retrieved(retriever, ("retriever",), fields), False
    if query is None:
        return [], True
    path: Path = ("query",)
    hybrid = query.get("hybrid") if query.members is not None and len(query.members) == 1 else None
    parts = hybrid.get("queries") if hybrid is not None else None
    if parts is not None and parts.items is not None:
        below = (*path, "hybrid", "queries")
        return [read_query(part, (*below, i), fields) for i, part in enumerate(parts.items)], False
    return [read_query(query, path, fields)], True


def _retrieved(retriever: Node, path: Path, fields: Fields) -> list[Query]:
    """The queries of the `standard` retrievers that rank: alone, under rrf, normalised under linear, or reranked."""
    if retriever.members is None or len(retriever.members) != 1:
        return []
    ((kind, inner),) = retriever.members.items()
    path = (*path, kind)
    if kind == "standard":
        query = inner.get("query")
        plain = not any(inner.get(key) for key in ("sort", "min_score"))
        return [read_query(query, (*path, "query"), fields)] if query is not None and plain else []
    below = inner.get("retriever")
    if kind == "text_similarity_reranker" and below is not None:
        return _retrieved(below, (*path, "retriever"), fields)
    parts = inner.get("retrievers")
    if kind not in {"rrf", "linear"} or parts is None or parts.items is None:
        return []
    found: list[Query] = []
    for i, part in enumerate(parts.items):
        normalised = kind == "rrf" or _is_normalised(part.get("normalizer")) or _is_normalised(inner.get("normalizer"))
        below = part.get("retriever")
        if not normalised:
            continue
        if below is not None:
            found += _retrieved(below, (*path, "retrievers", i, "retriever"), fields)
        else:
            found += _retrieved(part, (*path, "retrievers", i), fields)
    return found


def _is_normalised(node: Node | None) -> bool:
    return node is not None and node.value not in (None, "none")


def _is_ours(root: Node, roots: list[Query]) -> bool:
    """Whether a rewriter or compiler of ours made this body: its clauses are known by their shape."""
    rescore = root.get("rescore")
    stages = (rescore.items or [rescore]) if rescore is not None else []
    return any(q.ours for q in roots) or any(
        read_query(query, (), Fields(frozenset())).ours
        for query in (s.get("query").get("rescore_query") for s in stages if s.get("query"))  # type: ignore[union-attr]
        if query is not None
    )


# The group of one scoring query


def _group(root: Query) -> Group | Reason:
    starting = [c for c in root.clauses if c.passes is None]
    if not starting:
        return next((c.passes for c in root.clauses if c.passes is not None), Reason.NO_TEXT)
    words: dict[str, str] = {}
    for clause in starting:
        words.setdefault(clause.key, clause.text)
    text = _text(root, words)
    if text is None:
        return Reason.SEVERAL
    if short(text):
        return Reason.SHORT
    keys = {*words, same(text)}
    way = lowest(root, keys)
    if any(query.min_score for query in way[:-1]):
        return Reason.MIN_SCORE
    factor = min(weight(way[-1], key) for key in words)
    if not 0 < factor < math.inf:
        return Reason.WEIGHTLESS
    return Group(
        place=Place(way[-1].node.start, way[-1].node.end, way[-1].path),
        text=text,
        fields=_fields(c for c in way[-1].clauses if c.key in keys),
        factor=factor,
        enriched=any(c.enriched for c in starting),
        alone=alone(way[-1], keys),
        plain=all(query.plain and query.boost == 1 for query in way[:-1]),
    )


_JOINED = 32
"""Words in clauses of their own that are still taken for one text."""


def _text(root: Query, texts: Mapping[str, str]) -> str | None:
    """The one text; several single words in sibling clauses are joined in document order; else None."""
    if len(texts) == 1:
        return next(iter(texts.values()))
    if len(texts) > _JOINED:
        return None
    above = lowest(root, texts.keys())[-1]
    siblings = [{c.key for c in child.clauses if c.passes is None} for child in above.children]
    if above.best or any(" " in key for key in texts) or any(len(words) > 1 for words in siblings):
        return None
    return " ".join(texts.values())


def _fields(clauses: Iterable[Clause]) -> tuple[tuple[str, float], ...]:
    """Their fields, in document order, each with its highest weight."""
    fields: dict[str, float] = {}
    for clause in clauses:
        for name, power in clause.fields.items():
            fields[name] = max(power, fields.get(name, power))
    return tuple(fields.items())


def _possible(mode: Mode, root: Node, params: Mapping[str, str], groups: tuple[Group, ...]) -> Mode:
    """The mode that can be had: recall and rescue for text alone, rescore where nothing else orders the hits."""
    if mode in {"recall", "rescue"}:
        return mode if all(group.alone for group in groups) else "rerank"
    if mode == "rescore":
        taken = any(root.get(key) is not None for key in ("rescore", "sort", "collapse", "knn", "retriever", "rank"))
        taken = taken or params.get("sort") is not None or params.get("scroll") is not None
        return "rerank" if taken or len(groups) > 1 or not groups[0].plain else mode
    return mode


def _highlights(root: Node) -> tuple[Place, ...]:
    """The `highlight` objects, of the body and of collapsed groups, that have no query of their own yet."""
    inner = collapse.get("inner_hits") if (collapse := root.get("collapse")) is not None else None
    found: list[tuple[Node | None, Path]] = [(root.get("highlight"), ("highlight",))]
    if inner is not None:
        path: Path = ("collapse", "inner_hits")
        found += [(i.get("highlight"), (*path, n, "highlight")) for n, i in enumerate(inner.items or [])]
        found.append((inner.get("highlight"), (*path, "highlight")))
    return tuple(
        Place(node.start, node.end, path)
        for node, path in found
        if node is not None and node.members is not None and "highlight_query" not in node.members
    )
