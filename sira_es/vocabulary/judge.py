"""What the index's own statistics, and people, make of proposed phrases: one verdict a word and a phrase.

The retrieval margin of a word is how much it is expected to lift a document that answers the query above a random one:

    idf(t)    = ln(1 + (N - df + 0.5) / (df + 0.5))        (Lucene's BM25)
    margin(t) = idf(t) * (p(t) - df(t)/N)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sira_es.errors import InputError
from sira_es.vocabulary.clean import match_key, normalise
from sira_es.vocabulary.model import Phrase, Statistics, Term, Verdict, Word, settled

__all__ = ["HumanTerms", "Rules", "idf", "judge_document", "judge_query", "share"]

_UNKNOWN_IDF = 4.6  # about ln 100: the idf at df = N/100


@dataclass(frozen=True, slots=True)
class Rules:
    """The numbers of the method.

    `budget` and `knee` bound what expansions may weigh: budget * k/(k + knee) of what k own words weigh. `lift` weighs
    own words that the model names. At most `max_terms` words are kept; none with df/N above `max_df`, or with a margin
    not above `min_margin`.
    """

    budget: float = 1.2
    knee: float = 5.0
    lift: float = 0.5
    max_terms: int = 16
    min_margin: float = 0.0
    max_df: float = 0.5


@dataclass(frozen=True, slots=True)
class HumanTerms:
    """What people said of one index; case does not count.

    `block` and `allow` hold words and phrases for every query and document. `pins` holds, for a query, words with the
    boost that each gets there. Raises InputError for a boost that is not a finite number above 0.
    """

    block: frozenset[str] = frozenset()
    allow: frozenset[str] = frozenset()
    pins: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        pins: dict[str, tuple[tuple[str, float], ...]] = {}
        for query, words in self.pins.items():
            for word, boost in words:
                if not (math.isfinite(boost) and boost > 0):
                    raise InputError(f"pin '{word}' of query '{query}' has boost {boost}; give it a number above 0")
            key = normalise(query).casefold()
            pins[key] = pins.get(key, ()) + tuple(words)
        object.__setattr__(self, "pins", pins)
        object.__setattr__(self, "block", frozenset(map(match_key, self.block)) - {""})
        object.__setattr__(self, "allow", frozenset(map(match_key, self.allow)) - {""})

    def pins_of(self, text: str) -> tuple[tuple[str, float], ...]:
        """The words pinned for a query, with their boosts."""
        return self.pins.get(normalise(text).casefold(), ())


@dataclass(slots=True)
class _Candidate:
    """One word, by its tokens: as first met, with its pinned boost (0: none) and where the answer's phrases have it."""

    word: Word
    pin: float = 0.0
    free: list[tuple[Phrase, Word]] = field(default_factory=list)
    barred: list[tuple[Phrase, Word]] = field(default_factory=list)  # in phrases that are blocked

    @property
    def keys(self) -> frozenset[str]:
        """What `block` and `allow` may call this word."""
        return frozenset(match_key(w.text) for w in [self.word, *(w for _, w in self.free + self.barred)])


def idf(df: int | None, documents: int | None) -> float:
    """Lucene's BM25 idf, always above 0; for an unknown df that of df = N/100."""
    if documents is None:
        return _UNKNOWN_IDF
    frequency = documents / 100 if df is None else min(df, documents)
    return math.log(1 + (documents - frequency + 0.5) / (frequency + 0.5))


def share(df: int | None, documents: int | None) -> float | None:
    """df/N, in [0, 1]; None where either is unknown."""
    if df is None or documents is None:
        return None
    if documents <= 0:
        return 0.0
    return df / documents if df < documents else 1.0


