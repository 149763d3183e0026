"""All troubles of a production cluster in one run, on a node of its own that is restarted in the middle."""

from __future__ import annotations

import asyncio
import json
import random
import time
from pathlib import Path

import pytest

from cluster.documents import fill, make_index, sources
from cluster.enriching import Bench, answer, refuse_items
from cluster.wire import Forward, Reply, Seen, Wire
from sira_es import devnode
from sira_es.cluster.connect import Cluster, connect
from sira_es.settings import ClusterSettings, IndexSettings
from tests.model_server import Fault, ModelServer

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
COUNT = 600
MAPPING = {"properties": {"body": {"type": "text"}, "price": {"type": "integer"}}}
WAYS = [
    Fault.status(500), Fault.status(429, retry_after=0.2), Fault.drop(), Fault.says("no json at all"), Fault.says(None),
    Fault.filtered(),
]  # fmt: skip
GONE = {"error": {"type": "search_context_missing_exception", "reason": "planted: expired"}, "status": 404}


async def test_busy_cluster_failing_model_restart_and_expired_view_end_with_all_done_or_the_failed_ones_listed(
    tmp_path: Path,
) -> None:
    """elastic/elasticsearch#103665, ml-commons#2438, elasticsearch-dsl-py#796: what is lost when much goes wrong."""
    node = devnode.up("os2", port=0, instance="enrich-restart")
    port = int(node.url.rsplit(":", 1)[1])
    try:
        async with Wire(node.url) as wire:
            cluster = await connect(ClusterSettings(url=[wire.url]))
            await make_index(cluster, "docs", mappings=MAPPING, shards=2)
            documents = {str(i): {"body": f"fan number {i}", "price": i} for i in range(COUNT)}
            await fill(cluster, "docs", documents)
            bench = Bench(cluster, "docs", tmp_path, IndexSettings(text_fields=["body"]))
            chance = random.Random(3)
            pages = 0

            async def lose_some(seen: Seen, forward: Forward) -> Reply:
                nonlocal pages
                pages += "pit" in json.loads(seen.body)
                return Reply.of(404, GONE) if pages % 4 == 3 else await forward(seen)

            wire.on("/_bulk", handler=refuse_items(0.3))
            wire.on("/_search", handler=lose_some)
            with ModelServer(default=answer("noise"), latency=0.05) as server, bench.model(server) as source:
                server.next(*[chance.choice(WAYS) if chance.random() < 0.1 else None for _ in range(3 * COUNT)])
                job = await bench.job(source, page_size=50)
                running = asyncio.create_task(job.run())
                while len(server.calls) < COUNT // 3 and not running.done():  # noqa: ASYNC110  it is in another thread
                    await asyncio.sleep(0.05)
                assert not running.done()
                await asyncio.to_thread(devnode.down, "os2", instance="enrich-restart")
                restarted = asyncio.to_thread(devnode.up, "os2", port=port, instance="enrich-restart")
                outcomes = await asyncio.gather(running, restarted, return_exceptions=True)
                after = await _settled(cluster)
                missing = {key for key, s in after.items() if "sira" not in s}
                if not isinstance(outcomes[0], BaseException):
                    assert missing == {doc_id for _, doc_id, _ in job.failures()}
                server.heal()
                second = await (await bench.job(source)).run()
            assert (second.pending, second.enriched, second.failed) == (0, COUNT, {})
            after = await sources(cluster, "docs")
            assert {key: {"body": s["body"], "price": s["price"]} for key, s in after.items()} == documents
            await cluster.close()
    finally:
        devnode.down("os2", instance="enrich-restart", purge=True)


async def _settled(cluster: Cluster) -> dict[str, dict[str, object]]:
    give_up = time.monotonic() + 120
    while True:
        try:
            return await sources(cluster, "docs")
        except Exception:
            if time.monotonic() > give_up:
                raise
            await asyncio.sleep(1)


async def test_writer_at_two_hundred_updates_a_second_loses_none(
    wired: Cluster, wire: Wire, index_name: str, tmp_path: Path
) -> None:
    """OpenSearch#7413, mozilla/sumo#718, elastic/elasticsearch#19632, #22723: lost updates."""
    count, seconds, rate = 1000, 20, 200
    await make_index(wired, index_name, mappings=MAPPING)
    await fill(wired, index_name, {str(i): {"body": f"fan number {i}", "price": 0} for i in range(count)})
    last: dict[str, int] = {}
    written = 0

    async def write(number: int) -> None:
        nonlocal written
        lines = []
        for i in range(20):
            key = str((number * 20 + i) % count)
            last[key] = number
            lines += [
                {"update": {"_index": index_name, "_id": key, "retry_on_conflict": 5}},
                {"doc": {"price": number}},
            ]
        done = await wired.request("POST", "/_bulk", lines=lines)
        assert not done["errors"]
        written += 20

    async def writer() -> float:
        started = time.monotonic()
        for number in range(1, seconds * rate // 20 + 1):
            await write(number)
            await asyncio.sleep(max(0.0, started + number * 20 / rate - time.monotonic()))
        return written / (time.monotonic() - started)

    bench = Bench(wired, index_name, tmp_path, IndexSettings(text_fields=["body"]), concurrency=16)
    with ModelServer(default=answer("noise"), latency=0.1) as server, bench.model(server) as source:
        job = await bench.job(source)
        reached, report = await asyncio.gather(writer(), job.run())
    assert reached > rate / 2, "the machine is too slow for this test"
    after = await sources(wired, index_name)
    assert {key: s["price"] for key, s in after.items()} == last
    assert len([key for key, s in after.items() if "sira" not in s]) <= report.stale
