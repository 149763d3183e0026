"""Which spellings of a query are one question to the model: they share one stored answer, and one call.

Only the question to the model is shared. What is searched, analysed and weighed is always the text as it was typed.
"""

from __future__ import annotations

import unicodedata

__all__ = ["question", "tells_case"]


def question(text: str, *, fold: bool) -> str:
    """The text to ask a model about: NFC, controls and white space as single spaces.

    `fold`: the index does not tell capitals from small letters; then a capital that begins a word becomes small, as in
    "Reset password". Capitals elsewhere stay: US and us, IT and it, vitamin A and a vitamin are different questions.
    """
    composed = unicodedata.normalize("NFC", text)
    words = "".join(" " if unicodedata.category(c) == "Cc" else c for c in composed).split()
    return " ".join(w.lower() if fold and _is_capitalised(w) else w for w in words)


def tells_case(text: str) -> bool:
    """Whether a text has a capital that `question` may make small."""
    return any(map(_is_capitalised, text.split()))


def _is_capitalised(word: str) -> bool:
    """One capital, then small letters only, and no digit: not WORD, iPhone, A, C++ or Mp3."""
    letters = [c for c in word if c.isalnum()]
    return len(letters) > 1 and letters[0].isupper() and all(c.islower() for c in letters[1:])
