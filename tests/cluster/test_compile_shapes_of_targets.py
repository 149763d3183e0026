"""Shapes of requests on targets of every kind: aliases, fields of fields, half enriched ones, and what users typed."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.counting import add, create
from cluster.searching import ANSWER, DOCUMENTS, ENGLISH, ENRICHED, QUERY, SIRA, settings_for
from sira_es.cluster.connect import Cluster
from sira_es.dsl.compile import Mode, Shape, compile_search, original_query
from sira_es.errors import UnsupportedError
from sira_es.sira import AsyncSira, SearchResult
from sira_es.vocabulary.model import Expansion
from tests.model_server import ModelServer

pytestmark = pytest.mark.anyio

PLAIN = {"title": ENGLISH, "text": ENGLISH}
Make = Callable[..., AsyncSira]


@pytest.fixture
async def make(node_url: str, tmp_path: Path) -> AsyncIterator[Make]:
    """Make a facade for an index; every query gets the same answer of a model."""
    made: list[AsyncSira] = []
    with ModelServer(default=ANSWER) as model:

        def one(index: str, **of_index: Any) -> AsyncSira:
            made.append(AsyncSira(settings_for(node_url, index, tmp_path, model, of_index=of_index)))
            return made[-1]

        yield one
        for sira in made:
            await sira.close()


def scores(result: SearchResult) -> dict[str, float]:
    return {h.id: h.score or 0.0 for h in result.hits}


def plain(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: d[k] for k in ("title", "text")} for d in documents]


async def test_our_field_in_one_of_three_indices_is_no_error_and_changes_no_score_elsewhere(
    cluster: Cluster, index_name: str, make: Make
) -> None:
    """elastic/elasticsearch#138245: a field that some indices of an alias lack."""
    for i in range(3):
        await create(cluster, f"{index_name}-{i}", properties=ENRICHED if i == 0 else PLAIN)
        await add(cluster, f"{index_name}-{i}", DOCUMENTS if i == 0 else plain(DOCUMENTS))
    actions = [{"add": {"index": f"{index_name}-{i}", "alias": f"{index_name}-all"}} for i in range(3)]
    await cluster.request("POST", "/_aliases", body={"actions": actions})
    result = await make(f"{index_name}-all").search(QUERY, f"{index_name}-all", size=50, deadline=math.inf)
    assert "enriched_terms" in json.dumps(result.request)
    one, other = ({h.id: h.score for h in result.hits if h.index == f"{index_name}-{i}"} for i in (1, 2))
    assert one == other
    assert {h.index for h in result.hits} == {f"{index_name}-{i}" for i in range(3)}
    without = await cluster.request(
        "POST", f"/{index_name}-1/_search", body={**result.request, "query": _without_ours(result.request["query"])}
    )
    assert {h["_id"]: h["_score"] for h in without["hits"]["hits"]} == pytest.approx(one, rel=1e-5)


def _without_ours(query: Any) -> Any:
    if isinstance(query, dict):
        return {k: _without_ours(v) for k, v in query.items()}
    if isinstance(query, list):
        return [_without_ours(v) for v in query if not str(v).startswith("enriched_terms")]
    return query


async def test_the_share_of_enriched_documents_switches_the_shape(
    cluster: Cluster, index_name: str, make: Make
) -> None:
    await create(cluster, index_name, properties=ENRICHED)
    await add(cluster, index_name, plain(DOCUMENTS) * 20)
    sira = make(index_name)

    async def shape(enriched: int) -> tuple[int, set[str]]:
        lines: list[Any] = []
        for i in range(enriched):
            doc = {"enriched_terms": ["tunnel"], "sira": {"source_hash": "x"}}
            lines += [{"update": {"_id": str(i)}}, {"doc": doc}]
        if lines:
            await cluster.request("POST", f"/{index_name}/_bulk", params={"refresh": True}, lines=lines)
        (await sira.frequencies()).forget()
        query = (await sira.compile(QUERY, index_name, deadline=math.inf))[0]["query"]["bool"]["should"]
        reach = sum("match" in c or c.get("multi_match", {}).get("type") == "cross_fields" for c in query[1:])
        weights = {f for c in query if c.get("multi_match", {}).get("type") == "best_fields"
                   for f in c["multi_match"]["fields"] if f.startswith("enriched")}  # fmt: skip
        return reach, weights

    assert await shape(0) == (0, set())
    assert await shape(1) == (1, {"enriched_terms"})
    assert await shape(117) == (1, {"enriched_terms"})
    assert await shape(118) == (2, {"enriched_terms^1.5"})


