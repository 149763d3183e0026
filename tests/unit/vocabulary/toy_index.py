"""An index in a dictionary: document frequencies, and an analyzer that drops case, two stop words and a plural s."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sira_es.vocabulary import (
    Analysis,
    Expansion,
    HumanTerms,
    Phrase,
    Proposal,
    Rules,
    Statistics,
    Term,
    Word,
    clean_document,
    clean_query,
    expand,
    judge_document,
)

STOP_WORDS = {"the", "of"}
OVERLAPPING = {"fussballspiel": ("fussballspiel", "fussball", "spiel")}


@dataclass(frozen=True)
class ToyIndex:
    """`df` by token, `usual` for all others; None is unknown. `enriched` is the df in enriched_terms."""

    documents: int | None = 1000
    df: Mapping[str, int | None] = field(default_factory=dict)
    enriched: Mapping[str, int | None] = field(default_factory=dict)
    usual: int | None = 10

    def word(self, surface: str) -> Word:
        token = surface.lower()
        token = token[:-1] if token.endswith("s") and len(token) > 3 else token
        return Word(
            surface, OVERLAPPING.get(token, (token,)), self.df.get(token, self.usual), self.enriched.get(token, 0)
        )

    def analyse(self, text: str) -> Analysis:
        surfaces = re.findall(r"[^\W_]+", text)
        return Analysis(text, tuple(self.word(s) for s in surfaces if s.lower() not in STOP_WORDS))

    def look_up(self, texts: Sequence[str]) -> Statistics:
        return Statistics(self.documents, tuple(self.analyse(t) for t in texts))

    def expand(
        self,
        text: str,
        proposals: Sequence[Proposal | tuple[str, float]],
        *,
        rules: Rules | None = None,
        human: HumanTerms | None = None,
    ) -> Expansion:
        human = human or HumanTerms()
        phrases = clean_query([proposed(p) for p in proposals], text=text, allowed=human.allow)
        asked = [p.phrase for p in phrases if p.verdict is None]
        statistics = self.look_up([text, *asked, *(word for word, _ in human.pins_of(text))])
        return expand(text, phrases, statistics, rules=rules or Rules(), human=human)

    def judge_document(
        self,
        proposals: Sequence[str | tuple[str, float]],
        *,
        text: str = "",
        rules: Rules | None = None,
        human: HumanTerms | None = None,
    ) -> tuple[Phrase, ...]:
        human = human or HumanTerms()
        given = [proposed((p, 1.0) if isinstance(p, str) else p) for p in proposals]
        phrases = clean_document(given, values=[text], allowed=human.allow)
        statistics = self.look_up([p.phrase for p in phrases if p.verdict is None])
        return judge_document(phrases, statistics, rules=rules or Rules(), human=human)


def proposed(proposal: Proposal | tuple[str, float]) -> Proposal:
    return proposal if isinstance(proposal, Proposal) else Proposal(*proposal)


def term(expansion: Expansion, word: str) -> Term:
    [found] = [t for t in expansion.terms if t.word == word]
    return found


def verdicts(phrases: Sequence[Phrase]) -> list[str | None]:
    return [p.verdict.value if p.verdict else None for p in phrases]


def words(terms: Sequence[Term]) -> list[str]:
    return [t.word for t in terms]