def judge_query(
    phrases: Sequence[Phrase], statistics: Statistics, *, rules: Rules, human: HumanTerms
) -> tuple[tuple[Word, ...], tuple[Term, ...], tuple[Phrase, ...]]:
    """Judge what was proposed for a query: its distinct own words, a term for each proposed word, the judged phrases.

    `statistics` holds the query first, then the phrases without a verdict in their order, then the pinned words (a pin
    that was not asked about stands as it is written). The terms have the order of `Expansion.terms`; boosts are those
    of the pins, and `lifted` marks what may be lifted. Raises ValueError where the analyses do not fit the phrases.
    """
    query, *rest = statistics.analyses
    own = _distinct(query.words)
    own_tokens = {token for word in own for token in word.tokens}
    words = {analysis.text: analysis.words for analysis in rest}
    candidates: dict[tuple[str, ...], _Candidate] = {}
    for text, boost in human.pins_of(query.text):
        unasked = (Word(text, tuple(match_key(text).split()), None),)
        for word in words.get(text, unasked) or (Word(text, (), None),):
            candidate = candidates.setdefault(word.tokens, _Candidate(word))
            candidate.pin = candidate.pin or boost
    asked = [p for p in phrases if p.verdict is None]
    for phrase, analysis in zip(asked, rest[: len(asked)], strict=True):
        blocked = match_key(phrase.phrase) in human.block
        for word in _distinct(analysis.words):
            candidate = candidates.setdefault(word.tokens, _Candidate(word))
            (candidate.barred if blocked else candidate.free).append((phrase, word))
    terms = [_term(c, own_tokens, statistics.documents, rules, human) for c in candidates.values()]
    ordered = _ordered(terms, rules.max_terms)
    judged = settled(tuple(_unless_blocked(p, human) for p in phrases), ordered)
    return own, ordered, tuple(p.judged(*_WITHOUT_TOKENS) if p.verdict is None else p for p in judged)


def judge_document(
    phrases: Sequence[Phrase], statistics: Statistics | None, *, rules: Rules, human: HumanTerms
) -> tuple[Phrase, ...]:
    """Judge what was proposed for a document; the kept phrases are what is written.

    `statistics` holds the phrases without a verdict in their order. None: the index has no say (questions), only people
    have. Raises ValueError where the analyses do not fit the phrases.
    """
    judged = [_unless_blocked(p, human) for p in phrases] if human.block else list(phrases)
    places = [i for i, p in enumerate(phrases) if p.verdict is None]
    words: list[tuple[Word, ...] | None] = [None] * len(places)
    if statistics is not None:
        words = [a.words for a in statistics.analyses]
    documents = statistics.documents if statistics else None
    seen: dict[tuple[str, ...], Phrase] = {}
    # The most confident first; of equals the first.
    for _, i, own in sorted(zip([-phrases[i].confidence for i in places], places, words, strict=True)):
        phrase = judged[i]
        if phrase.verdict is not None:
            continue
        verdict, reason = _in_document(phrase, own, documents, rules, human)
        if verdict is Verdict.KEPT:
            tokens = tuple([token for word in own or () for token in word.tokens]) or (phrase.phrase,)
            first = seen.setdefault(tokens, phrase)
            if first is not phrase:
                verdict, reason = Verdict.REPEATED, f"the same tokens as '{first.phrase}'"
        judged[i] = phrase.judged(verdict, reason)
    return tuple(judged)


def _distinct(words: Iterable[Word]) -> tuple[Word, ...]:
    """The words with different tokens, each as it is met first."""
    first: dict[tuple[str, ...], Word] = {}
    for word in words:
        first.setdefault(word.tokens, word)
    return tuple(first.values())


def _unless_blocked(phrase: Phrase, human: HumanTerms) -> Phrase:
    if not human.block or match_key(phrase.phrase) not in human.block:
        return phrase
    return phrase.judged(Verdict.BLOCKED, "a person blocked it")


_WITHOUT_TOKENS = (Verdict.MALFORMED, "the index's analyzer leaves nothing of it")


