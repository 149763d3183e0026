"""One request: the original at full weight, reach and words beside it, in the shapes of each mode and coverage."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sira_es.dsl.compile import (
    Coverage,
    Mode,
    Shape,
    compile_search,
    expansion_clauses,
    fill,
    fit,
    leaves,
    original_query,
    reach,
)
from sira_es.errors import ConfigurationError, InputError, UnsupportedError
from sira_es.vocabulary.model import Expansion, Term, Verdict, Word, boosted

TEXT = "laptop overheat"
FIELDS = (("title", 2.0), ("body", 1.0))
ORIGINAL = {"multi_match": {"query": TEXT, "fields": ["title^2", "body"], "type": "cross_fields"}}
REACH = {
    "multi_match": {
        "query": TEXT,
        "fields": ["title^2", "body", "enriched_terms"],
        "type": "cross_fields",
        "tie_breaker": 0.7,
        "boost": 0.35,
    }
}
MATCH_REACH = {"match": {"enriched_terms": {"query": TEXT, "boost": 0.2}}}


def word_clause(word: str, boost: float, *fields: str, kind: str = "best_fields") -> dict[str, Any]:
    asked = ["title^2", "body", *fields]
    return {"multi_match": {"query": word, "fields": asked, "type": kind, "tie_breaker": 0.1, "boost": boost}}


def own(text: str) -> tuple[Word, ...]:
    return tuple(Word(w, (w,), 10) for w in text.split())


def term(word: str, p: float = 0.5, *, tokens: int = 1, **given: Any) -> Term:
    parts = tuple(f"{word}{i}" for i in range(tokens))
    return Term(word, (word,), parts, p, 10, True, 4.0, 2.0, **{"verdict": Verdict.KEPT, **given})


def kept(count: int) -> list[Term]:
    return [term(f"kept{i}", 0.9 - i / 100) for i in range(count)]


def lifted(word: str) -> Term:
    return term(word, verdict=Verdict.PRESENT, lifted=True)


def pinned(word: str, boost: float = 1.5, tokens: int = 1) -> Term:
    return term(word, verdict=Verdict.PINNED, boost=boost, tokens=tokens)


def expansion(*terms: Term, text: str = TEXT, allowance: float = 1000.0) -> Expansion:
    """With boosts as the method gives them; the default allowance is large: boost = p, and half of it where lifted."""
    weighed, scale = boosted(terms, allowance, 0.5)
    return Expansion(text, 1000, own(text), weighed, allowance=allowance, scale=scale)


def shape(coverage: Coverage = "none", limit: int | None = 1024) -> Shape:
    return Shape(FIELDS, coverage, clause_limit=limit)


def compiled_words(request: dict[str, Any]) -> list[str]:
    should = request["query"]["bool"]["should"]
    return [c["multi_match"]["query"] for c in should if c.get("multi_match", {}).get("tie_breaker") == 0.1]


# The original


def test_the_original_is_cross_fields_where_the_fields_share_an_analyzer_else_best_fields() -> None:
    assert original_query(TEXT, shape()) == ORIGINAL
    other = original_query(TEXT, Shape(FIELDS, one_analyzer=False))
    assert other == {"multi_match": {**ORIGINAL["multi_match"], "type": "best_fields"}}


@pytest.mark.parametrize("mode", ["recall", "rerank", "rescore"])
def test_with_nothing_to_add_the_original_goes_out_alone(mode: Mode) -> None:
    assert compile_search(TEXT, expansion(), shape(), mode=mode) == {"query": ORIGINAL}


def test_a_text_longer_than_the_engine_takes_is_asked_for_by_its_beginning() -> None:
    """Engines count repeated words, too, when they read a query."""
    fits = " ".join(["laptop"] * 1024)
    assert original_query(fits, shape())["multi_match"]["query"] == fits
    assert original_query(f"{fits} fan fan", shape())["multi_match"]["query"] == f"{fits} "
    many = " ".join(f"w{i}" for i in range(600))
    assert original_query(many, shape())["multi_match"]["query"].split() == many.split()[:512]
    assert original_query(many, shape(limit=None))["multi_match"]["query"] == many
    repeated = f"{fits} fan fan"
    added = compile_search(repeated, expansion(text=TEXT), shape("full"))["query"]["bool"]["should"][1:]
    assert [added[0]["multi_match"]["query"], added[1]["match"]["enriched_terms"]["query"]] == [f"{fits} "] * 2
    assert original_query("a b", shape(limit=1))["multi_match"]["query"] == "a "


# Coverage


def test_while_no_document_is_enriched_there_is_no_reach_and_no_field_of_ours() -> None:
    assert compile_search(TEXT, expansion(term("fan")), shape("none")) == {
        "query": {"bool": {"minimum_should_match": 1, "should": [ORIGINAL, word_clause("fan", 0.5)]}}
    }


def test_on_a_partly_enriched_target_the_match_reach_is_left_out_and_our_field_has_weight_1() -> None:
    assert compile_search(TEXT, expansion(term("fan")), shape("partial")) == {
        "query": {
            "bool": {
                "minimum_should_match": 1,
                "should": [ORIGINAL, REACH, word_clause("fan", 0.5, "enriched_terms")],
            }
        }
    }


def test_on_a_fully_enriched_target_both_reaches_stand_and_our_field_has_weight_1_5() -> None:
    assert compile_search(TEXT, expansion(term("fan")), shape("full")) == {
        "query": {
            "bool": {
                "minimum_should_match": 1,
                "should": [ORIGINAL, REACH, MATCH_REACH, word_clause("fan", 0.5, "enriched_terms^1.5")],
            }
        }
    }


def test_reach_alone_goes_out_where_no_word_counts() -> None:
    request = compile_search(TEXT, expansion(term("the", verdict=Verdict.COMMON)), shape("full"))
    assert request["query"]["bool"]["should"] == [ORIGINAL, REACH, MATCH_REACH]


# Words


def test_words_stand_in_the_order_of_the_expansion_each_with_its_boost() -> None:
    given = expansion(pinned("fan"), term("heat", 0.9), term("cooler", 0.4), lifted("laptop"))
    assert [
        (c["multi_match"]["query"], c["multi_match"]["boost"]) for c in expansion_clauses(given, FIELDS, "none")
    ] == [("fan", 1.5), ("heat", 0.9), ("cooler", 0.4), ("laptop", 0.25)]


@pytest.mark.parametrize("verdict", [v for v in Verdict if v not in {Verdict.KEPT, Verdict.PINNED}])
def test_a_word_with_another_verdict_is_no_clause(verdict: Verdict) -> None:
    assert expansion_clauses(expansion(term("fan", verdict=verdict)), FIELDS, "full") == []


def test_a_word_of_several_tokens_is_asked_for_as_a_phrase() -> None:
    clauses = expansion_clauses(expansion(term("add-on", tokens=2)), FIELDS, "none")
    assert clauses == [word_clause("add-on", 0.5, kind="phrase")]


def test_a_factor_scales_all_boosts_but_those_of_pins() -> None:
    clauses = expansion_clauses(expansion(pinned("fan"), term("heat"), lifted("laptop")), FIELDS, "none", 3)
    assert [c["multi_match"]["boost"] for c in clauses] == [1.5, 1.5, 0.75]


def test_a_clause_whose_boost_rounds_to_0_is_left_out() -> None:
    assert expansion_clauses(expansion(term("fan")), FIELDS, "none", 0.00001) == []


# Modes


def test_rerank_requires_the_original_and_only_prefers_the_rest() -> None:
    request = compile_search(TEXT, expansion(term("fan")), shape("partial"), mode="rerank")
    added = [REACH, word_clause("fan", 0.5, "enriched_terms")]
    assert request == {"query": {"bool": {"must": [ORIGINAL], "should": added}}}


def test_rescore_leaves_the_query_and_scores_the_first_300_again() -> None:
    request = compile_search(TEXT, expansion(term("fan")), shape("partial"), mode="rescore")
    assert request == {
        "query": ORIGINAL,
        "rescore": {
            "window_size": 300,
            "query": {
                "rescore_query": {"bool": {"should": [REACH, word_clause("fan", 0.5, "enriched_terms")]}},
                "query_weight": 1,
                "rescore_query_weight": 1,
            },
        },
    }


@pytest.mark.parametrize(
    "key",
    [{"sort": ["date"]}, {"rescore": {"window_size": 5}}, {"collapse": {"field": "site"}}],
    ids=lambda k: next(iter(k)),
)
def test_rescore_is_refused_beside_what_engines_do_not_combine_with_it(key: dict[str, Any]) -> None:
    for terms in ((), (term("fan"),)):
        with pytest.raises(UnsupportedError, match=f"mode rescore cannot be used with '{next(iter(key))}'"):
            compile_search(TEXT, expansion(*terms), shape(), mode="rescore", body={"query": ORIGINAL, **key})


# The caller's own body


def test_what_else_stands_in_a_body_stays_as_it_is() -> None:
    body = {"query": ORIGINAL, "sort": ["_score"], "aggs": {"a": {"terms": {"field": "f"}}}, "from": 20}
    request = compile_search(TEXT, expansion(term("fan")), shape(), body=body)
    assert request["query"]["bool"]["should"][0] == ORIGINAL
    assert {k: v for k, v in request.items() if k != "query"} == {k: v for k, v in body.items() if k != "query"}


@pytest.mark.parametrize("mode", ["recall", "rerank", "rescore"])
def test_neither_the_body_nor_the_result_reaches_into_the_other(mode: Mode) -> None:
    body = {"query": {"match": {"body": {"query": TEXT}}}, "aggs": {"a": {}}}
    before = copy.deepcopy(body)
    request = compile_search(TEXT, expansion(term("fan")), shape("full"), mode=mode, body=body)
    request["aggs"]["a"]["changed"] = True
    assert body == before


@pytest.mark.parametrize(
    "query",
    [
        {"bool": {"must": [{"match": {"body": TEXT}}], "filter": [{"term": {"tenant": "a"}}]}},
        {"bool": {"must": [{"match": {"body": TEXT}}], "must_not": {"term": {"hidden": True}}}},
        {"bool": {"must": [{"match": {"body": TEXT}}, {"term": {"tenant": "a"}}]}},
        {"bool": {"must": [{"match": {"body": TEXT}}, {"match": {"tenant": "a"}}]}},
        {"bool": {"must": [{"bool": {"should": [{"match": {"body": TEXT}}], "filter": {"term": {"tenant": "a"}}}}]}},
        {"constant_score": {"filter": {"match": {"body": TEXT}}}},
        {"function_score": {"query": {"match": {"body": TEXT}}, "min_score": 2}},
    ],
)
def test_recall_becomes_rerank_where_hits_could_come_in_past_a_filter(query: dict[str, Any]) -> None:
    request = compile_search(TEXT, expansion(term("fan")), shape(), mode="recall", body={"query": query})
    assert request == {"query": {"bool": {"must": [query], "should": [word_clause("fan", 0.5)]}}}


@pytest.mark.parametrize(
    "query",
    [
        {"match": {"body": TEXT}},
        {"match": {"body": {"query": TEXT, "operator": "and"}}},
        {"bool": {"must": {"match": {"body": TEXT}}, "should": [{"match_phrase": {"title": TEXT}}], "boost": 2}},
        {"dis_max": {"queries": [{"match": {"body": TEXT}}, {"match": {"title": TEXT}}], "tie_breaker": 0.3}},
    ],
)
def test_recall_is_recall_around_text_alone(query: dict[str, Any]) -> None:
    request = compile_search(TEXT, expansion(term("fan")), shape(), mode="recall", body={"query": query})
    assert request == {"query": {"bool": {"minimum_should_match": 1, "should": [query, word_clause("fan", 0.5)]}}}


@pytest.mark.parametrize("body", [{}, {"size": 5}, {"query": None}, {"query": "laptop"}])
def test_a_body_without_a_query_is_an_error(body: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="has no 'query'"):
        compile_search(TEXT, expansion(term("fan")), shape(), body=body)


# Templates


def test_a_template_gets_the_text_wherever_it_asks_for_it_and_nothing_else_changes() -> None:
    template = {
        "query": {
            "bool": {"should": [{"match": {"a": "{{query}}"}}, {"match_phrase": {"a": "so {{query}}!"}}], "boost": 1.0}
        },
        "size": 7,
        "_source": ["a", None, {"{{query}}": "{query}"}],
    }
    before = copy.deepcopy(template)
    text = 'a "quoted" \\ {{query}} text'
    assert fill(template, text) == {
        "query": {"bool": {"should": [{"match": {"a": text}}, {"match_phrase": {"a": f"so {text}!"}}], "boost": 1.0}},
        "size": 7,
        "_source": ["a", None, {"{{query}}": "{query}"}],
    }
    assert template == before


@pytest.mark.parametrize(
    "template", [{}, {"query": {"match_all": {}}}, {"match": {"a": "{{query}}"}}, {"query": "{{query}}"}]
)
def test_a_template_without_a_place_for_the_text_or_without_a_query_is_an_error(template: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="a baseline must be a search body"):
        fill(template, TEXT)


# The clause limit. Two fields and ours: a word costs 3 leaves, the reaches of two own words 6 and 2.

ALL = ["cross", "match", "pin", "kept0", "kept1", "kept2", "laptop"]
FULL_COST = 6 + 2 + 3 + 9 + 3


def what_fits(room: int, *terms: Term) -> list[str]:
    given = expansion(*(terms or (pinned("pin"), *kept(3), lifted("laptop"))))
    cut, reaching = fit(given, shape("full"), taken=4, limit=4 + room)
    return ["cross", "match"][:reaching] + [t.word for t in cut.clauses]


def test_all_stays_within_the_limit() -> None:
    assert what_fits(FULL_COST) == ALL


@pytest.mark.parametrize(
    ("room", "left"),
    [
        (FULL_COST - 1, ["cross", "pin", "kept0", "kept1", "kept2", "laptop"]),
        (FULL_COST - 2, ["cross", "pin", "kept0", "kept1", "kept2", "laptop"]),
        (FULL_COST - 3, ["cross", "pin", "kept0", "kept1", "laptop"]),
        (FULL_COST - 6, ["cross", "pin", "kept0", "laptop"]),
        (FULL_COST - 9, ["cross", "pin"]),
        (6 + 3, ["cross", "pin"]),
        (6 + 2, ["pin"]),
        (3, ["pin"]),
        (2, []),
        (0, []),
        (-100, []),
    ],
)
def test_over_the_limit_go_match_reach_then_kept_then_lifted_then_reach_then_pins(room: int, left: list[str]) -> None:
    assert what_fits(room) == left


def test_lifted_words_go_with_the_last_kept_one() -> None:
    assert what_fits(6 + 3 + 3, term("fan"), lifted("laptop")) == ["cross", "fan", "laptop"]
    assert what_fits(6 + 3 + 2, term("fan"), lifted("laptop")) == ["cross"]


def test_what_was_dropped_is_capped_and_out_of_the_sum() -> None:
    given = expansion(term("a", 0.8), term("b", 0.4), text="laptop", allowance=2.4)
    assert [t.boost for t in given.terms] == [0.4, 0.2]
    cut, _ = fit(given, shape(), taken=2, limit=4)
    assert [(t.word, t.verdict, t.boost) for t in cut.terms] == [("a", "kept", 0.6), ("b", "capped", 0.0)]


def test_a_pin_keeps_its_boost_when_others_go() -> None:
    cut, _ = fit(expansion(pinned("pin", 2.5), *kept(3)), shape(), taken=4, limit=8)
    assert (cut.clauses[0].word, cut.clauses[0].boost) == ("pin", 2.5)


def test_without_a_limit_nothing_goes() -> None:
    given = expansion(*kept(500))
    assert fit(given, shape("full"), taken=10_000, limit=None) == (given, 2)


def test_a_text_that_could_not_be_analysed_is_taken_to_have_a_token_a_word() -> None:
    """Statistics may fail; the request must not."""
    text = " ".join(f"w{i}" for i in range(205))
    unread = replace(expansion(text=text), own=())
    assert fit(unread, shape("full"), taken=410, limit=1024)[1] == 0
    assert fit(unread, shape("full"), taken=410, limit=1025)[1] == 1
    assert fit(replace(unread, text="語" * 3 + "本" * 3), shape("full"), taken=0, limit=5)[1] == 0


@given(
    st.integers(0, 20),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(1, 60),
    st.integers(1, 12),
    st.sampled_from(["none", "partial", "full"]),
    st.integers(0, 1100),
)
def test_what_is_added_never_passes_the_limit_and_the_original_is_always_there(
    kept_words: int, lifted_words: int, pins: int, tokens: int, fields: int, coverage: Coverage, limit: int
) -> None:
    text = " ".join(f"own{i}" for i in range(tokens))
    terms = [*(pinned(f"p{i}") for i in range(pins)), *kept(kept_words)]
    terms += [lifted(f"own{i}") for i in range(lifted_words)] if kept_words else []
    wide = Shape(tuple((f"f{i}", 1.0) for i in range(fields)), coverage, clause_limit=limit)
    request = compile_search(text, expansion(*terms, text=text), wide)
    original = original_query(text, wide)
    if request["query"] == original:
        return
    first, *added = request["query"]["bool"]["should"]
    assert first == original
    words = [c for c in added if c.get("multi_match", {}).get("tie_breaker") == 0.1]
    reaches = [c for c in added if c not in words]
    assert tokens * fields + leaves(reaches, tokens) + leaves(words, 1) <= limit


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"match": {"body": "x"}}, 5),
        ({"match": {"body": {"query": "x", "fuzziness": "AUTO"}}}, 5),
        ({"multi_match": {"query": "x", "fields": ["a", "b", "c"], "type": "cross_fields"}}, 15),
        ({"multi_match": {"query": "x", "fields": ["a", "b", "c"], "type": "phrase"}}, 3),
        ({"multi_match": {"query": "x"}}, 5),
        ({"query_string": {"query": "x", "fields": ["a", "b"]}}, 10),
        ({"match_phrase": {"body": "x"}}, 1),
        ({"term": {"query": "x"}}, 1),
        ({"bool": {"must": [{"match": {"a": "x"}}], "filter": {"term": {"a": 1}}, "minimum_should_match": 1}}, 6),
        ({"dis_max": {"queries": [{"match": {"a": "x"}}, {"match": {"b": "x"}}], "tie_breaker": 1}}, 10),
        ({"function_score": {"query": {"match": {"a": "x"}}, "functions": [{"filter": {"term": {"a": 1}}}]}}, 6),
        ({"nested": {"path": "p", "query": {"match": {"p.a": "x"}}}}, 5),
    ],
)
def test_leaves_are_tokens_times_fields_and_a_phrase_one_a_field(query: dict[str, Any], count: int) -> None:
    assert leaves(query, 5) == count


def test_the_callers_own_filters_count() -> None:
    filters = [{"term": {"f": i}} for i in range(3)]
    body = {"query": {"bool": {"must": ORIGINAL, "filter": filters}}}
    given = expansion(*kept(16))
    assert len(compiled_words(compile_search(TEXT, given, shape(limit=4 + 3 + 10), mode="rerank", body=body))) == 5
    assert len(compiled_words(compile_search(TEXT, given, shape(limit=4 + 10), mode="rerank"))) == 5


# What must hold


@pytest.mark.parametrize("mode", ["recall", "rerank", "rescore"])
def test_the_same_input_gives_the_same_bytes(mode: Mode) -> None:
    def once() -> str:
        given = expansion(pinned("pin"), *kept(9), lifted("laptop"))
        return json.dumps(compile_search(TEXT, given, shape("full", limit=30), mode=mode))

    assert len({once() for _ in range(5)}) == 1


PARSERS = {"query_string", "simple_query_string", "script", "wrapper", "regexp", "wildcard", "template"}


@given(st.lists(st.text(min_size=1), max_size=6), st.text(), st.sampled_from(["recall", "rerank", "rescore"]))
def test_no_text_reaches_a_parser(words: list[str], text: str, mode: Mode) -> None:
    request = compile_search(text, expansion(*map(term, words), text=text), shape("full"), mode=mode)

    def kinds(value: Any) -> set[str]:
        if isinstance(value, dict):
            return set(value).union(*map(kinds, value.values()))
        return set().union(*map(kinds, value)) if isinstance(value, list) else set()

    assert kinds(request).isdisjoint(PARSERS)


def test_reach_has_no_clause_while_nothing_is_enriched() -> None:
    assert reach(TEXT, FIELDS, "none") == []
    assert reach(TEXT, FIELDS, "partial") == [REACH]
    assert reach(TEXT, FIELDS, "full") == [REACH, MATCH_REACH]
