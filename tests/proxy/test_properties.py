"""Whatever is asked: a reranked search has the hits of the original, and what was rewritten is not rewritten again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.asking import ANSWERS, HOT, SLOW, search
from proxy.asking import settings as configuration
from proxy.running import RawNode, Running

# The same bodies in every run: how many of them are searches that may be rewritten is a matter of chance.
REPEATABLE: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "derandomize": True,
    "suppress_health_check": list(HealthCheck),
}
EXAMPLES = pytest.mark.parametrize("examples", [40, pytest.param(1500, marks=pytest.mark.slow)])
HITS = b'{"took":1,"timed_out":false,"_shards":{"total":1,"successful":1,"skipped":0,"failed":0},"hits":{"hits":[]}}'
FOUND = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(HITS) + HITS

texts = st.sampled_from([HOT, SLOW, HOT.title(), f'"{HOT}"', "nothing of interest", "bag"])
names = st.sampled_from(["title", "text"])
strict = st.sampled_from(
    [{}, {"operator": "and"}, {"minimum_should_match": "2<75%"}, {"fuzziness": "AUTO"}, {"boost": 3}]
)
several = st.sampled_from([["title"], ["title^3", "text"], ["text", "kind"]])
kinds = st.sampled_from(
    [{}, {"type": "cross_fields"}, {"type": "most_fields"}, {"type": "phrase"}, {"tie_breaker": 0.3}]
)
leaves = st.one_of(
    st.builds(lambda t, f, o: {"match": {f: {"query": t, **o}}}, texts, names, strict),
    st.builds(lambda t, f, o: {"multi_match": {"query": t, "fields": f, **o}}, texts, several, kinds),
    st.builds(lambda t, f: {"match_phrase": {f: t}}, texts, names),
    st.builds(lambda t: {"query_string": {"query": t, "fields": ["title", "text"]}}, texts),
    st.builds(lambda t: {"simple_query_string": {"query": t, "default_operator": "and"}}, texts),
    st.sampled_from([{"term": {"kind": "oth"}}, {"terms": {"kind": ["hot", "fan", "net"]}}, {"match_all": {}}]),
)


def _compound(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(below, min_size=1, max_size=3)
    occurs = st.dictionaries(st.sampled_from(["must", "should", "filter", "must_not"]), some, min_size=1, max_size=3)
    least = st.sampled_from([{}, {"minimum_should_match": 1}, {"minimum_should_match": "60%"}, {"boost": 2}])
    return st.one_of(
        st.builds(lambda o, m: {"bool": {**o, **m}}, occurs, least),
        st.builds(lambda q: {"dis_max": {"queries": q, "tie_breaker": 0.3}}, some),
        st.builds(lambda q: {"function_score": {"query": q, "weight": 2}}, below),
        st.builds(lambda q: {"constant_score": {"filter": q}}, below),
        st.builds(lambda q, n: {"boosting": {"positive": q, "negative": n, "negative_boost": 0.5}}, below, below),
    )


_more = st.fixed_dictionaries(
    {},
    optional={
        "aggs": st.just({"kinds": {"terms": {"field": "kind"}}}),
        "highlight": st.sampled_from([{"fields": {"title": {}, "text": {}}}, {"fields": {"*": {}}}]),
        "post_filter": st.just({"terms": {"kind": ["hot", "fan", "bag"]}}),
        "sort": st.sampled_from(["_score", ["_score", {"kind": "desc"}], ["kind"]]),
        "track_total_hits": st.booleans(),
        "suggest": st.just({"words": {"text": "lapto", "term": {"field": "text"}}}),
    },
)
bodies = st.builds(
    lambda query, more: {"query": query, "size": 50, **more}, st.recursive(leaves, _compound, max_leaves=6), _more
)


def recorded(folder: Path) -> list[str]:
    answers = folder / "answers.jsonl"
    answers.write_text("".join(json.dumps({"id": text, "answer": a}) + "\n" for text, a in ANSWERS.items()))
    return ["--recorded", str(answers)]


def without_order(answer: dict[str, Any]) -> dict[str, Any]:
    """All of an answer that a better order must not change."""
    hits = answer.pop("hits")
    kept = {h["_id"]: {k: v for k, v in h.items() if k not in {"_score", "sort"}} for h in hits["hits"]}
    return {**answer, "took": 0, "hits": kept, "total": hits.get("total")}


@EXAMPLES
def test_a_reranked_search_has_the_hits_of_the_original(
    node_url: str, index: str, tmp_path: Path, examples: int
) -> None:
    """elastic/elasticsearch#15858, #97396: totals, facets, suggestions and highlights as well."""
    rewritten = moved = 0

    with Running(tmp_path, configuration(node_url, index), *recorded(tmp_path)) as proxy:

        @settings(max_examples=examples, **REPEATABLE)
        @given(bodies)
        def check(body: dict[str, Any]) -> None:
            nonlocal rewritten, moved
            plain, better = search(node_url, index, body), search(proxy.url, index, body)
            assert better.status == plain.status == 200
            rewritten += better.expansion in {"applied", "cached"}
            moved += better.ids != plain.ids
            assert without_order(better.json) == without_order(plain.json), better.expansion

        check()
    assert rewritten > examples / 20
    assert moved


@EXAMPLES
def test_what_was_rewritten_is_not_rewritten_again(node_url: str, index: str, tmp_path: Path, examples: int) -> None:
    rewritten = 0

    with (
        RawNode(FOUND, relay=node_url) as node,
        Running(tmp_path, configuration(node.url, index), *recorded(tmp_path)) as proxy,
    ):

        @settings(max_examples=examples, **REPEATABLE)
        @given(bodies, st.sampled_from(["rerank", "recall", "rescore"]))
        def check(body: dict[str, Any], mode: str) -> None:
            nonlocal rewritten
            node.seen.clear()
            search(proxy.url, index, body, X_Sira=mode)
            once = node.seen[-1].body
            again = search(proxy.url, index, once, X_Sira=mode)
            assert node.seen[-1].body == once
            if once != json.dumps(body).encode():
                rewritten += 1
                assert again.expansion == "skipped; reason=rewritten already"

        check()
    assert rewritten > examples / 20
