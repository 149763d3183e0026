"""Requests that real clients sent, replayed straight at the node and through the proxy.

SIRA_ES_CAPTURED names the folder of requests, SIRA_ES_COLLECTIONS that of the collections they search. Only requests that
were recorded on the product and major version of the node of this session are replayed.
"""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from captured_requests import FOLDER, MAPPINGS
from proxy.asking import call
from proxy.running import Running
from sira_es.devnode.engines import engine_named

COLLECTIONS = os.environ.get("SIRA_ES_COLLECTIONS", "")
pytestmark = pytest.mark.skipif(
    not FOLDER or not COLLECTIONS, reason="SIRA_ES_CAPTURED and SIRA_ES_COLLECTIONS name the folders that this needs"
)

INDICES = ("ui_products", "ui_faq", "ui_suggest", "ui_vendure")
WORDS = {"also": [["notebook", 0.6], ["adapter", 0.6], ["code", 0.6], ["format", 0.5], ["toner", 0.5]], "concepts": []}
LOSES = {"took", "pit_id", "_scroll_id", "scroll_id", "uuid", "build_date"}
HOP = {"connection", "keep-alive", "transfer-encoding", "host", "content-length"}


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        body = gzip.decompress(self.body) if self.headers.get("content-encoding") == "gzip" else self.body
        return json.loads(body) if body else None


def replay(url: str, request: dict[str, Any]) -> Answer:
    """Send a captured request with its bytes and headers."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    packed = request.get("body_gzip_base64")
    body = base64.b64decode(packed) if packed else request["body"].encode()
    given = {k: v for k, v in request["headers"].items() if k.lower() not in HOP}
    connection.putrequest(request["method"], request["path"], skip_accept_encoding=True)
    for name, value in given.items():
        connection.putheader(name, value)
    if body:
        connection.putheader("content-length", str(len(body)))
    connection.endheaders(body or None)
    answer = connection.getresponse()
    got = Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
    connection.close()
    return got


def documents(index: str) -> Iterator[dict[str, Any]]:
    name = "stackfaq" if index in {"ui_faq", "ui_suggest"} else "chorus-ecommerce"
    with gzip.open(Path(COLLECTIONS, name, "corpus.jsonl.gz"), "rt") as lines:
        for line in islice(lines, 400):
            row = json.loads(line)
            words = {"title": row.get("title", ""), "text": row.get("text", "")}
            yield {**words, **_further(index, row.get("metadata") or {}, words["title"])}


def _further(index: str, meta: dict[str, Any], title: str) -> dict[str, Any]:
    if index == "ui_products":
        price = float(meta.get("price") or 0) / 100
        return {"brand": str(meta.get("supplier") or "x"), "price": price, "type": "Accessory", "color": "black"}
    if index == "ui_vendure":
        return {"productName": title, "productVariantName": title, "description": title, "sku": "a"}
    return {}


def captured(family: str, major: str) -> list[dict[str, Any]]:
    """The requests that only read, recorded on this product and version."""
    found = []
    for path in sorted(Path(FOLDER).glob("*/*.json")):
        request = json.loads(path.read_text())
        engine = str(request.get("engine") or "")
        same = family in engine.lower() and re.search(rf"\b{major}\.", engine)
        reads = request["method"] in {"GET", "HEAD", "OPTIONS"} or re.search(
            r"/_(m?search|count|explain)", request["path"]
        )
        if same and reads and not re.search(r"_search/scroll|_pit|point_in_time|_async", request["path"]):
            found.append({**request, "name": f"{path.parent.name}/{path.name}"})
    return found


def bare(value: Any) -> Any:
    """An answer without what differs from one search to the next."""
    if isinstance(value, dict):
        return {k: bare(v) for k, v in value.items() if k not in LOSES}
    return [bare(v) for v in value] if isinstance(value, list) else value


def kept(response: Any) -> Any:
    """What reranking must not change: hits and their number, aggregations, suggestions, highlights."""
    if not isinstance(response, dict) or "hits" not in response:
        return bare(response)
    hits = response["hits"]
    return {
        "total": hits.get("total"),
        "aggregations": bare(response.get("aggregations")),
        "suggest": bare(response.get("suggest")),
    }


@pytest.fixture(scope="module")
def proxy(node_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    for index in INDICES:
        call(f"{node_url}/{index}", "DELETE")
        body = {"settings": {"number_of_shards": 1, "number_of_replicas": 0}, "mappings": MAPPINGS[index]}
        if call(f"{node_url}/{index}", "PUT", body).status != 200:  # a bare node lacks this kind of field
            bare_ = json.dumps(body).replace("search_as_you_type", "text").replace("completion", "keyword")
            assert call(f"{node_url}/{index}", "PUT", json.loads(bare_)).status == 200, index
        lines = []
        for i, source in enumerate(documents(index)):
            lines += [{"index": {"_id": str(i)}}, source]
        bulk = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        assert call(f"{node_url}/{index}/_bulk?refresh=true", "POST", bulk).status == 200
    folder = tmp_path_factory.mktemp("captured")
    recorded = folder / "answers.jsonl"
    texts = {t for r in _all() for t in re.findall(r'"(?:query|value)"\s*:\s*"([^"\\]{3,80})"', r.get("body") or "")}
    recorded.write_text("".join(json.dumps({"id": t, "answer": json.dumps(WORDS)}) + "\n" for t in sorted(texts)))
    fields = {"ui_vendure": ["productName", "description"], "ui_suggest": ["title"]}
    content = {
        "cluster": {"url": node_url},
        "indices": {i: {"text_fields": fields.get(i, ["title", "text"])} for i in INDICES},
    }
    with Running(folder, content, "--recorded", str(recorded)) as running:
        yield running
    for index in INDICES:
        call(f"{node_url}/{index}", "DELETE")


def _all() -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(Path(FOLDER).glob("*/*.json"))]


def test_replayed_requests_keep_what_their_clients_see(proxy: Running, node_url: str, engine: str) -> None:
    """Passed ones are equal in status, headers and answer; rewritten ones in hits.total, aggregations, suggestions."""
    row = engine_named(engine)
    requests = captured(row.family, row.version.split(".")[0])
    if not requests:
        pytest.skip(f"no request was recorded on {row.title}")
    outcomes: Counter[str] = Counter()
    wrong = []
    for request in requests:
        plain, got = replay(node_url, request), replay(proxy.url, request)
        expansion = got.headers.pop("x-sira-expansion", "passed")
        got.headers.pop("server-timing", None)
        changed = re.search(r"applied|cached", expansion) is not None
        outcomes["rewritten" if changed else expansion] += 1
        ours = {k: v for k, v in got.headers.items() if k not in HOP}
        if expansion == "failed; reason=refused":
            assert got.status == plain.status == 400, (request["name"], expansion)
        if got.status != plain.status or ours != {k: v for k, v in plain.headers.items() if k not in HOP}:
            wrong.append((request["name"], "status or headers", plain.status, got.status, ours, plain.headers))
            continue
        json_ = "json" in got.headers.get("content-type", "")
        if not json_:
            same = got.body == plain.body or "_cat" in request["path"]
        elif changed:
            several = [a.json.get("responses", [a.json]) for a in (plain, got)]
            same = [kept(r) for r in several[0]] == [kept(r) for r in several[1]]
        else:
            same = bare(got.json) == bare(plain.json)
        if not same:
            wrong.append((request["name"], expansion))
    assert not wrong, wrong[:5]
    assert outcomes["rewritten"] > len(requests) // 10, outcomes
    print(dict(outcomes), len(requests))  # noqa: T201  shown with -s
