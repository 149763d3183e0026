"""Cleaning: what a model said becomes phrases worth asking about, or a reason why not."""

from __future__ import annotations

import time

import pytest

from sira_es.vocabulary import Phrase, Proposal, clean_document, clean_query, normalise
from unit.vocabulary.toy_index import verdicts


def query(*phrases: str, text: str = "a query", language: str = "", allowed: frozenset[str] = frozenset()):
    return clean_query([Proposal(p, 0.5) for p in phrases], text=text, language=language, allowed=allowed)


def document(*phrases: str, values: tuple[str, ...] = ("a text",), questions: bool = False):
    return clean_document([Proposal(p, 0.5) for p in phrases], values=values, questions=questions)


@pytest.mark.parametrize(
    ("said", "cleaned"),
    [
        ("C++", "C"),
        (".NET", "NET"),
        ("  laptop \t\n stand ", "laptop stand"),
        ("lap\x00top", "lap top"),
        ("soft\u00adhyphen", "soft hyphen"),
        ("zero\u200bwidth", "zero width"),
        ("\u202elaptop\u202c", "laptop"),
        ("cafe\u0301", "café"),
        ("\ud800lone", "lone"),
        ("💻 laptop 💻", "laptop"),
        ("heart ❤\ufe0f", "heart"),
        ("“quoted”", "quoted"),
        ("add-on", "add-on"),
        ("_id", "_id"),
    ],
)
def test_control_characters_white_space_and_outer_punctuation_go(said, cleaned):
    assert query(said)[0] == Phrase(cleaned, 0.5)


def test_a_vowel_sign_at_the_end_belongs_to_its_letter():
    assert query("हिन्दी", text="हिन्दी भाषा")[0].phrase == "हिन्दी"


@pytest.mark.parametrize("said", ["", " ", "\x00", "!!!", "💻", "\ud800", "\u0301"])
def test_a_phrase_without_a_word_character_is_malformed(said):
    assert verdicts(query(said)) == ["malformed"]


def test_four_words_and_64_characters_are_the_most():
    assert verdicts(query("a b c d", "a b c d e", "x" * 64, "x" * 65)) == [None, "malformed", None, "malformed"]


def test_the_own_words_of_a_concept_are_a_phrase_like_any_other():
    own = [Proposal("one two three four five", 0.9, own=True), Proposal("laptop", 0.9, own=True)]
    assert verdicts(clean_query(own, text="one two three four five laptop")) == ["malformed", None]


@pytest.mark.parametrize(
    ("said", "p"),
    [
        (0.5, 0.5),
        (1, 1.0),
        (3.5, 1.0),
        (float("inf"), 1.0),
        (0, 0.01),
        (-2.0, 0.01),
        (float("-inf"), 0.01),
        (1e-9, 1e-9),
    ],
)
def test_confidence_is_clamped_to_above_zero_and_one(said, p):
    [phrase] = clean_query([Proposal("laptop", said)], text="")
    assert (phrase.confidence, phrase.verdict) == (p, None)


@pytest.mark.parametrize("said", [float("nan"), None, "high"])
def test_a_confidence_that_is_no_number_is_malformed(said):
    assert verdicts(clean_query([Proposal("laptop", said)], text="")) == ["malformed"]


def test_of_one_spelling_the_highest_confidence_stays_whatever_the_case():
    said = [Proposal("Laptop", 0.4), Proposal("laptop!", 0.9), Proposal("LAPTOP", 0.9)]
    assert verdicts(clean_query(said, text="")) == ["repeated", None, "repeated"]


def test_own_words_and_proposed_words_of_one_spelling_are_one_phrase():
    said = [Proposal("github", 0.8, own=True), Proposal("GitHub", 0.9)]
    assert verdicts(clean_query(said, text="github")) == ["repeated", None]


def test_what_a_phrase_stands_for_is_kept_with_it():
    [phrase] = clean_query([Proposal("notebook", 0.4, stands_for="lap\ttop", own=False)], text="laptop")
    assert (phrase.stands_for, phrase.own) == ("lap top", False)


