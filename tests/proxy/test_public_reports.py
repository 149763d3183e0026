"""What users met with tools of this kind, each by its public report, on the way through the proxy."""

from __future__ import annotations

import base64
import json
import re
import secrets
import statistics
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.asking import ANSWERS, DOCUMENTS, HOT, Got, call, fill, match, search, settings
from proxy.running import RawNode, Running
from proxy.test_properties import FOUND, without_order
from tests.model_server import ModelServer

QUERY = match(HOT)["query"]


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    with ModelServer(ANSWERS) as server:
        yield server


@pytest.fixture(scope="module")
def index(node_url: str) -> Iterator[str]:
    name = f"test-{secrets.token_hex(6)}"
    ids = [("cve", "Fix of CVE-2024-3094", "liblzma"), ("sku", "Toner", "fits WH-1000XM4 and others")]
    fill(node_url, name, [*DOCUMENTS, *ids])
    yield name
    call(f"{node_url}/{name}", "DELETE")


@pytest.fixture(scope="module")
def proxy(node_url: str, index: str, model: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("proxy"), settings(node_url, index, model)) as running:
        assert search(running.url, index, match(HOT)).expansion == "applied"
        yield running


@pytest.fixture(scope="module")
def node(node_url: str) -> Iterator[RawNode]:
    """It keeps the searches as they stood on the wire."""
    with RawNode(FOUND, relay=node_url) as running:
        yield running


@pytest.fixture(scope="module")
def wired(node: RawNode, index: str, model: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("wired"), settings(node.url, index, model)) as running:
        yield running


def wrapped(query: object) -> dict[str, Any]:
    return {"wrapper": {"query": base64.b64encode(json.dumps(query).encode()).decode()}}


def hits(got: Got) -> dict[str, Any]:
    return {h["_id"]: {k: v for k, v in h.items() if k not in {"_score", "sort"}} for h in got.json["hits"]["hits"]}


MANY_KEYS: dict[str, Any] = {
    "from": 5,
    "size": 7,
    "timeout": "9s",
    "terminate_after": 100000,
    "track_total_hits": 10000,
    "track_scores": True,
    "sort": ["_score", {"kind": "desc"}],
    "search_after": [1.5, "x"],
    "_source": {"includes": ["t*"], "excludes": ["text"]},
    "fields": ["title"],
    "stored_fields": ["_none_"],
    "docvalue_fields": [{"field": "kind"}],
    "script_fields": {"one": {"script": {"source": "1 + params.query", "params": {"query": 1}}}},
    "runtime_mappings": {"day": {"type": "keyword", "script": {"source": "emit('match')"}}},
    "aggs": {"all": {"global": {}, "aggs": {"hot": {"filter": QUERY}}}, "f": {"filters": {"filters": {"q": QUERY}}}},
    "post_filter": QUERY,
    "collapse": {"field": "kind", "inner_hits": {"name": "more", "size": 2, "sort": [{"kind": "asc"}]}},
    "rescore": {"window_size": 20, "query": {"rescore_query": QUERY, "query_weight": 0.7}},
    "knn": {"field": "v", "query_vector": [0.10000000149011612, 1e-7], "k": 3, "num_candidates": 9, "filter": QUERY},
    "suggest": {"text": HOT, "words": {"term": {"field": "text"}}},
    "indices_boost": [{"a": 1.5}],
    "explain": True,
    "profile": True,
    "version": True,
    "seq_no_primary_term": True,
    "stats": ["group"],
    "batched_reduce_size": 64,
    "ext": {"anything": {"query": QUERY}},
    "slice": {"id": 0, "max": 2},
    "a_key_of_tomorrow": {"query": {"match": {"title": HOT}}},
}


def test_of_a_body_with_thirty_keys_only_the_query_differs(wired: Running, node: RawNode, index: str) -> None:
    """opensearch-project/ml-commons#2841: size, from, aggs and other keys were dropped silently."""
    assert len(MANY_KEYS) == 30
    head, tail = json.dumps(MANY_KEYS)[:-1] + ', "query": ', ' , "last" : 1e3 }\n'
    node.seen.clear()
    got = search(wired.url, index, (head + json.dumps(QUERY) + tail).encode(), X_Sira="rerank")
    assert got.expansion in {"applied", "cached"}
    sent = node.seen[-1].body.decode()
    assert sent.startswith(head)
    assert sent.endswith(tail)
    better = sent[len(head) : -len(tail)]
    assert json.loads(better)["bool"]["must"] == [QUERY]
    assert json.dumps(QUERY) in better
    assert "overheating" in better


