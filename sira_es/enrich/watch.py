"""Words that turn up in the kept terms of too many documents: an artefact of the prompt, or planted in the texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from sira_es.vocabulary.clean import match_key

__all__ = ["Watch"]

FEWEST_DOCUMENTS = 200
MOST_OF_A_PHRASE = 0.2
MOST_OF_A_WORD = 0.5
MOST_COUNTED = 20_000


class Watch:
    """Counts, in a bounded number of entries, in how many documents a word or phrase is kept, and holds the excess back.

    From `FEWEST_DOCUMENTS` on, a phrase is held back that a fifth of the documents have, and every phrase with a word
    that half of them have. (Measured on two collections with good answers: at most .10 for a phrase, .31 for a word.)
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

    @property
    def held(self) -> dict[str, float]:
        """What is held back, with the share of the documents that have it."""
        if self._documents < FEWEST_DOCUMENTS:
            return {}
        shares = ((key, count / self._documents) for key, count in self._counts.most_common(100))
        return {key.lstrip("="): share for key, share in shares if share > self._most(key) and self._may_hold(key)}

    @property
    def counts(self) -> dict[str, int]:
        """What a later run needs to go on: the most frequent entries, and under "" the number of documents."""
        return {**dict(self._counts.most_common(1000)), "": self._documents}

    def note(self, phrases: Sequence[str]) -> None:
        """Count the kept phrases of one document."""
        if not self._counting:
            return
        keys = [match_key(p) for p in phrases]
        self._counts.update({f"={key}" for key in keys} | {word for key in keys for word in key.split()})
        self._documents += 1
        if len(self._counts) > MOST_COUNTED:
            self._counts = Counter(dict(self._counts.most_common(MOST_COUNTED // 2)))

    def holds(self, phrase: str) -> bool:
        """Whether a phrase, or a word in it, is in too many documents."""
        if self._documents < FEWEST_DOCUMENTS:
            return False
        key = match_key(phrase)
        return any(self._is_held(k) for k in (f"={key}", *key.split())) and key not in self._allowed

    def _is_held(self, key: str) -> bool:
        return self._counts[key] > self._most(key) * self._documents and self._may_hold(key)

    def _may_hold(self, key: str) -> bool:
        return key.lstrip("=") not in self._allowed

    @staticmethod
    def _most(key: str) -> float:
        return MOST_OF_A_PHRASE if key.startswith("=") else MOST_OF_A_WORD
