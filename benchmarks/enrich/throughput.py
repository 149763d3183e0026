"""How much of a bare scan and a bare bulk update an enrichment reaches whose answers are all stored.

    python -m benchmarks.enrich.throughput [--url http://127.0.0.1:9200] [--documents 20000] [--rounds 3]

Each round writes the same two fields into the documents of fresh indices in four ways: by the scan and bulk helpers of
the engine's official client; by a scan and a bulk update a page with the client of an enrichment, one after the other;
the same, while the next page is read; and by an enrichment. A first round is not counted: the node compiles what it
runs often. The figures are those of the median times. Done with texts of about 0.4, 1.3 and 2.1 KB.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.enrich.common import bare, by_helpers, documents, fill_store, load, make_job
from sira_es.cluster.connect import Cluster, connect
from sira_es.llm.store import AnswerStore
from sira_es.settings import ClusterSettings

JOINED = (1, 3, 5)
WAYS = ("helpers", "bare", "overlapped", "enriched")


async def one_round(cluster: Cluster, count: int, joined: int, folder: Path, store: AnswerStore, way: str) -> float:
    index = f"enrich-bench-{way}"
    target = await load(cluster, index, count, joined)
    try:
        started = time.perf_counter()
        if way == "enriched":
            report = await make_job(cluster, target, folder, store).run()
            assert (report.enriched, report.calls, report.failed) == (count, 0, {}), report
        else:
            bare_ways = {"bare": 1, "overlapped": 2}
            writing = bare(cluster, target, bare_ways[way]) if way in bare_ways else by_helpers(cluster, index)
            assert await writing == count
        return time.perf_counter() - started
    finally:
        await cluster.request("DELETE", f"/{index}")


async def measure(url: str, count: int, rounds: int, joined: int) -> dict[str, object]:
    cluster = await connect(ClusterSettings(url=[url]))
    with tempfile.TemporaryDirectory() as name:
        store = AnswerStore(Path(name) / "answers.sqlite")
        target = await load(cluster, "enrich-bench-store", 1)
        fill_store(make_job(cluster, target, Path(name), store), store, count, joined)
        await cluster.request("DELETE", "/enrich-bench-store")
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for number in range(rounds + 1):
            for way in WAYS if number % 2 else reversed(WAYS):
                folder = Path(name) / f"{number}"
                seconds = await one_round(cluster, count, joined, folder, store, way)
                if number:
                    times[way].append(seconds)
        store.close()
    await cluster.close()
    usual = {way: statistics.median(seconds) for way, seconds in times.items()}
    length = sum(len(source["text"]) for _, source, _ in documents(1000, joined)) / 1000
    return {
        "documents": count,
        "characters": round(length),
        "engine": str(cluster.engine),
        "machine": f"{platform.machine()}, {platform.processor() or platform.system()}",
        "docs_per_second": {way: round(count / seconds) for way, seconds in usual.items()},
        "enriched_to": {way: round(usual[way] / usual["enriched"], 3) for way in WAYS[:-1]},
        "seconds": {way: [round(s, 2) for s in seconds] for way, seconds in times.items()},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:9200")
    parser.add_argument("--documents", type=int, default=20000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for size in JOINED:
        found = asyncio.run(measure(arguments.url, arguments.documents, arguments.rounds, size))
        print(json.dumps(found, indent=2), flush=True)
