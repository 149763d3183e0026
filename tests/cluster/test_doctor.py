"""`doctor`: each line says ok where all is well, and what is wrong, with the remedy, on a cluster made to fail it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cluster.documents import fill, make_index
from cluster.wire import Wire
from sira_es.cluster.checks import Check
from sira_es.cluster.connect import Cluster
from sira_es.settings import Settings
from sira_es.sira import AsyncSira
from tests.model_server import Fault, ModelServer

pytestmark = pytest.mark.anyio
Doctor = Callable[..., Any]


@pytest.fixture
def doctor(wire: Wire, index_name: str, tmp_path: Path, anyio_backend: str) -> Doctor:
    """The lines of a doctor on the index through the wire, by their names."""

    async def ask(
        fields: tuple[str, ...] = ("body",), *, live: bool = False, index: str = index_name, **parts: Any
    ) -> dict[str, Check]:
        settings = Settings(
            cluster={"url": wire.url}, state=tmp_path, indices={index: {"text_fields": list(fields)}}, **parts
        )
        async with AsyncSira(settings) as sira:
            return {check.name: check for check in await sira.doctor(index, live=live)}

    return ask


def failing(checks: dict[str, Check]) -> dict[str, str]:
    """The lines of the cluster that are not ok; none without a remedy."""
    found = {c.name: c.status for c in checks.values() if c.status != "ok" and not c.name.startswith("llm")}
    assert all(checks[name].remedy for name in found)
    return found


async def test_all_is_well(doctor: Doctor, cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name)
    checks = await doctor()
    assert failing(checks) == {}
    assert {"engine", "clauses", "index", "text fields", "_source", "writable", "mapping", "pipelines"} <= set(checks)
    assert {"disk", "privileges", "updates"} <= set(checks)
    assert str(cluster.engine) in checks["engine"].detail
    assert checks["updates"].detail == "allowed"
    assert "free below the high watermark" in checks["disk"].detail
    assert (await cluster.request("GET", f"/{index_name}/_count"))["count"] == 0  # asking wrote nothing


# Cluster


async def test_a_cluster_that_does_not_answer(tmp_path: Path) -> None:
    async with AsyncSira(Settings(cluster={"url": "http://127.0.0.1:1"}, state=tmp_path)) as sira:
        check, *models = await sira.doctor()
    assert (check.name, check.status) == ("cluster", "problem")
    assert "connection refused" in check.detail
    assert [c.name for c in models] == ["llm documents", "llm queries"]


async def test_a_cluster_that_does_not_tell_its_version(
    doctor: Doctor, wire: Wire, cluster: Cluster, index_name: str
) -> None:
    async with aiohttp.ClientSession() as client, client.get(f"{wire.url}/_cluster/health") as answer:
        if "x-opensearch-version" in answer.headers:
            pytest.skip("this node tells its version in a header of every answer")
    await make_index(cluster, index_name)
    refusal = {"error": {"type": "security_exception", "reason": "no"}, "status": 403}
    wire.on("/|/_nodes.*|/_cluster/.*", status=403, body=refusal, headers=product(cluster))
    checks = await doctor()
    assert failing(checks) == {"engine": "warning"}
    assert "version unknown" in checks["engine"].detail
    assert "monitor" in checks["engine"].remedy
    assert "the smallest there is" in checks["clauses"].detail
    assert checks["disk"].detail.startswith("not asked")


def product(cluster: Cluster) -> dict[str, str]:
    return {"x-elastic-product": "Elasticsearch"} if cluster.engine.family == "elasticsearch" else {}


async def test_an_engine_too_old_for_a_complete_scan(
    doctor: Doctor, wire: Wire, cluster: Cluster, index_name: str
) -> None:
    """Emulated: no engine that old is among the nodes."""
    await make_index(cluster, index_name)
    if cluster.engine.family == "opensearch":
        old = {"version": {"number": "1.3.0", "distribution": "opensearch"}}
    else:
        old = {"version": {"number": "7.8.0"}}
    wire.on("/", status=200, body=old, headers=product(cluster))
    checks = await doctor()
    assert failing(checks)["engine"] == "warning"
    assert "upgrade it" in checks["engine"].remedy


# Index


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("-closed", "open it first"), ("-other", "no index, alias or data stream")],
)
async def test_an_index_that_is_missing_or_closed(
    doctor: Doctor, cluster: Cluster, index_name: str, name: str, remedy: str
) -> None:
    await make_index(cluster, f"{index_name}-closed")
    await cluster.request("POST", f"/{index_name}-closed/_close")
    check = (await doctor(index=index_name + name))["index"]
    assert check.status == "problem"
    assert remedy in f"{check.detail} {check.remedy}"


async def test_fields_that_analyse_differently(doctor: Doctor, cluster: Cluster, index_name: str) -> None:
    mappings = {"properties": {"body": {"type": "text"}, "title": {"type": "text", "analyzer": "whitespace"}}}
    await make_index(cluster, index_name, mappings=mappings)
    checks = await doctor(("title", "body"))
    assert failing(checks) == {"text fields": "warning"}
    assert checks["text fields"].detail == "title (whitespace), body (default) analyse differently"


@pytest.mark.parametrize(
    ("source", "status"), [({"enabled": False}, "problem"), ({"excludes": ["body"]}, "problem")], ids=str
)
async def test_a_source_that_an_update_would_prune(
    doctor: Doctor, cluster: Cluster, index_name: str, source: dict[str, Any], status: str
) -> None:
    """[elastic/elasticsearch#133203]"""
    await make_index(cluster, index_name, mappings={"_source": source, "properties": {"body": {"type": "text"}}})
    assert failing(await doctor())["_source"] == status


async def test_a_synthetic_source(doctor: Doctor, cluster: Cluster, index_name: str) -> None:
    if cluster.engine.family == "opensearch":
        settings: dict[str, Any] = {"index.derived_source.enabled": True}
    else:
        settings = {"index.mapping.source.mode": "synthetic"}
    await make_index(
        cluster, index_name, settings=settings, mappings={"properties": {"body": {"type": "text", "store": True}}}
    )
    assert "_source" not in failing(await doctor())


@pytest.mark.parametrize("block", ["write", "read_only", "read_only_allow_delete", "metadata"])
async def test_blocks(doctor: Doctor, cluster: Cluster, index_name: str, block: str) -> None:
    await make_index(cluster, index_name)
    await cluster.request("PUT", f"/{index_name}/_settings", body={f"index.blocks.{block}": True})
    try:
        checks = await doctor()
        if checks["index"].status == "ok":  # Elasticsearch and OpenSearch do not show an index under `metadata`
            assert failing(checks) == {"writable": "problem"}
            assert f"index.blocks.{block}" in checks["writable"].detail
        assert "index" in checks
    finally:
        await cluster.request("PUT", f"/{index_name}/_settings", body={f"index.blocks.{block}": None})


async def test_a_searchable_snapshot(doctor: Doctor, wire: Wire, cluster: Cluster, index_name: str) -> None:
    """Emulated: frozen and cold tiers mount snapshots, which no node here can."""
    await make_index(cluster, index_name)

    def mounted(answer: dict[str, Any]) -> None:
        answer[index_name]["settings"] |= {"index.store.type": "snapshot", "index.blocks.write": "true"}

    wire.on(f"/{index_name}/_settings", edit=mounted)
    checks = await doctor()
    assert failing(checks) == {"writable": "problem"}
    assert "restore it" in checks["writable"].remedy


async def test_999_of_1000_fields(doctor: Doctor, cluster: Cluster, index_name: str) -> None:
    """[elastic/elasticsearch#89911, elasticsearch-py#552]"""
    fields = {f"f{i}": {"type": "keyword"} for i in range(998)}
    await make_index(cluster, index_name, mappings={"properties": {"body": {"type": "text"}, **fields}})
    checks = await doctor()
    assert failing(checks) == {"mapping": "problem"}
    assert checks["mapping"].detail == "999 of 1000 fields are used, 5 more are needed"


@pytest.mark.parametrize("name", ["enriched_terms", "sira"])
async def test_a_name_that_is_taken(doctor: Doctor, cluster: Cluster, index_name: str, name: str) -> None:
    mappings = {"properties": {"body": {"type": "text"}, name: {"type": "keyword"}}}
    await make_index(cluster, index_name, mappings=mappings)
    assert failing(await doctor()) == {"mapping": "problem"}


async def test_pipelines_are_told(doctor: Doctor, wire: Wire, cluster: Cluster, index_name: str) -> None:
    """[elastic/elasticsearch#36219, #105804; OpenSearch#16663: which writes run them]"""
    await make_index(cluster, index_name)

    def piped(answer: dict[str, Any]) -> None:
        answer[index_name]["settings"]["index.final_pipeline"] = "audit"

    wire.on(f"/{index_name}/_settings", edit=piped)
    assert "final_pipeline audit: not run by our bulk updates" in (await doctor())["pipelines"].detail


async def test_fields_that_ask_an_inference_endpoint(
    doctor: Doctor, wire: Wire, cluster: Cluster, index_name: str
) -> None:
    """Emulated: semantic_text needs an inference endpoint, which no node here has. [elastic/elasticsearch PR #108880]"""
    await make_index(cluster, index_name)

    def semantic(answer: dict[str, Any]) -> None:
        answer[index_name]["mappings"]["properties"]["meaning"] = {"type": "semantic_text"}

    wire.on(f"/{index_name}/_mapping", edit=semantic)
    checks = await doctor()
    assert failing(checks) == {"inference": "warning"}
    assert "meaning" in checks["inference"].detail


async def test_an_index_under_a_lifecycle_policy(doctor: Doctor, wire: Wire, cluster: Cluster, index_name: str) -> None:
    """Emulated: lifecycle policies are in no node here."""
    await make_index(cluster, index_name)

    def governed(answer: dict[str, Any]) -> None:
        answer[index_name]["settings"]["index.lifecycle.name"] = "hot-warm"

    wire.on(f"/{index_name}/_settings", edit=governed)
    assert "--template" in (await doctor())["rollover"].detail


async def test_a_disk_without_room(doctor: Doctor, wire: Wire, cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name)
    await fill(cluster, index_name, 3)

    def full(answer: dict[str, Any]) -> None:
        for node in answer["nodes"].values():
            node["fs"]["total"]["available_in_bytes"] = node["fs"]["total"]["total_in_bytes"] // 11

    wire.on("/_nodes/stats/fs", edit=full)
    checks = await doctor()
    assert failing(checks) == {"disk": "warning"}
    assert checks["disk"].detail.startswith("0.0 MB free")


# Privileges; on a node with security on in test_roles.py


@pytest.mark.parametrize(
    ("missing", "status"), [("read", "problem"), ("view_index_metadata", "problem"), ("index", "warning")]
)
async def test_a_missing_privilege_is_named(
    doctor: Doctor, wire: Wire, cluster: Cluster, index_name: str, missing: str, status: str
) -> None:
    await make_index(cluster, index_name)
    granted = {p: p != missing for p in ("read", "view_index_metadata", "index", "indices:admin/mapping/put")}
    wire.on("/_security/user/_has_privileges", status=200, body={"index": {index_name: granted}})
    checks = await doctor()
    assert failing(checks) == {"privileges": status}
    assert missing in checks["privileges"].detail


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (
            {"type": "security_exception", "reason": "Can't execute a bulk item request with update requests embedded if "
             "field or document level security is enabled"},
            "updates are refused (Can't execute",
        ),
        (
            {"type": "security_exception", "reason": "no permissions for [indices:data/write/update] and User [name=jo]"},
            "missing to enrich: indices:data/write/update",
        ),
    ],
    ids=["document security", "OpenSearch role"],
)  # fmt: skip
async def test_updates_that_a_role_may_not_make(
    doctor: Doctor, wire: Wire, cluster: Cluster, index_name: str, error: dict[str, str], detail: str
) -> None:
    """The second as the security plugin of OpenSearch words it, which no node here has."""
    await make_index(cluster, index_name)
    item = {"update": {"_index": index_name, "_id": "1", "status": 403, "error": error}}
    wire.on("/_bulk", status=200, body={"errors": True, "items": [item]})
    checks = await doctor()
    assert failing(checks) == {"updates": "warning"}
    assert checks["updates"].detail.startswith(detail)


