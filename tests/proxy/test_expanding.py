"""Searches through the proxy on a real node: better order, the same hits, and everything else as it was."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from proxy.asking import AGAIN, ANSWERS, HOT, NONE, SLOW, TOGETHER, TYPED, call, match, search, settings
from proxy.running import Running
from tests.model_server import ModelServer

Start = Callable[..., Running]


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    with ModelServer(ANSWERS, latency=0.01) as server:
        yield server


@pytest.fixture(scope="module")
def shared(
    node_url: str, index: str, model: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("proxy"), settings(node_url, index, model)) as running:
        yield running


@pytest.fixture
def proxy(shared: Running, model: ModelServer) -> Running:
    """The proxy of this module; a text may have been expanded by an earlier test."""
    model.heal()
    model.forget()
    return shared


def test_the_better_document_comes_first_and_the_hits_stay_the_same(proxy: Running, node_url: str, index: str) -> None:
    plain, better = search(node_url, index, match(HOT)), search(proxy.url, index, match(HOT))
    assert plain.ids[0] == "hot"
    assert better.ids[0] == "fan"
    assert sorted(better.ids) == sorted(plain.ids)
    assert better.json["hits"]["total"] == plain.json["hits"]["total"]
    assert better.expansion in {"applied", "cached"}
    assert "sira-upstream;dur=" in better.headers["server-timing"]


def test_the_second_time_it_is_known(proxy: Running, index: str, model: ModelServer) -> None:
    first = search(proxy.url, index, match(AGAIN))
    second = search(proxy.url, index, match("  Laptop Hot AGAIN ", size=2, **{"from": 1}))
    assert (first.expansion, second.expansion) == ("applied", "cached")
    assert second.ids == first.ids[1:3]
    assert len(model.calls) == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"query": {"match_all": {}}}, "no text"),
        (match(HOT, sort=["kind"]), "not sorted by score"),
        (match(HOT, size=0), "size 0"),
        (match('"laptop gets hot"'), "text in quotes"),
        (match(HOT, explain=True), "explain or profile"),
        ({"query": {"match": {"text": "h"}}}, "short text"),
    ],
)
def test_what_must_not_be_touched_passes_with_a_reason(
    proxy: Running, node_url: str, index: str, model: ModelServer, body: object, reason: str
) -> None:
    plain, passed = search(node_url, index, body), search(proxy.url, index, body)
    assert passed.expansion == f"skipped; reason={reason}"
    assert passed.json["hits"] == plain.json["hits"]
    assert not model.calls


def test_an_index_without_configuration_passes(proxy: Running, node_url: str, index: str) -> None:
    for path in ("_search", "_all/_search", f"{index}*/_search", f"{index},{index}/_search"):
        passed = call(f"{proxy.url}/{path}", "POST", match(HOT, size=1))
        assert passed.expansion == "skipped; reason=not configured"


def test_a_pattern_that_no_index_matches_says_so(start: Start, node_url: str, index_name: str, recorded: str) -> None:
    pattern = f"{index_name}-*"
    proxy = start(settings(node_url, pattern), "--recorded", recorded)
    assert search(proxy.url, pattern, match(HOT)).expansion == "failed; reason=index look-up"
    why = call(f"{proxy.url}/_sira/expand?index={pattern}&q=laptop").json["error"]["reason"]
    assert f"no index matches '{pattern}'; create one, or correct the name" in why


def test_a_request_can_ask_for_the_plain_search(proxy: Running, node_url: str, index: str) -> None:
    """tobi/qmd#622: an off switch for each request."""
    plain = search(node_url, index, match(HOT))
    off = search(proxy.url, index, match(HOT), X_Sira="off")
    assert (off.expansion, off.ids) == ("skipped; reason=off", plain.ids)
    assert search(proxy.url, index, match(HOT), X_Sira="on").expansion == "skipped; reason=X-Sira is not understood"
    assert search(proxy.url, index, match(HOT), X_Sira="OFF").expansion == "skipped; reason=off"
    assert search(proxy.url, index, match(HOT), X_Sira="").expansion in {"applied", "cached"}


def test_recall_finds_what_the_text_alone_does_not(proxy: Running, node_url: str, index: str) -> None:
    assert "old" not in search(proxy.url, index, match(HOT)).ids
    assert "old" in search(proxy.url, index, match(HOT), X_Sira="recall").ids


def test_recall_becomes_rerank_where_a_filter_stands_beside(proxy: Running, index: str) -> None:
    body = {"query": {"bool": {"must": [match(HOT)["query"]], "filter": [{"terms": {"kind": ["hot", "fan"]}}]}}}
    assert search(proxy.url, index, body, X_Sira="recall").ids == ["fan", "hot"]