@pytest.mark.parametrize("mode", ["recall", "rerank", "rescore"])
async def test_multi_fields_objects_and_copies_are_searched(
    cluster: Cluster, index_name: str, make: Make, mode: Mode
) -> None:
    properties = {
        "title": {"type": "text", "copy_to": "all", "fields": {"stems": ENGLISH, "raw": {"type": "keyword"}}},
        "part": {"properties": {"text": ENGLISH}},
        "all": {"type": "text"},
        "enriched_terms": ENGLISH,
        "sira": SIRA,
    }
    await create(cluster, index_name, properties=properties)
    await add(cluster, index_name, [{"title": d["title"], "part": {"text": d["text"]}} for d in DOCUMENTS])
    sira = make(index_name, text_fields=["all", "title.stems^2", "part.text"])
    assert (await sira.shape(index_name)).one_analyzer is False
    original = await sira.search(QUERY, index_name, sides="baseline")
    result = await sira.search(QUERY, index_name, mode=mode, deadline=math.inf)
    assert set(scores(original)) <= set(scores(result))
    assert {"1", "3"} <= set(scores(result)) or mode != "recall"


async def test_a_nested_query_of_the_callers_is_left_alone(cluster: Cluster, index_name: str, make: Make) -> None:
    """elastic/elasticsearch#10840, #19193: a nested field needs its own path; expansions stand beside it, at the root."""
    nested = {"type": "nested", "properties": {"text": ENGLISH}}
    await create(cluster, index_name, properties={**ENRICHED, "comments": nested})
    await add(cluster, index_name, [{**d, "comments": [{"text": d["text"]}]} for d in DOCUMENTS])
    query = {"nested": {"path": "comments", "query": {"match": {"comments.text": QUERY}}}}
    sira = make(index_name)
    before = await sira.search(QUERY, index_name, sides="baseline", body={"query": query})
    after = await sira.search(QUERY, index_name, body={"query": query}, deadline=math.inf)
    assert after.request["query"]["bool"]["must"] == [query]
    assert set(scores(before)) == set(scores(after))
    assert all(scores(after)[i] >= score for i, score in scores(before).items())


async def test_a_text_field_inside_nested_objects_is_refused_with_the_remedy(
    cluster: Cluster, index_name: str, make: Make
) -> None:
    """elastic/elasticsearch#10753: multi_match on it would find nothing, and say nothing."""
    await create(cluster, index_name, properties={"comments": {"type": "nested", "properties": {"text": ENGLISH}}})
    with pytest.raises(UnsupportedError) as caught:
        await make(index_name, text_fields=["comments.text"]).search(QUERY, index_name)
    assert str(caught.value) == (
        f"text field 'comments.text' of '{index_name}' is inside the nested objects of 'comments'; "
        "all its text is nested: set text_fields to [enriched_terms] and read_fields to [comments.text]"
    )


@pytest.mark.parametrize("mode", ["recall", "rerank", "rescore"])
async def test_the_original_is_there_untouched_and_at_full_weight(
    cluster: Cluster, index_name: str, make: Make, mode: Mode
) -> None:
    """tobi/qmd#909: a variant without the discriminating word replaced the query."""
    await create(cluster, index_name, properties=ENRICHED)
    await add(cluster, index_name, DOCUMENTS)
    sira = make(index_name)
    result = await sira.search(QUERY, index_name, mode=mode, deadline=math.inf)
    query = result.request["query"]
    original = original_query(QUERY, await sira.shape(index_name))
    assert original in (query, *query.get("bool", {}).get("should", []), *query.get("bool", {}).get("must", []))
    assert "boost" not in original["multi_match"]
    before = await sira.search(QUERY, index_name, sides="baseline")
    assert set(scores(before)) <= set(scores(result))
    assert all(scores(result)[i] >= score - 1e-4 for i, score in scores(before).items())