def test_a_point_in_time_passes_byte_for_byte(wired: Running, node: RawNode) -> None:
    """opensearch-project/ml-commons#2841: its index is not in the request."""
    body = b'{"pit":{"id":"abc","keep_alive":"1m"}, "query":%s}' % json.dumps(QUERY).encode()
    node.seen.clear()
    call(f"{wired.url}/_search", "POST", body)
    assert node.seen[-1].body == body


def test_what_comes_back_with_each_hit_is_what_came_back_before(proxy: Running, node_url: str, index: str) -> None:
    """opensearch-project/OpenSearch#17157: script fields, doc values and inner hits stay as they are."""
    asked = {
        "script_fields": {
            "length": {"script": {"source": "doc['kind'].value.length() * params.by", "params": {"by": 2}}}
        },
        "docvalue_fields": ["kind"],
        "fields": ["title"],
        "_source": ["title"],
        "version": True,
        "seq_no_primary_term": True,
    }
    inner = {
        "collapse": {"field": "kind", "inner_hits": {"name": "same", "size": 5, "sort": [{"kind": "asc"}, "_doc"]}}
    }
    for more in (asked, inner, asked | inner):
        body = match(HOT, size=50, **more)
        plain, better = search(node_url, index, body), search(proxy.url, index, body)
        if plain.status == 400 and "script" in str(plain.json):
            del asked["script_fields"]  # a node without a scripting language
            continue
        assert (plain.status, better.expansion) == (200, "cached")
        assert better.ids != plain.ids
        assert without_scores(hits(better)) == without_scores(hits(plain))
        assert any("script_fields" not in more or "length" in h["fields"] for h in hits(better).values())


