"""Following an index: new and changed documents are found by what the cluster numbers, with little load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.documents import make_index, sources
from cluster.enriching import answer, fetched
from cluster.wire import Wire
from sira_es import devnode
from sira_es.cluster.connect import Cluster, connect
from sira_es.enrich.follow import follow
from sira_es.enrich.report import EnrichReport, Limits
from sira_es.errors import ClusterUnreachable, ModelError, SiraError
from sira_es.settings import ClusterSettings, load_settings
from sira_es.sira import AsyncSira
from tests.model_server import Fault, ModelServer

pytestmark = pytest.mark.anyio
MAPPING = {"properties": {"body": {"type": "text"}, "price": {"type": "integer"}}}
PAUSE = 0.3


async def eventually(what: Callable[[], Awaitable[Any]], *, within: float = 30.0) -> Any:
    """Wait until it is true."""
    give_up = time.monotonic() + within
    while time.monotonic() < give_up:
        if found := await what():
            return found
        await asyncio.sleep(0.1)
    raise AssertionError("it did not come about in time")


@asynccontextmanager
async def following(
    url: str, index: str, folder: Path, server: ModelServer, *, troubles: list[SiraError] | None = None
) -> AsyncIterator[AsyncSira]:
    """A follower at work in the background; that it fails is an error."""
    (folder / "sira-es.yml").write_text(f"indices: {{{index}: {{text_fields: [body]}}}}")
    stage = {"model": "openai/test", "api_base": server.api_base, "api_key": "k"}
    options = {"cluster.url": url, "state": str(folder / "state"), "llm.documents": stage}
    async with AsyncSira(load_settings(folder / "sira-es.yml", **options)) as sira:
        told = troubles if troubles is not None else []
        task = asyncio.create_task(sira.follow(index, pause=PAUSE, on_trouble=told.append))
        try:
            yield sira
        finally:
            if task.done():
                await task
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def put(cluster: Cluster, index: str, key: str, **source: Any) -> None:
    await cluster.request("PUT", f"/{index}/_doc/{key}", body=source)


async def test_new_changed_and_bulk_updated_documents_are_enriched(
    cluster: Cluster, index_name: str, tmp_path: Path, node_url: str
) -> None:
    """elastic/elasticsearch#72108: no pipeline sees a bulk partial update; its change of the text is found all the same."""
    await make_index(cluster, index_name, mappings=MAPPING, shards=2)
    await put(cluster, index_name, "1", body="fan")
    with ModelServer({"body: fan": answer("noise"), "body: heat": answer("warm")}, default=answer("other")) as server:
        async with following(node_url, index_name, tmp_path, server):

            async def terms(key: str, wanted: list[str]) -> bool:
                return (await sources(cluster, index_name)).get(key, {}).get("enriched_terms") == wanted

            await eventually(lambda: terms("1", ["noise"]))
            await put(cluster, index_name, "2", body="heat")
            await eventually(lambda: terms("2", ["warm"]))
            lines = [{"update": {"_index": index_name, "_id": "1"}}, {"doc": {"body": "heat"}}]
            await cluster.request("POST", "/_bulk", lines=lines)
            await eventually(lambda: terms("1", ["warm"]))


async def test_quiet_index_costs_a_few_small_requests_and_no_document_is_read(
    wired: Cluster, wire: Wire, index_name: str, tmp_path: Path
) -> None:
    await make_index(wired, index_name, mappings=MAPPING, shards=2)
    for key in range(20):
        await put(wired, index_name, str(key), body=f"fan {key}")
    with ModelServer(default=answer("noise")) as server:
        async with following(wire.url, index_name, tmp_path, server):

            async def all_done() -> bool:
                return all("sira" in s for s in (await sources(wired, index_name)).values())

            await eventually(all_done)
            await asyncio.sleep(1.5)
            wire.clear()
            await asyncio.sleep(2.0)
            assert fetched(wire) == []
            assert wire.count("/_bulk") == 0
            assert wire.count(".*/_search/point_in_time") == 0


async def test_document_that_fails_is_not_asked_about_at_every_look(
    cluster: Cluster, index_name: str, tmp_path: Path, node_url: str
) -> None:
    await make_index(cluster, index_name, mappings=MAPPING)
    await put(cluster, index_name, "1", body="fan")
    with ModelServer() as server:
        server.always(Fault.filtered())
        async with following(node_url, index_name, tmp_path, server) as sira:

            async def failed() -> Any:
                return await sira.failures(index_name)

            await eventually(failed)
            calls = len(server.calls)
            await asyncio.sleep(3.0)
            assert len(server.calls) == calls


@pytest.mark.parametrize("most_hits", [10_000, 2])
async def test_deleted_documents_are_forgotten(
    cluster: Cluster, index_name: str, tmp_path: Path, node_url: str, most_hits: int
) -> None:
    await make_index(cluster, index_name, mappings=MAPPING, settings={"index.max_result_window": most_hits})
    for key in "123":
        await put(cluster, index_name, key, body=f"fan {key}")
    with ModelServer() as server:
        server.always(Fault.filtered())
        async with following(node_url, index_name, tmp_path, server) as sira:

            async def failed() -> bool:
                return len(await sira.failures(index_name)) == 3

            await eventually(failed)
            for key in "123":
                await cluster.request("DELETE", f"/{index_name}/_doc/{key}", params={"refresh": True})

            async def forgotten() -> bool:
                return not await sira.failures(index_name)

            await eventually(forgotten)


