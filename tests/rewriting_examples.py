"""What tests of rewriting share: an index's fields, an expansion of any text, and a rewriter's opposite."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from sira_es.dsl.compile import Coverage, Shape
from sira_es.dsl.fields import Fields
from sira_es.dsl.locate import Located, Mode, Passed, locate
from sira_es.dsl.rewrite import Rewritten, rewrite
from sira_es.vocabulary.model import Expansion, Term, Verdict, Word

FIELDS = Fields(
    text=frozenset({"title", "text", "brand", "enriched_terms"}),
    prefix=frozenset({"title.grams"}),
    other=frozenset({"brand.keyword", "color", "price"}),
)


def kept(word: str, boost: float = 0.5, *, idf: float = 4.0) -> Term:
    confidence = 0.8
    return Term(word, (word,), (word,), confidence, 10, True, idf, idf * confidence, Verdict.KEPT, boost)


def expansion_of(text: str, *words: str) -> Expansion:
    """Each word kept with boost .5 or less; without words: cordless and quiet."""
    own = tuple(Word(w, (w.casefold(),), 20) for w in dict.fromkeys(re.findall(r"\w+", text)))
    terms = tuple(kept(w) for w in words or ("cordless", "quiet"))
    return Expansion(text, 1000, own=own, terms=terms, allowance=0.5 * sum(t.confidence * t.idf for t in terms))


def shaped(coverage: Coverage = "none", limit: int | None = 1024, **more: Any) -> Shape:
    """A shape without fields: rewriting takes those of the group."""
    return Shape((), coverage, clause_limit=limit, **more)


def found(body: Any, mode: Mode = "rerank", **given: Any) -> Located | Passed:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return locate(raw, given.pop("fields", FIELDS), mode=mode, **given)


def located(body: Any, mode: Mode = "rerank", **given: Any) -> Located:
    outcome = found(body, mode, **given)
    assert isinstance(outcome, Located), outcome
    return outcome


def passes(body: Any, mode: Mode = "rerank", **given: Any) -> str:
    outcome = found(body, mode, **given)
    assert isinstance(outcome, Passed), outcome
    return outcome.reason.value


def rewritten(body: Any, mode: Mode = "rerank", coverage: Coverage = "full", **given: Any) -> Rewritten:
    where = located(body, mode, **given)
    return rewrite(where, {t: expansion_of(t) for t in where.texts}, shaped(coverage))


def query_after(body: Any, mode: Mode = "rerank", coverage: Coverage = "full") -> Any:
    return json.loads(rewritten(body, mode, coverage).body)["query"]


_ADDED = re.compile(
    r'\{"multi_match":\{"query":"(?:[^"\\]|\\.)*","fields":\[[^\]]*\],"type":"(?:best_fields|phrase|cross_fields)",'
    r'"tie_breaker":0\.[17],"boost":[0-9.e+-]+\}\}'
    r'|\{"match":\{"enriched_terms":\{"query":"(?:[^"\\]|\\.)*","boost":0\.2\}\}\}'
)


_CLAUSES = f"(?:{_ADDED.pattern})(?:,(?:{_ADDED.pattern}))*"
_RESCORE = re.compile(
    r'"rescore":\{"window_size":300,"query":\{"rescore_query":\{"bool":\{"should":\['
    + _CLAUSES
    + r'\]\}\},"query_weight":1,"rescore_query_weight":1\}\},'
)
_WRAPPERS = (
    ('{"bool":{"must":[', re.compile(rf'\],"should":\[{_CLAUSES}\]\}}\}}')),
    ('{"bool":{"should":[', re.compile(rf',{_CLAUSES}\],"minimum_should_match":1\}}\}}')),
)


def without_ours(body: str, query: str) -> str:
    """The body with what a rewriter adds taken out again, by the looks of it alone; `query` is the original query."""
    body = _RESCORE.sub("", body)
    for start, end in _WRAPPERS:
        while tail := end.search(body):
            head = _opening(body[: tail.start()], start)
            body = body[:head] + body[head + len(start) : tail.start()] + body[tail.end() :]
    for comma in (",", ""):
        body = body.replace(f'"highlight_query":{query}{comma}', "")
    return body


def _opening(before: str, start: str) -> int:
    """Where the wrapper of the one query object that ends here begins."""
    at = before.rfind(start)
    while at >= 0:
        try:
            json.loads(before[at + len(start) :])
        except ValueError:
            at = before.rfind(start, 0, at)
        else:
            return at
    raise AssertionError("no wrapper around what was added")


def plain(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()