@pytest.mark.parametrize("text", ["the the fan fan fan", "laptop hot laptop", "noise noise", QUERY])
async def test_a_query_that_repeats_words_scores_like_a_plain_match_to_the_last_digit(
    cluster: Cluster, index_name: str, text: str
) -> None:
    """AnOversizedMooseWithSocks/leCore#33: a query without its repetitions lost 6 points of nDCG@10."""
    await create(cluster, index_name, properties=ENRICHED)
    await add(cluster, index_name, DOCUMENTS)
    request = compile_search(text, Expansion(text, 6), Shape((("text", 1.0),)))
    found = []
    for body in (request, {"query": {"match": {"text": text}}}):
        answer = await cluster.request("POST", f"/{index_name}/_search", body=body)
        found.append([(h["_id"], h["_score"]) for h in answer["hits"]["hits"]])
    assert found[0] == found[1]
    assert found[0]


async def test_each_boost_is_seen_in_the_engines_explanation(cluster: Cluster, index_name: str, make: Make) -> None:
    """elastic/elasticsearch#129282: boosts were dropped where the engine rewrote the query."""
    await create(cluster, index_name, properties=PLAIN)
    await add(cluster, index_name, plain(DOCUMENTS))
    sira = make(index_name, text_fields=["title^3", "text"])
    request, expanded = await sira.compile(QUERY, index_name, deadline=math.inf)
    assert expanded is not None
    boosts = {t.word: t.boost for t in expanded.expansion.clauses}
    expected = {"1": [boosts["notebook"], 3 * boosts["fan"]], "0": [1.0, 3.0]}
    for doc, weights in expected.items():
        answer = await cluster.request("POST", f"/{index_name}/_explain/{doc}", body={"query": request["query"]})
        shown = _boosts(answer["explanation"])
        for weight in weights:  # with or without the factor k1 + 1, by engine; without it a boost of 1 is not mentioned
            assert weight == 1 or any(v == pytest.approx(weight * f, rel=1e-3) for v in shown for f in (1, 2.2)), (
                weight,
                shown,
            )


def _boosts(explanation: Any) -> list[float]:
    own = [explanation["value"]] if explanation["description"].startswith("boost") else []
    return own + [v for d in explanation["details"] for v in _boosts(d)]


async def test_a_query_of_200_distinct_words_over_two_fields_is_answered(
    cluster: Cluster, index_name: str, make: Make
) -> None:
    await create(cluster, index_name, properties=ENRICHED)
    await add(cluster, index_name, DOCUMENTS)
    text = " ".join(f"w{i}" for i in range(199)) + " laptop"
    sira = make(index_name)
    for mode in ("recall", "rerank", "rescore"):
        result = await sira.search(text, index_name, mode=mode, deadline=math.inf)  # type: ignore[arg-type]
        assert {h.id for h in result.hits} >= {"0"}
        assert result.expansion is not None
        assert result.expansion.origin


async def test_thirty_proposals_get_thirty_verdicts_that_stay_under_concurrent_writes(
    cluster: Cluster, index_name: str, node_url: str, tmp_path: Path
) -> None:
    """Term vectors with a `filter` are cut at 25 terms, and without routing come from a random copy
    (elastic/elasticsearch#21906).
    """
    await create(cluster, index_name, properties=ENRICHED, shards=3)
    words = [f"zw{c}x" for c in "abcdefghijklmnopqrstuvwxyzäöüß"]
    await add(cluster, index_name, [{"text": w} for w in words for _ in range(2)])
    with ModelServer(default=json.dumps({"terms": [[w, 0.9] for w in words]})) as model:
        async with AsyncSira(settings_for(node_url, index_name, tmp_path, model)) as sira:
            seen = set()
            for i in range(5):
                (await sira.frequencies()).forget()
                expanded = await sira.expand("something", index_name, deadline=math.inf)
                seen.add(tuple((t.word, t.df, t.verdict.value) for t in expanded.terms))
                await add(cluster, index_name, [{"text": "unrelated"}], _id=f"new{i}")
    assert len(seen) == 1
    assert len(next(iter(seen))) == 30
