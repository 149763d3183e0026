"""Query clauses that carry a text: which kinds there are, and what each says about text, fields and weight."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from sira_es.dsl.fields import Fields, is_enriched
from sira_es.dsl.spans import COSTLY, Malformed, Node

__all__ = ["Clause", "Reason", "number", "read_clause", "same", "short"]


class Reason(StrEnum):
    """Why a request passes as it is."""

    NO_BODY = "no body"
    NOT_JSON = "not JSON"
    DEEP = "nested too deep"
    DUPLICATE = "duplicate key"
    URL_QUERY = "query in the URL"
    NO_QUERY = "no query"
    NO_TEXT = "no text"
    SORTED = "not sorted by score"
    EMPTY = "size 0"
    EXPLAINED = "explain or profile"
    SEVERAL = "several texts"
    SYNTAX = "query syntax"
    QUOTED = "text in quotes"
    PHRASE = "phrase"
    PREFIX = "prefix"
    GRAMS = "n-gram field"
    SHORT = "short text"
    MIN_SCORE = "min_score"
    SCORED_FACETS = "aggregation by score"
    HIGHLIGHT = "highlight of several queries"
    WEIGHTLESS = "text without weight"
    OURS = "rewritten already"
    LONG = "long text"
    COSTLY = COSTLY
    HEADER = "header of the search"


LONGEST = 2000
"""Characters of a text. No person types more, and each costs time."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause with a text over at least one text field.

    `text` is what a person would call the text: outer brackets off, of a query string the words only; `key` is what it
    has in common with other spellings of the same text. `passes` is None where the clause can start an expansion, else
    why not. `counts` says that each word adds to the score (not so in a phrase). `fields` are its fields of words with
    their weights, without ours; `enriched` says that ours is among those it names.
    """

    text: str
    key: str
    passes: Reason | None
    fields: Mapping[str, float]
    boost: float = 1.0
    counts: bool = True
    enriched: bool = False


def number(node: Node | None, default: float = 1.0) -> float:
    """A number that may be given as a string, as engines allow; `default` where there is none, NaN for nonsense."""
    if node is None or node.value is None:
        return default
    try:
        return float(node.value)
    except (TypeError, ValueError):
        return float("nan")


_OUTER = str.maketrans(dict.fromkeys("“”„«»", '"'))


def same(text: str) -> str:
    """A text without what does not make it another: NFC, case, spaces, outer brackets and quotes, an appended *."""
    text = unicodedata.normalize("NFC", text).translate(_OUTER).casefold()
    return " ".join(text.strip(' \t\r\n()"*').split())


def short(text: str) -> bool:
    """Fewer than three letters or digits; a character from U+2E80 on, where the scripts without spaces are, is two."""
    return sum(2 if c >= "\u2e80" else 1 for c in text if c.isalnum()) < 3


def read_clause(kind: str, inner: Node, fields: Fields) -> Clause | None:
    """The clause that {kind: inner} is; None for a kind that carries no text, or none over text fields.

    Raises Malformed for a text of more than LONGEST characters.
    """
    reader = _READERS.get(kind)
    clause = reader(kind, inner, fields) if reader is not None else None
    if clause is None or not clause.key or not _writable(clause.text):
        return None
    return clause


def _check(text: str) -> None:
    if len(text) > LONGEST:
        raise Malformed(Reason.LONG)


def _writable(text: str) -> bool:
    """Half of a surrogate pair can stand in JSON but not in UTF-8."""
    return not any("\ud800" <= c <= "\udfff" for c in text)


def _one_field(kind: str, inner: Node, fields: Fields) -> Clause | None:
    """`match` and its relatives: {field: text} or {field: {query: text, ...}}."""
    if inner.members is None or len(inner.members) != 1:
        return None
    ((name, node),) = inner.members.items()
    text = node.value
    if node.members is not None:
        found = next((node.members[k] for k in ("query", "value", "wildcard") if k in node.members), None)
        text = found.value if found is not None else None
    if not isinstance(text, str):
        return None
    _check(text)
    resolved = {name: 1.0} if name in fields.text or name in fields.prefix else {}
    counts = kind in {"match", "match_bool_prefix"}
    return _clause(_plain_text(text), _ONE_FIELD[kind] or _quoted(text), resolved, fields, node, counts)


_ONE_FIELD = {
    "match": None,
    "match_phrase": Reason.PHRASE,
    "match_phrase_prefix": Reason.PREFIX,
    "match_bool_prefix": Reason.PREFIX,
    "prefix": Reason.PREFIX,
    "wildcard": Reason.PREFIX,
}


def _many_fields(kind: str, inner: Node, fields: Fields) -> Clause | None:
    """`multi_match`, `combined_fields`."""
    text = _string(inner.get("query"))
    how = _TYPES.get(_string(inner.get("type")) or "best_fields", _UNKNOWN)
    if text is None or how is _UNKNOWN:
        return None
    _check(text)
    resolved = fields.resolve(_named(inner, "fields") or fields.default)
    return _clause(_plain_text(text), how or _quoted(text), resolved, fields, inner, _by_word(inner))


_UNKNOWN = Reason.NO_TEXT
_TYPES: dict[str, Reason | None] = {
    "best_fields": None,
    "most_fields": None,
    "cross_fields": None,
    "phrase": Reason.PHRASE,
    "phrase_prefix": Reason.PREFIX,
    "bool_prefix": Reason.PREFIX,
}


def _query_string(kind: str, inner: Node, fields: Fields) -> Clause | None:
    """`query_string`, `simple_query_string`: expanded only where the string is nothing but words."""
    text = _string(inner.get("query"))
    how = _TYPES.get(_string(inner.get("type")) or "best_fields", _UNKNOWN)
    if text is None or how is _UNKNOWN:
        return None
    _check(text)
    words = _words(text)
    passes = how or _quoted(text) or (Reason.SYNTAX if words is None else None)
    named = _named(inner, "fields") or _named(inner, "default_field") or fields.default
    return _clause(words or _plain_text(text), passes, fields.resolve(named), fields, inner, _by_word(inner))


_READERS: dict[str, Callable[[str, Node, Fields], Clause | None]] = {
    **dict.fromkeys(_ONE_FIELD, _one_field),
    "multi_match": _many_fields,
    "combined_fields": _many_fields,
    "query_string": _query_string,
    "simple_query_string": _query_string,
}


def _clause(
    text: str, passes: Reason | None, resolved: Mapping[str, float], fields: Fields, node: Node, counts: bool
) -> Clause | None:
    words = {f: w for f, w in resolved.items() if f in fields.text}
    theirs = {f: w for f, w in words.items() if not is_enriched(f)}
    if not theirs:
        if not any(f in fields.prefix for f in resolved):
            return None
        passes = passes or Reason.GRAMS
    return Clause(text, same(text), passes, theirs, number(node.get("boost")), counts, len(theirs) < len(words))


def _by_word(inner: Node) -> bool:
    return _string(inner.get("type")) not in {"phrase", "phrase_prefix"}


def _string(node: Node | None) -> str | None:
    return node.value if node is not None and isinstance(node.value, str) else None


def _named(inner: Node, key: str) -> tuple[str, ...]:
    """A list of field names, or one name; empty where there is none."""
    node = inner.get(key)
    value = node.value if node is not None else None
    if isinstance(value, str):
        return (value,)
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()


def _plain_text(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip(" \t\r\n()*")


def _quoted(text: str) -> Reason | None:
    bare = text.translate(_OUTER).strip(" \t\r\n()")
    return Reason.QUOTED if len(bare) > 1 and bare.startswith('"') and bare.endswith('"') else None


_SYNTAX = re.compile(r'[+\-!"*~^:/\\\[\]{}<>=|]|&&|\bNOT\b')


def _words(text: str) -> str | None:
    """The words of a query string, also of one joined by AND, OR and brackets; None where it says more than words."""
    if _SYNTAX.search(text):
        return None
    depth = 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if depth < 0:
            return None
    parts = text.replace("(", " ").replace(")", " ").split()
    joined = [p in {"AND", "OR"} for p in parts]
    if depth or not parts or joined[0] or joined[-1] or any(a and b for a, b in pairwise(joined)):
        return None
    return unicodedata.normalize("NFC", " ".join(p for p, j in zip(parts, joined, strict=True) if not j))
