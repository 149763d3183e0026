"""What is put around a located group: one example for each rule."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from rewriting_examples import FIELDS, expansion_of, kept, located, passes, query_after, rewritten, shaped, without_ours
from sira_es.dsl.compile import Coverage
from sira_es.dsl.locate import Mode, Passed, locate
from sira_es.dsl.rewrite import encoded, rewrite, rewrite_dict
from sira_es.vocabulary.model import Expansion, Term, Verdict, Word

MATCH: dict[str, Any] = {"match": {"title": "laser printer"}}
MODES: tuple[Mode, ...] = ("rerank", "recall", "rescore", "rescue")
COVERAGES: tuple[Coverage, ...] = ("none", "partial", "full")


def word(query: str, boost: float, *fields: str) -> dict[str, Any]:
    options = {"query": query, "fields": list(fields), "type": "best_fields", "tie_breaker": 0.1, "boost": boost}
    return {"multi_match": options}


# Shapes


def test_rerank_wraps_the_group_in_must_with_the_rest_in_should() -> None:
    assert query_after({"query": MATCH}, coverage="none") == {
        "bool": {"must": [MATCH], "should": [word("cordless", 0.5, "title"), word("quiet", 0.5, "title")]}
    }


def test_recall_puts_the_group_beside_the_rest() -> None:
    query = query_after({"query": MATCH}, "recall", "none")
    assert query["bool"]["should"][0] == MATCH
    assert len(query["bool"]["should"]) == 3
    assert query["bool"]["minimum_should_match"] == 1


def test_rescue_gives_the_wider_body_for_when_too_little_is_found() -> None:
    result = rewritten({"query": MATCH}, "rescue")
    assert result.mode == "rescue"
    assert json.loads(result.body) == json.loads(rewritten({"query": MATCH}, "recall").body)


def test_rescore_leaves_the_query_and_adds_a_stage() -> None:
    body = {"query": {"bool": {"must": [MATCH], "filter": [{"term": {"color": "x"}}]}}, "highlight": {"fields": {}}}
    after = json.loads(rewritten(body, "rescore", "none").body)
    assert {k: after[k] for k in body} == body
    assert after["rescore"]["window_size"] == 300
    query = after["rescore"]["query"]
    assert (query["query_weight"], query["rescore_query_weight"]) == (1, 1)
    assert [c["multi_match"]["query"] for c in query["rescore_query"]["bool"]["should"]] == ["cordless", "quiet"]


def test_reach_stands_before_the_words_where_documents_are_enriched() -> None:
    kinds = {c: [next(iter(x)) for x in query_after({"query": MATCH}, coverage=c)["bool"]["should"]] for c in COVERAGES}
    assert kinds == {
        "none": ["multi_match"] * 2,
        "partial": ["multi_match"] * 3,
        "full": ["multi_match", "match", "multi_match", "multi_match"],
    }


def test_reach_is_left_out_where_the_clause_asks_our_field_already() -> None:
    should = query_after({"query": {"query_string": {"query": "laser printer"}}}, coverage="full")["bool"]["should"]
    assert [c["multi_match"]["query"] for c in should] == ["cordless", "quiet"]
    assert all(c["multi_match"]["fields"].count("enriched_terms^1.5") == 1 for c in should)


def test_boosts_of_words_are_multiplied_by_the_weight_of_the_group() -> None:
    should = [{"match": {f: {"query": "laser printer", "boost": b}}} for f, b in (("title", 4), ("text", 1))]
    after = query_after({"query": {"bool": {"should": should}}}, coverage="none")
    assert after["bool"]["should"][0] == word("cordless", 2.5, "title", "text")


def test_a_pin_keeps_its_boost_whatever_the_weight() -> None:
    pin = replace(kept("cartridge"), verdict=Verdict.PINNED, boost=0.7)
    where = located({"query": {"match": {"title": {"query": "laser printer", "boost": 9}}}})
    body = rewrite(where, {"laser printer": Expansion("laser printer", 10, terms=(pin,))}, shaped()).body
    assert json.loads(body)["query"]["bool"]["should"] == [word("cartridge", 0.7, "title")]


def test_a_word_of_several_tokens_is_a_phrase() -> None:
    term = replace(kept("加湿器"), tokens=("加湿", "湿器"))
    body = rewrite(
        located({"query": MATCH}), {"laser printer": Expansion("laser printer", 10, terms=(term,))}, shaped()
    ).body
    assert json.loads(body)["query"]["bool"]["should"][0]["multi_match"]["type"] == "phrase"


@pytest.mark.parametrize("text", ["C++", "AC/DC", "(1+1)=2", "NOT", "foo:bar", '"', "\\"])
def test_words_never_reach_a_query_string_parser(text: str) -> None:
    """elastic/elasticsearch#21288, #9153, #23990: reserved characters in generated text."""
    body = rewrite(located({"query": MATCH}), {"laser printer": expansion_of("laser printer", text)}, shaped()).body
    (clause,) = json.loads(body)["query"]["bool"]["should"]
    assert clause == word(text, 0.5, "title")


