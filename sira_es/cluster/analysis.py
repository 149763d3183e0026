"""Token streams become words: pure functions over what the cluster's analyzers made of a text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["MAX_UNITS", "RawWord", "Token", "plain_words", "sendable", "split", "tokens_of"]

MAX_UNITS = 10_000
"""How much of a text is analysed, in UTF-16 code units: at most 30,000 bytes, what a keyword sub-field still takes."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_EDGES = re.compile(r"^[^\w]+|[^\w]+$")


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an analyzer. `start` and `end` are offsets into the text in UTF-16 code units."""

    text: str
    position: int
    start: int
    end: int


class RawWord(NamedTuple):
    """A word of a text, without figures.

    `tokens` are those of the main field's search analyzer, `others` those that each further analyzer makes of the same
    span; None where its tokens overlap the span without lying in it, so that they say nothing about this word. `parts`
    are the parts of a compound whose tokens all stand at one place: no phrase query tells "all" of them from "any".
    """

    text: str
    tokens: tuple[str, ...]
    others: tuple[tuple[str, ...] | None, ...] = ()
    parts: tuple[str, ...] = ()


def sendable(text: str) -> str:
    """The text as it may be sent: lone surrogates become spaces (of the same length), what is beyond MAX_UNITS goes."""
    if text.isascii():
        return text[:MAX_UNITS]
    units = text.encode("utf-16-le", "surrogatepass")[: 2 * MAX_UNITS]
    return _SURROGATE.sub(" ", units.decode("utf-16-le", "surrogatepass"))


def tokens_of(vector: Mapping[str, Any]) -> list[Token]:
    """The tokens of one field of a term vectors answer, in the order of the text; equal ones at one place once.

    Raises KeyError, TypeError or the like where the answer has another form.
    """
    found = {
        Token(str(term), int(t["position"]), int(t["start_offset"]), int(t["end_offset"]))
        for term, entry in vector["terms"].items()
        for t in entry["tokens"]
    }
    return sorted(found, key=lambda t: (t.position, t.start, t.end, t.text))


def split(text: str, main: Sequence[Token], others: Sequence[Sequence[Token]] = ()) -> tuple[RawWord, ...]:
    """The words of a text, as the main analyzer separates them by offsets.

    Tokens over one or over overlapping spans are one word (decompounders, delimiters, bigrams, synonyms), and so are
    characters of East Asia that an analyzer takes one by one. A token that covers nothing of the text belongs to no word.
    """
    units = text.encode("utf-16-le")
    words = []
    for group in _groups(main):
        start, end = min(t.start for t in group), max(t.end for t in group)
        surface = units[2 * start : 2 * end].decode("utf-16-le", "ignore").strip()
        if surface:
            tokens = tuple(t.text for t in sorted(group, key=lambda t: (t.position, t.start, t.end, t.text)))
            parts = _parts(surface, group)
            words.append(RawWord(surface, tokens, tuple(_within(o, start, end) for o in others), parts))
    return tuple(words)


def plain_words(text: str) -> tuple[RawWord, ...]:
    """The words of a text that no analyzer could be asked about: by white space; the case-folded word is the token."""
    stripped = (_EDGES.sub("", w) for w in text.split())
    return tuple(RawWord(w, (w.casefold(),)) for w in stripped if w)


def _groups(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    group: list[Token] = []
    end = 0
    for token in sorted(tokens, key=lambda t: (t.start, t.end)):
        if token.end <= token.start:
            continue
        if group and token.start >= end and not (token.start == end and _alone(group[-1]) and _alone(token)):
            yield group
            group = []
        end = max(end, token.end) if group else token.end
        group.append(token)
    if group:
        yield group


def _alone(token: Token) -> bool:
    """One character of a script that puts no spaces between words."""
    return len(token.text) == 1 and token.text >= "\u2e80"


def _parts(surface: str, group: Sequence[Token]) -> tuple[str, ...]:
    """What a decompounder has made of a word: tokens at the one place of the word, two or more of them pieces of it."""
    if len({(t.position, t.start, t.end) for t in group}) > 1:
        return ()
    whole = surface.casefold()
    pieces = [t.text for t in group if 1 < len(t.text) < len(whole) and t.text in whole]
    return tuple(sorted(pieces, key=whole.index)) if len(pieces) > 1 else ()


def _within(tokens: Sequence[Token], start: int, end: int) -> tuple[str, ...] | None:
    overlapping = [t for t in tokens if t.start < end and t.end > start]
    if any(t.start < start or t.end > end for t in overlapping):
        return None
    return tuple(t.text for t in overlapping)
