"""Measure the collections on a real node, compare with what was published, and write docs/evidence.md.

python -m benchmarks.evidence --collections DIR --recordings DIR [--url URL | --engine os2] [--check]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from sira_es.cluster.connect import connect
from sira_es.settings import ClusterSettings

from .data import COLLECTIONS, load
from .measure import measure
from .page import render

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PAGE = HERE.parents[1] / "docs" / "evidence.md"
NOT_QUALITY = ("latency", "growth")


def main() -> int:
    parser = argparse.ArgumentParser(prog="evidence", description=__doc__)
    parser.add_argument("--collections", type=Path, default=os.environ.get("SIRA_ES_COLLECTIONS"))
    parser.add_argument("--recordings", type=Path, default=os.environ.get("SIRA_ES_RECORDINGS"))
    parser.add_argument("--url", help="a node that runs; without it one is started, and ended afterwards")
    parser.add_argument("--engine", default="os2", help="which one to start: os2, os3, es8 ...")
    parser.add_argument("--only", nargs="*", default=[c.name for c in COLLECTIONS])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a quality figure is another one")
    parser.add_argument(
        "--page", action="store_true", help="measure nothing, write the page from the figures there are"
    )
    options = parser.parse_args()
    if not options.page:
        if not options.collections or not options.recordings:
            parser.error("name the folders of collections and recordings (SIRA_ES_COLLECTIONS, SIRA_ES_RECORDINGS)")
        if _measure(options):
            return 1
    if not options.check:
        PAGE.write_text(render([json.loads(file.read_text()) for file in sorted(RESULTS.glob("*.json"))]))
        say(f"wrote {PAGE}")
    return 0


def _measure(options: argparse.Namespace) -> bool:
    """Measure and write, or with --check compare; whether a figure is another one than was published, under --check."""
    if options.url:
        found = asyncio.run(_all(options.url, options))
    else:
        from sira_es import devnode

        instance = f"evidence-{options.engine}"
        node = devnode.up(options.engine, port=0, on_progress=say, instance=instance)
        try:
            found = asyncio.run(_all(node.url, options))
        finally:
            devnode.down(options.engine, instance=instance, purge=True)
    file = RESULTS / f"{found['engine'].lower().replace(' ', '-')}.json"
    known = json.loads(file.read_text()) if file.exists() else {"collections": {}}
    same, other = _differences(known["collections"], found["collections"])
    say(f"{same} quality figures as published, {len(other)} others{': ' + ', '.join(other[:10]) if other else ''}")
    if options.check:
        return bool(other)
    found["collections"] = {**known["collections"], **found["collections"]}
    file.write_text(json.dumps(found, indent=1) + "\n")
    return False


async def _all(url: str, options: argparse.Namespace) -> dict[str, Any]:
    cluster = await connect(ClusterSettings(url=[url]))
    engine = str(cluster.engine)
    await cluster.close()
    say(f"{engine} at {url}")
    results = {}
    for collection in COLLECTIONS:
        if collection.name in options.only:
            started = time.monotonic()
            loaded = load(collection, Path(options.collections), Path(options.recordings))
            results[collection.name] = await measure(url, loaded, say)
            say(f"{collection.name}: {time.monotonic() - started:.0f} s")
    return {"engine": engine, "collections": results}


def _differences(known: Any, found: Any, path: str = "") -> tuple[int, list[str]]:
    """How many numbers are the same to the last digit, and where others are; what is not known yet counts as neither."""
    if isinstance(found, dict):
        same = 0
        other: list[str] = []
        for key, value in found.items():
            if key in NOT_QUALITY or not isinstance(known, dict) or key not in known:
                continue
            more, places = _differences(known[key], value, f"{path}/{key}")
            same, other = same + more, other + places
        return same, other
    if isinstance(found, list) and isinstance(known, list) and len(found) == len(known):
        parts = [_differences(a, b, path) for a, b in zip(known, found, strict=True)]
        return sum(n for n, _ in parts), [place for _, places in parts for place in places]
    return (1, []) if known == found else (0, [path])


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
