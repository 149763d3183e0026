"""When a query is not expanded: decided from its text before any model is asked, each time with a reason.

What a person looks up by its number, or has put into quotes, is not to be widened; and what holds no word cannot be.
Every rule errs on the side of expanding: a query that merely mentions a number is a question like any other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sira_es.vocabulary.clean import scripts_of

__all__ = ["LONGEST", "Skip", "Why", "skipped", "without_words"]

LONGEST = 1000
"""Characters; the longest of 2,700 queries and claims of test collections has 266."""


class Why(StrEnum):
    """The rules, by the names that figures and headers use."""

    EMPTY = "empty"
    LONG = "too long"
    QUOTED = "quoted"
    OPERATORS = "operators"
    IDENTIFIER = "identifier"
    STOP_WORDS = "stop words"
    LANGUAGE = "language"
    DENIED = "denied"


@dataclass(frozen=True, slots=True)
class Skip:
    """Why a query is not expanded: the rule, and what it met, in words. `bare`: not even its own words reach further."""

    why: Why
    reason: str

    @property
    def bare(self) -> bool:
        return self.why in {Why.QUOTED, Why.OPERATORS}


def skipped(
    text: str,
    *,
    language: str = "",
    fields: Sequence[str] = (),
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
) -> Skip | None:
    """Why not to expand `text`, None where nothing speaks against it.

    `language` is the index's, as an ISO 639 code; `fields` are names that stand before a colon in a query with
    operators. `allow` and `deny` are regular expressions for whole queries, in any case: the one overrules every rule
    but emptiness and length, the other comes before all rules.
    """
    plain = " ".join(text.split())
    if not any(c.isalnum() for c in plain):
        return Skip(Why.EMPTY, "it holds no letter and no digit")
    if len(plain) > LONGEST:
        return Skip(Why.LONG, f"it is longer than {LONGEST} characters")
    if pattern := _first_match(deny, plain):
        return Skip(Why.DENIED, f"the configuration says so: {pattern}")
    if _first_match(allow, plain):
        return None
    if _QUOTED.fullmatch(plain):
        return Skip(Why.QUOTED, "exactly this was asked for: it is in quotes")
    if operator := _operator(plain, fields):
        return Skip(Why.OPERATORS, f"it uses a query operator: {operator}")
    if kind := _identifier(plain):
        return Skip(Why.IDENTIFIER, f"it is looked up as it stands: {kind}")
    if foreign := _foreign(plain, language):
        return Skip(Why.LANGUAGE, f"it is written in {foreign}, the index is in '{language}'")
    return None


def without_words() -> Skip:
    """What to say of a query of which the index's analyzer leaves nothing."""
    return Skip(Why.STOP_WORDS, "the index's analyzer leaves no word of it")


def _first_match(patterns: Sequence[str], text: str) -> str:
    return next((p for p in patterns if re.fullmatch(p, text, re.IGNORECASE)), "")


_QUOTED = re.compile(r'["“”„«»][^"“”„«»]+["“”„«»]')

_OPERATORS = (
    ("AND, OR, NOT", re.compile(r"(?<=\S )(?:AND|OR)(?= \S)|(?:^| )NOT(?= \S)")),
    ("+word", re.compile(r"(?:^| )\+(?:[^\W\d_]{3,}|\"[^\"]+\")(?= |$)")),
    # at the beginning or the end: elsewhere it is a dash, or an option
    ("-word", re.compile(r"^-[^\W\d_]{3,}(?= )| -(?:[^\W\d_]{3,}|\"[^\"]+\")$")),
    ("!word", re.compile(r"(?:^| )![^\W\d_]{3,}(?= |$)")),
    ("&& or ||", re.compile(r"(?<=\S )(?:&&|\|\|)(?= \S)")),
    ("word*", re.compile(r"(?:^| )[^\W\d_]{3,}\*(?= |$)")),
    ("word~", re.compile(r"(?:^| )(?:[^\W\d_]{3,}|\"[^\"]+\")~\d?(?= |$)")),
    ("word^2", re.compile(r"(?:^| )(?:[^\W\d_]{3,}|\"[^\"]+\")\^\d+(?:\.\d+)?(?= |$)")),
    ("[a TO b]", re.compile(r"[\[{]\S+ TO \S+[\]}]")),
    ('field:"words"', re.compile(r"(?:^| )[\w.]+:[\"(\[{]")),
)


