"""The method with a part of it left out or changed, as data: each variant says what becomes of one gathered query.

The method itself knows nothing of these. A variant changes what it is given (the proposals, the statistics), the rules
it goes by, or which sides of it reach the request.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from sira_es.dsl.compile import Mode
from sira_es.expand import Gathered
from sira_es.vocabulary import Expansion, Rules, Statistics, Word

__all__ = ["ABLATIONS", "BASELINE", "EXPANDED", "Variant", "another_budget"]


def _same(gathered: Gathered) -> Gathered:
    return gathered


@dataclass(frozen=True, slots=True)
class Variant:
    """One run. `name` is also the tag of its TREC file; `note` says in a few words what is different.

    `plain`: the original query alone. `words`: with what was proposed for the query. `documents`: with what was added
    to documents. `rules` replaces numbers of the method, `gathered` what it is given. `mode` and `enriched_weight`
    None: as configured.
    """

    name: str
    note: str = ""
    plain: bool = False
    words: bool = True
    documents: bool = True
    rules: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    gathered: Callable[[Gathered], Gathered] = _same
    mode: Mode | None = None
    enriched_weight: float | None = None

    def expansion(self, gathered: Gathered, rules: Rules) -> Expansion:
        """The expansion of one query; `rules` are those configured."""
        given = self.gathered(gathered if self.documents else _without_added_words(gathered))
        found = given.expansion(replace(rules, **self.rules))
        return found if self.words else found.limited_to(0, 0)


def another_budget(budget: float) -> Variant:
    """The method with another expansion budget."""
    return Variant(f"budget-{budget:g}", rules=MappingProxyType({"budget": budget}))


def _each_word(gathered: Gathered, change: Callable[[Word], Word]) -> Gathered:
    before = gathered.statistics
    analyses = tuple(a._replace(words=tuple(map(change, a.words))) for a in before.analyses)
    return replace(gathered, statistics=Statistics(before.documents, analyses, before.source))


def _without_added_words(gathered: Gathered) -> Gathered:
    """As on an index where no document is enriched: a word found in `enriched_terms` alone is absent."""
    return _each_word(gathered, lambda word: word._replace(enriched_df=0))


def _nothing_absent(gathered: Gathered) -> Gathered:
    """A word whose frequency is not known everywhere is never absent."""
    return _each_word(gathered, lambda word: word._replace(enriched_df=None))


def _equally_sure(gathered: Gathered) -> Gathered:
    """Every phrase with confidence 1."""
    return replace(gathered, phrases=tuple(p._replace(confidence=1.0) for p in gathered.phrases))


def _single_words(gathered: Gathered) -> Gathered:
    """Only what was proposed as one word; phrases of several are left out with their statistics."""
    query, *rest = gathered.statistics.analyses
    asked = [p for p in gathered.phrases if p.verdict is None]
    analyses = dict(zip(asked, rest, strict=False))
    pinned = rest[len(asked) :]
    phrases = tuple(p for p in gathered.phrases if p.verdict is not None or len(p.phrase.split()) == 1)
    kept = [analyses[p] for p in phrases if p.verdict is None]
    before = gathered.statistics
    return replace(
        gathered,
        phrases=phrases,
        statistics=Statistics(before.documents, (query, *kept, *pinned), before.source),
    )


BASELINE = Variant("baseline", "the original query", plain=True)
EXPANDED = Variant("expanded", "the method as configured")
ABLATIONS = (
    Variant("documents", "words of documents only, none for the query", words=False),
    Variant("queries", "words for the query only, none of documents", documents=False),
    Variant(
        "no-df-filter",
        "no word is absent, common or weak",
        rules=MappingProxyType({"max_df": 1.0, "min_margin": -math.inf}),
        gathered=_nothing_absent,
    ),
    Variant("fixed-weight", "no budget: each word weighs its confidence", rules=MappingProxyType({"budget": math.inf})),
    Variant("uniform-confidence", "every proposal is equally sure", gathered=_equally_sure),
    Variant("words-only", "proposals of several words are left out", gathered=_single_words),
    Variant("no-lift", "the query's own words are not weighted", rules=MappingProxyType({"lift": 0.0})),
)