# Models


def stages(server: ModelServer, **more: Any) -> dict[str, Any]:
    stage = {"model": "openai/recorded", "api_base": server.api_base, "api_key": "none", "timeout": 10, **more}
    return {"llm": {"documents": stage, "queries": stage}}


async def test_models_are_called_only_when_asked_to(doctor: Doctor, cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name)
    with ModelServer({}) as server:
        checks = await doctor(**stages(server))
        assert server.calls == []
        assert "llm queries live" not in checks
        checks = await doctor(live=True, **stages(server))
        assert len(server.calls) == 2
    assert {checks[f"llm {side} live"].status for side in ("documents", "queries")} == {"ok"}
    assert "in the form that was asked for" in checks["llm queries live"].detail


async def test_no_model_and_no_price_are_told(doctor: Doctor, cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name)
    stage = {"model": "openai/of-our-own", "api_base": "http://127.0.0.1:1", "api_key": "none"}
    checks = await doctor(llm={"documents": stage})
    assert (checks["llm documents"].status, checks["llm queries"].status) == ("warning", "warning")
    assert "no price is known" in checks["llm documents"].detail
    assert "no model is configured" in checks["llm queries"].detail
    priced = await doctor(llm={"documents": {"model": "openai/gpt-4.1-mini", "api_key": "none"}})
    assert priced["llm documents"].status == "ok"