def test_rescore_ranks_without_changing_the_query(proxy: Running, node_url: str, index: str) -> None:
    rescored = search(proxy.url, index, match(HOT), X_Sira="rescore")
    assert rescored.ids[0] == "fan"
    assert sorted(rescored.ids) == sorted(search(node_url, index, match(HOT)).ids)


def test_rescue_steps_in_only_where_nothing_is_found(proxy: Running, index: str) -> None:
    strict = {"query": {"match": {"text": {"query": "garden laptop", "operator": "and"}}}}
    found = {"query": {"match": {"title": {"query": HOT, "operator": "or"}}}}
    assert search(proxy.url, index, found, X_Sira="rescue").expansion == "skipped; reason=found without"
    assert search(proxy.url, index, strict, X_Sira="rescue").ids == []  # the model knows no word for this text
    and_ = {"query": {"match": {"title": {"query": HOT, "operator": "and"}}}}
    rescued = search(proxy.url, index, and_, X_Sira="rescue")
    assert rescued.expansion in {"applied", "cached"}
    assert "fan" in rescued.ids


@pytest.mark.parametrize("counted", [True, 0, False])
@pytest.mark.parametrize("part", [{"from": 10}, {"size": 0, "aggs": {"k": {"terms": {"field": "kind"}}}}, {}])
def test_rescue_leaves_a_part_of_what_was_found_as_it_is(
    proxy: Running, node_url: str, index: str, counted: bool | int, part: dict[str, object]
) -> None:
    """A page behind the last hit, or facets alone, where the hits are not counted."""
    body = match(HOT, track_total_hits=counted, **part)
    plain, got = search(node_url, index, body).json, search(proxy.url, index, body, X_Sira="rescue")
    assert got.expansion == "skipped; reason=found without"
    assert (got.json["hits"], got.json.get("aggregations")) == (plain["hits"], plain.get("aggregations"))


def test_counts_agree_with_searches_in_mode_recall(proxy: Running, index: str) -> None:
    found = search(proxy.url, index, match(HOT), X_Sira="recall")
    counted = call(f"{proxy.url}/{index}/_count", "POST", match(HOT), X_Sira="recall")
    assert counted.json["count"] == found.json["hits"]["total"]["value"]


def test_highlights_show_only_what_the_user_typed(proxy: Running, node_url: str, index: str) -> None:
    """elastic/elasticsearch#5381, opensearch-project/OpenSearch#15280"""
    body = match(HOT, highlight={"fields": {"text": {}, "title": {}}})
    plain = {h["_id"]: h.get("highlight") for h in search(node_url, index, body).json["hits"]["hits"]}
    better = {h["_id"]: h.get("highlight") for h in search(proxy.url, index, body).json["hits"]["hits"]}
    assert better == plain


def test_facets_and_suggestions_stay_as_they_were(proxy: Running, node_url: str, index: str) -> None:
    """opensearch-project/neural-search#1374"""
    body = match(
        HOT,
        aggs={"kinds": {"terms": {"field": "kind"}}, "some": {"filter": match(HOT)["query"]}},
        suggest={"text": "laptob", "s": {"term": {"field": "text"}}},
        script_fields={},
        docvalue_fields=["kind"],
    )
    plain, better = search(node_url, index, body).json, search(proxy.url, index, body).json
    assert better["aggregations"] == plain["aggregations"]
    assert better["suggest"] == plain["suggest"]


def test_an_msearch_is_one_request_and_each_search_has_its_outcome(proxy: Running, node_url: str, index: str) -> None:
    """searchkit/searchkit#1278: `{}` headers, blank lines; one bad item does not fail the rest; order is kept."""
    lines = [
        {},
        match(HOT),
        {"index": "missing"},
        match(HOT),
        {"index": index},
        match(SLOW),
        {},
        {"query": {"match_all": {}}},
    ]
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines) + b"\n"
    got = call(f"{proxy.url}/{index}/_msearch", "POST", body, content_type="application/x-ndjson")
    responses = got.json["responses"]
    assert got.expansion in {"applied=2, skipped=2", "applied=1, cached=1, skipped=2"}
    assert next(h["_id"] for h in responses[0]["hits"]["hits"]) == "fan"
    assert responses[1]["status"] == 404
    assert next(h["_id"] for h in responses[2]["hits"]["hits"]) == "band"
    assert len(responses[3]["hits"]["hits"]) == 10


def test_a_search_of_an_msearch_whose_header_may_name_another_index_passes(
    proxy: Running, node_url: str, index: str
) -> None:
    lines: list[object] = []
    for header in ({"index": []}, {"index": index, "indices": [index]}, {}):
        lines += [header, match(HOT)]
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    got = call(f"{proxy.url}/{index}/_msearch", "POST", body, content_type="application/x-ndjson")
    assert got.expansion in {"applied=1, skipped=2", "cached=1, skipped=2"}


