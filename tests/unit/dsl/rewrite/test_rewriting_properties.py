"""Whatever the body: no crash, passed bytes are the same, rewritten ones give the original back and are not rewritten twice.

SIRA_ES_FUZZ is the number of bodies of each kind (200).
"""

from __future__ import annotations

import base64
import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from captured_requests import FOLDER, captured
from rewriting_examples import FIELDS, expansion_of, found, shaped, without_ours
from sira_es.dsl.compile import Coverage
from sira_es.dsl.locate import Located, Mode, Passed, locate
from sira_es.dsl.msearch import join_msearch, split_msearch
from sira_es.dsl.rewrite import encoded, rewrite, rewrite_dict

EXAMPLES = int(os.environ.get("SIRA_ES_FUZZ", "200"))
fuzz = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))

MODES = st.sampled_from(["rerank", "recall", "rescore", "rescue"])
COVERAGE = st.sampled_from(["none", "partial", "full"])

# A grammar of the query language: real keys, likely and unlikely values

texts = st.sampled_from(
    ["laser printer", "Laser Printer", "(laser printer)", '"laser printer"', "laser*", "laser AND printer", "laser -jet",
     "solar", "panels", "hp", "", "电脑", "C++ \\ \"x\"", "\u0000", "\ud800", "laser " * 40]
)  # fmt: skip
names = st.sampled_from(["title", "title^3", "text", "t*", "*", "title.grams", "brand.keyword", "nope", "title^x", ""])
odd = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3), st.just([]))
options = st.fixed_dictionaries(
    {},
    optional={
        "boost": st.one_of(st.sampled_from([0, 1, 2.5, -1, "2", 1e300]), odd),
        "operator": st.sampled_from(["and", "or"]),
        "fuzziness": st.sampled_from(["AUTO", 0, "0", 2]),
        "type": st.sampled_from(["best_fields", "cross_fields", "phrase", "bool_prefix", "odd", 5]),
        "fields": st.one_of(names, st.lists(names, max_size=3), odd),
        "default_field": names,
        "_name": texts,
        "query": texts,
    },
)


def _one(kind: str, inner: Any) -> dict[str, Any]:
    return {kind: inner}


usual = st.builds(
    lambda kind, name, extra: {kind: {name: {"query": "laser printer", **extra}}},
    st.sampled_from(["match", "match", "match_phrase", "match_bool_prefix"]),
    st.sampled_from(["title", "text"]),
    st.sampled_from([{}, {"boost": 2}, {"operator": "and", "fuzziness": "AUTO"}]),
)
usual_fields = st.builds(
    lambda kind, fields: {kind: {"query": "laser printer", **fields}},
    st.sampled_from(["multi_match", "query_string", "simple_query_string", "combined_fields"]),
    st.sampled_from([{}, {"fields": ["title^3", "text"]}, {"fields": ["title", "title.grams"], "boost": 0.5}]),
)
leaves = st.one_of(
    usual,
    usual,
    usual_fields,
    usual_fields,
    st.builds(
        _one,
        st.sampled_from(["match", "match_phrase", "match_bool_prefix", "match_phrase_prefix", "prefix", "term"]),
        st.dictionaries(names, st.one_of(texts, options, odd), min_size=1, max_size=2),
    ),
    st.builds(
        _one,
        st.sampled_from(["multi_match", "combined_fields", "query_string", "simple_query_string", "more_like_this"]),
        options,
    ),
    st.sampled_from([{"match_all": {}}, {}, {"a": 1, "b": 2}, {"range": {"price": {"gte": 1}}}, {"bool": []}, {"knn": 5}]),
)  # fmt: skip


