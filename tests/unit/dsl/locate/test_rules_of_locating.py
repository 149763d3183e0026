"""Where a person's words sit in a search body: one example for each rule."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from rewriting_examples import FIELDS, found, located, passes
from sira_es.dsl.fields import Fields
from sira_es.dsl.locate import Group, Located, Passed, Reason, locate

MATCH: dict[str, Any] = {"match": {"title": "laser printer"}}


def group(query: Any, **body: Any) -> Group:
    (only,) = located({"query": query, **body}).groups
    return only


def path(query: Any) -> tuple[str | int, ...]:
    return group(query).place.path[1:]


def text(query: Any) -> str:
    return group(query).text


# The group is the lowest query object above all clauses with the text


def test_a_single_clause_is_its_own_group() -> None:
    assert path(MATCH) == ()
    assert path({"bool": {"filter": [{"term": {"color": "x"}}], "must": [MATCH]}}) == ("bool", "must", 0)


def test_must_may_be_one_object_or_a_list() -> None:
    assert path({"bool": {"must": MATCH}}) == ("bool", "must")


def test_two_clauses_with_one_text_have_the_bool_above_them_as_group() -> None:
    query = {"bool": {"must": [{"bool": {"should": [MATCH, {"match": {"text": "laser printer"}}]}}], "filter": []}}
    assert path(query) == ("bool", "must", 0)


def test_phrase_and_prefix_clauses_with_the_text_belong_to_the_group() -> None:
    phrase = {"match_phrase": {"title": "laser printer"}}
    assert path({"bool": {"must": [MATCH], "should": [phrase]}}) == ()
    assert path({"bool": {"must": [MATCH], "should": [{"match_phrase": {"title": "inkjet"}}]}}) == ("bool", "must", 0)


def test_a_dis_max_is_wrapped_whole() -> None:
    assert path({"bool": {"must": [{"dis_max": {"queries": [MATCH, {"term": {"color": "x"}}]}}]}}) == (
        "bool",
        "must",
        0,
    )


def test_function_score_and_script_score_are_entered() -> None:
    assert path({"function_score": {"query": MATCH, "functions": [{"weight": 2}]}}) == ("function_score", "query")
    assert path({"script_score": {"query": MATCH, "script": {}}}) == ("script_score", "query")


def test_only_the_positive_side_of_boosting_is_entered() -> None:
    query = {"boosting": {"positive": MATCH, "negative": {"match": {"title": "case"}}, "negative_boost": 0.2}}
    assert path(query) == ("boosting", "positive")


def test_a_wrapper_is_read_decoded_and_wrapped_undecoded() -> None:
    inner = {"bool": {"must": [MATCH], "filter": [{"term": {"color": "x"}}]}}
    wrapper = {"wrapper": {"query": base64.b64encode(json.dumps(inner).encode()).decode()}}
    only = group({"bool": {"must": [wrapper]}})
    assert (only.text, only.place.path[1:], only.alone) == ("laser printer", ("bool", "must", 0), False)


def test_a_standard_retriever_is_entered() -> None:
    (only,) = located({"retriever": {"standard": {"query": MATCH, "filter": [{"term": {"color": "x"}}]}}}).groups
    assert only.place.path == ("retriever", "standard", "query")


def test_of_compound_retrievers_the_standard_ones_are_entered() -> None:
    rrf = {
        "rrf": {"retrievers": [{"standard": {"query": MATCH}}, {"knn": {"field": "v"}}, {"standard": {"query": MATCH}}]}
    }
    assert [g.place.path[3] for g in located({"retriever": rrf}).groups] == [0, 2]
    reranked = {"text_similarity_reranker": {"retriever": {"standard": {"query": MATCH}}, "field": "text"}}
    assert len(located({"retriever": reranked}).groups) == 1


def test_a_linear_retriever_is_entered_where_it_normalises() -> None:
    def linear(**part: str) -> dict[str, Any]:
        return {"retriever": {"linear": {"retrievers": [{"retriever": {"standard": {"query": MATCH}}, **part}]}}}

    assert len(located(linear(normalizer="minmax")).groups) == 1
    assert passes(linear()) == passes(linear(normalizer="none")) == "no query"


@pytest.mark.parametrize("beside", [{"sort": [{"price": "asc"}]}, {"min_score": 2}])
def test_a_standard_retriever_that_sorts_or_cuts_by_score_passes(beside: dict[str, Any]) -> None:
    assert passes({"retriever": {"standard": {"query": MATCH, **beside}}}) == "no query"


def test_each_text_of_a_hybrid_query_is_a_group_in_its_place() -> None:
    hybrid = {"hybrid": {"queries": [MATCH, {"neural": {"v": {"query_text": "laser printer"}}}, MATCH]}}
    assert [g.place.path for g in located({"query": hybrid}).groups] == [
        ("query", "hybrid", "queries", 0),
        ("query", "hybrid", "queries", 2),
    ]


# What starts an expansion


@pytest.mark.parametrize(
    "query",
    [
        MATCH,
        {"match": {"title": {"query": "laser printer", "operator": "and", "fuzziness": "AUTO"}}},
        {"multi_match": {"query": "laser printer", "fields": ["title^3", "text"]}},
        {"multi_match": {"query": "laser printer", "fields": "title", "type": "most_fields"}},
        {"multi_match": {"query": "laser printer", "type": "cross_fields"}},
        {"combined_fields": {"query": "laser printer", "fields": ["title", "text"], "minimum_should_match": 2}},
        {"query_string": {"query": "laser printer", "default_field": "title"}},
        {"query_string": {"query": "laser printer"}},
        {"simple_query_string": {"query": "laser printer", "fields": ["title"], "default_operator": "and"}},
    ],
)
def test_clauses_of_words_start_an_expansion(query: dict[str, Any]) -> None:
    assert text(query) == "laser printer"


@pytest.mark.parametrize(
    "string",
    ["laser AND printer", "(laser printer)", "(laser OR (printer))", " laser  printer ", "laser AND (printer)"],
)
@pytest.mark.parametrize("kind", ["query_string", "simple_query_string"])
def test_query_strings_of_words_and_connectives_start_an_expansion(kind: str, string: str) -> None:
    assert text({kind: {"query": string, "fields": ["title"]}}) == "laser printer"


@pytest.mark.parametrize(
    "string",
    [
        "+laser printer",
        "laser -printer",
        "!laser",
        'laser "printer"',
        "laser*",
        "lazer~",
        "laser^2",
        "title:laser",
        "/la.er/",
        "laser\\ printer",
        "laser NOT printer",
        "price:[1 TO 2]",
        "[1 TO 2]",
        "laser && printer",
        "laser | printer",
        "laser AND",
        "OR laser",
        "laser AND OR printer",
        "laser (printer",
        "laser ) printer (",
        "noise-cancelling headphones",
    ],
)
@pytest.mark.parametrize("kind", ["query_string", "simple_query_string"])
def test_query_strings_that_say_more_than_words_pass(kind: str, string: str) -> None:
    assert passes({"query": {kind: {"query": string, "fields": ["title"]}}}) == "query syntax"


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"match_phrase": {"title": "laser printer"}}, "phrase"),
        ({"multi_match": {"query": "laser printer", "type": "phrase"}}, "phrase"),
        ({"query_string": {"query": "laser printer", "type": "phrase"}}, "phrase"),
        ({"match_phrase_prefix": {"title": "laser pri"}}, "prefix"),
        ({"match_bool_prefix": {"title": "laser pri"}}, "prefix"),
        ({"multi_match": {"query": "laser pri", "type": "bool_prefix"}}, "prefix"),
        ({"multi_match": {"query": "laser pri", "type": "phrase_prefix"}}, "prefix"),
        ({"prefix": {"title": {"value": "las"}}}, "prefix"),
        ({"wildcard": {"title": "*las*"}}, "prefix"),
        ({"match": {"title.grams": "laser"}}, "n-gram field"),
        ({"match": {"title": '"laser printer"'}}, "text in quotes"),
        ({"match": {"title": "“laser printer”"}}, "text in quotes"),
        ({"query_string": {"query": '("laser printer")'}}, "text in quotes"),
        ({"match": {"title": "hp"}}, "short text"),
        ({"match": {"title": "h p !!"}}, "short text"),
        ({"match": {"brand.keyword": "laser printer"}}, "no text"),
        ({"match": {"unmapped": "laser printer"}}, "no text"),
        ({"match": {"title": 42}}, "no text"),
        ({"match": {"title": ""}}, "no text"),
        ({"match": {"title": "half \ud83d a pair"}}, "no text"),
        ({"multi_match": {"query": "laser", "fields": ["color", "brand.keyword"]}}, "no text"),
        ({"multi_match": {"query": "laser", "type": "of_the_future"}}, "no text"),
        ({"term": {"title": "laser"}}, "no text"),
        ({"fuzzy": {"title": "lazer"}}, "no text"),
        ({"match_all": {}}, "no text"),
        ({"bool": {}}, "no text"),
        ({"constant_score": {"filter": MATCH}}, "no text"),
        ({"nested": {"path": "c", "query": MATCH}}, "no text"),
        ({"has_child": {"type": "c", "query": MATCH}}, "no text"),
        ({"has_parent": {"parent_type": "c", "query": MATCH}}, "no text"),
        ({"semantic": {"field": "s", "query": "laser printer"}}, "no text"),
        ({"neural": {"v": {"query_text": "laser printer"}}}, "no text"),
        ({"sparse_vector": {"field": "s", "query": "laser printer"}}, "no text"),
        ({"more_like_this": {"fields": ["title"], "like": "laser printer"}}, "no text"),
        ({"percolate": {"field": "q", "document": {"title": "laser printer"}}}, "no text"),
        ({"knn": {"v": {"vector": [0.1], "k": 5, "filter": MATCH}}}, "no text"),
        ({"script": {"script": {"source": "laser printer"}}}, "no text"),
        ({"bool": {"filter": [MATCH]}}, "no text"),
        ({"bool": {"must_not": [MATCH]}}, "no text"),
        ({"boosting": {"positive": {"match_all": {}}, "negative": MATCH}}, "no text"),
        ({"function_score": {"query": MATCH, "boost_mode": "replace"}}, "no text"),
        ({"wrapper": {"query": "not base64!"}}, "no text"),
        ({"wrapper": {"query": "bm90IGpzb24="}}, "no text"),
        ({"match": {"title": "laser", "text": "laser"}}, "no text"),
        ({"unheard_of": {"match": {"title": "laser"}}}, "no text"),
        ({"match": {"title": {"query": "laser printer", "boost": 0}}}, "text without weight"),
        ({"match": {"title": {"query": "laser printer", "boost": "1e999"}}}, "text without weight"),
        ({"match": {"title": {"query": "laser printer", "boost": "much"}}}, "text without weight"),
        ({"bool": {"must": [MATCH, {"match": {"title": "red ink"}}]}}, "several texts"),
    ],
)
def test_what_does_not_start_an_expansion_passes(query: dict[str, Any], reason: str) -> None:
    assert passes({"query": query}) == reason


def test_two_characters_of_a_script_without_spaces_are_a_text() -> None:
    assert text({"match": {"title": "电脑"}}) == "电脑"


def test_a_number_in_a_string_is_a_boost_as_well() -> None:
    assert group({"match": {"title": {"query": "laser printer", "boost": "2.5"}}}).factor == 2.5


# The same text in other spellings


@pytest.mark.parametrize(
    "other", ["LASER Printer", " laser  printer ", "(laser printer)", '"laser printer"', "laser printer*"]
)
def test_the_same_text_in_another_spelling_belongs_to_the_group(other: str) -> None:
    query = {"bool": {"should": [{"bool": {"must": [MATCH]}}, {"query_string": {"query": other, "fields": ["text"]}}]}}
    assert (path(query), text(query)) == ((), "laser printer")


def test_texts_are_compared_after_unicode_composition() -> None:
    assert (
        path({"bool": {"should": [{"match": {"title": "caf\u00e9 table"}}, {"match": {"text": "cafe\u0301 table"}}]}})
        == ()
    )


# One clause a word


def test_single_words_in_sibling_clauses_are_joined_in_document_order() -> None:
    query = {"bool": {"must": [{"match": {"title": w}} for w in ("solar", "panels", "solar")]}}
    assert (text(query), path(query)) == ("solar panels", ())


def test_a_word_may_have_several_clauses_of_its_own() -> None:
    words = [{"bool": {"should": [{"match": {f: w}} for f in ("title", "text")]}} for w in ("solar", "panels")]
    assert text({"bool": {"must": words}}) == "solar panels"


def test_words_that_share_a_clause_of_the_group_are_several_texts() -> None:
    both = {"bool": {"should": [{"match": {"title": "solar"}}, {"match": {"title": "panels"}}]}}
    assert passes({"query": {"bool": {"must": [both, {"match": {"title": "solar"}}]}}}) == "several texts"


def test_words_as_alternatives_are_several_texts() -> None:
    assert passes({"query": {"dis_max": {"queries": [{"match": {"title": w}} for w in ("solar", "panels")]}}}) == (
        "several texts"
    )


def test_a_word_of_two_letters_does_not_hide_the_others() -> None:
    assert text({"bool": {"must": [{"match": {"title": w}} for w in ("hp", "laptop")]}}) == "hp laptop"


def test_joined_words_weigh_what_one_of_them_weighs() -> None:
    should = [
        {"match": {f: {"query": w, "boost": b}}} for w in ("wireless", "mouse") for f, b in (("title", 4), ("text", 1))
    ]
    assert group({"bool": {"should": should}}).factor == 5


# Fields and weight


def test_fields_are_the_union_of_all_clauses_each_with_its_highest_weight() -> None:
    should = [
        {"multi_match": {"query": "laser printer", "fields": ["title^3", "text"]}},
        {"multi_match": {"query": "laser printer", "fields": ["title^1.5", "brand^2"], "type": "bool_prefix"}},
    ]
    assert group({"bool": {"should": should}}).fields == (("title", 3.0), ("text", 1.0), ("brand", 2.0))


def test_a_phrase_gives_its_group_the_weights_of_its_fields_but_none_of_its_own() -> None:
    phrase = {"multi_match": {"query": "laser printer", "fields": ["title^6", "brand"], "type": "phrase", "boost": 3}}
    only = group({"bool": {"should": [MATCH, phrase]}})
    assert (only.fields, only.factor) == ((("title", 6.0), ("brand", 1.0)), 1.0)


def test_only_fields_of_words_are_taken() -> None:
    query = {
        "multi_match": {"query": "laser printer", "fields": ["title", "title.grams", "brand.keyword", "price", "nope"]}
    }
    assert group(query).fields == (("title", 1.0),)


def test_no_fields_means_the_default_field_of_the_index() -> None:
    query = {"query": {"multi_match": {"query": "laser printer"}}}
    fields = Fields(FIELDS.text, default=("text^2",))
    assert located(query, fields=fields).groups[0].fields == (("text", 2.0),)
    everywhere = located(query).groups[0]
    assert {name for name, _ in everywhere.fields} == {"title", "text", "brand"}


def test_a_clause_over_all_fields_asks_ours_already() -> None:
    assert group({"query_string": {"query": "laser printer"}}).enriched
    assert not group(MATCH).enriched


def test_boosts_multiply_up_to_and_including_the_group() -> None:
    clauses = [{"match": {"title": {"query": "laser printer", "boost": 4}}}, {"match": {"text": "laser printer"}}]
    inner = {"bool": {"should": clauses, "boost": 2}}
    assert group({"bool": {"must": [inner], "boost": 10}}).factor == 10


def test_of_alternatives_the_largest_counts() -> None:
    queries = [{"match": {"title": {"query": "laser printer", "boost": b}}} for b in (4, 3)]
    assert group({"dis_max": {"queries": queries, "boost": 2}}).factor == 8


# Whole requests that pass


@pytest.mark.parametrize(
    "sort",
    ["price", ["price", "_score"], [{"price": "asc"}], {"price": {"order": "asc"}}, "_doc", {"_score": "asc"},
     [{"_score": {"order": "asc"}}], ["_shard_doc"], [{"_script": {"type": "number"}}], [[]], 5],
)  # fmt: skip
def test_what_is_not_sorted_by_score_first_passes(sort: Any) -> None:
    assert passes({"query": MATCH, "sort": sort}) == "not sorted by score"


@pytest.mark.parametrize(
    "sort",
    [[], "_score", ["_score", "price"], {"_score": "desc"}, [{"_score": {"order": "DESC"}}], [{"_score": {}}], None],
)
def test_what_is_sorted_by_score_first_is_rewritten(sort: Any) -> None:
    assert group(MATCH, sort=sort).text == "laser printer"


def test_the_sort_of_the_url_counts_too() -> None:
    assert passes({"query": MATCH}, params={"sort": "price:asc"}) == "not sorted by score"
    assert located({"query": MATCH}, params={"sort": "_score,price:asc"})


def test_size_0_passes_where_only_the_order_would_change() -> None:
    assert passes({"query": MATCH, "size": 0}) == "size 0"
    assert passes({"query": MATCH}, params={"size": "0"}) == "size 0"
    assert passes({"query": MATCH, "size": 0}, "rescore") == "size 0"


def test_size_0_is_rewritten_where_the_hits_change_so_that_counts_agree_with_pages() -> None:
    assert located({"query": MATCH, "size": 0}, "recall").mode == "recall"
    assert located({"query": MATCH}, "rescue", params={"size": "0"}).mode == "rescue"


@pytest.mark.parametrize("params", [{"q": "laptop"}, {"q": ""}, {"source": "{}"}])
def test_a_query_in_the_url_passes(params: dict[str, str]) -> None:
    assert passes({"query": MATCH}, params=params) == "query in the URL"


@pytest.mark.parametrize("key", ["explain", "profile"])
def test_explain_and_profile_pass_unless_asked_for(key: str) -> None:
    assert passes({"query": MATCH, key: True}) == "explain or profile"
    assert passes({"query": MATCH}, params={key: ""}) == "explain or profile"
    assert located({"query": MATCH, key: True}, explained=True)
    assert located({"query": MATCH, key: False}, params={key: "false"})


def test_min_score_passes_as_more_hits_would_get_over_it() -> None:
    assert passes({"query": MATCH, "min_score": 0.5}) == "min_score"
    assert passes({"query": {"function_score": {"query": MATCH, "min_score": 1}}}) == "min_score"


@pytest.mark.parametrize(
    "aggs",
    [
        {"top": {"top_hits": {}}},
        {"s": {"sampler": {"shard_size": 10}}},
        {"d": {"diversified_sampler": {}}},
        {"m": {"max": {"script": "_score"}}},
    ],
)
def test_aggregations_that_depend_on_scores_pass(aggs: dict[str, Any]) -> None:
    assert passes({"query": MATCH, "aggs": aggs}) == "aggregation by score"
    assert passes({"query": MATCH, "aggregations": aggs}) == "aggregation by score"


def test_an_aggregation_whose_name_is_written_in_numbers_passes() -> None:
    body = json.dumps({"query": MATCH, "aggs": {"a": {"top_hits": {}}}}).replace("top_hits", r"top\u005fhits")
    assert locate(body.encode(), FIELDS) == Passed(Reason.SCORED_FACETS)
    script = json.dumps({"query": MATCH, "aggs": {"a": {"max": {"script": "doc['a'].value > 1"}}}})
    assert isinstance(locate(script.replace(">", r"\u003e").encode(), FIELDS), Located)


def test_a_field_that_is_only_called_a_score_is_no_hindrance() -> None:
    assert group(MATCH, aggs={"ratings": {"terms": {"field": "review_score"}}})


def test_other_aggregations_are_no_hindrance() -> None:
    assert group(
        MATCH, aggs={"brands": {"terms": {"field": "brand.keyword"}, "aggs": {"p": {"avg": {"field": "price"}}}}}
    )


def test_a_field_mapped_at_search_time_is_not_the_text_field_of_the_index() -> None:
    assert passes({"query": MATCH, "runtime_mappings": {"title": {"type": "keyword"}}}) == "no text"
    assert passes({"query": MATCH, "derived": {"title": {"type": "keyword"}}}) == "no text"


def test_no_query_and_no_body_pass() -> None:
    assert passes({}) == passes({"knn": {"field": "v"}}) == passes({"suggest": {"text": "laser"}}) == "no query"
    assert passes(b"") == passes(b" \n") == "no body"


@pytest.mark.parametrize(
    "beside", ["knn", "rank", "suggest", "rescore", "post_filter", "collapse", "search_after", "pit", "ext"]
)
def test_what_stands_beside_the_query_is_no_hindrance(beside: str) -> None:
    assert group(MATCH, **{beside: {"field": "v"}}).text == "laser printer"


def test_a_highlight_of_several_queries_passes() -> None:
    hybrid = {"query": {"hybrid": {"queries": [MATCH]}}, "highlight": {"fields": {"title": {}}}}
    assert passes(hybrid) == "highlight of several queries"
    assert located({**hybrid, "highlight": {"highlight_query": MATCH}})


def test_more_highlights_than_anyone_needs_pass() -> None:
    collapse = {"field": "brand", "inner_hits": [{"name": str(i), "highlight": {}} for i in range(1_000)]}
    assert passes({"query": MATCH, "collapse": collapse}) == "highlight of several queries"


# Modes


def test_recall_and_rescue_are_for_text_alone() -> None:
    phrase = {"match_phrase": {"title": "laser printer"}}
    for query in (
        MATCH,
        {"bool": {"should": [MATCH, phrase]}},
        {"bool": {"filter": [{"term": {"color": "x"}}], "must": MATCH}},
    ):
        for mode in ("recall", "rescue"):
            assert located({"query": query}, mode).mode == mode


@pytest.mark.parametrize(
    "inside",
    [
        {"filter": [{"term": {"color": "x"}}]},
        {"must_not": {"match": {"title": "case"}}},
        {"must": [{"term": {"color": "x"}}]},
        {"must": [{"match_phrase": {"title": "inkjet"}}]},
    ],
)
def test_anything_else_in_the_group_makes_it_a_rerank(inside: dict[str, Any]) -> None:
    query = {"bool": {"should": [MATCH, {"match": {"text": "laser printer"}}], **inside}}
    assert located({"query": query}, "recall").mode == located({"query": query}, "rescue").mode == "rerank"


def test_rescore_stays_where_nothing_else_orders_hits() -> None:
    assert located({"query": {"bool": {"must": [MATCH], "filter": []}}}, "rescore").mode == "rescore"


@pytest.mark.parametrize(
    "beside",
    [{"rescore": {"window_size": 5}}, {"sort": ["_score"]}, {"collapse": {"field": "brand"}}, {"knn": {"field": "v"}}],
)
def test_rescore_becomes_rerank_beside_what_orders_hits(beside: dict[str, Any]) -> None:
    assert located({"query": MATCH, **beside}, "rescore").mode == "rerank"


def test_rescore_becomes_rerank_in_a_scroll_a_retriever_and_below_other_scores() -> None:
    assert located({"query": MATCH}, "rescore", params={"scroll": "1m"}).mode == "rerank"
    assert located({"retriever": {"standard": {"query": MATCH}}}, "rescore").mode == "rerank"
    assert located({"query": {"bool": {"must": [MATCH], "boost": 3}}}, "rescore").mode == "rerank"
    assert located({"query": {"function_score": {"query": MATCH}}}, "rescore").mode == "rerank"


# The untrusted


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"query":{"match":{"title":"\xff\xfe"}}}', "not JSON"),
        ('{"query":{}}'.encode("utf-16"), "not JSON"),
        (b"[1]", "not JSON"),
        (b'{"query":{"match":{"title":"a","title":"laser"}}}', "duplicate key"),
        (b'{"query":' + b'{"bool":{"must":' * 1500, "nested too deep"),
        (b'{"aggs":' + b'{"a":' * 3_000, "nested too deep"),
        (b'{"query":{"match":{"title":NaN}}}', "not JSON"),
    ],
)
def test_what_cannot_be_read_passes(body: bytes, reason: str) -> None:
    assert passes(body) == reason


def test_wrappers_within_wrappers_do_not_break_it() -> None:
    query: dict[str, Any] = MATCH
    for _ in range(25):
        for _ in range(20):
            query = {"bool": {"must": [query]}}
        query = {"wrapper": {"query": base64.b64encode(json.dumps(query).encode()).decode()}}
    assert found({"query": query})


def test_the_result_does_not_depend_on_page_size_facets_or_highlighting() -> None:
    pages = [
        {},
        {"from": 10},
        {"size": 50},
        {"aggs": {"b": {"terms": {"field": "color"}}}},
        {"highlight": {}},
        {"_source": False},
    ]
    groups = [group(MATCH, **page) for page in pages]
    assert {(g.text, g.fields, g.factor) for g in groups} == {("laser printer", (("title", 1.0),), 1.0)}
