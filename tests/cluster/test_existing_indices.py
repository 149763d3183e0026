"""Indices as enterprises have them: each is enriched and undone, or refused with the remedy before any cost."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.documents import fill, make_index, sources
from cluster.wire import Wire
from sira_es.cluster.connect import Cluster
from sira_es.enrich.report import EnrichReport
from sira_es.errors import SiraError
from sira_es.settings import Settings
from sira_es.sira import AsyncSira
from tests.model_server import ModelServer

pytestmark = pytest.mark.anyio

BODY = {"body": {"type": "text"}}
DOCUMENTS = {str(i): {"body": f"laptop number {i}", "price": i} for i in range(12)}
ADDED = "overheating machine"


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer({}, default=json.dumps({"terms": [ADDED]})) as server:
        yield server


Enrich = Callable[..., Awaitable[EnrichReport]]


@pytest.fixture
def opened(tmp_path: Path, model: ModelServer) -> Callable[..., AsyncSira]:
    """The facade for one name, with a model that adds the same phrase to every document."""
    stage = {"model": "openai/recorded", "api_base": model.api_base, "api_key": "none"}

    def make(url: str, name: str, fields: tuple[str, ...] = ("body",)) -> AsyncSira:
        indices = {name: {"text_fields": list(fields), "language": "en"}}
        return AsyncSira(Settings(cluster={"url": url}, llm={"documents": stage}, state=tmp_path, indices=indices))

    return make


@pytest.fixture
def refusal(opened: Callable[..., AsyncSira], model: ModelServer) -> Callable[..., Awaitable[str]]:
    """The one line with which an enrichment is refused; no model was called."""

    async def ask(url: str, name: str, fields: tuple[str, ...] = ("body",)) -> str:
        async with opened(url, name, fields) as sira:
            with pytest.raises(SiraError) as caught:
                await sira.enrich(name)
        assert model.calls == []
        text = str(caught.value)
        assert "\n" not in text
        return text

    return ask


async def works(sira: AsyncSira, cluster: Cluster, name: str, documents: dict[str, Any] | None = None) -> None:
    """Enriched whole, found by the added words, nothing else changed, and all of it undone."""
    documents = DOCUMENTS if documents is None else documents
    async with sira:
        report = await sira.enrich(name)
        assert (report.enriched, report.pending, dict(report.failed)) == (len(documents), 0, {})
        found = await sources(cluster, name)
        assert {k: without_ours(s) for k, s in found.items()} == documents
        assert all(s["enriched_terms"] == [ADDED] for s in found.values())
        assert (await sira.search(ADDED, name, deadline=math.inf)).total == len(documents)
        assert await sira.undo(name) == len(documents)
        assert {k: without_ours(s) for k, s in (await sources(cluster, name)).items()} == documents


def without_ours(source: dict[str, Any]) -> dict[str, Any]:
    """A source without our keys; where a cluster runs no scripts, undo leaves them as null."""
    return {k: v for k, v in source.items() if k not in {"sira", "enriched_terms"}}


# What works


@pytest.mark.parametrize(
    "mappings",
    [
        {"dynamic": "strict", "properties": {**BODY, "price": {"type": "integer"}}},
        {"dynamic": False, "properties": BODY},
        {
            "dynamic_templates": [{"all": {"match": "*", "mapping": {"type": "keyword", "index": False}}}],
            "properties": BODY,
        },
        {"_routing": {"required": True}, "properties": BODY},
        {"properties": {**BODY, "parts": {"type": "nested", "properties": {"name": {"type": "text"}}}}},
    ],
    ids=["strict", "dynamic off", "dynamic templates", "routing required", "nested beside"],
)
async def test_mappings_of_every_kind(
    opened: Any, cluster: Cluster, node_url: str, index_name: str, mappings: dict[str, Any]
) -> None:
    """[elastic/elasticsearch#89911: strict mappings]"""
    await make_index(cluster, index_name, shards=3, mappings=mappings)
    await fill(cluster, index_name, DOCUMENTS, routing="a" if "_routing" in mappings else None)
    await works(opened(node_url, index_name), cluster, index_name)


async def test_an_index_whose_objects_are_not_mapped_as_such(
    opened: Any, cluster: Cluster, node_url: str, index_name: str
) -> None:
    await make_index(cluster, index_name, mappings={"subobjects": False, "properties": BODY})
    await fill(cluster, index_name, DOCUMENTS)
    for _ in range(2):
        await works(opened(node_url, index_name), cluster, index_name)


async def test_an_index_that_gives_few_hits_at_a_time(
    opened: Any, cluster: Cluster, node_url: str, index_name: str
) -> None:
    await make_index(cluster, index_name, settings={"max_result_window": 5})
    await fill(cluster, index_name, DOCUMENTS)
    async with opened(node_url, index_name) as sira:
        assert (await sira.plan(index_name))["pending"] == len(DOCUMENTS)
        assert (await sira.enrich(index_name)).enriched == len(DOCUMENTS)


async def test_a_hidden_index(opened: Any, cluster: Cluster, node_url: str, index_name: str) -> None:
    name = f".{index_name}"
    await make_index(cluster, name, settings={"index.hidden": True})
    try:
        await fill(cluster, name, DOCUMENTS)
        await works(opened(node_url, name), cluster, name)
    finally:
        await cluster.request("DELETE", f"/{name}")


async def test_an_alias_over_three_indices_one_of_them_enriched_before(
    opened: Any, cluster: Cluster, node_url: str, index_name: str
) -> None:
    """[elastic/elasticsearch#65228: term vectors fail there; #138245: a field that is missing in some indices]"""
    parts = [f"{index_name}-{i}" for i in range(3)]
    actions: list[Any] = []
    for i, part in enumerate(parts):
        await make_index(cluster, part, mappings={"properties": BODY})
        await fill(cluster, part, {k: d for k, d in DOCUMENTS.items() if int(k) % 3 == i})
        actions.append({"add": {"index": part, "alias": f"{index_name}-all", "is_write_index": i == 2}})
    await cluster.request("POST", "/_aliases", body={"actions": actions})
    async with opened(node_url, parts[0]) as sira:
        await sira.enrich(parts[0])
    async with opened(node_url, f"{index_name}-all") as sira:
        plain = await sira.search("laptop", f"{index_name}-all", sides="baseline", size=20)
        expanded = await sira.expand("laptop", f"{index_name}-all", exact=True, deadline=math.inf)
        assert expanded.gathered.statistics.analyses[0].words[0].df == len(DOCUMENTS)  # over all, counted
        assert plain.total == len(DOCUMENTS)
    await works(opened(node_url, f"{index_name}-all"), cluster, f"{index_name}-all")


async def test_a_filtered_alias_enriches_what_it_shows(
    opened: Any, cluster: Cluster, node_url: str, index_name: str
) -> None:
    await make_index(cluster, index_name)
    await fill(cluster, index_name, DOCUMENTS)
    alias = {"index": index_name, "alias": f"{index_name}-some", "filter": {"range": {"price": {"lt": 4}}}}
    await cluster.request("POST", "/_aliases", body={"actions": [{"add": alias}]})
    async with opened(node_url, f"{index_name}-some") as sira:
        assert (await sira.enrich(f"{index_name}-some")).enriched == 4
    found = await sources(cluster, index_name)
    assert sorted(k for k, s in found.items() if "sira" in s) == ["0", "1", "2", "3"]


async def test_a_data_stream_and_its_rollover(opened: Any, cluster: Cluster, node_url: str, index_name: str) -> None:
    """Backing indices are updated; with our component in the index template a new one has the fields from its birth.

    [elastic/elasticsearch PR #87263, kibana#131295: data streams take only `create`]
    """
    await cluster.request("GET", f"/_data_stream/{index_name}*")
    template = {
        "index_patterns": [f"{index_name}*"],
        "data_stream": {},
        "priority": 1000,
        "template": {"settings": {"number_of_replicas": 0}, "mappings": {"properties": BODY}},
    }
    await cluster.request("PUT", f"/_index_template/{index_name}", body=template)
    component = ""
    try:
        await write_stream(cluster, index_name, 0)
        async with opened(node_url, index_name) as sira:
            assert (await sira.enrich(index_name)).enriched == 6
            component = await sira.install_template(index_name)
        composed = {**template, "composed_of": [component]}
        await cluster.request("PUT", f"/_index_template/{index_name}", body=composed)
        rolled = (await cluster.request("POST", f"/{index_name}/_rollover"))["new_index"]
        properties = (await cluster.request("GET", f"/{rolled}/_mapping"))[rolled]["mappings"]["properties"]
        assert properties["enriched_terms"]["type"] == "text"
        assert properties["sira"]["properties"]["source_hash"] == {"type": "keyword"}
        await write_stream(cluster, index_name, 6)
        async with opened(node_url, index_name) as sira:
            assert (await sira.enrich(index_name)).enriched == 12
    finally:
        await cluster.request("DELETE", f"/_data_stream/{index_name}")
        await cluster.request("DELETE", f"/_index_template/{index_name}")
        if component:
            await cluster.request("DELETE", f"/_component_template/{component}")


async def write_stream(cluster: Cluster, name: str, start: int) -> None:
    lines: list[Any] = []
    for i in range(start, start + 6):
        lines += [{"create": {"_id": str(i)}}, {"body": f"laptop {i}", "@timestamp": "2024-05-01T00:00:00Z"}]
    answer = await cluster.request("POST", f"/{name}/_bulk", params={"refresh": True}, lines=lines)
    assert not answer["errors"], answer


async def test_a_join_of_parents_and_children(opened: Any, wire: Wire, cluster: Cluster, index_name: str) -> None:
    """Emulated: no node here has the module; its field is in the mapping, children lie where their parents are."""
    await make_index(cluster, index_name, shards=3, mappings={"dynamic": False, "properties": BODY})
    parent = {"body": "a question", "relation": "question"}
    children = {str(i): {"body": f"laptop {i}", "relation": {"name": "answer", "parent": "q"}} for i in range(5)}
    await fill(cluster, index_name, {"q": parent, **children}, routing="q")

    def joined(answer: dict[str, Any]) -> None:
        relation = {"type": "join", "eager_global_ordinals": True, "relations": {"question": "answer"}}
        answer[index_name]["mappings"]["properties"]["relation"] = relation

    wire.on(f"/{index_name}/_mapping", method="GET", edit=joined)
    await works(opened(wire.url, index_name), cluster, index_name, {"q": parent, **children})


# What is refused, and how to go on


@pytest.mark.parametrize(
    ("mappings", "settings", "remedy"),
    [
        ({"_source": {"enabled": False}, "properties": BODY}, {}, "reindex with the whole _source"),
        ({"_source": {"excludes": ["price"]}, "properties": BODY}, {}, "reindex with the whole _source"),
        ({"properties": {**BODY, "sira": {"type": "keyword"}}}, {}, "rename that field"),
        ({"properties": BODY}, {"mapping.total_fields.limit": 4}, "raise index.mapping.total_fields.limit"),
        ({"properties": {"parts": {"type": "nested", "properties": BODY}}}, {}, "read_fields to [parts.body]"),
        ({"properties": {"body": {"type": "keyword"}}}, {}, "it has no text field"),
    ],
    ids=["no source", "pruned source", "name taken", "field limit", "nested only", "no text"],
)
async def test_indices_that_an_enrichment_would_harm_or_fail_on(
    refusal: Any,
    cluster: Cluster,
    node_url: str,
    index_name: str,
    mappings: dict[str, Any],
    settings: dict[str, Any],
    remedy: str,
) -> None:
    """[elastic/elasticsearch#133203, #89911, #10840; elasticsearch-py#552]"""
    await make_index(cluster, index_name, mappings=mappings, settings=settings)
    before = await cluster.request("GET", f"/{index_name}/_mapping")
    fields = ("parts.body",) if "parts" in mappings["properties"] else ("body",)
    text = await refusal(node_url, index_name, fields)
    assert remedy in text
    assert await cluster.request("GET", f"/{index_name}/_mapping") == before


@pytest.mark.parametrize("block", ["write", "read_only", "read_only_allow_delete", "read"])
async def test_blocked_indices(refusal: Any, cluster: Cluster, node_url: str, index_name: str, block: str) -> None:
    await make_index(cluster, index_name)
    await cluster.request("PUT", f"/{index_name}/_settings", body={f"index.blocks.{block}": True})
    try:
        assert f"index.blocks.{block} is set" in await refusal(node_url, index_name)
    finally:
        await cluster.request("PUT", f"/{index_name}/_settings", body={f"index.blocks.{block}": None})


async def test_an_index_whose_mapping_may_not_be_read(
    refusal: Any, cluster: Cluster, node_url: str, index_name: str
) -> None:
    await make_index(cluster, index_name)
    await cluster.request("PUT", f"/{index_name}/_settings", body={"index.blocks.metadata": True})
    try:
        assert "lift the block" in await refusal(node_url, index_name)
    finally:
        await cluster.request("PUT", f"/{index_name}/_settings", body={"index.blocks.metadata": None})


async def test_a_closed_index(refusal: Any, cluster: Cluster, node_url: str, index_name: str) -> None:
    await make_index(cluster, index_name)
    await cluster.request("POST", f"/{index_name}/_close")
    assert f"open it first: POST /{index_name}/_open" in await refusal(node_url, index_name)


async def test_an_index_of_another_cluster(refusal: Any, node_url: str) -> None:
    text = await refusal(node_url, "europe:docs")
    assert "'europe:docs' is on another cluster" in text
    assert "cluster.url" in text


async def test_a_mounted_snapshot(refusal: Any, wire: Wire, cluster: Cluster, index_name: str) -> None:
    """Emulated: no node here can mount one."""
    await make_index(cluster, index_name)

    def mounted(answer: dict[str, Any]) -> None:
        answer[index_name]["settings"]["index.store.type"] = "snapshot"

    wire.on(f"/{index_name}/_settings", edit=mounted)
    assert "restore it from its snapshot" in await refusal(wire.url, index_name)


async def test_a_role_that_may_not_update(refusal: Any, wire: Wire, cluster: Cluster, index_name: str) -> None:
    """Emulated; on a node with security in test_document_security.py. [elastic/elasticsearch PR #64426]"""
    await make_index(cluster, index_name)
    reason = (
        "Can't execute a bulk item request with update requests embedded if field or document level security is enabled"
    )
    item = {"update": {"_index": index_name, "status": 400, "error": {"type": "security_exception", "reason": reason}}}
    wire.on("/_bulk", status=200, body={"errors": True, "items": [item]})
    assert "enrich with a role without document- and field-level security" in await refusal(wire.url, index_name)