def without_scores(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_scores(v) for k, v in value.items() if k not in {"_score", "max_score", "sort"}}
    return [without_scores(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "query",
    [
        wrapped(QUERY),
        wrapped(wrapped(QUERY)),
        {"bool": {"must": [wrapped(QUERY)], "filter": [{"exists": {"field": "kind"}}]}},
    ],
    ids=["alone", "twice", "beside a filter"],
)
def test_text_that_is_wrapped_is_found_and_stays_wrapped(
    proxy: Running, wired: Running, node: RawNode, node_url: str, index: str, query: Any
) -> None:
    """opensearch-project/dashboards-search-relevance#834"""
    body = {"query": query, "size": 50}
    plain, better = search(node_url, index, body), search(proxy.url, index, body)
    assert better.expansion == "cached"
    assert better.ids[0] == "fan" != plain.ids[0]
    assert hits(better) == hits(plain)
    node.seen.clear()
    search(wired.url, index, body)
    packed = re.findall(r'"wrapper": \{"query": "[^"]+"\}', json.dumps(query))
    assert all(one in node.seen[-1].body.decode() for one in packed)


@pytest.mark.parametrize("content", ["", "!!!", "e30=", "bm90IEpTT04=", "/////w==", "eyJtYXRjaCI6", None, 5, {"a": 1}])
def test_what_cannot_be_unwrapped_has_the_clusters_own_answer(
    proxy: Running, node_url: str, index: str, content: Any
) -> None:
    """opensearch-project/dashboards-search-relevance#834: never an error of ours."""
    body = {"query": {"wrapper": {"query": content}}}
    plain, got = search(node_url, index, body), search(proxy.url, index, body)
    assert got.status == plain.status
    assert got.json.get("error") == plain.json.get("error")
    assert got.expansion.startswith("skipped")


@pytest.mark.parametrize("option", ["max_analyzed_offset", "max_analyzer_offset", "no_such_option"])
@pytest.mark.parametrize("value", [1000, "x"])
def test_options_of_one_engine_or_none_are_for_the_cluster_to_judge(
    proxy: Running, node_url: str, index: str, option: str, value: Any
) -> None:
    """ICIJ/datashare#2383: the engines name it differently, and refuse what they do not know."""
    body = match(HOT, size=50, highlight={"fields": {"text": {}, "title": {}}, option: value})
    plain, got = search(node_url, index, body), search(proxy.url, index, body)
    assert got.status == plain.status
    if plain.status == 200:
        assert without_order(got.json) == without_order(plain.json)
        assert got.expansion == "cached"
    else:
        assert got.json == plain.json


def test_templates_are_rendered_by_the_cluster(proxy: Running, node_url: str, index: str) -> None:
    """opensearch-project/OpenSearch#15748, #18508: _search/template and _msearch/template pass."""
    template = {"source": {"query": {"match": {"title": "{{words}}"}}}, "params": {"words": HOT}}
    plain, got = (call(f"{url}/{index}/_search/template", "POST", template) for url in (node_url, proxy.url))
    if plain.status in {400, 405}:
        pytest.skip("no templates on this node")
    assert got.ids == plain.ids != []
    lines = b"".join(json.dumps(line).encode() + b"\n" for line in ({"index": index}, template))
    plain, got = (call(f"{url}/_msearch/template", "POST", lines) for url in (node_url, proxy.url))
    found = [[h["_id"] for h in one.json["responses"][0]["hits"]["hits"]] for one in (plain, got)]
    assert found[0] == found[1] != []


@pytest.mark.parametrize(
    ("text", "first"), [("CVE-2024-3094", "cve"), ("WH-1000XM4", "sku"), ("+49 30 901820", ""), ("PROJ-4711", "")]
)
def test_a_number_of_something_is_searched_for_as_it_is(
    proxy: Running, node_url: str, index: str, model: ModelServer, text: str, first: str
) -> None:
    """elastic/kibana#282451: what stood first for an exact identifier stands first, and no model is called."""
    model.forget()
    plain, got = search(node_url, index, match(text)), search(proxy.url, index, match(text))
    assert got.expansion.startswith("skipped")
    assert got.ids == plain.ids
    assert got.ids[:1] == ([first] if first else [])
    assert not model.calls


def test_a_search_that_was_expanded_before_waits_for_nothing(proxy: Running, index: str) -> None:
    """schuecl/nexus-rag#698: expansion cost 728 ms; here what precedes the cluster takes less than 5 ms."""
    ours = []
    for _ in range(30):
        got = search(proxy.url, index, match(HOT))
        assert got.expansion == "cached"
        stages = dict(re.findall(r"sira-(\w+);dur=([\d.]+)", got.headers["server-timing"]))
        ours.append(sum(float(ms) for stage, ms in stages.items() if stage != "upstream"))
    assert statistics.median(ours) < 5


def test_clauses_of_strict_searches_stay_and_find_the_same(proxy: Running, node_url: str, index: str) -> None:
    """elastic/elasticsearch#15858, #10001, #10394, #45841, #97396: msm, `and`, cross_fields, best_fields keep their hits."""
    both = {"query": HOT, "fields": ["title", "text"]}
    for clause in (
        {"match": {"text": {"query": HOT, "minimum_should_match": "75%"}}},
        {"multi_match": {**both, "minimum_should_match": "2<75%"}},
        {"multi_match": {**both, "type": "cross_fields", "operator": "and"}},
        {"multi_match": {**both, "type": "best_fields", "tie_breaker": 0.2}},
        {"bool": {"should": [{"match": {"title": HOT}}, {"match_phrase": {"text": HOT}}], "minimum_should_match": 1}},
    ):
        body = {"query": clause, "size": 50}
        plain, better = search(node_url, index, body), search(proxy.url, index, body)
        assert better.expansion == "cached", clause
        assert hits(better) == hits(plain) != {}
        wider = search(proxy.url, index, body, X_Sira="recall")
        assert set(plain.ids) <= set(wider.ids)


def test_words_that_mean_something_in_a_query_string_are_only_words(
    node_url: str, index: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """elastic/elasticsearch#21288, #9153, #23990: what a model says may hold any character."""
    words = ["C++", "AC/DC", "(1+1)=2", "NOT fan", "foo:bar", 'a"b', "back\\slash", "fan", "[1 TO", "x~2^3", "*"]
    answer = json.dumps({"terms": [[word, 0.9] for word in words]})
    with ModelServer(default=answer) as odd:
        with Running(tmp_path_factory.mktemp("odd"), settings(node_url, index, odd)) as proxy:
            for mode in ("rerank", "recall", "rescore"):
                got = search(proxy.url, index, match(HOT, size=50), X_Sira=mode)
                assert (got.status, got.expansion.split(";")[0] in {"applied", "cached"}) == (200, True)
            said = call(f"{proxy.url}/_sira/expand?index={index}&q=laptop+gets+hot").json
        assert {t["word"] for t in said["terms"]} >= {"fan"}
