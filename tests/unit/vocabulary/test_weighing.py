"""Weighing: what the expansions of a query may weigh beside its own words."""

from __future__ import annotations

import math

import pytest

from sira_es.vocabulary import HumanTerms, Rules
from unit.vocabulary.toy_index import ToyIndex, term, verdicts, words


def idf(df: float, documents: int = 1000) -> float:
    return math.log(1 + (documents - df + 0.5) / (df + 0.5))


@pytest.mark.parametrize(("k", "share"), [(1, 0.2), (2, 0.343), (5, 0.6), (10, 0.8)])
def test_the_share_of_the_expansions_grows_with_the_number_of_own_words(k, share):
    expansion = ToyIndex().expand(" ".join(f"own{i}" for i in range(k)), [])
    assert expansion.allowance == pytest.approx(share * k * idf(10), rel=1e-2)


def test_kept_words_share_the_budget_by_confidence():
    expansion = ToyIndex(df={"two": 100}).expand("laptop", [("one", 0.8), ("two", 0.4), ("laptop", 0.6)])
    scale = 0.2 * idf(10) / (0.8 * idf(10) + 0.4 * idf(100))
    assert expansion.scale == pytest.approx(scale)
    assert [(t.word, t.boost) for t in expansion.clauses] == [
        ("one", round(0.8 * scale, 4)),
        ("two", round(0.4 * scale, 4)),
        ("laptop", round(0.5 * 0.6 * scale, 4)),
    ]


def test_no_expansion_weighs_more_than_its_confidence():
    expansion = ToyIndex().expand("one two three four five six seven eight", [("hub", 0.3)])
    assert (expansion.scale, term(expansion, "hub").boost) == (1, 0.3)


def test_budget_knee_and_lift_are_settings():
    expansion = ToyIndex().expand(
        "laptop", [("one", 0.8), ("laptop", 1.0)], rules=Rules(budget=0.5, knee=1.0, lift=0.25)
    )
    scale = 0.5 * 1 / 2 / 0.8
    assert [t.boost for t in expansion.clauses] == [round(0.8 * scale, 4), round(0.25 * scale, 4)]


def test_a_repeated_own_word_counts_once():
    assert ToyIndex().expand("laptop laptops", []).allowance == ToyIndex().expand("laptop", []).allowance


def test_own_words_in_more_than_half_of_the_documents_weigh_but_do_not_count():
    expansion = ToyIndex(df={"how": 501}).expand("how laptop", [])
    assert expansion.allowance == pytest.approx(0.2 * (idf(10) + idf(501)))


def test_the_half_that_counts_own_words_is_not_max_df():
    index = ToyIndex(df={"how": 400})
    assert index.expand("how", [], rules=Rules(max_df=0.1)).allowance == index.expand("how", []).allowance


def test_where_all_own_words_are_that_common_all_count():
    expansion = ToyIndex(df={"how": 600, "to": 700}).expand("how to", [])
    assert expansion.allowance == pytest.approx(1.2 * 2 / 7 * (idf(600) + idf(700)))


def test_own_words_that_no_document_holds_count():
    assert ToyIndex(df={"lapptop": 0}).expand("lapptop", []).allowance == pytest.approx(0.2 * idf(0))


def test_own_words_of_unknown_df_count_like_rare_ones():
    assert ToyIndex(df={"laptop": None}).expand("laptop", []).allowance == pytest.approx(0.2 * idf(10))
    assert ToyIndex(documents=None, usual=None).expand("laptop", []).allowance == pytest.approx(0.2 * 4.6)


def test_a_query_without_words_gets_no_expansion():
    expansion = ToyIndex().expand("of the", [("notebook", 0.9)])
    assert (expansion.own, expansion.scale, expansion.clauses) == ((), 0, ())


def test_without_an_answer_there_is_nothing_but_the_query():
    expansion = ToyIndex().expand("laptop", [])
    assert (expansion.terms, expansion.phrases, expansion.scale) == ((), (), 0)


def test_boosts_have_four_decimals_and_a_boost_of_zero_is_no_clause():
    expansion = ToyIndex().expand("laptop", [("one", 1.0), ("two", 1.0), ("six", 1e-5)])
    assert [t.boost for t in expansion.terms] == [0.1, 0.1, 0.0]
    assert words(expansion.clauses) == ["one", "two"]


def test_cut_to_fewer_words_the_lowest_margins_are_capped_and_the_others_gain():
    whole = ToyIndex().expand("laptop bag", [("one", 0.9), ("two", 0.5), ("laptop", 0.7), ("bag", 0.6)])
    cut = whole.limited_to(kept=1, lifted=1)
    assert words(cut.clauses) == ["one", "laptop"]
    assert cut.scale == pytest.approx(min(1, cut.allowance / (0.9 * idf(10))))
    assert term(cut, "two").verdict == "capped"
    assert verdicts(cut.phrases) == ["kept", "capped", "present", "capped"]


def test_cut_to_no_kept_word_only_pins_remain():
    human = HumanTerms(pins={"laptop": (("hub", 2.0),)})
    whole = ToyIndex().expand("laptop", [("one", 0.9), ("laptop", 0.7)], human=human)
    assert words(whole.limited_to(kept=0, lifted=5).clauses) == ["hub"]
    assert words(whole.limited_to(kept=0, lifted=0, pinned=0).clauses) == []
