"""Serverless offerings, emulated: a filter on the wire refuses what they refuse, a real node answers the rest."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from cluster.documents import fill, ids, make_index, read_all
from cluster.wire import Reply, Wire
from sira_es.cluster.connect import Cluster, connect
from sira_es.cluster.target import WHOLE, describe
from sira_es.errors import UnsupportedError
from sira_es.settings import ClusterSettings, Settings
from sira_es.sira import AsyncSira

pytestmark = pytest.mark.anyio

AMAZON = (
    "/", "/_search/scroll", "/.*/_termvectors", "/.*_mtermvectors", "/_nodes.*", "/_cluster/.*", "/_security/.*",
    "/.*/_refresh", "/.*/_search_shards", "/.*/_stats.*", "/_scripts.*",
)  # fmt: skip
ELASTIC = ("/_nodes.*", "/_cluster/.*", "/.*/_search_shards", "/.*/_stats.*", "/.*/_forcemerge")
PROFILES = {"amazon": AMAZON, "elastic": ELASTIC}

DOCUMENTS = {
    str(i): {"title": title, "text": text}
    for i, (title, text) in enumerate(
        [("Hot laptop", "dust blocks the fan"), ("Printer", "it is offline"), ("Notebooks", "they need a fan")] * 20
    )
}
ANSWER = {
    "concepts": [{"words": "hot", "need": 0.8, "same": [["dust", 0.6], ["unheard", 0.9]]}],
    "also": [["fan", 0.5]],
}


@pytest.fixture(params=["amazon", "elastic"])
async def serverless(request: pytest.FixtureRequest, cluster: Cluster, wire: Wire) -> Wire:
    """The wire as one of the two; it hides how many shards there are."""
    family = {"amazon": "opensearch", "elastic": "elasticsearch"}[request.param]
    if cluster.engine.family != family:
        pytest.skip(f"the other family's offering; this node is {cluster.engine.family}")
    for path in PROFILES[request.param]:
        wire.on(path, status=404 if request.param == "amazon" else 410, body={"error": "not available", "status": 404})

    async def without_shards(seen: Any, forward: Any) -> Reply:
        reply: Reply = await forward(seen)
        answer = reply.json
        for index in answer.values():
            index.get("settings", {}).pop("index.number_of_shards", None)
        return Reply(reply.status, json.dumps(answer).encode(), reply.headers)

    async def no_scroll(seen: Any, forward: Any) -> Reply:
        if "scroll" in seen.query:
            return Reply.of(400, {"error": "scroll is not available", "status": 400})
        reply: Reply = await forward(seen)
        return reply

    wire.on("/.*/_settings", handler=without_shards)
    wire.on("/(.*/)?_search", handler=no_scroll)
    return wire


@pytest.fixture
async def index(cluster: Cluster, index_name: str) -> str:
    english = {"type": "text", "analyzer": "english"}
    mappings = {"properties": {"title": english, "text": english}}
    await make_index(cluster, index_name, shards=3, mappings=mappings, settings={"refresh_interval": "200ms"})
    await fill(cluster, index_name, DOCUMENTS)
    return index_name


async def test_from_bare_to_better_search_and_back(serverless: Wire, index: str, tmp_path: Path) -> None:
    """[opensearch-api-specification#640, elasticsearch-dump#1019, opensearch-hadoop#586, ankane/searchkick#1714]"""
    answers = tmp_path / "documents.jsonl"
    lines = [{"id": i, "answer": json.dumps({"terms": ["overheating"]})} for i in DOCUMENTS]
    answers.write_text("".join(json.dumps(line) + "\n" for line in lines))
    queries = tmp_path / "queries.jsonl"
    queries.write_text(json.dumps({"id": "q", "text": "hot laptop", "answer": json.dumps(ANSWER)}) + "\n")
    settings = Settings(
        cluster={"url": serverless.url},
        state=tmp_path,
        indices={index: {"text_fields": ["title", "text"], "language": "en"}},
    )
    async with AsyncSira(settings, query_answers=queries, document_answers=answers) as sira:
        checks = {c.name: c for c in await sira.doctor(index)}
        assert {c.status for name, c in checks.items() if not name.startswith("llm")} <= {"ok", "warning"}
        report = await sira.enrich(index)
        assert (report.enriched, report.pending) == (len(DOCUMENTS), 0)
        expanded = await sira.expand("hot laptop", index, deadline=math.inf)
        assert {t.word: (t.df, t.verdict.value) for t in expanded.terms if t.word != "hot"} == {
            "dust": (20, "kept"),
            "fan": (40, "common"),
            "unheard": (0, "absent"),
        }
        result = await sira.search("hot laptop", index, size=100, deadline=math.inf)
        assert result.total == 20
        assert await sira.undo(index) == len(DOCUMENTS)
    assert serverless.count("/_search/scroll") == 0


async def test_every_document_is_read_without_seeing_shards(serverless: Wire, index: str) -> None:
    """Documents of several shards share a number: a page that begins behind the last one would leave some out."""
    through = await connect(ClusterSettings(url=serverless.url))
    try:
        target = await describe(through, index, ["text"])
        assert target.indices[0].reached == (WHOLE,)
        for size in (7, 10, 59, 60, 1000):
            assert ids(await read_all(through, target, page_size=size)) == sorted(DOCUMENTS), size
    finally:
        await through.close()


async def test_the_filter_of_an_alias_is_found_another_way(serverless: Wire, cluster: Cluster, index: str) -> None:
    alias = {"index": index, "alias": f"{index}-hot", "filter": {"match": {"title": "hot"}}}
    routed = {"index": index, "alias": f"{index}-one", "routing": "1"}
    await cluster.request("POST", "/_aliases", body={"actions": [{"add": alias}, {"add": routed}]})
    through = await connect(ClusterSettings(url=serverless.url))
    try:
        target = await describe(through, f"{index}-hot", ["text"])
        assert len(await read_all(through, target, page_size=7)) == 20
        with pytest.raises(UnsupportedError, match="by routing; name the index itself"):
            await describe(through, f"{index}-one", ["text"])
    finally:
        await through.close()
