"""A query as far as scoring goes: which clauses with a text add to a hit's score, and through what."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from sira_es.dsl.clauses import Clause, number, read_clause
from sira_es.dsl.compile import ENRICHED
from sira_es.dsl.fields import Fields
from sira_es.dsl.spans import Malformed, Node, scan

__all__ = ["Path", "Query", "alone", "lowest", "read_query", "weight"]

Path = tuple[str | int, ...]


@dataclass(slots=True)
class Query:
    """One query object and what scores below it.

    `clauses` are all clauses with a text at and below it, in document order. `foreign`: something else than text
    decides or scores here. `closed`: only to be wrapped whole. `best`: the largest child counts, not the sum.
    `min_score`: it drops hits by the score of what is below. `plain`: what is below adds to the score as it is.
    `ours`: a rewriter of ours was here.
    """

    node: Node
    path: Path
    boost: float = 1.0
    children: list[Query] = field(default_factory=list)
    clauses: list[Clause] = field(default_factory=list)
    foreign: bool = False
    closed: bool = False
    best: bool = False
    min_score: bool = False
    plain: bool = False
    ours: bool = False

    def add(self, child: Query) -> None:
        self.children.append(child)
        self.clauses += child.clauses
        self.ours = self.ours or child.ours


def lowest(root: Query, keys: Collection[str]) -> list[Query]:
    """The way from the root to the lowest query above all clauses with one of these texts."""
    way = [root]
    while not way[-1].closed:
        holders = [c for c in way[-1].children if any(clause.key in keys for clause in c.clauses)]
        if len(holders) != 1:
            break
        way.append(holders[0])
    return way


def weight(query: Query, key: str) -> float:
    """What a word of this text weighs: boosts multiply downwards, clauses add up, of alternatives the largest is it."""
    if not query.children:
        return sum(query.boost for clause in query.clauses if clause.key == key and clause.counts)
    parts = [weight(child, key) for child in query.children]
    return query.boost * (max(parts) if query.best else sum(parts))


def alone(query: Query, keys: Collection[str]) -> bool:
    """Whether a query is nothing but clauses with these texts: no filter, no must_not, no other clause."""
    if query.foreign:
        return False
    if not query.children:
        return bool(query.clauses) and query.clauses[0].key in keys
    return all(alone(child, keys) for child in query.children)


def read_query(node: Node, path: Path, fields: Fields) -> Query:
    """Read a query object of whatever kind; an unknown or malformed one is foreign, only a text of absurd length Malformed."""
    query = Query(node, path)
    if node.members is None or len(node.members) != 1:
        query.foreign = True
        return query
    ((kind, inner),) = node.members.items()
    reader = _READERS.get(kind)
    if reader is not None and inner.members is not None:
        reader(query, inner, (*path, kind), fields)
        query.foreign = query.foreign or not query.children
        query.boost = number(inner.get("boost"))
        return query
    clause = read_clause(kind, inner, fields)
    if clause is None:
        query.foreign = True
    else:
        query.clauses.append(clause)
        query.boost = clause.boost
    return query


def _bool(query: Query, inner: Node, path: Path, fields: Fields) -> None:
    query.plain = True
    for occur, node in (inner.members or {}).items():
        if occur in {"must", "should"}:
            for below, item in _several(node, (*path, occur)):
                query.add(read_query(item, below, fields))
        elif occur in {"filter", "must_not"}:
            query.foreign = query.foreign or bool(_several(node, path))
    query.ours = query.ours or _made_here(inner)


def _dis_max(query: Query, inner: Node, path: Path, fields: Fields) -> None:
    query.closed = query.best = True
    node = inner.get("queries")
    for below, item in _several(node, (*path, "queries")) if node is not None else []:
        query.add(read_query(item, below, fields))


def _functions(query: Query, inner: Node, path: Path, fields: Fields) -> None:
    """function_score, script_score: the text is inside `query`; not where the functions replace its score."""
    query.foreign = True
    query.min_score = inner.get("min_score") is not None
    node, how = inner.get("query"), inner.get("boost_mode")
    if node is not None and (how is None or how.value != "replace"):
        query.add(read_query(node, (*path, "query"), fields))


def _boosting(query: Query, inner: Node, path: Path, fields: Fields) -> None:
    query.foreign = True
    node = inner.get("positive")
    if node is not None:
        query.add(read_query(node, (*path, "positive"), fields))


def _wrapper(query: Query, inner: Node, path: Path, fields: Fields) -> None:
    """A query in base64: read decoded, wrapped undecoded."""
    query.closed = True
    decoded = unwrapped(inner)
    if decoded is not None:
        query.add(read_query(decoded, path, fields))


def unwrapped(inner: Node) -> Node | None:
    """The query inside a `wrapper`; None where it is not base64 of JSON."""
    node = inner.get("query")
    try:
        return scan(base64.b64decode(str(node.value if node is not None else ""), validate=True).decode())
    except (Malformed, binascii.Error, UnicodeError):
        return None


_READERS: dict[str, Callable[[Query, Node, Path, Fields], None]] = {
    "bool": _bool,
    "dis_max": _dis_max,
    "function_score": _functions,
    "script_score": _functions,
    "boosting": _boosting,
    "wrapper": _wrapper,
}


def _several(node: Node, path: Path) -> list[tuple[Path, Node]]:
    """One query object or a list of them."""
    if node.items is not None:
        return [((*path, i), item) for i, item in enumerate(node.items)]
    return [(path, node)] if node.members is not None else []


def _made_here(inner: Node) -> bool:
    """Whether a bool is one that `rewrite` or `compile` made: all its `should` but the original are of our shape."""
    should = inner.get("should")
    if should is None or not should.items:
        return False
    added = should.items if inner.get("must") is not None else should.items[1:] or should.items
    return all(_is_added(item) for item in added)


_KEYS = {"query", "fields", "type", "tie_breaker", "boost"}
_SHAPES = {("best_fields", 0.1), ("phrase", 0.1), ("cross_fields", 0.7)}


def _is_added(item: Node) -> bool:
    """The shape of one clause of reach or of an expansion."""
    reaching = item.get("match")
    if reaching is not None:
        return reaching.members is not None and list(reaching.members) == [ENRICHED]
    inner = item.get("multi_match")
    if inner is None or inner.members is None or set(inner.members) - {"operator"} != _KEYS:
        return False
    return any(inner.members["type"].value == kind and inner.members["tie_breaker"].value == t for kind, t in _SHAPES)
