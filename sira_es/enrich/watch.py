"""Words that turn up in the kept terms of too many documents: an artefact of the prompt, or planted in the texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from sira_es.vocabulary import Analysis
from sira_es.vocabulary.clean import match_key

__all__ = ["Watch"]

FEWEST_DOCUMENTS = 200
MOST_OF_A_PHRASE = 0.2
MOST_OF_A_WORD = 0.5
OFTEN_ENOUGH = 10
RARE = 0.01  # a share in the texts that explains nothing
MOST_COUNTED = 20_000
MORE = 1.05  # times as many documents: worth another look


class Watch:
    """Counts, in a bounded number of entries, in how many documents a word or phrase is kept, and holds the excess back.

    From `FEWEST_DOCUMENTS` on, a phrase is held back that a fifth of the documents have, and every phrase with a word
    that half of them have; but not where the texts themselves have it a tenth as often: that is what they are about.
    (Measured on two collections with good answers: at most .10 for a phrase, .31 for a word.)
    """

    def __init__(
        self,
        counts: Mapping[str, int] | None = None,
        *,
        allowed: frozenset[str] = frozenset(),
        counting: bool = True,
    ) -> None:
        """`counts` are those of earlier runs, as `counts` returned them. `allowed` words are never held back.

        Without `counting` it goes by the earlier runs alone: documents are judged that were counted before.
        """
        self._counts = Counter(dict(counts or {}))
        self._documents = self._counts.pop("", 0)
        self._allowed = {match_key(a) for a in allowed}
        self._counting = counting
        self._in_texts: dict[str, float] = {}
        self._held: frozenset[str] = frozenset()
        self._looked_at = 0
        self.look()

    @property
    def held(self) -> dict[str, float]:
        """What is held back, with the share of the documents that have it."""
        return {key.lstrip("="): self._counts[key] / self._documents for key in sorted(self._held)}

    @property
    def is_holding(self) -> bool:
        """Whether anything is held back."""
        return bool(self._held)

    @property
    def counts(self) -> dict[str, int]:
        """What a later run needs to go on: the most frequent entries, and under "" the number of documents."""
        foreign = ((key, n) for key, n in self._counts.most_common(1000) if not self._is_of_the_texts(key))
        return {**dict(foreign), "": self._documents}

    def learn(self, analyses: Iterable[Analysis], documents: int) -> None:
        """Take in how common the words of phrases are in the texts of an index of so many documents.

        What is held back and turns out to be what they are about is let through at once.
        """
        least = RARE * documents
        for analysis in analyses:
            often = {match_key(w.text): w.df / documents for w in analysis.words if w.df is not None and w.df > least}
            if often:
                self._in_texts.update(often)
                if all(match_key(word.text) in often for word in analysis.words):
                    self._in_texts[f"={match_key(analysis.text)}"] = min(often.values())
        if len(self._in_texts) > 2 * MOST_COUNTED:
            self._in_texts = {key: share for key, share in self._in_texts.items() if key in self._counts}
        if self._held:
            self._held = frozenset([key for key in self._held if not self._is_of_the_texts(key)])

    def note(self, page: Sequence[Sequence[str]]) -> None:
        """Count the kept phrases, which are clean, of a page of documents."""
        if not self._counting:
            return
        entries: list[str] = []
        for phrases in page:
            keys = [phrase.casefold() for phrase in phrases]
            entries += {f"={key}" for key in keys}.union(" ".join(keys).split())
        self._counts.update(entries)
        self._documents += len(page)
        if len(self._counts) > MOST_COUNTED:
            self._counts = Counter(dict(self._counts.most_common(MOST_COUNTED // 2)))

    def look(self) -> None:
        """Find out what is in too many documents by now; until the next look that is what `holds` goes by.

        Where there are hardly more documents than at the last look, that stands.
        """
        if self._documents < max(FEWEST_DOCUMENTS, self._looked_at * MORE):
            return
        self._looked_at = self._documents
        often = MOST_OF_A_PHRASE * self._documents
        self._held = frozenset([key for key, n in self._counts.items() if n > often and self._is_held(key)])

    def holds(self, phrase: str) -> bool:
        """Whether a phrase, or a word in it, is in too many documents."""
        if not self._held:
            return False
        key = match_key(phrase)
        return key not in self._allowed and not self._held.isdisjoint((f"={key}", *key.split()))

    def _is_held(self, key: str) -> bool:
        often = self._counts[key] > (MOST_OF_A_PHRASE if key.startswith("=") else MOST_OF_A_WORD) * self._documents
        return often and key.lstrip("=") not in self._allowed and not self._is_of_the_texts(key)

    def _is_of_the_texts(self, key: str) -> bool:
        return self._in_texts.get(key, 0.0) * OFTEN_ENOUGH * self._documents >= max(1, self._counts[key])
