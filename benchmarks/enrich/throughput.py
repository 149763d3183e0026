"""How much of a bare scan and a bare bulk update an enrichment reaches whose answers are all stored.

    python -m benchmarks.enrich.throughput [--url http://127.0.0.1:9200] [--documents 5000] [--rounds 3]

Each round writes the same documents of two fresh indices, bare and enriched, in turn; the ratio is that of the best times.
Done with texts of about 0.4 KB and of about 2 KB.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import tempfile
import time
from pathlib import Path

from benchmarks.enrich.common import bare, documents, fill_store, load, make_job
from sira_es.cluster.connect import Cluster, connect
from sira_es.llm.store import AnswerStore
from sira_es.settings import ClusterSettings

JOINED = (1, 5)
TERMS = ["strike out text", "cross out text", "line through text", "GFM", "HTML tag", "md formatting", "strike-through"]


async def one_round(
    cluster: Cluster, count: int, joined: int, folder: Path, store: AnswerStore, *, enriched: bool
) -> float:
    index = f"enrich-bench-{'enriched' if enriched else 'bare'}"
    target = await load(cluster, index, count, joined)
    try:
        started = time.perf_counter()
        if not enriched:
            assert await bare(cluster, target, TERMS) == count
            return time.perf_counter() - started
        job = make_job(cluster, target, folder, store)
        report = await job.run()
        assert (report.enriched, report.calls, report.failed) == (count, 0, {}), report
        return report.seconds
    finally:
        await cluster.request("DELETE", f"/{index}")


async def measure(url: str, count: int, rounds: int, joined: int) -> dict[str, object]:
    cluster = await connect(ClusterSettings(url=[url]))
    with tempfile.TemporaryDirectory() as name:
        store = AnswerStore(Path(name) / "answers.sqlite")
        target = await load(cluster, "enrich-bench-store", 1)
        fill_store(make_job(cluster, target, Path(name), store), store, count, joined)
        await cluster.request("DELETE", "/enrich-bench-store")
        times: dict[bool, list[float]] = {False: [], True: []}
        for number in range(rounds):
            for enriched in (False, True) if number % 2 else (True, False):
                folder = Path(name) / f"{number}"
                times[enriched].append(await one_round(cluster, count, joined, folder, store, enriched=enriched))
        store.close()
    await cluster.close()
    best = {kind: min(seconds) for kind, seconds in times.items()}
    length = sum(len(source["text"]) for _, source, _ in documents(1000, joined)) / 1000
    return {
        "documents": count,
        "characters": round(length),
        "engine": str(cluster.engine),
        "machine": f"{platform.machine()}, {platform.processor() or platform.system()}",
        "bare_docs_per_second": round(count / best[False], 1),
        "enriched_docs_per_second": round(count / best[True], 1),
        "ratio": round(best[False] / best[True], 3),
        "seconds": {"bare": [round(s, 2) for s in times[False]], "enriched": [round(s, 2) for s in times[True]]},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:9200")
    parser.add_argument("--documents", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for size in JOINED:
        found = asyncio.run(measure(arguments.url, arguments.documents, arguments.rounds, size))
        print(json.dumps(found, indent=2), flush=True)