def _compound(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.one_of(below, st.lists(below, max_size=3))
    boolean = st.dictionaries(
        st.sampled_from(["must", "should", "filter", "must_not", "boost", "minimum_should_match"]), some, max_size=3
    )
    return st.one_of(
        st.builds(_one, st.just("bool"), boolean),
        st.builds(lambda q: {"dis_max": {"queries": q}}, some),
        st.builds(lambda q, o: {"function_score": {"query": q, **o}}, below, options),
        st.builds(lambda q: {"script_score": {"query": q}}, below),
        st.builds(lambda q, n: {"boosting": {"positive": q, "negative": n}}, below, below),
        st.builds(lambda q: {"nested": {"path": "p", "query": q}}, below),
        st.builds(lambda q: {"constant_score": {"filter": q}}, below),
        st.builds(lambda q: {"wrapper": {"query": base64.b64encode(json.dumps(q).encode()).decode()}}, below),
        st.builds(lambda q: {"hybrid": {"queries": q}}, some),
    )


queries = st.recursive(leaves, _compound, max_leaves=8)
retrievers = st.recursive(
    st.builds(lambda q: {"standard": {"query": q}}, queries),
    lambda below: st.one_of(
        st.builds(lambda r: {"rrf": {"retrievers": r}}, st.lists(below, max_size=3)),
        st.builds(lambda r: {"linear": {"retrievers": [{"retriever": r, "normalizer": "minmax"}]}}, below),
    ),
    max_leaves=3,
)
highlights = st.sampled_from([{}, {"fields": {"title": {}}}, {"highlight_query": {}}, [], None])
harmless = {
    "highlight": highlights,
    "sort": st.sampled_from(["_score", [], {"_score": "desc"}]),
    "size": st.sampled_from([10, None, 10**400]),
    "aggs": st.sampled_from([{}, {"a": {"terms": {"field": "color"}}}]),
    "collapse": st.builds(lambda h: {"field": "brand", "inner_hits": {"highlight": h}}, highlights),
    "rescore": st.builds(lambda q: {"query": {"rescore_query": q}}, queries),
    "knn": st.just({"query_vector": [0.1, 0.2]}),
}
refusing = {
    "sort": st.sampled_from([["price"], 5]),
    "size": st.sampled_from([0, "0"]),
    "aggs": st.sampled_from([{"a": {"top_hits": {}}}, "_score"]),
    "min_score": odd,
    "explain": st.booleans(),
}
plain_others = st.fixed_dictionaries({}, optional=harmless)
others = st.one_of(plain_others, plain_others, plain_others, st.fixed_dictionaries({}, optional=refusing))
bodies = st.one_of(
    st.builds(lambda q, o: {"query": q, **o}, queries, others),
    st.builds(lambda r, o: {"retriever": r, **o}, retrievers, others),
)


def check(raw: bytes, mode: Mode, coverage: Coverage) -> None:
    where = found(raw, mode)
    if isinstance(where, Passed):
        return
    assert where.body.encode() == raw
    after = rewrite(where, {t: expansion_of(t) for t in where.texts}, shaped(coverage, None))
    assert after.changed
    json.loads(after.body)
    query = where.body[where.query.start : where.query.end]
    assert without_ours(after.body.decode(), query).encode() == raw
    assert isinstance(found(after.body, mode), Passed)


@fuzz
@given(bodies, MODES, COVERAGE, st.sampled_from([None, 1]))
def test_any_sentence_of_the_query_language(body: Any, mode: Mode, coverage: Coverage, indent: int | None) -> None:
    check(json.dumps(body, indent=indent).encode(), mode, coverage)


@fuzz
@given(bodies, MODES, COVERAGE)
def test_python_values_and_bytes_agree(body: Any, mode: Mode, coverage: Coverage) -> None:
    where = locate(encoded(body), FIELDS, mode=mode)
    if isinstance(where, Located):
        expansions = {t: expansion_of(t) for t in where.texts}
        after = rewrite_dict(body, where, expansions, shaped(coverage))
        assert json.loads(json.dumps(after)) == json.loads(rewrite(where, expansions, shaped(coverage)).body)


json_values = st.recursive(
    st.one_of(odd, texts, st.floats()),
    lambda below: st.one_of(st.lists(below, max_size=4), st.dictionaries(st.text(max_size=5), below, max_size=4)),
    max_leaves=20,
)


@fuzz
@given(json_values, MODES)
def test_any_json(value: Any, mode: Mode) -> None:
    check(json.dumps(value).encode(), mode, "full")
    check(json.dumps({"query": value, "highlight": value, "sort": value}).encode(), mode, "full")


@fuzz
@given(st.binary(max_size=200), MODES)
def test_any_bytes(raw: bytes, mode: Mode) -> None:
    check(raw, mode, "full")
    check(b'{"query":{"match":{"title":"' + raw + b'"}}}', mode, "full")
    split_msearch(raw)


SEEDS = [c.body for c in captured()] if FOLDER else []
SEEDS += [
    b'{"query":{"bool":{"must":[{"match":{"title":"laser printer"}}],"filter":[{"term":{"color":"x"}}]}},"highlight":{}}',
    b'{"query":{"multi_match":{"query":"laser printer","fields":["title^3","text"]}},"size":10}',
]


@fuzz
@given(st.data(), MODES, COVERAGE)
def test_mutated_real_bodies(data: st.DataObject, mode: Mode, coverage: Coverage) -> None:
    raw = bytearray(data.draw(st.sampled_from(SEEDS)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        end = data.draw(st.integers(at, min(len(raw), at + 8)))
        raw[at:end] = data.draw(
            st.one_of(st.sampled_from([b"", b"{", b"}", b"[", b"]", b",", b'"', b"\\", b"1e999", b"NaN", b"null", b"\xff"]),
                      st.binary(max_size=3), st.just(bytes(raw[at:end]) * 2))
        )  # fmt: skip
    check(bytes(raw), mode, coverage)


@pytest.mark.parametrize(
    "opening", [b'{"bool":{"must":[', b'{"bool":{"must":', b"[", b'{"dis_max":{"queries":[', b'{"a":']
)
@pytest.mark.parametrize("key", [b"query", b"retriever", b"highlight", b"aggs", b"collapse", b"rescore"])
def test_nesting_of_ten_thousand_levels(key: bytes, opening: bytes) -> None:
    raw = b'{"query":{"match":{"title":"laser printer"}},"' + key + b'":' + opening * 10_000
    assert isinstance(found(raw), Passed)
    closing = opening.translate(bytes.maketrans(b"{[", b"}]"), delete=b'"abcdefghijklmnopqrstuvwxyz_:')[::-1]
    assert isinstance(found(raw + b"{}" + closing * 10_000 + b"}"), Passed)


@fuzz
@given(st.lists(st.one_of(st.sampled_from(SEEDS), st.just(b""), st.just(b"{}"), st.binary(max_size=5)), max_size=8))
def test_any_msearch_keeps_its_bytes(lines: list[bytes]) -> None:
    body = b"".join(line + b"\n" for line in lines)
    searches = split_msearch(body)
    if not isinstance(searches, Passed):
        assert join_msearch(body, searches, {}) == body
        assert join_msearch(body, searches, {i: s.line for i, s in enumerate(searches)}) == body