# Operators, minimum_should_match, synonyms: the original clause stays what it is


@pytest.mark.parametrize(
    "options",
    [
        {"operator": "and"},
        {"minimum_should_match": "75%"},
        {"minimum_should_match": "0<1"},
        {"fuzziness": "AUTO", "prefix_length": 1},
        {"type": "cross_fields", "operator": "and", "analyzer": "with_synonyms"},
    ],
)
def test_the_original_clause_is_byte_identical_inside(options: dict[str, Any]) -> None:
    """elastic/elasticsearch#15858, #10001, #10394, #45841: nothing is ever added inside a strict clause."""
    clause = json.dumps({"multi_match": {"query": "laser printer", "fields": ["title", "text"], **options}}, indent=1)
    body = ('{"query": ' + clause + "}").encode()
    after = rewritten(body, coverage="none").body
    assert clause.encode() in after
    assert b"fuzziness" not in after.replace(clause.encode(), b"")


# Highlight


def test_a_highlight_gets_the_original_query() -> None:
    """elastic/elasticsearch#5381, #10496, OpenSearch#15280: words that nobody typed must not be marked."""
    query = {"bool": {"must": [MATCH], "filter": [{"term": {"color": "x"}}]}}
    body = {"query": query, "highlight": {"fields": {"title": {}, "text": {"highlight_query": {"match_all": {}}}}}}
    highlight = json.loads(rewritten(body).body)["highlight"]
    assert highlight == {"highlight_query": query, **body["highlight"]}


@pytest.mark.parametrize("empty", ["{}", "{ }"])
def test_an_empty_highlight_stays_valid(empty: str) -> None:
    body = json.dumps({"query": MATCH})[:-1] + ',"highlight":' + empty + "}"
    assert json.loads(rewritten(body.encode()).body)["highlight"] == {"highlight_query": MATCH}


def test_a_highlight_with_a_query_of_its_own_stays() -> None:
    body = {"query": MATCH, "highlight": {"highlight_query": {"match": {"title": "inkjet"}}, "fields": {"title": {}}}}
    assert json.loads(rewritten(body).body)["highlight"] == body["highlight"]


@pytest.mark.parametrize("several", [False, True])
def test_highlights_of_collapsed_groups_get_it_too(several: bool) -> None:
    inner = {"name": "more", "highlight": {"fields": {"title": {}}}}
    body = {"query": MATCH, "collapse": {"field": "brand", "inner_hits": [inner, inner] if several else inner}}
    found = json.loads(rewritten(body).body)["collapse"]["inner_hits"]
    for hits in found if several else [found]:
        assert hits["highlight"]["highlight_query"] == MATCH


# Bytes


def test_everything_but_the_group_keeps_its_bytes() -> None:
    before = b' {"min":0.10000000149011612,\n"query" : {"bool":{"filter":{"term":{"id":9007199254740993}}, "must":[ '
    group = b'{ "match" : {"title":{"query":"laser  \\u0070rinter","_name":"\xc3\xa9"} } }'
    after = b' ]}}, "aggs":{"a":1,"a":2}, "size":1E1}\r\n'
    result = rewritten(before + group + after, coverage="none").body
    assert result.startswith(before + b'{"bool":{"must":[' + group + b'],"should":[')
    assert result.endswith(b"]}}" + after)


