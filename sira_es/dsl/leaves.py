"""How many leaves a query has, as engines count them against their clause limit."""

from __future__ import annotations

import re

from sira_es.dsl.clauses import LONGEST
from sira_es.dsl.fields import Fields
from sira_es.dsl.spans import Node
from sira_es.dsl.tree import unwrapped

__all__ = ["count_leaves"]

FUZZY = 16
"""Terms that a fuzzy word of three letters and more is taken to become: 50 at most, 4 to 8 on the mean in practice."""


def count_leaves(query: Node, fields: Fields) -> int:
    """Leaves of a query: distinct words x fields, a phrase one a field, everything else one each.

    Words are separated without the analyzer; a fuzzy one counts as several. An estimate, meant to be rather too high.
    """
    if query.items is not None:
        return sum(count_leaves(item, fields) for item in query.items)
    total = 0
    for kind, inner in (query.members or {}).items():
        if kind in _TEXTS:
            total += _text_leaves(kind, inner, fields)
        elif kind == "wrapper":
            decoded = unwrapped(inner)
            total += count_leaves(decoded, fields) if decoded is not None else 1
        elif kind in _BELOW:
            total += sum(count_leaves(node, fields) for key in _BELOW[kind] if (node := inner.get(key)) is not None)
        else:
            total += kind not in {"weight", "boost"}
    return total


_TEXTS = {"match", "match_bool_prefix", "multi_match", "combined_fields", "query_string", "simple_query_string"}
_BELOW = {
    "bool": ("must", "should", "filter", "must_not"),
    "dis_max": ("queries",),
    "function_score": ("query", "functions"),
    "script_score": ("query",),
    "boosting": ("positive", "negative"),
    "constant_score": ("filter",),
    "nested": ("query",),
    "has_child": ("query",),
    "has_parent": ("query",),
    "pinned": ("organic",),
}
_WORD = re.compile(r"\w+")


def _text_leaves(kind: str, inner: Node, fields: Fields) -> int:
    options, width = inner, 1
    if kind in {"match", "match_bool_prefix"}:
        options = next(iter((inner.members or {}).values()), inner)
        text = options.value if options.members is None else _value(options, "query")
    else:
        text = _value(inner, "query")
        named = _value(inner, "fields") or _value(inner, "default_field") or list(fields.default)
        named = [named] if isinstance(named, str) else named
        width = len(fields.resolve([f for f in named if isinstance(f, str)])) if isinstance(named, list) else 1
    if str(_value(options, "type")).startswith("phrase"):
        return max(1, width)
    text = str(text)
    if len(text) > LONGEST:
        return max(1, width) * (len(text) // 2 + 1)
    words = set(_WORD.findall(text.casefold()))
    fuzzy = str(_value(options, "fuzziness") or "0") not in {"0", "0.0"}
    return max(1, width) * max(1, sum(_fuzzy(w) if fuzzy else 1 for w in words))


def _fuzzy(word: str) -> int:
    return FUZZY if len(word) > 2 else 1


def _value(node: Node, key: str) -> object:
    found = node.get(key)
    return found.value if found is not None else None
