"""A user's text and its expansion become one search request: one weighted bool/should around the untouched original."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sira_es.errors import ConfigurationError, InputError, UnsupportedError
from sira_es.vocabulary.model import Expansion, Term, Verdict

__all__ = [
    "ENRICHED",
    "Coverage",
    "Mode",
    "Shape",
    "compile_search",
    "expansion_clauses",
    "fill",
    "fit",
    "original_query",
    "reach",
]

ENRICHED = "enriched_terms"
ENRICHED_WEIGHT = 1.5
RESCORE_WINDOW = 300

Mode = Literal["recall", "rerank", "rescore"]
Coverage = Literal["none", "partial", "full"]
"""How much of the target is enriched: no document, some, or at least 98 % of those that have a text field."""

Fields = Sequence[tuple[str, float]]
Clause = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """What the clauses are made for: the text fields with their weights, and how much of the target is enriched.

    `one_analyzer`: all fields analyse alike. `clause_limit`: how many leaves the engine takes in one query; None: as
    many as there are. `enriched_weight`: what `enriched_terms` weighs in the clause of a word, on a fully enriched target.
    """

    fields: tuple[tuple[str, float], ...]
    coverage: Coverage = "none"
    one_analyzer: bool = True
    clause_limit: int | None = 1024
    enriched_weight: float = ENRICHED_WEIGHT


def names(fields: Fields) -> list[str]:
    """Fields as a multi_match wants them: `title^2`, the weight left out where it is 1."""
    return [name if weight == 1 else f"{name}^{weight:g}" for name, weight in fields]


def original_query(text: str, shape: Shape) -> Clause:
    """The plain query of a user's text: cross_fields where the fields share an analyzer, else best_fields."""
    kind = "cross_fields" if shape.one_analyzer else "best_fields"
    return {"multi_match": {"query": shortened(text, shape), "fields": names(shape.fields), "type": kind}}


def shortened(text: str, shape: Shape) -> str:
    """The text, or its beginning where an engine would refuse a query of so many words; it counts repeated ones, too."""
    if shape.clause_limit is None:
        return text
    seen: set[str] = set()
    for count, word in enumerate(_WORDS.finditer(text), 1):
        seen.add(word[0].casefold())
        if max(count, len(seen) * len(shape.fields)) > shape.clause_limit and count > 1:
            return text[: word.start()]
    return text


def fill(template: Mapping[str, Any], text: str) -> dict[str, Any]:
    """A search body from a template: {{query}} in any of its strings becomes the text.

    Raises ConfigurationError where the template has no {{query}} or no `query`.
    """
    found = False

    def walk(value: Any) -> Any:
        nonlocal found
        if isinstance(value, Mapping):
            return {k: walk(v) for k, v in value.items()}
        if isinstance(value, list):
            return [walk(v) for v in value]
        if isinstance(value, str) and "{{query}}" in value:
            found = True
            return value.replace("{{query}}", text)
        return value

    body = walk(template)
    if not found or not isinstance(body.get("query"), dict):
        raise ConfigurationError("a baseline must be a search body with 'query' and with {{query}} where the text goes")
    assert isinstance(body, dict)  # noqa: S101  a mapping goes in, a dict comes out
    return body


def reach(text: str, fields: Fields, coverage: Coverage) -> list[Clause]:
    """The clauses with which the user's own words match what was added to documents; none while nothing was added."""
    if coverage == "none":
        return []
    cross = {
        "query": text,
        "fields": [*names(fields), ENRICHED],
        "type": "cross_fields",
        "tie_breaker": 0.7,
        "boost": 0.35,
    }
    clauses: list[Clause] = [{"multi_match": cross}]
    if coverage == "full":
        clauses.append({"match": {ENRICHED: {"query": text, "boost": 0.2}}})
    return clauses