def test_a_phrase_in_a_script_that_the_query_does_not_use_is_rejected():
    assert verdicts(query("ноутбук", "ноутбук laptop", "5 laptops", text="laptop")) == ["script", "script", None]
    assert verdicts(query("ноутбук", text="дешёвый laptop")) == [None]


def test_latin_is_always_allowed():
    assert verdicts(query("laptop", "Ｌａｐｔｏｐ", text="ноутбук")) == [None, None]


def test_han_hiragana_and_katakana_count_as_one():
    assert verdicts(query("ノート", "のーと", "々", "東京", text="机")) == [None, None, None, None]


@pytest.mark.parametrize("language", ["ru", "ru-RU", "RU_ru"])
def test_the_language_of_the_index_allows_its_script(language):
    assert verdicts(query("ноутбук", "λάπτοπ", text="laptop", language=language)) == [None, "script"]


def test_letters_without_a_name_are_a_script_of_their_own():
    assert verdicts(query("\U00017000", text="laptop")) == ["script"]
    assert verdicts(query("\U00017000", text="\U00017001")) == [None]


def test_a_person_may_allow_a_word_or_phrase_in_any_script():
    allowed = frozenset({"Ноутбук", "дешёвый стол"})
    assert verdicts(query("ноутбук stand", "Дешёвый стол", "дешёвый", allowed=allowed)) == [None, None, "script"]


def test_an_answer_of_hundreds_of_phrases_costs_one_hundred():
    phrases = clean_query([Proposal(f"word{i}", 0.2 + i / 1000) for i in range(300)], text="")
    assert [i for i, p in enumerate(phrases) if p.verdict is None] == list(range(200, 300))
    assert verdicts(phrases[:200]) == ["capped"] * 200


@pytest.mark.parametrize(
    ("phrase", "text"),
    [
        ("wing", "The WING\n tip"),
        ("wing tip", "The WING\n tip"),
        ("straße", "in der STRASSE"),
        ("wing", "swinging, wing-tip"),
        ("東京", "東京都に住む"),
        ("iphone", "iPhoneケース"),
    ],
)
def test_a_phrase_that_the_text_holds_as_whole_words_is_present(phrase, text):
    assert verdicts(document(phrase, values=("another value", text))) == ["present"]


@pytest.mark.parametrize(
    ("phrase", "values"),
    [
        ("wing", ("swing wings",)),
        ("wing tip", ("wing", "tip")),
        ("wing tip", ("wing, tip",)),
        ("हिन्द", ("हिन्दी",)),
        ("café", ("cafe",)),
    ],
)
def test_a_phrase_that_the_text_holds_in_parts_only_is_not_present(phrase, values):
    assert verdicts(document(phrase, values=values)) == [None]


def test_the_script_of_any_text_value_is_allowed_in_a_document():
    assert verdicts(document("ноутбук", values=("laptop", "дешёвый"))) == [None]


def test_a_document_gets_the_ten_most_confident_phrases_that_it_lacks():
    said = [Proposal("wing", 1.0), *(Proposal(f"word{i}", 0.1 + i / 100) for i in range(12))]
    assert verdicts(clean_document(said, values=("a wing",))) == ["present", "capped", "capped", *[None] * 10]


def test_questions_are_longer_fewer_and_never_present():
    phrases = document(
        "how do I fold the wing of a model plane?",
        "what is a wing",
        " ".join("abcdefghijklm"),
        "x" * 121,
        "three three",
        "four four",
        "five five",
        values=("what is a wing",),
        questions=True,
    )
    assert verdicts(phrases) == [None, None, "malformed", "malformed", None, None, "capped"]


@pytest.mark.parametrize("text", ["a" * 3_000_000, "wing\n" * 600_000, "swing " * 500_000, "é" * 1_000_000])
def test_long_texts_are_no_trouble(text):
    started = time.process_time()
    document("wing span", "a", "wing tips", "swing it", values=(text,))
    assert time.process_time() - started < 3


def test_normalised_text_keeps_its_case_and_punctuation():
    assert normalise(" C++\x00 and\n.NET ") == "C++ and .NET"