@pytest.mark.parametrize(
    ("fault", "detail"),
    [
        (Fault.status(401), "refused the key"),
        (Fault.status(404), "does not exist there"),
        (Fault.says("I am sorry, I cannot"), "not with the JSON that was asked for"),
    ],
    ids=["key", "name", "form"],
)
async def test_a_model_that_does_not_serve(
    doctor: Doctor, cluster: Cluster, index_name: str, fault: Fault, detail: str
) -> None:
    await make_index(cluster, index_name)
    with ModelServer({}) as server:
        server.always(fault)
        checks = await doctor(live=True, **stages(server))
    for side in ("documents", "queries"):
        check = checks[f"llm {side} live"]
        assert (check.status, detail in check.detail, bool(check.remedy)) == ("problem", True, True)


async def test_a_model_that_is_not_reached(doctor: Doctor, cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name)
    stage = {"model": "openai/recorded", "api_base": "http://127.0.0.1:1", "api_key": "none"}
    checks = await doctor(live=True, llm={"queries": stage})
    assert checks["llm queries live"].status == "problem"
    assert "cannot be reached" in checks["llm queries live"].detail


async def test_a_model_slower_than_the_deadline(doctor: Doctor, cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name)
    with ModelServer({}, latency=0.3) as server:
        checks = await doctor(live=True, **stages(server, deadline="100ms"))
    assert checks["llm queries live"].status == "warning"
    assert "later than the deadline of 0.1 s" in checks["llm queries live"].detail
    assert checks["llm documents live"].status == "ok"
