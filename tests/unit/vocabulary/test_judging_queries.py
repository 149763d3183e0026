"""Judging a query's words: one verdict each, from people first, then from the index."""

from __future__ import annotations

import math

import pytest

from sira_es.errors import InputError
from sira_es.vocabulary import Analysis, HumanTerms, Proposal, Rules, Statistics, Word, clean_query, expand
from unit.vocabulary.toy_index import ToyIndex, term, verdicts, words


def expand_over(text, proposals, *analyses, documents=1000):
    phrases = clean_query([Proposal(*p) for p in proposals], text=text)
    return expand(text, phrases, Statistics(documents, analyses), rules=Rules(), human=HumanTerms())


def test_the_margin_is_idf_times_confidence_above_chance():
    found = term(ToyIndex(df={"notebook": 100}).expand("laptop", [("notebook", 0.6)]), "notebook")
    assert found.idf == pytest.approx(math.log(1 + 900.5 / 100.5))
    assert found.margin == pytest.approx(found.idf * (0.6 - 0.1))
    assert found.verdict == "kept"


def test_a_word_that_no_document_holds_is_absent():
    expansion = ToyIndex(df={"notebook": 0}).expand("laptop", [("notebook", 0.9)])
    assert term(expansion, "notebook").verdict == "absent"
    assert verdicts(expansion.phrases) == ["absent"]


def test_a_word_found_in_enriched_terms_alone_counts_with_df_zero():
    found = term(
        ToyIndex(df={"notebook": 0}, enriched={"notebook": 3}).expand("laptop", [("notebook", 0.9)]), "notebook"
    )
    assert (found.verdict, found.df) == ("kept", 0)


def test_a_word_in_more_than_max_df_of_the_documents_is_common():
    index = ToyIndex(df={"screen": 501, "key": 500})
    expansion = index.expand("laptop", [("screen", 1.0), ("key", 1.0)])
    assert (term(expansion, "screen").verdict, term(expansion, "key").verdict) == ("common", "kept")
    assert term(index.expand("laptop", [("key", 1.0)], rules=Rules(max_df=0.4)), "key").verdict == "common"


def test_a_word_no_likelier_in_the_evidence_than_anywhere_is_weak():
    index = ToyIndex(df={"screen": 300})
    expansion = index.expand("laptop", [("screen", 0.3)])
    assert (term(expansion, "screen").verdict, term(expansion, "screen").margin) == ("weak", 0)
    assert term(index.expand("laptop", [("screen", 0.31)]), "screen").verdict == "kept"
    assert term(index.expand("laptop", [("screen", 0.5)], rules=Rules(min_margin=1)), "screen").verdict == "weak"


def test_a_phrase_counts_as_its_words():
    expansion = ToyIndex(df={"screen": 900}).expand("laptop", [("add-on screen", 0.5)])
    assert {t.word: t.verdict.value for t in expansion.terms} == {"add": "kept", "on": "kept", "screen": "common"}
    assert all(t.phrases == ("add-on screen",) for t in expansion.terms)


def test_a_phrase_has_the_best_verdict_of_its_words():
    index = ToyIndex(df={"gone": 0, "screen": 900, "faint": 400})
    proposals = [("gone screen", 0.3), ("screen faint", 0.3), ("faint laptop", 0.3), ("laptop fan", 0.3)]
    assert verdicts(index.expand("laptop", proposals).phrases) == ["common", "weak", "present", "kept"]


def test_a_phrase_without_tokens_is_malformed():
    expansion = ToyIndex().expand("laptop", [("of the", 0.5)])
    assert verdicts(expansion.phrases) == ["malformed"]
    assert expansion.terms == ()


def test_words_of_several_phrases_are_one_word_by_its_token():
    expansion = ToyIndex().expand("laptop", [("charger", 0.4), ("Chargers box", 0.7), ("CHARGER cable", 0.7)])
    found = term(expansion, "Chargers")
    assert (found.confidence, found.tokens) == (0.7, ("charger",))
    assert found.phrases == ("Chargers box", "CHARGER cable", "charger")
    assert words(expansion.terms) == ["Chargers", "box", "cable"]


def test_several_tokens_over_one_span_are_one_word():
    assert words(ToyIndex().expand("laptop", [("Fussballspiel", 0.5)]).terms) == ["Fussballspiel"]


def test_a_word_of_the_query_is_present_and_lifted_beside_a_kept_word():
    expansion = ToyIndex().expand("cheap laptops", [("laptop", 0.9), ("notebook", 0.5)])
    found = term(expansion, "laptop")
    assert (found.verdict, found.lifted) == ("present", True)
    assert found.boost == pytest.approx(0.5 * 0.9 * expansion.scale, abs=5e-5)


def test_a_word_whose_tokens_are_all_in_the_query_is_present():
    assert term(ToyIndex().expand("ein fussballspiel", [("Fussball", 0.9)]), "Fussball").verdict == "present"
    assert term(ToyIndex().expand("ein fussball", [("fussballspiel", 0.9)]), "fussballspiel").verdict == "kept"