def test_a_compressed_search_is_read(proxy: Running, index: str) -> None:
    body = gzip.compress(json.dumps(match(HOT)).encode())
    assert search(proxy.url, index, body, content_encoding="gzip").ids[0] == "fan"


def test_a_compressed_answer_arrives_compressed(proxy: Running, index: str) -> None:
    got = search(proxy.url, index, match(HOT), accept_encoding="gzip")
    assert got.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(got.body))["hits"]["hits"][0]["_id"] == "fan"


def test_a_body_beyond_the_limit_passes_unread(proxy: Running, index: str) -> None:
    body = json.dumps(match(HOT)).encode() + b" " * (5 << 20)
    got = search(proxy.url, index, body)
    assert (got.status, got.expansion) == (200, "skipped; reason=body too large")


def test_the_model_is_asked_once_for_equal_texts_at_one_time(proxy: Running, index: str, model: ModelServer) -> None:
    with ThreadPoolExecutor(10) as pool:
        got = list(pool.map(lambda _: search(proxy.url, index, match(TOGETHER)), range(10)))
    assert {tuple(g.ids) for g in got} == {tuple(got[0].ids)}
    assert len(model.calls) == 1


def test_an_answer_that_comes_late_does_not_change_what_was_served(
    start: Start, node_url: str, index: str, model: ModelServer
) -> None:
    """Page 2 must agree with page 1, also where page 1 was not expanded."""
    model.heal()
    content = settings(node_url, index, model)
    content["llm"]["queries"]["deadline"] = "50ms"
    model.latency = 0.7
    try:
        proxy = start(content)
        first = search(proxy.url, index, match(HOT, size=2))
        time.sleep(1.5)
        second = search(proxy.url, index, match(HOT, size=2, **{"from": 2}))
    finally:
        model.latency = 0.01
    plain = search(node_url, index, match(HOT))
    assert first.expansion == second.expansion == "failed; reason=no answer from the model"
    assert first.ids + second.ids == plain.ids[:4]


def test_without_a_model_it_says_so_and_is_no_failure(start: Start, node_url: str, index: str) -> None:
    proxy = start(settings(node_url, index))
    assert search(proxy.url, index, match(HOT)).expansion == "skipped; reason=no model"
    assert search(proxy.url, index, match(HOT), X_Sira="recall").ids == search(node_url, index, match(HOT)).ids
    assert sum("no model is configured" in line for line in proxy.lines) == 1


def test_online_never_answers_at_once_and_learns_in_the_background(
    start: Start, node_url: str, index: str, model: ModelServer
) -> None:
    model.heal()
    model.forget()
    content = settings(node_url, index, model, online="never")
    proxy = start(content)
    assert search(proxy.url, index, match(HOT)).expansion == "skipped; reason=not stored"
    assert not model.calls
    give_up = time.monotonic() + 15
    while not model.calls and time.monotonic() < give_up:
        time.sleep(0.1)
    assert len(model.calls) == 1
    time.sleep(0.5)
    proxy.stop()
    again = Running(proxy.config.parent, content)
    with again:
        assert search(again.url, index, match(HOT)).ids[0] == "fan"


def test_a_text_that_just_grows_costs_no_model_call_a_keystroke(proxy: Running, index: str, model: ModelServer) -> None:
    for end in range(len("network b"), len(TYPED) + 1):
        search(proxy.url, index, match(TYPED[:end]))
    assert len(model.calls) == 1


def test_where_the_model_says_nothing_the_search_is_the_callers_own(proxy: Running, node_url: str, index: str) -> None:
    got = search(proxy.url, index, match(NONE))
    assert got.expansion.startswith(("skipped", "failed"))
    assert got.ids == search(node_url, index, match(NONE)).ids


def test_it_says_why(proxy: Running, index: str) -> None:
    said = call(f"{proxy.url}/_sira/expand?index={index}&q=laptop+gets+hot").json
    assert {t["word"]: t["verdict"] for t in said["terms"]}["overheating"] == "kept"
    assert call(f"{proxy.url}/_sira/expand?index=other&q=x").status == 400


def test_the_rewritten_search_scores_as_the_command_line_does(
    start: Start, node_url: str, index: str, model: ModelServer
) -> None:
    from sira_es.settings import load_settings
    from sira_es.sira import Sira

    proxy = start(settings(node_url, index, model))
    through = search(proxy.url, index, match(HOT)).json["hits"]["hits"]
    with Sira(load_settings(proxy.config)) as sira:
        direct = sira.search(HOT, index, mode="rerank", body=match(HOT))
    assert [(h["_id"], h["_score"]) for h in through] == [(h.id, h.score) for h in direct.hits]
