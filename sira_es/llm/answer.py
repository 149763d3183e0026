"""An answer of a model, read as proposals: strictly where it is what was asked for, else what can be salvaged of it.

Shapes that are understood:

    documents   {"terms": [...], "questions": [...]} or a bare list
    queries     {"concepts": [{"words", "need", "same": [...]}], "also": [...]}, {"terms": [...]} or a bare list
    items       "phrase", ["phrase", p] or {"phrase": ..., "weight": ...}

An answer may stand in a code fence or between prose, or be cut off. It is data from outside: everything is counted and
cut, wrong types are skipped, and nothing but ModelError is ever raised.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Literal

import json_repair
import orjson

from sira_es.errors import ModelError
from sira_es.vocabulary.model import Proposal

__all__ = ["collection_description", "document_proposals", "document_questions", "is_usable", "query_proposals"]

MOST_ITEMS = 200
"""Phrases read of one answer."""

MOST_CHARACTERS = 50_000
"""Characters read of one answer."""

MOST_OPENINGS = 100
"""Brackets at which prose is tried for JSON."""

MOST_REPAIRS = 3
REPAIRED_CHARACTERS = 2000
REPAIRED_DEPTH = 20
PHRASE_CHARACTERS = 500
NO_CONFIDENCE = 0.5
"""The p of a phrase that a model gave without one."""

STRING = r'"(?:[^"\\]|\\.)*("?)'
KEYS = {"document": ("terms", "questions"), "query": ("concepts", "also", "terms")}
PHRASE_KEYS = ("phrase", "term", "word", "text")
WEIGHT_KEYS = ("weight", "p", "confidence", "score")

Kind = Literal["document", "query"]


def document_proposals(answer: str) -> tuple[Proposal, ...]:
    """The phrases a document lacks, in the order given; p = 1 where none is. Raises ModelError if nothing is usable."""
    return tuple(_items(_read(answer, "document").get("terms"), 1.0))[:MOST_ITEMS]


def document_questions(answer: str) -> tuple[Proposal, ...]:
    """The short questions that a document answers; none where none were asked for. Raises ModelError as above."""
    return tuple(_items(_read(answer, "document").get("questions"), 1.0))[:MOST_ITEMS]


def query_proposals(answer: str) -> tuple[Proposal, ...]:
    """The vocabulary proposed for a query: concept by concept its own words, then what stands for them; then the rest.

    p is NaN where a model gave something that is no number. Raises ModelError if nothing is usable.
    """
    return tuple(_query_items(_read(answer, "query")))[:MOST_ITEMS]


def collection_description(answer: str) -> str:
    """The one-line description of a collection. Raises ModelError if there is none."""
    for value in _embedded(answer[:MOST_CHARACTERS]):
        found = value.get("description") if isinstance(value, dict) else None
        if isinstance(found, str) and found.strip():
            return " ".join(found.split())[:300].rstrip(".")
    raise ModelError("the model's answer holds no description; write one yourself", reason="unusable answer")


def is_usable(answer: str, kind: Kind) -> bool:
    """Whether an answer can be read, be it as an empty list."""
    try:
        _read(answer, kind)
    except ModelError:
        return False
    return True


def _query_items(content: dict[str, Any]) -> Iterator[Proposal]:
    for concept in _list(content.get("concepts")):
        if not isinstance(concept, dict):
            continue
        words = concept.get("words")
        words = _phrase(" ".join(w for w in words if isinstance(w, str)) if isinstance(words, list) else words)
        if words:
            yield Proposal(words, _number(concept.get("need", NO_CONFIDENCE)), own=True)
        yield from _items(concept.get("same"), NO_CONFIDENCE, stands_for=words)
    for name in ("also", "terms"):
        yield from _items(content.get(name), NO_CONFIDENCE)


def _items(items: Any, default: float, stands_for: str = "") -> Iterator[Proposal]:
    for item in _list(items):
        phrase, weight = item, default
        if isinstance(item, list) and item:
            phrase, weight = item[0], item[1] if len(item) > 1 else default
        elif isinstance(item, dict):
            phrase = next((item[k] for k in PHRASE_KEYS if k in item), None)
            weight = next((item[k] for k in WEIGHT_KEYS if k in item), default)
        if cut := _phrase(phrase):
            yield Proposal(cut, default if weight is default else _number(weight), stands_for)


def _list(value: Any) -> list[Any]:
    return value[:MOST_ITEMS] if isinstance(value, list) else []


def _phrase(value: Any) -> str:
    """A phrase of bearable length, or "" for anything but text. Halves of surrogate pairs become question marks."""
    if not isinstance(value, str):
        return ""
    cut = value[:PHRASE_CHARACTERS]
    return (cut if cut.isascii() else cut.encode("utf-8", "replace").decode()).strip()


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return math.nan
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def _read(answer: str, kind: Kind) -> dict[str, Any]:
    """The best reading of an answer: an object with at least one of the keys of its kind. Raises ModelError."""
    answer = answer[:MOST_CHARACTERS]
    try:
        content = _shaped(orjson.loads(answer), kind)
    except ValueError:
        content = None
    if content is None:
        found = [shaped for value in _embedded(answer) if (shaped := _shaped(value, kind)) is not None]
        content = max(reversed(found), key=_size, default=None)  # of equals the last: drafts come first
    if content is None:
        raise ModelError("the model's answer holds no list of terms; try another model", reason="unusable answer")
    return content


def _shaped(value: Any, kind: Kind) -> dict[str, Any] | None:
    """The value as an object with known keys; None if it is something else."""
    if (
        isinstance(value, list)
        and len(value) == 1
        and isinstance(value[0], dict)
        and any(k in value[0] for k in KEYS[kind])
    ):
        value = value[0]
    if isinstance(value, list) and (not value or next(_items(value, 1.0), None)):
        return {"terms": value}
    if isinstance(value, dict) and any(isinstance(value.get(key), list) for key in KEYS[kind]):
        return value
    return None


def _size(content: dict[str, Any]) -> int:
    return sum(1 for _ in _query_items(content)) + len(_list(content.get("questions")))


def _embedded(answer: str) -> Iterator[Any]:
    """Every JSON array or object in the text: whole ones, and what the first broken ones become when repaired."""
    decoder = json.JSONDecoder()
    position = repairs = 0
    for _ in range(MOST_OPENINGS):
        opening = min((at for at in (answer.find("{", position), answer.find("[", position)) if at >= 0), default=-1)
        if opening < 0:
            return
        try:
            value, position = decoder.raw_decode(answer, opening)
            yield value
        except (ValueError, RecursionError):
            position = opening + 1
            if repairs < MOST_REPAIRS:
                repairs += 1
                yield _repaired(answer[opening:])


def _repaired(text: str) -> Any:
    """The value that a text beginning with a bracket was meant to be: closed where it was cut off, else guessed.

    json_repair takes time in the square of its input (minutes for 50,000 quotes): it sees short ones only.
    """
    try:
        return json.loads(_closed(text))
    except (ValueError, RecursionError):
        pass
    text = _without_half_string(text)
    openings, closings = (sum(map(text.count, brackets)) for brackets in ("{[", "}]"))
    prose = text.startswith("[") and not re.match(r"\[\s*[\[\"']", text)  # a note such as [see above
    if prose or len(text) > REPAIRED_CHARACTERS or openings - closings > REPAIRED_DEPTH:
        return None
    try:
        value = json_repair.loads(text)
    except Exception:  # it promises none, and is given what nobody foresaw
        return None
    return value if isinstance(value, dict if text.startswith("{") else list) else None


def _closed(text: str) -> str:
    """The text up to the last comma between values, with the brackets closed that are open there."""
    last, open_there, open_now = 0, "", ""
    for token in re.finditer(rf"{STRING}|[][{{}},]", text, re.DOTALL):
        mark = token[0]
        if mark == ",":
            last, open_there = token.start(), open_now
        elif mark in "[{":
            open_now += "]" if mark == "[" else "}"
        elif mark in "]}":
            open_now = open_now[:-1]
            last, open_there = token.end(), open_now
        if len(open_now) > REPAIRED_DEPTH:
            break
    return text[:last] + open_there[::-1]


def _without_half_string(text: str) -> str:
    """The text without a string at its end that was begun and not finished: half a phrase is not the model's word."""
    half = [string.start() for string in re.finditer(STRING, text, re.DOTALL) if not string[1]]
    return text[: half[0]] if half else text
