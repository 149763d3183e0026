"""A search body read only to locate: every value with the place where it stands, so that nothing need be written anew.

Places count characters of the decoded body. UTF-8 that decodes strictly encodes to the same bytes again, so a text
spliced by character places is byte-identical elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container
from json.decoder import scanstring  # type: ignore[attr-defined]  # public in all but the stubs
from typing import Any, NoReturn

__all__ = ["COSTLY", "MAX_DEPTH", "Malformed", "Node", "escaped_letters", "is_costly", "scan"]

MAX_DEPTH = 100
"""Levels of JSON that are followed: beyond what engines take (20 or 30 nested bools), far below Python's own limit."""

MAX_VALUES = 8_000
MAX_ITEMS = 30_000
"""Objects, arrays and members of a body that is read, and its commas: what takes some 50 ms on a slow core.

Requests of real clients have some hundreds. Scalars in arrays (ids, vectors) cost less than objects do.
"""

COSTLY = "takes too long to read"


class Malformed(ValueError):  # noqa: N818  it is a finding, not a fault
    """The text cannot be read as JSON of a search; the message says why in a few words."""


class Node:
    """A JSON value at text[start:end].

    An object that was followed has `members`, an array `items`; all else has its Python value in `value`, with every
    number as a float. Not a dataclass: a body has hundreds of them and every search waits for them.
    """

    __slots__ = ("end", "items", "members", "start", "value")

    def __init__(
        self,
        start: int,
        end: int,
        *,
        value: Any = None,
        members: dict[str, Node] | None = None,
        items: list[Node] | None = None,
    ) -> None:
        self.start = start
        self.end = end
        self.value = value
        self.members = members
        self.items = items

    def get(self, key: str) -> Node | None:
        """The member of that name; None where there is none or this is no object."""
        return self.members.get(key) if self.members is not None else None

    def plain(self) -> Any:
        """The value as plain Python."""
        if self.members is not None:
            return {k: v.plain() for k, v in self.members.items()}
        if self.items is not None:
            return [v.plain() for v in self.items]
        return self.value


def is_costly(text: str) -> bool:
    """Whether a text has more values than are read; told from counts of characters, so that any text is told at once."""
    values = text.count("{") + text.count("[") + text.count(":")
    return values > MAX_VALUES or text.count(",") > MAX_ITEMS


def _hides(text: str) -> bool:
    """Whether there may be too much in a `wrapper`, a value in each four characters; an escaped letter may hide one."""
    return len(text) // 4 > MAX_VALUES and ('wrapper"' in text or escaped_letters(text) > 0)


def escaped_letters(text: str) -> int:
    """How many characters of ASCII stand as numbers (003c), where they may make a word that is looked for."""
    return len(_escaped.findall(text)) if "\\u00" in text else 0


_escaped = re.compile(r"\\u00[2-7]")


def scan(text: str, *, follow: Container[str] | None = None) -> Node:
    """The one JSON object that a text is; `follow` names the top-level members to look into (default: all).

    Arrays of scalars (vectors, ids) are never looked into. Raises Malformed for anything that is not one object, for
    NaN and Infinity, for a key given twice in what is followed, for more than MAX_DEPTH levels, and for what is costly.
    """
    if is_costly(text) or _hides(text):
        raise Malformed(COSTLY)
    try:
        start = _space(text, 0)
        if text[start : start + 1] != "{":
            raise Malformed("not a JSON object")
        root = _object(text, start, 1, follow)
        if _space(text, root.end) != len(text):
            raise Malformed("not JSON")
    except (IndexError, RecursionError, ValueError) as error:
        if isinstance(error, Malformed):
            raise
        raise Malformed("not JSON" if not isinstance(error, RecursionError) else "nested too deep") from error
    return root


def _refuse(constant: str) -> NoReturn:
    raise Malformed("not JSON")


_plain: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(parse_int=float, parse_constant=_refuse).raw_decode
_spaces = re.compile(r"[ \t\n\r]*")


def _space(text: str, at: int) -> int:
    return _spaces.match(text, at).end()  # type: ignore[union-attr]  # it matches the empty string too


def _object(text: str, start: int, depth: int, follow: Container[str] | None = None) -> Node:
    members: dict[str, Node] = {}
    at = _space(text, start + 1)
    if text[at] == "}":
        return Node(start, at + 1, members=members)
    while True:
        if text[at] != '"':
            raise Malformed("not JSON")
        key, at = scanstring(text, at + 1)
        at = _space(text, at)
        if text[at] != ":":
            raise Malformed("not JSON")
        at = _space(text, at + 1)
        if key in members:
            raise Malformed("duplicate key")
        if follow is None or key in follow:
            node = _value(text, at, depth + 1)
        else:
            value, end = _plain(text, at)
            node = Node(at, end, value=value)
        members[key] = node
        at = _space(text, node.end)
        if text[at] == "}":
            return Node(start, at + 1, members=members)
        if text[at] != ",":
            raise Malformed("not JSON")
        at = _space(text, at + 1)


def _array(text: str, start: int, depth: int) -> Node:
    at = _space(text, start + 1)
    if text[at] not in "{[":
        value, end = _plain(text, start)
        return Node(start, end, value=value)
    items: list[Node] = []
    while True:
        node = _value(text, at, depth + 1)
        items.append(node)
        at = _space(text, node.end)
        if text[at] == "]":
            return Node(start, at + 1, items=items)
        if text[at] != ",":
            raise Malformed("not JSON")
        at = _space(text, at + 1)


def _value(text: str, at: int, depth: int) -> Node:
    if depth > MAX_DEPTH:
        raise Malformed("nested too deep")
    first = text[at]
    if first == "{":
        return _object(text, at, depth)
    if first == "[":
        return _array(text, at, depth)
    value, end = scanstring(text, at + 1) if first == '"' else _plain(text, at)
    return Node(at, end, value=value)
