"""What a model is shown of a document: markup off, unreadable values left out, a long text in parts."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

__all__ = ["DEFAULT_CHUNK_TOKENS", "MOST_PARTS", "Reading", "read"]

DEFAULT_CHUNK_TOKENS = 4000
MOST_PARTS = 16
BYTES_A_TOKEN = 4
HEAD_SHARE = 20  # a value of at most a twentieth of a part (a title) stands in every part

_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)(?:\s[^<>]*|/)?>")
_BLOCKS = frozenset(
    {"p", "div", "br", "li", "ul", "ol", "tr", "td", "th", "table", "h1", "h2", "h3", "h4", "h5", "h6", "html", "head", "body",
     "section", "article", "pre"}
)  # fmt: skip
_INLINE = frozenset(
    {"a", "b", "i", "u", "em", "strong", "span", "code", "sub", "sup", "script", "style", "title", "img"}
)
_KNOWN = _BLOCKS | _INLINE
_HIDDEN = frozenset({"script", "style"})
_SHORTEST_ENCODED = 400
_ENCODED = re.compile(rf"[A-Za-z0-9+/=_-]{{{_SHORTEST_ENCODED},}}")
_ODD = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ufffd-\uffff\ue000-\uf8ff]")  # control, replacement, private use
_PLAIN_ASCII = bytes(c for c in range(0x7F) if not _ODD.match(chr(c)))
_ORDERS = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b[^.\n]{0,40}\b(?:above|previous|prior|preceding|earlier|instructions?)\b"
    r"|\b(?:system prompt|you are now|new instructions?:|respond only with|output only|answer only with)\b"
)
_HINTS = (
    "ignore", "disregard", "forget", "override", "system prompt", "you are now", "new instruction", "respond only with",
    "output only", "answer only with",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reading:
    """A document as a model reads it: `parts` are prompts' worth of its fields, none where there is nothing to read.

    `texts` are the readable values of the searched fields, `coverage` is the share of the characters that stands in
    the parts, in [0, 1]. `reason` says why there is nothing ("no text", "binary"). `gives_orders`: the text talks to
    language models ("ignore the above ...").
    """

    parts: tuple[Mapping[str, tuple[str, ...]], ...]
    texts: tuple[str, ...]
    coverage: float = 1.0
    reason: str = ""
    gives_orders: bool = False


def read(
    values: Mapping[str, Sequence[str]], *, chunk_tokens: int = DEFAULT_CHUNK_TOKENS, unsearched: int = 0
) -> Reading:
    """Make a reading of the values of each field. The last `unsearched` fields are read, but not searched.

    A document of more than `chunk_tokens` (4 bytes each) is cut into parts at ends of paragraphs, sentences or words,
    at most `MOST_PARTS`; short values, such as a title, stand in each.
    """
    readable: dict[str, tuple[str, ...]] = {}
    binary = False
    for name, held in values.items():
        texts = [text for value in held if (text := _plain(value)) and not text.isspace()]
        kept = [text for text in texts if not _is_binary(text)]
        binary = binary or len(kept) < len(texts)
        readable[name] = tuple(kept)
    if not any(readable.values()):
        return Reading((), (), reason="binary" if binary else "no text")
    searched = tuple(chain.from_iterable(list(readable.values())[: len(readable) - unsearched]))
    parts, coverage = _parts(readable, chunk_tokens * BYTES_A_TOKEN)
    orders = _gives_orders("\n".join(chain.from_iterable(readable.values())))
    return Reading(parts, searched, coverage, gives_orders=orders)


def _plain(text: str) -> str:
    """A text without its markup, where it is HTML: known tags, in pairs. `List<String>` is none."""
    if "<" not in text or "</" not in text:  # one character is found ten times as fast
        return text
    tags = [t for t in _TAG.finditer(text) if t[2].lower() in _KNOWN]
    if len(tags) < 2 or not any(t[1] for t in tags):
        return text
    pieces, position, hidden = [], 0, ""
    for tag in tags:
        name = tag[2].lower()
        if not hidden:
            pieces.append(text[position : tag.start()])
            pieces.append("\n" if name in _BLOCKS | _HIDDEN else "")
        position = tag.end()
        if name in _HIDDEN and not hidden and not tag[1]:
            hidden = name
        elif tag[1] and name == hidden:
            hidden = ""
    if not hidden:
        pieces.append(text[position:])
    return html.unescape("".join(pieces))


def _is_binary(text: str) -> bool:
    """Mostly what nobody reads: control and replacement characters, or unbroken runs such as base64."""
    sample = text[:10_000]
    odd = len(sample.encode().translate(None, _PLAIN_ASCII)) if sample.isascii() else len(_ODD.findall(sample))
    half = _SHORTEST_ENCODED // 2  # a run of twice the length covers one of these blocks
    unbroken = any(" " not in sample[at : at + half] for at in range(0, len(sample) - half + 1, half))
    encoded = sum(len(run[0]) for run in _ENCODED.finditer(sample)) if unbroken else 0
    return odd > len(sample) / 10 or encoded > len(sample) / 2


def _gives_orders(text: str) -> bool:
    lowered = text.casefold()
    return any(map(lowered.__contains__, _HINTS)) and _ORDERS.search(lowered) is not None


def _parts(values: Mapping[str, tuple[str, ...]], room: int) -> tuple[tuple[Mapping[str, tuple[str, ...]], ...], float]:
    if sum([_size(v) for vs in values.values() for v in vs]) <= room:
        return (values,), 1.0
    head: dict[str, tuple[str, ...]] = dict.fromkeys(values, ())
    body: list[tuple[str, str]] = []
    taken = 0
    for name, vs in values.items():
        for v in vs:
            if _size(v) <= room // HEAD_SHARE and taken + _size(v) <= room // 4:
                head[name] += (v,)
                taken += _size(v)
            else:
                body.append((name, v))
    packed = list(_packed(body, room - taken))
    parts = tuple({n: head[n] + tuple(v for m, v in part if m == n) for n in values} for part in packed[:MOST_PARTS])
    total = sum(len(v) for part in packed for _, v in part)
    shown = sum(len(v) for part in packed[:MOST_PARTS] for _, v in part)
    return parts, shown / total if total else 1.0


def _packed(body: Sequence[tuple[str, str]], room: int) -> Iterator[list[tuple[str, str]]]:
    """Values and pieces of values, as many together as have room."""
    part: list[tuple[str, str]] = []
    left = room
    for name, value in body:
        for piece in _pieces(value, room):
            if part and _size(piece) > left:
                yield part
                part, left = [], room
            part.append((name, piece))
            left -= _size(piece)
    if part:
        yield part


def _pieces(text: str, room: int) -> Iterator[str]:
    """A text in pieces of at most about `room` bytes, cut where something ends."""
    most = max(1, room * len(text) // max(1, _size(text)))
    at = 0
    while at < len(text):
        end = min(at + most, len(text))
        if end < len(text):
            cuts = (text.rfind(mark, at + most * 4 // 5, end) for mark in ("\n\n", "\n", ". ", "。", " "))
            end = next((cut + 1 for cut in cuts if cut > at), end)
        yield text[at:end]
        at = end


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
