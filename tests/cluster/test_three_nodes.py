"""A cluster of three nodes, one of which is killed in the middle of a scan: every document, or an error; never fewer."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cluster.counting import documents
from cluster.documents import fill
from cluster.searching import ENRICHED, settings_for
from sira_es import devnode
from sira_es.cluster.connect import Cluster, connect
from sira_es.cluster.scan import scan
from sira_es.cluster.statistics import DocumentFrequencies
from sira_es.cluster.target import describe
from sira_es.devnode.place import TRANSPORT, free_port
from sira_es.errors import ClusterError
from sira_es.settings import ClusterSettings
from sira_es.sira import AsyncSira
from tests.model_server import ModelServer

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
DOCUMENTS = 3000


@pytest.fixture(scope="module")
def nodes(engine: str) -> Iterator[list[devnode.RunningNode]]:
    """Three nodes that form one cluster."""
    if devnode.ENGINES[engine].family != "opensearch":
        pytest.skip("three nodes are shown on OpenSearch, whose nodes need half the memory")
    ports = [free_port() for _ in range(3)]
    names = [f"test-three-{os.getpid()}-{i}" for i in range(3)]
    settings = {
        "discovery.seed_hosts": ",".join(f"127.0.0.1:{port + TRANSPORT}" for port in ports),
        "cluster.initial_cluster_manager_nodes": ",".join(names),
    }

    def start(i: int) -> devnode.RunningNode:
        return devnode.up(engine, ports[i], settings=settings, instance=names[i])

    try:
        with ThreadPoolExecutor(3) as pool:
            yield list(pool.map(start, range(3)))
    except devnode.ToolMissingError as missing:
        pytest.skip(str(missing))
    finally:
        for name in names:
            devnode.down(engine, purge=True, instance=name)


@pytest.fixture
async def three(nodes: list[devnode.RunningNode], anyio_backend: str) -> AsyncIterator[Cluster]:
    connected = await connect(ClusterSettings(url=[node.url for node in nodes]))
    yield connected
    await connected.close()


async def loaded(cluster: Cluster, name: str, replicas: int) -> None:
    settings = {
        "number_of_shards": 3,
        "number_of_replicas": replicas,
        "index.unassigned.node_left.delayed_timeout": "0",
    }
    body = {"settings": settings, "mappings": {"properties": {"body": {"type": "text"}}}}
    await cluster.request("PUT", f"/{name}", body=body)
    await cluster.request("GET", f"/_cluster/health/{name}", params={"wait_for_status": "green", "timeout": "60s"})
    await fill(cluster, name, DOCUMENTS)


def a_data_node_that_does_not_lead(nodes: list[devnode.RunningNode]) -> devnode.RunningNode:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{nodes[0].url}/_cat/cluster_manager?format=json", timeout=30) as answer:
        leader = json.load(answer)[0]["node"]
    return next(node for node in nodes if node.instance != leader)


async def read_while_one_is_killed(
    cluster: Cluster, name: str, victim: devnode.RunningNode
) -> tuple[list[str], str | None]:
    """Ids of all documents that came, and the error that ended the scan; a node is killed after the third page."""
    found: list[str] = []
    target = await describe(cluster, name, ["body"])
    number = 0
    try:
        async for page in scan(cluster, target, page_size=100):
            found += [hit.id for hit in page]
            number += 1
            if number == 3:
                os.kill(victim.pid, signal.SIGKILL)
                await asyncio.sleep(0.2)
    except ClusterError as error:
        return found, str(error)
    return found, None


def restart(node: devnode.RunningNode, nodes: list[devnode.RunningNode]) -> None:
    record = devnode.node._Instance(devnode.home(), node.instance).read()
    assert record is not None
    fresh = devnode.up(node.engine, record.port, settings=record.settings, instance=node.instance)
    nodes[nodes.index(node)] = fresh


async def test_a_node_that_dies_in_the_middle_of_a_scan(three: Cluster, nodes: list[Any]) -> None:
    """With replicas every document comes; without them those of the dead node's shards are an error, not left out."""
    for name, replicas in (("copied", 1), ("single", 0)):
        await loaded(three, name, replicas)
        victim = a_data_node_that_does_not_lead(nodes)
        found, problem = await read_while_one_is_killed(three, name, victim)
        if problem is None:
            assert set(found) == {str(i) for i in range(DOCUMENTS)}
        else:
            assert replicas == 0, problem
            assert "\n" not in problem
        await counts_tell_no_less(three, name, replicas)
        await asyncio.to_thread(restart, victim, nodes)
        await green(three)


async def test_identical_searches_give_identical_words_and_order_whichever_copies_answer(
    three: Cluster, nodes: list[Any], tmp_path: Path
) -> None:
    """elastic/elasticsearch#90949, mozilla/addons-server#9771: copies with different deleted documents make hits bounce."""
    settings = {"number_of_shards": 1, "number_of_replicas": 2, "refresh_interval": -1}
    await three.request("PUT", "/bounce", body={"settings": settings, "mappings": {"properties": ENRICHED}})
    await three.request("GET", "/_cluster/health/bounce", params={"wait_for_status": "green", "timeout": "60s"})
    sources = documents(400)
    draw = random.Random(3)
    for _ in range(6):  # updates leave deleted documents, which each copy merges away when it likes
        await fill(three, "bounce", {str(i): sources[i] for i in draw.sample(range(400), 200)})
    answer = json.dumps({"terms": [["kent", 0.9], ["bast", 0.8], ["tirk", 0.8], ["lont", 0.7]]})
    with ModelServer(default=answer) as model:
        async with AsyncSira(settings_for(nodes[0].url, "bounce", tmp_path, model)) as sira:
            seen = set()
            for _ in range(20):
                found = await sira.search("bant vin muld", "bounce", deadline=float("inf"))
                words = tuple((t.word, t.verdict, t.boost) for t in found.expansion.terms)  # type: ignore[union-attr]
                seen.add((words, tuple((h.id, h.score) for h in found.hits)))
    assert len(seen) == 1
    assert any(verdict == "kept" for _, verdict, _ in next(iter(seen))[0])


async def counts_tell_no_less(cluster: Cluster, name: str, replicas: int) -> None:
    """With a shard away the number of documents is unknown, not smaller. `_shards.failed` comes with HTTP 200."""
    frequencies = DocumentFrequencies(cluster)
    try:
        coverage = await frequencies.coverage(await describe(cluster, name, ["body"]), ["body"])
        assert coverage.documents in ({DOCUMENTS} if replicas else {DOCUMENTS, None})
    except ClusterError:
        assert replicas == 0
    finally:
        await frequencies.close()


async def green(cluster: Cluster) -> None:
    limit = time.monotonic() + 120
    while time.monotonic() < limit:
        try:
            health = await cluster.request("GET", "/_cluster/health")
        except ClusterError:
            health = {}
        if health.get("status") == "green" and health.get("number_of_nodes") == 3:
            return
        await asyncio.sleep(1)
    raise AssertionError(health)
