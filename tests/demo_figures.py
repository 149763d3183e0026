"""The demo's figures on each engine, one node at a time: they must agree within 0.01 nDCG@10.

    python -m tests.demo_figures [engine ...]

Prints a line for each engine and run. Exit code 1 where they differ by more.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from sira_es import devnode
from sira_es.resources import data_file

FAQ = data_file("examples", "stackfaq")
MOST = 0.01


def figures(engine: str, folder: Path) -> dict[str, float]:
    """nDCG@10 of each run of the demo's collection, on a fresh node; both sides from recorded answers."""
    instance = f"figures-{engine}"
    node = devnode.up(engine, 0, instance=instance)
    try:
        config = folder / f"{engine}.yml"
        indices = {"faq": {"text_fields": ["title", "text"], "language": "en"}}
        config.write_text(
            json.dumps({"cluster": {"url": node.url}, "state": str(folder / engine), "indices": indices}), "utf-8"
        )
        at = ["--index", "faq", "-c", str(config)]
        _sira("index", *at, "--documents", FAQ / "corpus.jsonl.gz", "-q")
        _sira("enrich", *at, "--recorded", FAQ / "recorded" / "documents.jsonl.gz", "-q")
        found = _sira(
            "eval", *at, "--queries", FAQ / "queries.jsonl.gz", "--qrels", FAQ / "qrels.tsv",
            "--recorded", FAQ / "recorded" / "queries.jsonl.gz", "--json",
        )  # fmt: skip
        return {run: measures["nDCG@10"] for run, measures in json.loads(found)["runs"].items()}
    finally:
        devnode.down(engine, purge=True, instance=instance)


def _sira(*arguments: object) -> str:
    command = [sys.executable, "-m", "sira_es", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main(engines: list[str]) -> int:
    import tempfile

    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for engine in engines or list(devnode.ENGINES):
            found[engine] = figures(engine, Path(folder))
            print(devnode.ENGINES[engine].title, found[engine], flush=True)  # noqa: T201
    spread = max(
        max(f[run] for f in found.values()) - min(f[run] for f in found.values()) for run in next(iter(found.values()))
    )
    print(f"largest difference {spread:.4f}, allowed {MOST}")  # noqa: T201
    return int(spread > MOST)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
