"""What an expansion is made from, kept so that it can be made again under other rules without asking anybody."""

from __future__ import annotations

from dataclasses import dataclass

from sira_es.vocabulary import Expansion, HumanTerms, Phrase, Rules, Statistics, expand

__all__ = ["Gathered"]


@dataclass(frozen=True, slots=True)
class Gathered:
    """The cleaned phrases of one query, what the index says of them, and what people said."""

    text: str
    phrases: tuple[Phrase, ...]
    statistics: Statistics
    human: HumanTerms

    def expansion(self, rules: Rules) -> Expansion:
        """The expansion under these rules."""
        return expand(self.text, self.phrases, self.statistics, rules=rules, human=self.human)