@pytest.mark.parametrize("df", [0, 600, 400])
def test_a_word_of_the_query_is_not_lifted_where_it_would_be_absent_common_or_weak(df):
    expansion = ToyIndex(df={"laptop": df}).expand("laptop", [("laptop", 0.3), ("notebook", 0.5)])
    found = term(expansion, "laptop")
    assert (found.verdict, found.lifted, found.boost) == ("present", False, 0)


def test_nothing_is_lifted_where_nothing_is_kept():
    expansion = ToyIndex(df={"gone": 0}).expand("laptop", [("laptop", 0.9), ("gone", 0.9)])
    assert [(t.word, t.lifted, t.boost) for t in expansion.terms] == [("laptop", False, 0), ("gone", False, 0)]


def test_words_beyond_max_terms_are_capped_lowest_margin_first():
    expansion = ToyIndex().expand("laptop", [("one", 0.2), ("two", 0.9), ("six", 0.5)], rules=Rules(max_terms=2))
    assert [(t.word, t.verdict.value) for t in expansion.terms] == [("two", "kept"), ("six", "kept"), ("one", "capped")]
    assert verdicts(expansion.phrases) == ["capped", "kept", "kept"]


def test_lifted_words_do_not_count_towards_max_terms():
    expansion = ToyIndex().expand("laptop", [("laptop", 0.9), ("one", 0.2), ("two", 0.1)], rules=Rules(max_terms=1))
    assert words(expansion.clauses) == ["one", "laptop"]


def test_terms_stand_pinned_then_kept_by_margin_then_lifted_then_the_rest():
    index = ToyIndex(df={"gone": 0, "screen": 900})
    proposals = [
        ("gone", 0.5),
        ("laptop", 0.9),
        ("one", 0.2),
        ("screen", 0.5),
        ("two", 0.5),
        ("six", 0.2),
        ("hub", 0.1),
    ]
    human = HumanTerms(pins={"laptop": (("hub", 2.0),)})
    assert words(index.expand("laptop", proposals, human=human).terms) == [
        *("hub", "two", "one", "six", "laptop"),
        *("gone", "screen"),
    ]


def test_an_unknown_df_is_never_absent_common_or_weak():
    expansion = ToyIndex(df={"notebook": None}).expand("laptop", [("notebook", 0.01)])
    found = term(expansion, "notebook")
    assert (found.verdict, found.df, found.margin) == ("kept", None, None)
    assert found.idf == pytest.approx(math.log(1 + 990.5 / 10.5))


def test_an_unknown_df_in_enriched_terms_is_never_absent():
    index = ToyIndex(df={"notebook": 0}, enriched={"notebook": None})
    assert term(index.expand("laptop", [("notebook", 0.5)]), "notebook").verdict == "kept"


def test_without_statistics_words_are_ordered_by_confidence():
    expansion = ToyIndex(documents=None, usual=None).expand("laptop", [("one", 0.2), ("two", 0.9)])
    assert [(t.word, t.idf, t.margin) for t in expansion.terms] == [("two", 4.6, None), ("one", 4.6, None)]


def test_a_df_above_n_is_taken_as_n():
    found = term(ToyIndex(documents=8, df={"notebook": 11}).expand("laptop", [("notebook", 1.0)]), "notebook")
    assert (found.df, found.margin, found.verdict) == (8, 0, "common")
    assert found.idf == pytest.approx(math.log(1 + 0.5 / 8.5))


def test_an_empty_index_keeps_nothing():
    expansion = ToyIndex(documents=0, usual=0).expand("laptop", [("notebook", 1.0)])
    assert words(expansion.clauses) == []


def test_a_df_that_is_an_estimate_is_marked():
    query, phrase = Analysis("q", (Word("q", ("q",), 1),)), Analysis("x", (Word("x", ("x",), 1, 0, exact=False),))
    assert [t.exact for t in expand_over("q", [("x", 0.5)], query, phrase).terms] == [False]


def test_a_blocked_word_is_blocked_in_every_phrase():
    human = HumanTerms(block=frozenset({"TABLET"}))
    expansion = ToyIndex().expand("laptop", [("cheap tablet", 0.5), ("tablets", 0.9), ("tablet", 0.4)], human=human)
    found = term(expansion, "tablets")
    assert (found.verdict, found.boost) == ("blocked", 0)
    assert verdicts(expansion.phrases) == ["kept", "blocked", "blocked"]


def test_a_blocked_word_of_the_query_is_not_lifted():
    human = HumanTerms(block=frozenset({"laptop"}))
    expansion = ToyIndex().expand("laptop", [("laptop", 0.5), ("notebook", 0.5)], human=human)
    assert words(expansion.clauses) == ["notebook"]


def test_a_blocked_phrase_blocks_only_itself():
    human = HumanTerms(block=frozenset({"tablet stand"}))
    expansion = ToyIndex().expand("laptop", [("Tablet  Stand", 0.9), ("tablets", 0.4)], human=human)
    assert verdicts(expansion.phrases) == ["blocked", "kept"]
    assert term(expansion, "Stand").verdict == "blocked"
    found = term(expansion, "tablets")
    assert (found.verdict, found.confidence, found.phrases) == ("kept", 0.4, ("tablets",))


