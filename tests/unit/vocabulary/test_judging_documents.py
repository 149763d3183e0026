"""Judging a document's phrases: the kept ones are what is written to `enriched_terms`."""

from __future__ import annotations

import pytest

from sira_es.vocabulary import HumanTerms, Proposal, Rules, Statistics, clean_document, judge_document
from unit.vocabulary.toy_index import ToyIndex, verdicts


def test_a_phrase_unknown_to_the_corpus_is_kept():
    assert verdicts(ToyIndex(usual=0).judge_document(["ultrabook"])) == ["kept"]


def test_a_phrase_is_common_when_even_its_rarest_word_is():
    index = ToyIndex(df={"screen": 501, "key": 600, "hub": 500})
    assert verdicts(index.judge_document(["screen", "screen key", "screen hub"])) == ["common", "common", "kept"]


def test_max_df_moves_what_is_common():
    index = ToyIndex(df={"screen": 300})
    assert verdicts(index.judge_document(["screen"], rules=Rules(max_df=0.25))) == ["common"]


def test_a_word_in_just_max_df_of_the_documents_is_not_common():
    index = ToyIndex(documents=100, df={"screen": 29})  # 0.29 * 100 is less than 29 in floating point
    assert verdicts(index.judge_document(["screen"], rules=Rules(max_df=0.29))) == ["kept"]


@pytest.mark.parametrize("index", [ToyIndex(df={"key": None, "screen": 900}), ToyIndex(documents=None, usual=900)])
def test_an_unknown_df_is_never_common(index):
    assert verdicts(index.judge_document(["screen key"])) == ["kept"]


def test_repeats_that_differ_by_inflection_are_folded_into_the_most_confident():
    phrases = ToyIndex().judge_document([("phone charger", 0.4), ("Phone chargers", 0.9), ("charger phone", 0.5)])
    assert verdicts(phrases) == ["repeated", "kept", "kept"]


def test_a_phrase_that_is_common_folds_nothing():
    assert verdicts(ToyIndex(df={"screen": 900}).judge_document(["screen", "screens"])) == ["common", "common"]


def test_a_phrase_without_tokens_is_malformed():
    assert verdicts(ToyIndex().judge_document(["of the"])) == ["malformed"]


def test_what_cleaning_refused_stays_refused():
    assert verdicts(ToyIndex().judge_document(["wing", "a b c d e", "hub"], text="a wing")) == [
        *("present", "malformed", "kept")
    ]


def test_a_blocked_phrase_blocks_only_itself_a_blocked_word_every_phrase_with_it():
    human = HumanTerms(block=frozenset({"Cheap hub", "bad"}))
    phrases = ToyIndex().judge_document(["cheap  hub", "cheap hub box", "bad box", "badly"], human=human)
    assert verdicts(phrases) == ["blocked", "kept", "blocked", "kept"]


def test_blocked_comes_before_what_cleaning_found():
    assert verdicts(ToyIndex().judge_document(["wing"], text="a wing", human=HumanTerms(frozenset({"wing"})))) == [
        "blocked"
    ]


@pytest.mark.parametrize("allowed", ["screen", "Screen key"])
def test_an_allowed_word_or_phrase_is_not_common(allowed):
    human = HumanTerms(allow=frozenset({allowed}))
    assert verdicts(ToyIndex(usual=900).judge_document(["screen key"], human=human)) == ["kept"]


def test_questions_are_judged_by_people_alone():
    said = [Proposal("what is the screen", 1.0), Proposal("what is bad", 1.0)]
    phrases = clean_document(said, values=[], questions=True)
    human = HumanTerms(block=frozenset({"bad"}))
    assert verdicts(judge_document(phrases, None, rules=Rules(), human=human)) == ["kept", "blocked"]


def test_analyses_that_do_not_fit_the_phrases_are_refused():
    phrases = clean_document([Proposal("hub", 1.0)], values=[])
    with pytest.raises(ValueError, match="zip"):
        judge_document(phrases, Statistics(10, ()), rules=Rules(), human=HumanTerms())
