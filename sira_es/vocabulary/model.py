"""The values that the method passes along: frozen, and without any I/O.

A `Proposal` is what a model said. Cleaning makes a `Phrase` of it. The cluster answers with `Analysis` objects, which
hold `Word`s with their document frequencies. Judging and weighing make `Term`s, and an `Expansion` holds all there is
to know of one query. What is made by the million is a NamedTuple, which takes a third of a dataclass's time to make.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

__all__ = ["Analysis", "Expansion", "Phrase", "Proposal", "Statistics", "Term", "Verdict", "Word", "boosted", "settled"]


class Verdict(StrEnum):
    """Why a word or phrase counts, or does not."""

    KEPT = "kept"
    PINNED = "pinned"
    PRESENT = "present"
    ABSENT = "absent"
    COMMON = "common"
    WEAK = "weak"
    CAPPED = "capped"
    REPEATED = "repeated"
    SCRIPT = "script"
    MALFORMED = "malformed"
    BLOCKED = "blocked"


class Proposal(NamedTuple):
    """One phrase as a model said it, not yet cleaned.

    `confidence` is the model's p, expected in (0, 1], anything in practice. `stands_for` holds the user's own words
    that the phrase may replace (empty: it stands beside them). `own` marks the user's own words of a concept, with
    p = `need`.
    """

    phrase: str
    confidence: float
    stands_for: str = ""
    own: bool = False


class Phrase(NamedTuple):
    """A cleaned phrase. `verdict` is None where the index is still to be asked about it, else `reason` says why not.

    `confidence` lies in (0, 1]; `stands_for` and `own` as in Proposal.
    """

    phrase: str
    confidence: float
    stands_for: str = ""
    own: bool = False
    verdict: Verdict | None = None
    reason: str = ""

    def judged(self, verdict: Verdict, reason: str = "") -> Phrase:
        """The same phrase with a verdict."""
        return Phrase(self.phrase, self.confidence, self.stands_for, self.own, verdict, reason)


class Word(NamedTuple):
    """One word of a text, as the main text field's search analyzer separates it.

    `text` is the surface at its offsets, `tokens` what the analyzer made of it (several over one span: decompounder,
    word delimiter, CJK bigrams, synonyms) and the word's identity. `parts` are those of a compound whose tokens all
    stand at one place, where a phrase would match any of them: a document has such a word if it has all parts. `df` is
    the number of documents with the word in any of the text fields, `enriched_df` those with it in `enriched_terms`;
    None means unknown, never 0. `exact` is False where df is the largest of several fields' figures.
    """

    text: str
    tokens: tuple[str, ...]
    df: int | None
    enriched_df: int | None = None
    exact: bool = True
    parts: tuple[str, ...] = ()


class Analysis(NamedTuple):
    """A text and its words in order; no words where the analyzer leaves nothing of it."""

    text: str
    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the cluster says of a list of texts, in the order asked.

    `documents` is N, the number of documents of the target as this caller sees it; None where it is unknown. `source`
    says where the figures come from: `term_vectors`, `counts` or `none`.
    """

    documents: int | None
    analyses: tuple[Analysis, ...]
    source: str = "term_vectors"