def _in_document(
    phrase: Phrase, words: tuple[Word, ...] | None, documents: int | None, rules: Rules, human: HumanTerms
) -> tuple[Verdict, str]:
    """What becomes of a phrase, and why not."""
    allowed = False
    if human.block or human.allow:
        surfaces = phrase.phrase.split() if words is None else [w.text for w in words]
        keys = {match_key(phrase.phrase), *map(match_key, surfaces)}
        if keys & human.block:
            return Verdict.BLOCKED, "a person blocked a word of it"
        allowed = not keys.isdisjoint(human.allow)
    if words is None:
        return Verdict.KEPT, ""
    if not words:
        return _WITHOUT_TOKENS
    if not allowed and _is_common(words, documents, rules.max_df):
        return Verdict.COMMON, "even its rarest word is in too many documents"
    return Verdict.KEPT, ""


def _is_common(words: Iterable[Word], documents: int | None, max_df: float) -> bool:
    """Whether even the rarest of some words is in more than this share of the documents; one of unknown df may not be."""
    for word in words:
        part = share(word.df, documents)
        if part is None or part <= max_df:
            return False
    return True


def _term(candidate: _Candidate, own_tokens: set[str], documents: int | None, rules: Rules, human: HumanTerms) -> Term:
    places = candidate.free or ([] if candidate.pin else candidate.barred)
    found = sorted(places, key=lambda place: -place[0].confidence)
    confidence, word = (found[0][0].confidence, found[0][1]) if found else (1.0, candidate.word)
    part = share(word.df, documents)
    weight = idf(word.df, documents)
    term = Term(
        word=word.text,
        phrases=tuple(phrase.phrase for phrase, _ in found),
        tokens=word.tokens,
        confidence=confidence,
        df=word.df if word.df is None or documents is None else min(word.df, documents),
        exact=word.exact,
        idf=weight,
        margin=None if part is None else weight * (confidence - part),
        verdict=Verdict.KEPT,
        parts=word.parts,
    )
    if candidate.keys & human.block or not (candidate.free or candidate.pin):
        return replace(term, verdict=Verdict.BLOCKED)
    if not word.tokens:
        return replace(term, verdict=Verdict.MALFORMED)
    if candidate.pin:
        return replace(term, verdict=Verdict.PINNED, boost=round(candidate.pin, 4))
    allowed = bool((candidate.keys | {match_key(phrase) for phrase in term.phrases}) & human.allow)
    verdict = _verdict_of_index(term, word.enriched_df, part, allowed, rules)
    if own_tokens.issuperset(word.tokens):
        return replace(term, verdict=Verdict.PRESENT, lifted=verdict is Verdict.KEPT)
    return replace(term, verdict=verdict)


def _verdict_of_index(term: Term, enriched_df: int | None, part: float | None, allowed: bool, rules: Rules) -> Verdict:
    if term.df == 0 and enriched_df == 0:
        return Verdict.ABSENT
    if allowed or part is None or term.margin is None:
        return Verdict.KEPT
    if part > rules.max_df:
        return Verdict.COMMON
    return Verdict.KEPT if term.margin > rules.min_margin else Verdict.WEAK


def _ordered(terms: Sequence[Term], max_terms: int) -> tuple[Term, ...]:
    """The terms in the order of their clauses: kept words beyond `max_terms` capped, none lifted without a kept one.

    A word of unknown df stands by idf * p.
    """
    kept = [t for t in terms if t.verdict is Verdict.KEPT]
    kept.sort(key=lambda t: -(t.idf * t.confidence if t.margin is None else t.margin))
    capped = {t.tokens for t in kept[max_terms:]}
    kept = kept[:max_terms]
    lifted = [t for t in terms if t.lifted and kept]
    pinned = [t for t in terms if t.verdict is Verdict.PINNED]
    counted = {t.tokens for t in [*pinned, *kept, *lifted]}
    rest = [
        replace(t, lifted=False, verdict=Verdict.CAPPED if t.tokens in capped else t.verdict)
        for t in terms
        if t.tokens not in counted
    ]
    return (*pinned, *kept, *lifted, *rest)
