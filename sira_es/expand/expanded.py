"""An expansion, where it comes from, and everything there is to say about it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sira_es.expand.gathered import Gathered
from sira_es.expand.skip import Skip
from sira_es.vocabulary.model import Expansion, Phrase, Term, Verdict

__all__ = ["Expanded"]


@dataclass(frozen=True, slots=True)
class Expanded:
    """An expansion and where it comes from.

    `gathered` is what it was made from, to make it again under other rules. `origin` is `store`, `model` or `recorded`,
    empty where there was no answer; then `skipped` says why none was wanted, or `problem`, in one line, why none came.
    An answer to a query of which the analyzer leaves no word is not used; `skipped` says so.
    """

    expansion: Expansion
    gathered: Gathered
    target: str
    model: str = ""
    origin: str = ""
    problem: str = ""
    skipped: Skip | None = None
    seconds: float = 0.0

    @property
    def terms(self) -> tuple[Term, ...]:
        return self.expansion.terms

    @property
    def bare(self) -> bool:
        """The text goes out alone, without reach."""
        return self.skipped is not None and self.skipped.bare

    @property
    def why_not(self) -> str:
        """Why the query was not expanded, in one line; empty where it was."""
        if self.origin and not self.skipped:
            return self.problem
        return f"not expanded: {self.skipped.reason if self.skipped else self.problem}"

    def to_json(self) -> dict[str, Any]:
        """The document that `sira-es expand --json` prints."""
        e = self.expansion
        skip = {"skipped": {"why": self.skipped.why.value, "reason": self.skipped.reason}} if self.skipped else {}
        return {
            "text": e.text,
            "target": self.target,
            "documents": e.documents,
            "terms": [_term(t) for t in e.terms],
            "phrases": [_phrase(p) for p in e.phrases],
            "scale": round(e.scale, 6),
            "seconds": round(self.seconds, 3),
            "model": self.model or None,
            "from": self.origin or None,
            **({"problem": self.problem} if self.problem else {}),
            **skip,
        }

    def explain(self) -> tuple[str, ...]:
        """One line for each word and each phrase left out: what was said, what the index knows, what came of it."""
        lines = [self.why_not] if self.why_not else []
        lines += [_line(t, self.expansion.documents) for t in self.terms]
        lines += [
            f"'{p.phrase}' (p {p.confidence:.2f}): {p.verdict}, {p.reason}" for p in self.expansion.phrases if p.reason
        ]
        return tuple(lines)


def _line(term: Term, documents: int | None) -> str:
    said = f", said as {', '.join(map(repr, term.phrases))}" if term.phrases else ""
    if term.df is None or documents is None:
        known = "document frequency unknown"
    else:
        known = f"in {'' if term.exact else 'about '}{term.df} of {documents} documents"
    margin = "" if term.margin is None or not math.isfinite(term.margin) else f", margin {term.margin:.2f}"
    weight = f", boost {term.boost:g}" if term.boost else ""
    reason = f" ({_REASONS[term.verdict]})" if term.verdict in _REASONS else ""
    lifted = ", one of your own words, lifted" if term.lifted else ""
    return (
        f"{term.word} [{' '.join(term.tokens)}] (p {term.confidence:.2f}{said}): {known}{margin}:"
        f" {term.verdict.value}{reason}{lifted}{weight}"
    )


_REASONS = {
    Verdict.ABSENT: "no document has it",
    Verdict.COMMON: "too many documents have it",
    Verdict.WEAK: "it says no more of the documents wanted than of any other",
    Verdict.PRESENT: "the query has it",
    Verdict.CAPPED: "beyond the number of words or clauses",
    Verdict.BLOCKED: "a person blocked it",
    Verdict.PINNED: "a person pinned it",
}


def _term(term: Term) -> dict[str, Any]:
    margin = None if term.margin is None or not math.isfinite(term.margin) else round(term.margin, 4)
    return {
        "word": term.word,
        "phrases": list(term.phrases),
        "tokens": list(term.tokens),
        "confidence": term.confidence,
        "df": term.df,
        "exact": term.exact,
        "margin": margin,
        "verdict": term.verdict.value,
        "boost": term.boost,
    }


def _phrase(phrase: Phrase) -> dict[str, Any]:
    return {
        "phrase": phrase.phrase,
        "verdict": phrase.verdict.value if phrase.verdict else None,
        "reason": phrase.reason,
        "for": phrase.stands_for,
    }