def test_all_other_keys_of_a_large_body_stay() -> None:
    """opensearch-project/ml-commons#2841: body keys dropped by a rewriter; ICIJ/datashare#2383: keys of one engine only."""
    keys = [
        "from",
        "size",
        "_source",
        "fields",
        "docvalue_fields",
        "stored_fields",
        "script_fields",
        "aggs",
        "post_filter",
        "collapse",
        "rescore",
        "knn",
        "suggest",
        "search_after",
        "pit",
        "runtime_mappings",
        "track_total_hits",
        "track_scores",
        "indices_boost",
        "timeout",
        "terminate_after",
        "version",
        "seq_no_primary_term",
        "stats",
        "slice",
        "ext",
        "search_pipeline",
        "derived",
        "max_analyzer_offset",
        "max_analyzed_offset",
        "unknown_key",
    ]
    body = {key: {"of": [key, 1.5]} for key in keys}
    after = json.loads(rewritten({**body, "query": MATCH}).body)
    assert {k: v for k, v in after.items() if k != "query"} == body


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("coverage", COVERAGES)
def test_a_rewritten_body_is_known_and_not_rewritten_again(mode: Mode, coverage: Coverage) -> None:
    for query in (
        MATCH,
        {"bool": {"must": [MATCH], "filter": [{"term": {"color": "x"}}]}},
        {"dis_max": {"queries": [MATCH]}},
    ):
        once = rewritten({"query": query}, mode, coverage)
        assert once.changed
        for again in MODES:
            assert passes(once.body, again) == "rewritten already"


def test_a_body_compiled_here_is_known_as_well() -> None:
    from sira_es.dsl.compile import Shape, compile_search

    shape = Shape(fields=(("title", 2.0), ("text", 1.0)), coverage="full")
    for mode in ("recall", "rerank", "rescore"):
        body = compile_search("laser printer", expansion_of("laser printer"), shape, mode=mode)  # type: ignore[arg-type]
        assert passes(body) == "rewritten already"


@pytest.mark.parametrize("mode", MODES)
def test_taking_our_clauses_out_gives_the_original_back(mode: Mode) -> None:
    body = json.dumps({"query": {"bool": {"must": [MATCH]}}, "highlight": {"fields": {}}})
    query = json.dumps({"bool": {"must": [MATCH]}})
    assert without_ours(rewritten(body.encode(), mode).body.decode(), query) == body


def test_nothing_to_add_means_the_same_bytes() -> None:
    body = b'{"query":{"match":{"title":"laser printer"}},"highlight":{}}'
    for expansions in ({}, {"laser printer": Expansion("laser printer", 10)}):
        result = rewrite(located(body), expansions, shaped())
        assert (result.body, result.changed) == (body, False)


def test_without_an_answer_of_the_model_reach_is_what_is_added() -> None:
    result = rewrite(located({"query": MATCH}), {"laser printer": Expansion("laser printer", None)}, shaped("full"))
    assert len(json.loads(result.body)["query"]["bool"]["should"]) == 2


def test_the_shape_tells_the_weight_of_our_field_and_whether_words_are_phrases() -> None:
    shape = shaped("full", enriched_weight=0.5, one_analyzer=False)
    result = rewrite(located({"query": MATCH}), {"laser printer": expansion_of("laser printer")}, shape)
    for clause in json.loads(result.body)["query"]["bool"]["should"][2:]:
        assert clause["multi_match"]["fields"] == ["title", "enriched_terms^0.5"]
        assert clause["multi_match"]["type"] == "phrase"


# Several groups


def test_texts_of_a_hybrid_query_are_rewritten_in_place_and_none_is_added() -> None:
    neural = {"neural": {"v": {"query_text": "laser printer"}}}
    queries = query_after({"query": {"hybrid": {"queries": [MATCH, neural, {"match": {"text": "inkjet"}}]}}})["hybrid"][
        "queries"
    ]
    assert [q["bool"]["must"][0] if "bool" in q else q for q in queries] == [
        MATCH,
        neural,
        {"match": {"text": "inkjet"}},
    ]
    assert [list(q) for q in queries] == [["bool"], ["neural"], ["bool"]]


