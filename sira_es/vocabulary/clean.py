"""What a model said becomes phrases worth asking the index about, or a reason why not.

Nothing here knows the index. A phrase that comes out without a verdict is free of control characters and outer
punctuation, short, in a script that its query or document uses, and the only one of its spelling.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sira_es.vocabulary.model import Phrase, Proposal, Verdict

__all__ = ["clean_document", "clean_query", "match_key", "normalise", "scripts_of"]


@dataclass(frozen=True, slots=True)
class _Limits:
    """The largest number of white-space words and characters of a phrase, and of phrases of one answer."""

    words: int
    characters: int
    phrases: int


_IN_QUERY = _Limits(words=4, characters=64, phrases=100)
_IN_DOCUMENT = _Limits(words=4, characters=64, phrases=10)
_QUESTION = _Limits(words=12, characters=120, phrases=4)
_LEAST_CONFIDENCE = 0.01
_RUN = re.compile(r"[a-z0-9_]+")
_ASCII_LETTER = re.compile(r"[A-Za-z]")
_WITHOUT_CONTROLS = bytes(c if chr(c).isprintable() else ord(" ") for c in range(256))
_LATIN = frozenset({"LATIN"})

# First words of Unicode names that stand for another script, or for none of their own.
_SAME_SCRIPT = {
    "CJK": "HAN",
    "HIRAGANA": "HAN",
    "IDEOGRAPHIC": "HAN",
    "KATAKANA": "HAN",
    "KATAKANA-HIRAGANA": "HAN",
    "MODIFIER": "LATIN",
}
_WITHOUT_SPACES = frozenset({"HAN", "KHMER", "LAO", "MYANMAR", "THAI"})
_LANGUAGES_OF = {
    "ARABIC": "ar ckb fa ps sd ug ur",
    "ARMENIAN": "hy",
    "BENGALI": "as bn",
    "CYRILLIC": "ba be bg ce cv kk ky mk mn os ru sr tg tt uk",
    "DEVANAGARI": "hi mr ne sa",
    "ETHIOPIC": "am ti",
    "GEORGIAN": "ka",
    "GREEK": "el",
    "GUJARATI": "gu",
    "GURMUKHI": "pa",
    "HAN": "ja zh",
    "HANGUL": "ko",
    "HEBREW": "he yi",
    "KANNADA": "kn",
    "KHMER": "km",
    "LAO": "lo",
    "MALAYALAM": "ml",
    "MYANMAR": "my",
    "ORIYA": "or",
    "SINHALA": "si",
    "TAMIL": "ta",
    "TELUGU": "te",
    "THAI": "th",
    "TIBETAN": "bo dz",
}
_SCRIPT_OF = {language: script for script, languages in _LANGUAGES_OF.items() for language in languages.split()}


def clean_query(
    proposals: Sequence[Proposal], *, text: str, language: str = "", allowed: frozenset[str] = frozenset()
) -> tuple[Phrase, ...]:
    """Clean what was proposed for a query: one phrase a proposal, in their order.

    `text` is the query and `language` the index's language as an ISO 639 code (a region may follow): their scripts are
    accepted. `allowed` words and phrases may be in any script.
    """
    scripts = scripts_of(text, language) | {"LATIN"}
    return _first_of(_distinct(_clean(p, _IN_QUERY, scripts, allowed) for p in proposals), _IN_QUERY.phrases)


def clean_document(
    proposals: Sequence[Proposal],
    *,
    values: Sequence[str],
    allowed: frozenset[str] = frozenset(),
    questions: bool = False,
) -> tuple[Phrase, ...]:
    """Clean what was proposed for a document: one phrase a proposal, in their order.

    `values` are the document's text values: a phrase that one of them holds as whole words is `present`. `allowed`
    words and phrases may be in any script. With `questions` the proposals are questions that the document answers:
    longer, fewer, and never `present`.
    """
    limits = _QUESTION if questions else _IN_DOCUMENT
    scripts = _LATIN
    if not all(map(str.isascii, [p.phrase for p in proposals])):
        scripts |= _scripts("".join(values))
    phrases = _distinct([_clean(p, limits, scripts, allowed) for p in proposals])
    if not questions:
        text = "\n".join([normalise(v) for v in values]).casefold()
        phrases = [
            p.judged(Verdict.PRESENT, "the text has it")
            if p.verdict is None and _holds(text, p.phrase.casefold())
            else p
            for p in phrases
        ]
    return _first_of(phrases, limits.phrases)


def scripts_of(text: str, language: str = "") -> frozenset[str]:
    """The scripts of a text's letters, and that of a language (ISO 639, a region may follow; unknown ones: Latin)."""
    primary = language.lower().replace("_", "-").split("-")[0]
    return _scripts(text) | (frozenset({_SCRIPT_OF.get(primary, "LATIN")}) if primary else frozenset())


def normalise(text: str) -> str:
    """Text in Unicode NFC: characters of category C are spaces, white space is single and not at the ends."""
    if text.isascii():
        plain = text.encode().translate(_WITHOUT_CONTROLS).decode().strip(" ")
        return " ".join(plain.split()) if "  " in plain else plain
    text = unicodedata.normalize("NFC", text)
    spaced = text.strip(" ") if "  " not in text else " ".join(text.split())
    if spaced.isprintable():
        return spaced
    control = {ord(c): " " for c in set(spaced) if unicodedata.category(c)[0] == "C"}
    return " ".join(spaced.translate(control).split())