async def test_index_that_is_gone_for_a_while_is_waited_for(
    cluster: Cluster, index_name: str, tmp_path: Path, node_url: str
) -> None:
    await make_index(cluster, index_name, mappings=MAPPING)
    await put(cluster, index_name, "1", body="fan")
    troubles: list[SiraError] = []

    async def told() -> bool:
        return bool(troubles)

    async def enriched() -> bool:
        return "enriched_terms" in (await sources(cluster, index_name)).get("1", {})

    with ModelServer(default=answer("noise")) as server:
        async with following(node_url, index_name, tmp_path, server, troubles=troubles):
            await eventually(enriched)
            await cluster.request("DELETE", f"/{index_name}")
            await eventually(told)
            await make_index(cluster, index_name, mappings=MAPPING)
            await put(cluster, index_name, "1", body="fan")
            await eventually(enriched)
    assert index_name in str(troubles[0])


async def test_index_that_is_made_anew_without_its_fields_at_first_is_waited_for(
    cluster: Cluster, index_name: str, tmp_path: Path, node_url: str
) -> None:
    await make_index(cluster, index_name, mappings=MAPPING)
    troubles: list[SiraError] = []

    async def told() -> bool:
        return any("body" in str(trouble) for trouble in troubles)

    async def enriched() -> bool:
        return "enriched_terms" in (await sources(cluster, index_name)).get("1", {})

    with ModelServer(default=answer("noise")) as server:
        async with following(node_url, index_name, tmp_path, server, troubles=troubles):
            await asyncio.sleep(PAUSE)
            await cluster.request("DELETE", f"/{index_name}")
            await cluster.request("PUT", f"/{index_name}", body={"mappings": {"properties": {}}})
            await eventually(told)
            await put(cluster, index_name, "1", body="fan")
            await eventually(enriched)


async def test_limit_of_time_ends_it_on_a_quiet_index(
    cluster: Cluster, index_name: str, tmp_path: Path, node_url: str
) -> None:
    await make_index(cluster, index_name, mappings=MAPPING)
    with ModelServer() as server:
        async with following(node_url, index_name, tmp_path, server) as sira, asyncio.timeout(20):
            report = await sira.follow(index_name, limits=Limits(seconds=1.0), pause=PAUSE)
    assert report.stopped == "time"


async def test_limit_of_time_ends_it_while_the_cluster_is_away() -> None:
    left = iter([5.0, 0.01, 0.0])

    async def one_pass() -> EnrichReport | None:
        raise ClusterUnreachable("planted")

    troubles: list[SiraError] = []
    with pytest.raises(ClusterUnreachable):
        await follow(one_pass, pause=60.0, on_trouble=troubles.append, seconds_left=lambda: next(left))
    assert len(troubles) == 1


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.status(401, message="planted"), "refused the key"),
        (Fault.not_json(), "not an OpenAI-compatible answer"),
    ],
    ids=["wrong key", "another server"],
)
async def test_model_that_refuses_for_good_ends_it_with_the_reason(
    cluster: Cluster, index_name: str, tmp_path: Path, node_url: str, fault: Fault, reason: str
) -> None:
    await make_index(cluster, index_name, mappings=MAPPING)
    for key in range(30):
        await put(cluster, index_name, str(key), body=f"fan {key}")
    with ModelServer() as server:
        server.always(fault)
        with pytest.raises(ModelError, match=reason):
            async with following(node_url, index_name, tmp_path, server):
                await asyncio.sleep(6)


@pytest.mark.slow
async def test_model_that_is_away_for_a_while_is_waited_for(
    cluster: Cluster, index_name: str, tmp_path: Path, node_url: str
) -> None:
    await make_index(cluster, index_name, mappings=MAPPING)
    for key in range(30):
        await put(cluster, index_name, str(key), body=f"fan {key}")
    troubles: list[SiraError] = []
    with ModelServer(default=answer("noise")) as server:
        server.always(Fault.status(503))
        async with following(node_url, index_name, tmp_path, server, troubles=troubles):

            async def told() -> bool:
                return bool(troubles)

            await eventually(told, within=60)
            server.heal()
            await put(cluster, index_name, "new", body="a new fan")

            async def done() -> bool:
                return "sira" in (await sources(cluster, index_name))["new"]

            await eventually(done, within=60)


@pytest.mark.slow
async def test_restart_of_the_node_is_waited_for(tmp_path: Path) -> None:
    node = devnode.up("os2", port=0, instance="enrich-follow")
    port = int(node.url.rsplit(":", 1)[1])
    try:
        cluster = await connect(ClusterSettings(url=[node.url]))
        await make_index(cluster, "docs", mappings=MAPPING)
        await put(cluster, "docs", "1", body="fan")
        troubles: list[SiraError] = []
        with ModelServer(default=answer("noise")) as server:
            async with following(node.url, "docs", tmp_path, server, troubles=troubles):

                async def done(key: str) -> bool:
                    return "sira" in (await sources(cluster, "docs")).get(key, {})

                await eventually(lambda: done("1"))
                await asyncio.to_thread(devnode.down, "os2", instance="enrich-follow")
                await asyncio.sleep(2)
                await asyncio.to_thread(devnode.up, "os2", port=port, instance="enrich-follow")
                await put(cluster, "docs", "2", body="another fan")
                await eventually(lambda: done("2"), within=120)
        assert troubles
        await cluster.close()
    finally:
        devnode.down("os2", instance="enrich-follow", purge=True)