def test_blocked_comes_before_malformed_and_script():
    human = HumanTerms(block=frozenset({"a b c d e", "ноутбук"}))
    assert (
        verdicts(ToyIndex().expand("laptop", [("a b c d e", 1), ("ноутбук", 1)], human=human).phrases)
        == ["blocked"] * 2
    )


@pytest.mark.parametrize("allowed", ["SCREEN", "big screen"])
def test_an_allowed_word_or_phrase_is_neither_common_nor_weak(allowed):
    index = ToyIndex(df={"screen": 900, "big": 10})
    human = HumanTerms(allow=frozenset({allowed}))
    assert term(index.expand("laptop", [("big screen", 0.3)], human=human), "screen").verdict == "kept"


def test_an_allowed_word_may_still_be_absent_or_blocked():
    human = HumanTerms(allow=frozenset({"gone", "bad"}), block=frozenset({"bad"}))
    expansion = ToyIndex(df={"gone": 0}).expand("laptop", [("gone", 0.5), ("bad", 0.5)], human=human)
    assert [t.verdict for t in expansion.terms] == ["absent", "blocked"]


def test_a_pinned_word_has_its_boost_whatever_the_model_and_the_index_say():
    human = HumanTerms(pins={"Cheap  laptop": (("ultrabooks", 3.0), ("gone", 0.25))})
    expansion = ToyIndex(df={"gone": 0}).expand("cheap LAPTOP", [], human=human)
    assert [(t.word, t.verdict.value, t.boost) for t in expansion.clauses] == [
        ("ultrabooks", "pinned", 3.0),
        ("gone", "pinned", 0.25),
    ]


def test_a_pin_belongs_to_its_query_alone():
    human = HumanTerms(pins={"laptop": (("ultrabook", 3.0),)})
    assert ToyIndex().expand("cheap laptop", [], human=human).terms == ()


def test_a_pinned_word_is_outside_the_budget_and_max_terms():
    human = HumanTerms(pins={"laptop": (("hub", 3.0),)})
    proposals = [("hub", 1.0), ("one", 0.5)]
    with_pin = ToyIndex().expand("laptop", proposals, human=human, rules=Rules(max_terms=1))
    without = ToyIndex().expand("laptop", proposals[1:], rules=Rules(max_terms=1))
    assert [(t.word, t.boost) for t in with_pin.clauses] == [("hub", 3.0), ("one", without.clauses[0].boost)]
    assert term(with_pin, "hub").phrases == ("hub",)
    assert verdicts(with_pin.phrases) == ["pinned", "kept"]


def test_a_pinned_phrase_pins_its_words():
    human = HumanTerms(pins={"laptop": (("add-on", 2.0),)})
    assert [(t.word, t.boost) for t in ToyIndex().expand("laptop", [], human=human).clauses] == [("add", 2), ("on", 2)]


def test_a_pinned_word_of_the_query_is_pinned():
    human = HumanTerms(pins={"laptop": (("laptop", 2.0),)})
    assert term(ToyIndex().expand("laptop", [("laptop", 0.5)], human=human), "laptop").verdict == "pinned"


def test_a_pin_survives_a_blocked_phrase_but_not_a_blocked_word():
    pins = {"laptop": (("hub", 2.0),)}
    phrase = ToyIndex().expand("laptop", [("usb hub", 1)], human=HumanTerms(frozenset({"usb hub"}), pins=pins))
    word = ToyIndex().expand("laptop", [("usb hub", 1)], human=HumanTerms(frozenset({"hub"}), pins=pins))
    assert (term(phrase, "hub").verdict, term(word, "hub").verdict) == ("pinned", "blocked")


def test_a_pin_that_the_analyzer_leaves_nothing_of_is_malformed():
    human = HumanTerms(pins={"laptop": (("the", 2.0),)})
    assert [(t.word, t.verdict.value, t.boost) for t in ToyIndex().expand("laptop", [], human=human).terms] == [
        ("the", "malformed", 0)
    ]


def test_a_pin_that_was_not_asked_about_stands_as_written():
    human = HumanTerms(pins={"laptop": (("Docking station", 2.0),)})
    expansion = expand("laptop", (), ToyIndex().look_up(["laptop"]), rules=Rules(), human=human)
    [found] = expansion.clauses
    assert (found.word, found.tokens, found.df, found.boost) == ("Docking station", ("docking", "station"), None, 2.0)


@pytest.mark.parametrize("boost", [0, -1, float("nan"), float("inf")])
def test_a_pin_needs_a_boost_above_zero(boost):
    with pytest.raises(InputError, match=r"pin 'hub' of query 'laptop' has boost .*; give it a number above 0"):
        HumanTerms(pins={"laptop": (("hub", boost),)})


def test_the_own_words_are_the_distinct_tokens_of_the_query():
    assert [w.text for w in ToyIndex().expand("Laptop bags of laptops", []).own] == ["Laptop", "bags"]


def test_analyses_that_do_not_fit_the_phrases_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        expand_over("q", [("x", 0.5), ("y", 0.5)], Analysis("q", ()), Analysis("x", ()))