def _operator(text: str, fields: Sequence[str]) -> str:
    """The first operator of a query language in a text. Capital AND in a text without a small letter is no operator."""
    shouted = text == text.upper() and text != text.lower()
    for name, pattern in _OPERATORS[1 if shouted else 0 :]:
        if pattern.search(text):
            return name
    return next((f"{f}:" for f in fields if re.search(rf"(?:^| ){re.escape(f)}:\S", text)), "")


_LABELS = re.compile(
    r"(?:error|code|err|ticket|case|order|invoice|item|part|article|art|sku|isbn|ean|upc|serial|model|ref|reference|"
    r"number|no|nr|id|tel|phone|fax|call)[.:#]*|#",
    re.IGNORECASE,
)
_STANDARDS = re.compile(
    r"(?:sha|utf|iso|iec|din|en|rfc|ieee|ansi|aes|rsa|http|ascii|cp|usb|ipv|omega)[-_]?\d", re.IGNORECASE
)
_TOKENS = (
    ("an address", re.compile(r"(?:https?|ftps?|file|ssh|git)://\S+|www\.\S+\.\S+", re.IGNORECASE)),
    ("a mail address", re.compile(r"[^@\s]+@[^@\s]+\.[^@\s.]+")),
    ("a UUID", re.compile(r"\{?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\}?", re.IGNORECASE)),
    ("a hexadecimal number", re.compile(r"0x[0-9a-f]{2,}|(?=.*\d.*\d)(?=.*[a-f])[0-9a-f]{8,}", re.IGNORECASE)),
    ("an error code", re.compile(r"(?:[A-Z]+_)*(?:E|ERR|ERROR|STATUS)_[A-Z0-9_]{3,}")),
    ("a number", re.compile(r"#?\d(?:[\d.,/_-]*\d)?")),
    ("a code", re.compile(r"#?[A-Za-z0-9]+(?:[-_./:#][A-Za-z0-9]+)*")),
)
_PHONE = re.compile(r"(?:tel|phone|fax|call)?[.: ]*[+(]?\d(?:[ ().\-/]{0,2}\d){6,17}", re.IGNORECASE)


def _identifier(text: str) -> str:
    """What kind of identifier a text is, where it holds nothing else but the words that announce one."""
    if _PHONE.fullmatch(text):
        return "a phone or other number"
    tokens = [t for t in text.split() if not _LABELS.fullmatch(t)]
    kinds = [_kind_of(token.strip("()[],;")) for token in tokens]
    return kinds[0] if kinds and all(kinds) else ""


def _kind_of(token: str) -> str:
    kind = next((name for name, pattern in _TOKENS if pattern.fullmatch(token)), "")
    digits = sum(c.isdigit() for c in token)
    if kind == "a number":
        return kind if digits >= 5 else ""
    if kind == "a code":
        return kind if _is_code(token, digits) else ""
    return kind


def _is_code(token: str, digits: int) -> bool:
    """Letters and digits that no dictionary has: WH-1000XM4, CVE-2021-44228, INC0012; not mp3, windows10, es2015."""
    letters = [c for c in token if c.isalpha()]
    if not letters or digits < 3 or _STANDARDS.match(token):
        return False
    named = re.fullmatch(r"#?[A-Za-z]?[a-z]+[\d._]+", token)  # a name with its version
    if named or not any(c.isupper() for c in letters):
        return digits >= (5 if named else 4)
    return True


def _foreign(text: str, language: str) -> str:
    """The script of a text none of whose letters the index's language uses; Latin letters are used everywhere."""
    if not language:
        return ""
    written = scripts_of(text)
    used = scripts_of("", language) | {"LATIN"}
    return min(written).capitalize() if written and not written & used else ""