def expansion_clauses(
    expansion: Expansion,
    fields: Fields,
    coverage: Coverage,
    factor: float = 1.0,
    weight: float = ENRICHED_WEIGHT,
    one_analyzer: bool = True,
) -> list[Clause]:
    """One clause a word that counts, in the order of the expansion; `factor` scales all but pinned boosts.
    `weight` is that of `enriched_terms` on a fully enriched target.

    A word that the analyzer makes several tokens of is asked for as a phrase, never as an OR of fragments; a compound as
    all its parts. Without `one_analyzer` any word is a phrase: another field may separate it, and one token is as good.
    """
    enriched = {"none": [], "partial": [ENRICHED], "full": names([(ENRICHED, weight)])}[coverage]

    def clause(term: Term) -> Clause:
        boost = term.boost if term.verdict is Verdict.PINNED else round(term.boost * factor, 4)
        plain = bool(term.parts) or (len(term.tokens) == 1 and one_analyzer)
        return {
            "multi_match": {
                "query": " ".join(term.parts) or term.word,
                "fields": [*names(fields), *enriched],
                "type": "best_fields" if plain else "phrase",
                **({"operator": "and"} if term.parts else {}),
                "tie_breaker": 0.1,
                "boost": boost,
            }
        }

    clauses = [clause(t) for t in expansion.clauses]
    return [c for c in clauses if c["multi_match"]["boost"] > 0]