@lru_cache(maxsize=20_000)
def match_key(text: str) -> str:
    """What words or phrases have in common that people call the same: case and outer punctuation do not count."""
    plain = normalise(text)
    return (_trimmed(plain) or plain).casefold()


@lru_cache(maxsize=20_000)
def _surface(text: str) -> str:
    return _trimmed(normalise(text))


def _trimmed(text: str) -> str:
    """Normalised text without what is no word character at its ends; marks stay with the letter they belong to."""
    start, end = 0, len(text)
    while start < end and not _in_word(text[start]):
        start += 1
    while end > start and not _in_word(text[end - 1]):
        end -= 1
    while start < end < len(text) and _is_mark(text[end]):
        end += 1
    return text[start:end]


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] == "M"


def _clean(proposal: Proposal, limits: _Limits, scripts: frozenset[str], allowed: frozenset[str]) -> Phrase:
    text = _surface(proposal.phrase)
    p = proposal.confidence
    number = isinstance(p, int | float) and p == p  # NaN does not equal itself
    verdict, reason = _fault(text, number, limits, scripts, allowed)
    confidence = min(1.0, p) if number and p > 0 else _LEAST_CONFIDENCE
    stands_for = normalise(proposal.stands_for) if proposal.stands_for else ""
    return Phrase(text, confidence, stands_for, proposal.own, verdict, reason)


def _fault(
    text: str, number: bool, limits: _Limits, scripts: frozenset[str], allowed: frozenset[str]
) -> tuple[Verdict | None, str]:
    """Why a phrase is not worth asking the index about; None where it is. `number`: its confidence is one."""
    if not text:
        return Verdict.MALFORMED, "it has no word"
    if len(text) > limits.characters:
        return Verdict.MALFORMED, f"longer than {limits.characters} characters"
    if text.count(" ") >= limits.words:
        return Verdict.MALFORMED, f"more than {limits.words} words"
    if not number:
        return Verdict.MALFORMED, "its confidence is not a number"
    if foreign := _foreign_script(text, scripts, allowed):
        return Verdict.SCRIPT, f"no {foreign} script is in use here"
    return None, ""


def _foreign_script(text: str, scripts: frozenset[str], allowed: frozenset[str]) -> str:
    if text.isascii() and "LATIN" in scripts:
        return ""
    keys = {match_key(a) for a in allowed}
    if match_key(text) in keys:
        return ""
    judged = " ".join(w for w in text.split() if match_key(w) not in keys)
    return min(_scripts(judged) - scripts, default="")


def _scripts(text: str) -> frozenset[str]:
    """The scripts of a text's letters: first words of Unicode names, those of the plain form of a variant (NFKC)."""
    if text.isascii():
        return _LATIN if _ASCII_LETTER.search(text) else frozenset()
    return frozenset().union(*map(_scripts_of_character, set(text)))


@lru_cache(maxsize=20_000)
def _scripts_of_character(character: str) -> frozenset[str]:
    letters = (c for c in unicodedata.normalize("NFKC", character) if unicodedata.category(c)[0] == "L")
    names = (unicodedata.name(c, "NAMELESS").split()[0] for c in letters)
    return frozenset(_SAME_SCRIPT.get(name, name) for name in names)


def _distinct(phrases: Iterable[Phrase]) -> list[Phrase]:
    """Phrases of one spelling in whatever case: the highest confidence stays, the first on a tie."""
    result = list(phrases)
    if len({p.phrase.casefold() for p in result}) == len(result):
        return result
    best: dict[str, Phrase] = {}
    for place in _by_confidence(result):
        phrase = result[place]
        kept = best.setdefault(phrase.phrase.casefold(), phrase)
        if kept is not phrase:
            result[place] = phrase.judged(Verdict.REPEATED, f"the same as '{kept.phrase}'")
    return result


def _first_of(phrases: Iterable[Phrase], limit: int) -> tuple[Phrase, ...]:
    """The phrases with all but the `limit` most confident ones capped."""
    result = list(phrases)
    if len(result) <= limit:
        return tuple(result)
    for place in _by_confidence(result)[limit:]:
        result[place] = result[place].judged(Verdict.CAPPED, f"more than {limit} phrases")
    return tuple(result)


def _by_confidence(phrases: Sequence[Phrase]) -> list[int]:
    """The places of the phrases without a verdict, the most confident first, in the order of the answer on a tie."""
    open_places = (i for i, p in enumerate(phrases) if p.verdict is None)
    return sorted(open_places, key=lambda i: -phrases[i].confidence)


def _holds(text: str, phrase: str) -> bool:
    """Whether a case-folded text has a phrase as whole words."""
    at = text.find(phrase)
    while at >= 0:
        if not _within_word(text, at) and not _within_word(text, at + len(phrase)):
            return True
        run = _RUN.match(text, at)  # no whole word begins inside it
        at = text.find(phrase, max(at + 1, run.end() if run else 0))
    return False


def _within_word(text: str, at: int) -> bool:
    """Whether a place lies inside a word; in scripts that are written without spaces words may end anywhere."""
    if not 0 < at < len(text):
        return False
    before, after = text[at - 1], text[at]
    if _is_mark(after):
        return True
    if not _in_word(after) or not (_in_word(before) or _is_mark(before)):
        return False
    sides = before + after
    return sides.isascii() or not _WITHOUT_SPACES & _scripts(sides)
