"""What is read out of an answer, and what is left of a bad one."""

from __future__ import annotations

import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sira_es.errors import ModelError
from sira_es.llm.answer import document_proposals, document_questions, is_usable, query_proposals
from sira_es.vocabulary.model import Proposal

CONCEPTS = {
    "concepts": [{"words": "delete account", "need": 0.9, "same": [["deactivate", 0.7], ["close profile", 0.5]]}],
    "also": [["settings", 0.6]],
}
READ = (
    Proposal("delete account", 0.9, own=True),
    Proposal("deactivate", 0.7, stands_for="delete account"),
    Proposal("close profile", 0.5, stands_for="delete account"),
    Proposal("settings", 0.6),
)


def phrases(answer: str) -> list[str]:
    return [proposal.phrase for proposal in query_proposals(answer)]


def test_concepts_become_own_words_then_what_stands_for_them_then_the_rest() -> None:
    assert query_proposals(json.dumps(CONCEPTS)) == READ


def test_a_plain_list_of_terms_answers_a_query_too() -> None:
    assert query_proposals('{"terms": [["GFM", 0.4], ["markdown", 1]]}') == (
        Proposal("GFM", 0.4),
        Proposal("markdown", 1.0),
    )


def test_a_document_gets_its_terms_with_confidence_1() -> None:
    assert document_proposals('{"terms": ["GFM", "cross out"]}') == (Proposal("GFM", 1.0), Proposal("cross out", 1.0))


def test_a_bare_list_is_a_list_of_terms() -> None:
    assert [p.phrase for p in document_proposals('["GFM", "cross out"]')] == ["GFM", "cross out"]


def test_questions_are_read_apart_from_terms() -> None:
    answer = '{"terms": ["GFM"], "questions": ["how do I cross out text"]}'
    assert document_proposals(answer) == (Proposal("GFM", 1.0),)
    assert document_questions(answer) == (Proposal("how do I cross out text", 1.0),)
    assert document_questions('{"terms": ["GFM"]}') == ()


@pytest.mark.parametrize(
    "answer", ['{"terms": []}', "[]", '{"concepts": [], "also": []}', '{"terms": [1, null, {}, [], ""]}']
)
def test_an_empty_list_is_an_answer(answer: str) -> None:
    assert query_proposals(answer) == ()


@pytest.mark.parametrize(
    ("item", "confidence"),
    [
        ('"a"', 0.5),
        ('["a"]', 0.5),
        ('["a", 0.7]', 0.7),
        ('["a", 7]', 7.0),
        ('["a", -1]', -1.0),
        ('["a", "0.7"]', 0.7),
        ('["a", 0.7, "why"]', 0.7),
        ('{"phrase": "a", "weight": 0.7}', 0.7),
        ('{"term": "a", "p": 0.7}', 0.7),
        ('{"word": "a"}', 0.5),
    ],
)
def test_an_item_may_have_several_shapes(item: str, confidence: float) -> None:
    assert query_proposals(f'{{"terms": [{item}]}}') == (Proposal("a", confidence),)


@pytest.mark.parametrize("weight", ['"high"', "null", "true", "[1]", "NaN", "1e999", "1" + "0" * 400])
def test_a_confidence_that_is_no_number_is_nan(weight: str) -> None:
    (proposal,) = query_proposals(f'{{"terms": [["a", {weight}]]}}')
    assert proposal.phrase == "a"
    assert math.isnan(proposal.confidence)


@pytest.mark.parametrize(
    "wrapped",
    [
        "```json\n%s\n```",
        "```\n%s\n```",
        "Sure! Here you are:\n%s\nI hope this [1] helps {really}.",
        "<think>The {user} wants [[words].</think>%s",
        '<think>Perhaps {"terms": ["draft"]}?</think>\n%s',
        "\ufeff%s",
        "[%s]",
        "%s}",
    ],
)
def test_what_stands_around_an_answer_does_not_matter(wrapped: str) -> None:
    assert query_proposals(wrapped % json.dumps(CONCEPTS)) == READ


@pytest.mark.parametrize(
    "answer",
    [
        "{'terms': ['a', 'b']}",
        '{"terms": ["a", "b",]}',
        '{"terms": ["a" "b"]}',
        "{terms: [a, b]}",
        '{"terms": ["a", "b"]',
    ],
)
def test_json_that_is_not_quite_json_is_repaired(answer: str) -> None:
    assert phrases(answer) == ["a", "b"]


def test_of_an_answer_cut_off_all_whole_phrases_are_kept_and_no_half_one() -> None:
    whole = json.dumps(CONCEPTS)
    known = {p.phrase for p in READ}
    kept = [phrases(whole[:end]) if is_usable(whole[:end], "query") else [] for end in range(len(whole))]
    assert all(known.issuperset(some) for some in kept)
    assert kept[whole.index('"also"') + 10] == ["delete account", "deactivate", "close profile"]
    assert [len(some) for some in kept] == sorted(len(some) for some in kept)


NONSENSE = [
    "",
    " ",
    "null",
    "42",
    "{}",
    "true",
    '"casino"',
    "I cannot help with that.",
    "- laptop\n- notebook",
    "<html><body>502 Bad Gateway</body></html>",
    '{"terms": "a, b"}',
    '{"terms": {"a": 1}}',
    '{"error": {"message": "overloaded"}}',
    '{"terms"',
    "{" * 500,
    "[" * 50_000,
    '{"a":' * 10_000,
    '{"' * 25_000,
    '{"terms": [' + '["' * 20_000,
    '{"terms": ["a' + '"b' * 20_000,
    "\x00\x01\x02",
    "\ud800",
    "```json\n```",
    "]}]}",
    "{[(<",
    "As [Smith] and [see note 1 say, there is {nothing} to be done.",
]


@pytest.mark.parametrize("answer", NONSENSE, ids=lambda a: a[:12])
def test_nonsense_is_a_model_error_and_nothing_else(answer: str) -> None:
    begun = time.monotonic()
    for read in (document_proposals, query_proposals, document_questions):
        with pytest.raises(ModelError) as caught:
            read(answer)
        assert caught.value.reason == "unusable answer"
    assert time.monotonic() - begun < 1.5


@given(st.text())
def test_any_text_is_proposals_or_a_model_error(answer: str) -> None:
    assert is_usable(answer, "query") == (phrases_or_none(answer) is not None)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["terms", "concepts", "also", "words", "same", "need"]), inner)
    ),
)


@given(json_values)
def test_any_json_is_proposals_or_a_model_error(value: object) -> None:
    found = phrases_or_none(json.dumps(value))
    assert found is None or all(isinstance(p, str) and p for p in found)


def phrases_or_none(answer: str) -> list[str] | None:
    try:
        return phrases(answer)
    except ModelError:
        return None


def test_no_more_than_200_phrases_are_read() -> None:
    assert len(query_proposals(json.dumps({"terms": ["a"] * 1000, "also": ["b"] * 1000}))) == 200
    assert len(query_proposals(json.dumps({"concepts": [{"words": "w", "same": ["x"] * 300}] * 300}))) == 200


def test_a_phrase_is_cut_at_500_characters() -> None:
    assert phrases(json.dumps(["a" * 10_000])) == ["a" * 500]


def test_half_a_surrogate_pair_in_a_phrase_is_replaced() -> None:
    assert phrases('{"terms": ["a\\ud800b"]}') == ["a?b"]


def test_own_words_given_as_a_list_are_joined() -> None:
    assert query_proposals('{"concepts": [{"words": ["git", "hub"], "need": 1}]}') == (
        Proposal("git hub", 1.0, own=True),
    )
