"""Which spellings are one question to a model."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sira_es.expand.spelling import question, tells_case


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("reset password", "Reset Password"),
        ("caf\u00e9", "cafe\u0301"),
        ("  hot \t laptop\n", "hot laptop"),
        ("hot\x00laptop", "hot laptop"),
        ("don't panic", "Don't panic"),
        ("Überhitzung", "überhitzung"),
    ],
)
def test_the_same_question(one: str, other: str) -> None:
    assert question(one, fold=True) == question(other, fold=True)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("shipping to US", "shipping to us"),
        ("IT help", "it help"),
        ("WHO", "Who"),
        ("iOS", "ios"),
        ("vitamin A", "vitamin a"),
        ("resume", "résumé"),
        ("c", "c++"),
        ("ﬁne", "fine"),
        ("①", "1"),
        ("straße", "strasse"),
        ("hot laptop", "hotlaptop"),
        ("hot, laptop", "hot laptop"),
        ("می\u200cخواهم", "می خواهم"),
    ],
)
def test_different_questions(one: str, other: str) -> None:
    assert question(one, fold=True) != question(other, fold=True)


def test_an_analyzer_that_tells_capitals_keeps_them() -> None:
    assert question("Polish  shoes", fold=False) == "Polish shoes"
    assert tells_case("Polish shoes")
    assert not tells_case("polish US shoes")


@given(st.text(max_size=60), st.booleans())
def test_only_spelling_is_changed_and_a_question_stays_itself(text: str, fold: bool) -> None:
    asked = question(text, fold=fold)
    assert question(asked, fold=fold) == asked

    def plain(value: str) -> str:
        composed = unicodedata.normalize("NFC", value)
        return "".join(c for c in composed if unicodedata.category(c) != "Cc" and not c.isspace()).casefold()

    assert unicodedata.normalize("NFC", plain(asked)) == unicodedata.normalize("NFC", plain(text))