def fit(expansion: Expansion, shape: Shape, *, taken: int, limit: int | None) -> tuple[Expansion, int]:
    """Cut an expansion to the clause limit. Returns it with the number of reach clauses (0, 1 or 2) that still fit.

    `taken` is the number of leaves that the caller's own query has. A word costs a leaf a field; each own token does so
    in a reach clause. While it is too much there go, in this order: the match reach, kept words from the lowest margin
    up, lifted words (all, where no kept one is left), the other reach, pinned words. The original never goes.
    """
    clauses = len(reach("", shape.fields, shape.coverage))
    if limit is None:
        return expansion, clauses
    width = len(shape.fields) + (shape.coverage != "none")
    own = own_tokens(expansion)
    terms = expansion.clauses
    a_word = width * max((len(t.parts) for t in terms if t.parts), default=1)
    counts = {
        "match": int(clauses == 2),
        "kept": sum(t.verdict is Verdict.KEPT for t in terms),
        "lifted": sum(t.lifted for t in terms),
        "reach": int(clauses > 0),
        "pinned": sum(t.verdict is Verdict.PINNED for t in terms),
    }
    costs = {"match": own, "kept": a_word, "lifted": a_word, "reach": own * width, "pinned": a_word}
    left = dict(counts)
    excess = taken + sum(counts[part] * costs[part] for part in counts) - limit
    for part, cost in costs.items():
        going = min(left[part], -(-max(excess, 0) // max(cost, 1)))
        left[part] -= going
        excess -= going * cost
    reaching = left["match"] + left["reach"]
    if all(left[part] == counts[part] for part in ("kept", "lifted", "pinned")):
        return expansion, reaching
    return expansion.limited_to(left["kept"], left["lifted"], left["pinned"]), reaching


def own_tokens(expansion: Expansion) -> int:
    """How many distinct tokens the user's text has; an estimate, rather too high, where it could not be analysed."""
    if expansion.own:
        return len({token for word in expansion.own for token in word.tokens})
    return len(set(_WORDS.findall(expansion.text.casefold())))


def leaves(query: Any, tokens: int) -> int:
    """How many leaves a query has for a text of so many tokens: tokens x fields, a phrase 1 a field, others 1."""
    if isinstance(query, list):
        return sum(leaves(q, tokens) for q in query)
    if not isinstance(query, Mapping):
        return 0
    total = 0
    for kind, inner in query.items():
        if kind in _TEXTS:
            fields = inner.get("fields") if isinstance(inner, Mapping) else None
            width = len(fields) if isinstance(fields, list) and fields else 1
            phrase = isinstance(inner, Mapping) and str(inner.get("type", "")).startswith("phrase")
            total += width * (1 if phrase else tokens)
        elif kind in _COMPOUND and isinstance(inner, Mapping | list):
            total += leaves(inner, tokens)
        elif isinstance(inner, Mapping):
            total += 1
    return total


def only_text(query: Any, text: str) -> bool:
    """Whether a query asks for this text and nothing else: no filter, no must_not, nothing of another kind or text."""
    if isinstance(query, list):
        return all(only_text(q, text) for q in query)
    return isinstance(query, Mapping) and all(_asks_for(kind, inner, text) for kind, inner in query.items())


def _asks_for(kind: str, inner: Any, text: str) -> bool:
    if kind in _TEXTS | _PHRASES:
        return _holds(inner, text)
    if kind not in _TEXT_COMPOUND or not isinstance(inner, Mapping):
        return False
    below = {k: v for k, v in inner.items() if isinstance(v, Mapping | list)}
    return below.keys() <= _TEXT_COMPOUND[kind] and only_text(list(below.values()), text)


def _holds(value: Any, text: str) -> bool:
    if isinstance(value, Mapping):
        return any(_holds(v, text) for v in value.values())
    return isinstance(value, str) and text in value


# Letters of scripts that separate no words are taken as a word each.
_UNSEPARATED = r"\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
_WORDS = re.compile(rf"[{_UNSEPARATED}]|[^\W{_UNSEPARATED}]+")
_TEXTS = frozenset(
    {"match", "match_bool_prefix", "multi_match", "combined_fields", "query_string", "simple_query_string"}
)
_PHRASES = frozenset({"match_phrase", "match_phrase_prefix"})
_TEXT_COMPOUND = {"bool": {"must", "should"}, "dis_max": {"queries"}}
_COMPOUND = frozenset(
    {"bool", "must", "should", "must_not", "filter", "dis_max", "queries", "function_score", "query", "functions"}
    | {"script_score", "constant_score", "boosting", "positive", "negative", "nested", "has_child", "has_parent"}
)


def compile_search(
    text: str,
    expansion: Expansion,
    shape: Shape,
    *,
    mode: Mode = "recall",
    body: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One search body: the original query at full weight and, beside it, reach and the words that count.

    `body` is the caller's own search (its `query` is the original and stays as it is); without it, the plain query of
    the text. Mode recall needs an original of text alone: beside a filter it becomes rerank, or hits would come in past
    the filter. Raises UnsupportedError for mode rescore with a body that sorts, collapses or rescores already,
    InputError for a body without `query`.
    """
    request = copy.deepcopy(dict(body)) if body is not None else {"query": original_query(text, shape)}
    original = request.get("query")
    if not isinstance(original, dict):
        raise InputError("the search body has no 'query' that an expansion could stand beside; give it one")
    if mode == "rescore" and (taken := next((k for k in ("sort", "rescore", "collapse") if request.get(k)), None)):
        raise UnsupportedError(f"mode rescore cannot be used with '{taken}' in the same search; use mode rerank")
    if mode == "recall" and body is not None and not only_text(original, text):
        mode = "rerank"
    if any(name == ENRICHED for name, _ in shape.fields):
        shape = replace(shape, coverage="none")  # it is searched as a text field: no clause names it once more
    cut, reaching = fit(expansion, shape, taken=leaves(original, own_tokens(expansion)), limit=shape.clause_limit)
    added = reach(shortened(text, shape), shape.fields, shape.coverage)[:reaching]
    added += expansion_clauses(
        cut, shape.fields, shape.coverage, weight=shape.enriched_weight, one_analyzer=shape.one_analyzer
    )
    if not added:
        return request
    if mode == "recall":
        request["query"] = {"bool": {"minimum_should_match": 1, "should": [original, *added]}}
    elif mode == "rerank":
        request["query"] = {"bool": {"must": [original], "should": added}}
    else:
        request["rescore"] = {
            "window_size": RESCORE_WINDOW,
            "query": {
                "rescore_query": {"bool": {"should": added}},
                "query_weight": 1,
                "rescore_query_weight": 1,
            },
        }
    return request