def test_a_filter_beside_a_standard_retriever_is_not_touched() -> None:
    body = {"retriever": {"standard": {"query": MATCH, "filter": [{"match": {"title": "laser printer"}}]}}}
    standard = json.loads(rewritten(body).body)["retriever"]["standard"]
    assert standard["filter"] == [MATCH]
    assert standard["query"]["bool"]["must"] == [MATCH]


def test_a_wrapper_is_not_encoded_anew() -> None:
    secret = base64.b64encode(json.dumps(MATCH).encode()).decode()
    assert query_after({"query": {"wrapper": {"query": secret}}})["bool"]["must"] == [{"wrapper": {"query": secret}}]


# Clause limit


def limited(limit: int | None, *, query: Any = MATCH, coverage: Coverage = "full", words: int = 5) -> list[str]:
    """What stands beside the group: the words, and `reach` or `match` for the clauses of reach."""
    terms = tuple(kept(f"w{i}", idf=9 - i) for i in range(words))
    lifted = replace(kept("laser"), verdict=Verdict.PRESENT, lifted=True)
    own = (Word("laser", ("laser",), 5), Word("printer", ("printer",), 5))
    expansion = Expansion("laser printer", 100, own=own, terms=(*terms, lifted), allowance=20)
    result = rewrite(located({"query": query}), {"laser printer": expansion}, shaped(coverage, limit))
    after = json.loads(result.body)["query"]
    if not result.changed:
        return []
    return [
        "match"
        if "match" in c
        else "reach"
        if c["multi_match"]["type"] == "cross_fields"
        else c["multi_match"]["query"]
        for c in after["bool"]["should"]
    ]


def test_what_goes_first_at_the_clause_limit() -> None:
    """elastic/elasticsearch#46433, OpenSearch#3652: the original costs 2 leaves, reach 4 and 2, each word 2."""
    assert limited(None) == limited(20) == ["reach", "match", "w0", "w1", "w2", "w3", "w4", "laser"]
    assert limited(19) == ["reach", "w0", "w1", "w2", "w3", "w4", "laser"]
    assert limited(17) == ["reach", "w0", "w1", "w2", "w3", "laser"]
    assert limited(10) == ["reach", "w0", "laser"]
    assert limited(6) == ["reach"]
    assert limited(5) == []
    assert limited(1) == []


def test_twelve_fields_and_forty_words_stay_below_the_limit() -> None:
    names = tuple(f"f{i}" for i in range(12))
    fields = replace(FIELDS, text=FIELDS.text | frozenset(names))
    query = {
        "bool": {
            "must": [{"multi_match": {"query": "laser printer", "fields": list(names)}}],
            "filter": [{"term": {"color": c}} for c in "abc"],
        }
    }
    terms = tuple(kept(f"w{i}", idf=99 - i) for i in range(40))
    own = tuple(Word(w, (w,), 5) for w in ("laser", "printer"))
    where = located({"query": query}, fields=fields)
    assert where.leaves == 12 * 2 + 3
    result = rewrite(
        where,
        {"laser printer": Expansion("laser printer", 100, own=own, terms=terms, allowance=1000)},
        shaped("full", 500),
    )
    should = json.loads(result.body)["query"]["bool"]["must"][0]["bool"]["should"]
    words = [c for c in should if c.get("multi_match", {}).get("type") == "best_fields"]
    reach = [c for c in should if c not in words]
    assert len(reach) == 1
    assert 500 - 13 < where.leaves + 13 * 2 + 13 * len(words) <= 500


def test_boosts_are_computed_after_the_cut() -> None:
    terms = (kept("first", idf=8), kept("second", idf=2))
    expansion = Expansion("laser printer", 100, terms=terms, allowance=4.0)
    body = rewrite(located({"query": MATCH}), {"laser printer": expansion}, shaped(limit=3)).body
    assert json.loads(body)["query"]["bool"]["should"] == [word("first", 0.5, "title")]


