"""How good the searches of a client are that goes through the proxy: nDCG@10 of three bodies on three collections.

    python -m benchmarks.proxy.quality [--node http://127.0.0.1:9219]

SIRA_ES_COLLECTIONS and SIRA_ES_RECORDINGS name the folders of collections and of recorded answers; documents are not
enriched. The indices are made on the node and removed afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.evidence.data import COLLECTIONS, Loaded, load
from benchmarks.evidence.indices import load_in_order
from benchmarks.proxy.run import ask, drain, start
from sira_es.evaluate.measures import per_query
from sira_es.settings import ClusterSettings, IndexSettings, Settings
from sira_es.sira import AsyncSira

NAMES = ("stackfaq", "scifact", "chorus-ecommerce")
FIELDS = ["title^3", "text"]
MODES = ("off", "rerank", "recall")
MEASURE = "nDCG@10"


def multi_match(text: str) -> dict[str, Any]:
    return {"multi_match": {"query": text, "fields": FIELDS}}


def searchkit(text: str) -> dict[str, Any]:
    """What Searchkit 4.16 asks for these two attributes."""
    fuzzy = {"query": text, "fields": FIELDS, "fuzziness": "AUTO:4,8"}
    prefix = {"query": text, "fields": ["title^1.5", "text"], "type": "bool_prefix"}
    phrase = {"query": text, "type": "phrase", "fields": ["title^6", "text"]}
    words = {"bool": {"should": [{"multi_match": fuzzy}, {"multi_match": prefix}]}}
    return {"bool": {"filter": [], "must": {"bool": {"should": [words, {"multi_match": phrase}]}}}}


def strict(text: str) -> dict[str, Any]:
    """All words must occur; signs of the query syntax are taken out, as a client must do that offers no syntax."""
    return {"query_string": {"query": _words(text), "fields": FIELDS, "default_operator": "and"}}


def _words(text: str) -> str:
    return "".join(c if c.isalnum() else " " for c in text)


BODIES = {"multi_match": multi_match, "Searchkit's": searchkit, "query_string, operator and": strict}


class Proxied:
    """Searches of one index through a proxy."""

    def __init__(self, address: str, index: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=60)
        self._index = index

    def wait(self) -> None:
        while self._ask("GET", "/_sira/health/ready", None, {})[0] != 200:
            time.sleep(0.05)

    def search(self, query: dict[str, Any], mode: str, size: int) -> list[str]:
        """The ids of the first hits."""
        headers = {"content-type": "application/json", "x-sira": mode}
        body = json.dumps({"query": query, "size": size, "_source": False})
        status, answer = self._ask("POST", f"/{self._index}/_search", body, headers)
        if status != 200:
            raise SystemExit(f"status {status}: {answer[:500]!r}")
        return [hit["_id"] for hit in json.loads(answer)["hits"]["hits"]]

    def _ask(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> tuple[int, bytes]:
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()


@contextlib.contextmanager
def proxied(node: str, index: str, loaded: Loaded) -> Iterator[Proxied]:
    """A proxy before the node that replays the recorded answers, each by its text."""
    with tempfile.TemporaryDirectory() as folder:
        config, recorded = Path(folder, "sira-es.yml"), Path(folder, "answers.jsonl")
        config.write_text(json.dumps(_settings(node, index, folder).model_dump(mode="json", exclude_unset=True)))
        recorded.write_text("".join(json.dumps(answer) + "\n" for answer in _answers(loaded)))
        command = [sys.executable, "-m", "sira_es", "proxy", "-c", str(config), "--recorded", str(recorded)]
        process, line = start([*command, "--listen", "127.0.0.1:0"], "stderr")
        drain(process)
        try:
            proxy = Proxied(line.split(" in front")[0].rpartition("//")[2], index)
            proxy.wait()
            yield proxy
        finally:
            process.terminate()
            process.wait()


def _answers(loaded: Loaded) -> list[dict[str, str]]:
    """The recorded answers by the texts that the bodies have."""
    answers = {str(row["id"]): row["answer"] for row in map(json.loads, loaded.query_answers.open())}
    texts = loaded.queries.texts
    by_text = {said: answers[query] for query, text in texts.items() for said in (text, _words(text))}
    return [{"id": text, "answer": answer} for text, answer in by_text.items()]


def _settings(node: str, index: str, state: str) -> Settings:
    one = IndexSettings(text_fields=["title", "text"], language="en")
    return Settings(cluster=ClusterSettings(url=[node]), state=Path(state), indices={index: one})


async def _fill(node: str, index: str, loaded: Loaded) -> None:
    documents = [
        (key, {name: source.get(name) or "" for name in ("title", "text")}) for key, source in loaded.documents
    ]
    with tempfile.TemporaryDirectory() as state:
        async with AsyncSira(_settings(node, index, state)) as sira:
            await load_in_order(sira, index, documents)


def measure(node: str, loaded: Loaded) -> dict[str, list[float]]:
    """For each body what it scores passed, reranked and widened."""
    index = f"bench-quality-{loaded.collection.name}"
    asyncio.run(_fill(node, index, loaded))
    try:
        with proxied(node, index, loaded) as proxy:
            return {name: [_score(proxy, body, mode, loaded) for mode in MODES] for name, body in BODIES.items()}
    finally:
        ask(node, "DELETE", f"/{index}")


def _score(proxy: Proxied, body: Any, mode: str, loaded: Loaded) -> float:
    """The mean over all queries that a document fits. A document of grade g gains 2^g - 1, one without a judgment 0."""
    gains = {
        query: {document: 2**grade - 1 for document, grade in grades.items()}
        for query, grades in loaded.judgments.grades.items()
        if any(grades.values())
    }
    run = {query: proxy.search(body(loaded.queries.texts[query]), mode, 10) for query in gains}
    return fmean(per_query(run, gains, [MEASURE])[MEASURE].values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--node", default="http://127.0.0.1:9219")
    parser.add_argument("--collections", type=Path, default=os.environ.get("SIRA_ES_COLLECTIONS"))
    parser.add_argument("--recordings", type=Path, default=os.environ.get("SIRA_ES_RECORDINGS"))
    given = parser.parse_args()
    if not given.collections or not given.recordings:
        parser.error("name the folders of collections and recordings (SIRA_ES_COLLECTIONS, SIRA_ES_RECORDINGS)")
    found = []
    for name in NAMES:
        collection = next(c for c in COLLECTIONS if c.name == name)
        found.append(measure(given.node, load(collection, Path(given.collections), Path(given.recordings))))
        print(f"{name}: {found[-1]}", file=sys.stderr)
    print(f"| body (title^3, text) | {' | '.join(NAMES)} |")
    print("|---" * (len(NAMES) + 1) + "|")
    for body in BODIES:
        cells = (" / ".join(f"{value:.3f}".removeprefix("0") for value in one[body]) for one in found)
        print(f"| {body} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