@dataclass(frozen=True, slots=True)
class Term:
    """A word with its verdict and weight.

    `word` is what is sent to the cluster (of a compound its `parts`, see Word), `phrases` the phrases that proposed it,
    the most confident first, and `confidence` that of the first (1 for a word that was only pinned). `idf` is
    ln(1 + (N - df + 0.5) / (df + 0.5)); `margin` is idf * (confidence - df/N), None where df or N is unknown. `boost` is
    0 unless the verdict is kept or pinned, or the word is one of the user's own that is lifted (`present`).
    """

    word: str
    phrases: tuple[str, ...]
    tokens: tuple[str, ...]
    confidence: float
    df: int | None
    exact: bool
    idf: float
    margin: float | None
    verdict: Verdict
    boost: float = 0.0
    lifted: bool = False
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Expansion:
    """Everything known of one query: each proposed word with its verdict and boost, and what became of each phrase.

    `terms` stand in the order in which their clauses are compiled: pinned, kept by falling margin, lifted, then those
    left out. `own` are the distinct words of the query. `allowance` is budget * k/(k + knee) * sum of idf over own
    words: what the kept words may weigh together; `scale` the resulting s, in [0, 1]; `lift` the factor for the user's
    own words.
    """

    text: str
    documents: int | None
    own: tuple[Word, ...] = ()
    terms: tuple[Term, ...] = ()
    phrases: tuple[Phrase, ...] = ()
    allowance: float = 0.0
    scale: float = 0.0
    lift: float = 0.5
    reason: str = field(default="", compare=False)

    @property
    def clauses(self) -> tuple[Term, ...]:
        """The terms that become clauses, in their order."""
        return tuple(t for t in self.terms if t.boost > 0)

    def limited_to(self, kept: int, lifted: int, pinned: int | None = None) -> Expansion:
        """The same with at most so many kept, lifted and pinned words: the last of each become `capped`, boosts follow.

        `pinned` None: all stay. Where no kept word is left, lifted ones go too.
        """
        room = {"kept": kept, "lifted": lifted if kept else 0, "pinned": len(self.terms) if pinned is None else pinned}
        terms = []
        for term in self.terms:
            kind = "lifted" if term.lifted else term.verdict.value
            fits = room.get(kind, 1) > 0
            if kind in room:
                room[kind] -= 1
            terms.append(term if fits else replace(term, boost=0.0, lifted=False, verdict=Verdict.CAPPED))
        weighed, scale = boosted(tuple(terms), self.allowance, self.lift)
        return replace(self, terms=weighed, phrases=settled(self.phrases, weighed), scale=scale)


def boosted(terms: tuple[Term, ...], allowance: float, lift: float) -> tuple[tuple[Term, ...], float]:
    """Give kept and lifted terms their boosts under the allowance; the others keep theirs (a pin) or have none.

    s = min(1, allowance / sum of p * idf over kept words); boost p * s for a kept word, lift * p * s for a lifted one,
    rounded to 4 decimals. Without a kept word nothing is lifted and s is 0.
    """
    weight = sum(t.confidence * t.idf for t in terms if t.verdict is Verdict.KEPT)
    scale = min(1.0, allowance / weight) if weight > 0 else 0.0

    def weigh(term: Term) -> Term:
        if term.verdict is Verdict.KEPT:
            return replace(term, boost=round(term.confidence * scale, 4))
        if term.lifted:
            boost = round(lift * term.confidence * scale, 4)
            return replace(term, boost=boost, lifted=boost > 0)
        return term

    return tuple(weigh(t) for t in terms), scale


_OF_WORDS = (
    Verdict.PINNED,
    Verdict.KEPT,
    Verdict.PRESENT,
    Verdict.CAPPED,
    Verdict.WEAK,
    Verdict.COMMON,
    Verdict.ABSENT,
    Verdict.MALFORMED,
    Verdict.BLOCKED,
)


def settled(phrases: tuple[Phrase, ...], terms: tuple[Term, ...]) -> tuple[Phrase, ...]:
    """Give phrases that cleaning and people left open the first verdict of `_OF_WORDS` that one of their words has."""
    found: dict[str, list[Verdict]] = {}
    for term in terms:
        for phrase in term.phrases:
            found.setdefault(phrase, []).append(term.verdict)
    final = {Verdict.BLOCKED, Verdict.MALFORMED, Verdict.SCRIPT, Verdict.REPEATED}
    return tuple(
        p.judged(min(found[p.phrase], key=_OF_WORDS.index), p.reason)
        if p.verdict not in final and p.phrase in found
        else p
        for p in phrases
    )