@pytest.mark.parametrize(
    ("query", "leaves"),
    [
        (MATCH, 2),
        ({"match_phrase": {"title": "laser printer"}}, 1),
        ({"multi_match": {"query": "laser printer laser", "fields": ["title", "text", "color", "nope"]}}, 6),
        ({"multi_match": {"query": "laser printer", "fields": ["title", "text"], "type": "phrase"}}, 2),
        ({"match": {"title": {"query": "hp laser", "fuzziness": "AUTO"}}}, 17),
        ({"query_string": {"query": "laser printer", "default_field": "title"}}, 2),
        ({"constant_score": {"filter": {"terms": {"color": ["a", "b", "c"]}}}}, 1),
        ({"function_score": {"query": MATCH, "functions": [{"filter": {"term": {"color": "x"}}, "weight": 3}]}}, 3),
        ({"nested": {"path": "c", "query": {"bool": {"must_not": [MATCH, MATCH]}}}}, 4),
        ({"wrapper": {"query": base64.b64encode(json.dumps(MATCH).encode()).decode()}}, 2),
    ],
)
def test_leaves_of_the_callers_own_query_are_counted(query: dict[str, Any], leaves: int) -> None:
    where = located({"query": {"bool": {"must": [{"match": {"text": "inkjet"}}], "filter": [query]}}})
    assert where.leaves == 1 + leaves


# Python values


def test_a_dict_is_rewritten_to_what_its_bytes_would_be() -> None:
    inner = {"inner_hits": [{"name": "a", "highlight": {"fields": {"title": {}}}}], "field": "brand"}
    bodies: list[dict[str, Any]] = [
        {"query": {"bool": {"must": [MATCH], "filter": {"term": {"color": "x"}}}}, "highlight": {"fields": {}}},
        {"query": MATCH, "collapse": inner},
        {"query": {"hybrid": {"queries": [MATCH, MATCH]}}},
        {"query": {"bool": {"must": (MATCH,)}}},
    ]
    for body in bodies:
        for mode in MODES:
            where = located(body, mode)
            expansions = {t: expansion_of(t) for t in where.texts}
            after = rewrite_dict(body, where, expansions, shaped("full"))
            assert json.loads(json.dumps(after)) == json.loads(rewrite(where, expansions, shaped("full")).body)


def test_the_callers_dict_is_never_changed_and_odd_values_survive() -> None:
    day, cost = date(2024, 1, 2), Decimal("0.10")
    body = {"query": {"bool": {"must": [MATCH], "filter": [{"range": {"d": {"gte": day, "lte": cost}}}]}}}
    copied = repr(body)
    where = locate(encoded(body), FIELDS)
    assert not isinstance(where, Passed)
    after = rewrite_dict(body, where, {"laser printer": expansion_of("laser printer")}, shaped())
    assert repr(body) == copied
    assert after["query"]["bool"]["filter"][0]["range"]["d"] == {"gte": day, "lte": cost}
    assert "bool" in after["query"]["bool"]["must"][0]


@pytest.mark.parametrize("body", [{"query": {"match": {"title": math.nan}}}, {("a", "b"): 1}, {}])
def test_a_dict_that_is_no_search_passes(body: Any) -> None:
    assert isinstance(locate(encoded(body), FIELDS), Passed)


def test_a_dict_that_holds_itself_passes() -> None:
    body: dict[str, Any] = {}
    body["query"] = body
    assert encoded(body) == b""


def test_nothing_to_add_gives_an_equal_dict() -> None:
    assert rewrite_dict({"query": MATCH}, located({"query": MATCH}), {}, shaped()) == {"query": MATCH}


def test_the_cut_expansion_is_told() -> None:
    terms: tuple[Term, ...] = (kept("first", idf=8), kept("second", idf=2))
    expansion = Expansion("laser printer", 100, terms=terms, allowance=4.0)
    result = rewrite(located({"query": MATCH}), {"laser printer": expansion}, shaped(limit=3))
    assert [t.verdict.value for t in result.expansions["laser printer"].terms] == ["kept", "capped"]
