"""Peak memory of an enrichment of 20,000 and of 200,000 documents, answers stored: it must not grow with the documents.

    python -m benchmarks.enrich.memory [--url http://127.0.0.1:9200] [--documents 20000 200000]

Each run is a process of its own, whose peak resident memory the operating system tells.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.enrich.common import fill_store, load, make_job
from sira_es.cluster.connect import connect
from sira_es.cluster.target import describe
from sira_es.llm.store import AnswerStore
from sira_es.settings import ClusterSettings


async def prepare(url: str, index: str, count: int, folder: Path) -> None:
    cluster = await connect(ClusterSettings(url=[url]))
    target = await load(cluster, index, count)
    store = AnswerStore(folder / "answers.sqlite")
    fill_store(make_job(cluster, target, folder, store), store, count)
    store.close()
    await cluster.close()


async def run(url: str, index: str, folder: Path) -> dict[str, float]:
    cluster = await connect(ClusterSettings(url=[url]))
    store = AnswerStore(folder / "answers.sqlite")
    job = make_job(cluster, await describe(cluster, index, ["title", "text"]), folder, store)
    started = time.perf_counter()
    report = await job.run()
    seconds = time.perf_counter() - started
    store.close()
    await cluster.close()
    assert report.pending == 0, report
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "documents": report.enriched,
        "peak_mib": round(peak, 1),
        "docs_per_second": round(report.done / seconds, 1),
    }


def measure(url: str, counts: list[int]) -> list[dict[str, float]]:
    results = []
    for count in counts:
        index = f"enrich-bench-memory-{count}"
        with tempfile.TemporaryDirectory() as folder:
            place = ["--url", url, "--index", index, "--folder", folder, "--documents", str(count)]
            for step in ("prepare", "run"):
                done = subprocess.run(
                    [sys.executable, "-m", "benchmarks.enrich.memory", "--step", step, *place],
                    check=True, stdout=subprocess.PIPE, text=True,
                )  # fmt: skip
            results.append(json.loads(done.stdout))
            asyncio.run(delete(url, index))
    return results


async def delete(url: str, index: str) -> None:
    cluster = await connect(ClusterSettings(url=[url]))
    await cluster.request("DELETE", f"/{index}")
    await cluster.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:9200")
    parser.add_argument("--documents", type=int, nargs="+", default=[20_000, 200_000])
    parser.add_argument("--step", choices=["prepare", "run"], help=argparse.SUPPRESS)
    parser.add_argument("--index", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.step == "prepare":
        asyncio.run(prepare(a.url, a.index, a.documents[0], a.folder))
    elif a.step == "run":
        print(json.dumps(asyncio.run(run(a.url, a.index, a.folder))))
    else:
        print(json.dumps(measure(a.url, a.documents), indent=2))
