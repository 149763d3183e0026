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
from proxy.running import RawNode, Running
from sira_es.devnode.engines import engine_named

COLLECTIONS = os.environ.get("SIRA_ES_COLLECTIONS", "")
pytestmark = pytest.mark.skipif(
    not FOLDER or not COLLECTIONS, reason="SIRA_ES_CAPTURED and SIRA_ES_COLLECTIONS name the folders that this needs"
)

INDICES = ("ui_products", "ui_faq", "ui_suggest", "ui_vendure")
TEXT_FIELDS = {
    "ui_vendure": ["productName", "description"],
    "ui_suggest": ["title"],
    "ui_hs": ["content"],
    "ui_hso": ["content"],
    "ui_lc": ["text"],
    "ui_lch": ["text"],
}
"""Of other indices: title and text."""

WORDS = {"also": [["notebook", 0.6], ["adapter", 0.6], ["code", 0.6], ["format", 0.5], ["toner", 0.5]], "concepts": []}
LOSES = {"took", "pit_id", "_scroll_id", "scroll_id", "uuid", "build_date"}
EVERY = 5000
"""More than there are documents."""

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


def documents(index: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the requests were recorded on: the filters of most of them leave some of it."""
    name = "stackfaq" if index in {"ui_faq", "ui_suggest"} else "chorus-ecommerce"
    with gzip.open(Path(COLLECTIONS, name, "corpus.jsonl.gz"), "rt") as lines:
        for line in islice(lines, 4000):
            row = json.loads(line)
            words = {"title": row.get("title", ""), "text": row.get("text", "")}
            yield row["_id"], {**words, **_further(index, row.get("metadata") or {}, words["title"])}


def _further(index: str, meta: dict[str, Any], title: str) -> dict[str, Any]:
    if index == "ui_products":
        return {
            "brand": meta.get("supplier"),
            "price": float(meta.get("price") or 0) / 100,
            "type": meta.get("attr_t_product_type") or "Accessory",
            "color": meta.get("attr_t_product_colour") or "n/a",
            "released": meta.get("date_released"),
            "sku": meta.get("name"),
        }
    if index == "ui_vendure":
        return {"productName": title, "productVariantName": title, "description": title, "sku": "a"}
    if index in INDICES:
        return {k: meta[k] for k in ("site", "created") if k in meta}
    brand = meta.get("supplier")
    price = float(meta.get("price") or 0) / 100
    return {"content": title, "brand": brand, "brand_exact": brand, "price": price, "django_ct": "app.product"}


def recorded_on(request: dict[str, Any], family: str, major: str) -> bool:
    engine = str(request.get("engine") or "")
    return family in engine.lower() and re.search(rf"\b{major}\.", engine) is not None


def captured(family: str, major: str) -> list[dict[str, Any]]:
    """The requests that only read, recorded on this product and version."""
    found = []
    for path in sorted(Path(FOLDER).glob("*/*.json")):
        request = json.loads(path.read_text())
        reads = request["method"] in {"GET", "HEAD", "OPTIONS"} or re.search(
            r"/_(m?search|count|explain)", request["path"]
        )
        if (
            recorded_on(request, family, major)
            and reads
            and not re.search(r"_search/scroll|_pit|point_in_time|_async", request["path"])
        ):
            found.append({**request, "name": f"{path.parent.name}/{path.name}"})
    return found


def bare(value: Any) -> Any:
    """An answer without what differs from one search to the next."""
    if isinstance(value, dict):
        return {k: bare(v) for k, v in value.items() if k not in LOSES}
    return [bare(v) for v in value] if isinstance(value, list) else value


def kept(response: Any) -> Any:
    """What reranking must not change beside the hits themselves: their number, aggregations, suggestions."""
    if not isinstance(response, dict) or "hits" not in response:
        return bare(response)
    return {
        **bare({k: v for k, v in response.items() if k not in {"hits", "profile"}}),
        "total": response["hits"].get("total"),
    }


def hits(response: Any, within: str = "") -> dict[str, Any]:
    """Each hit by its id, with its highlights and fields, without what the order is made of; inner hits beside."""
    found = {}
    for hit in response.get("hits", {}).get("hits", []) if isinstance(response, dict) else []:
        key = f"{within}{hit['_index']}/{hit['_id']}"
        inner = hit.get("inner_hits", {})
        found[key] = {k: v for k, v in hit.items() if k not in {"_score", "sort", "_explanation", "inner_hits"}}
        for name, below in inner.items():
            found[key][name] = below["hits"]["total"]
            found.update(hits(below, f"{key}/{name}/"))
    return found


def responses(answer: Answer) -> list[Any]:
    found: list[Any] = answer.json.get("responses", [answer.json])
    return found


def whole(request: dict[str, Any]) -> dict[str, Any]:
    """The same request for all hits at once, so that their order does not decide which of them are compared."""
    packed = request.get("body_gzip_base64")
    text = gzip.decompress(base64.b64decode(packed)).decode() if packed else request["body"]
    several = "_msearch" in request["path"]
    lines = [line for line in text.split("\n") if line.strip()] if several else [text]
    for i in range(1 if several else 0, len(lines), 2):
        body = json.loads(lines[i])
        body.pop("from", None)
        lines[i] = json.dumps({**body, "size": EVERY})
    path = re.sub(r"([?&])size=\d+", rf"\g<1>size={EVERY}", re.sub(r"([?&])from=\d+", r"\g<1>from=0", request["path"]))
    headers = {k: v for k, v in request["headers"].items() if k.lower() != "content-encoding"}
    return {
        "method": request["method"],
        "path": path,
        "headers": headers,
        "body": "\n".join(lines) + ("\n" if several else ""),
    }


def differences(plain: Answer, got: Answer, *, every: bool) -> tuple[list[str], int]:
    """What a rewritten request may not have changed and did, and how many highlights were compared.

    `every`: the answers hold all hits. Of those that are collapsed the best of each group are shown, which may be others.
    """
    found, marked = [], 0
    for before, after in zip(responses(plain), responses(got), strict=True):
        if kept(before) != kept(after):
            found.append("total, aggregations or suggestions")
        earlier, later = hits(before), hits(after)
        both = earlier.keys() & later.keys()
        if any(earlier[key] != later[key] for key in both):
            found.append("hits, highlights or fields")
        if every and earlier.keys() != later.keys():
            found.append("which hits there are")
        marked += sum("highlight" in earlier[key] for key in both)
    return found, marked


def compared(
    request: dict[str, Any], plain: Answer, got: Answer, proxy_url: str, node_url: str
) -> tuple[list[str], Counter[str]]:
    """A rewritten request and its answers, and the same for all hits."""
    every = whole(request)
    all_plain, all_got = replay(node_url, every), replay(proxy_url, every)
    assert re.search(r"applied|cached", all_got.headers["x-sira-expansion"]), request["name"]
    found, marked = differences(plain, got, every=False)
    found_in_all, marked_in_all = differences(all_plain, all_got, every='"collapse"' not in every["body"])
    counted = {
        "rewritten, with hits": int(any(hits(r) for r in responses(all_plain))),
        "rewritten, another order": int(
            [list(hits(r)) for r in responses(plain)] != [list(hits(r)) for r in responses(got)]
        ),
        "highlights compared": marked + marked_in_all,
    }
    return found + found_in_all, Counter(counted)


def creations(family: str, major: str) -> dict[str, list[dict[str, Any]]]:
    """The requests with which clients made indices of their own on this product and version, by index."""
    found: dict[str, list[dict[str, Any]]] = {}
    for request in _all():
        name, _, more = request["path"].lstrip("/").partition("/")
        if recorded_on(request, family, major) and request["method"] == "PUT" and more in {"", "_mapping"}:
            found.setdefault(name, []).append(request)
    return found


def make(node_url: str, index: str, steps: list[dict[str, Any]]) -> None:
    """An index as its client made it, or as the requests expect it, with documents."""
    call(f"{node_url}/{index}", "DELETE")
    for step in steps:
        assert replay(node_url, step).status == 200, index
    if not steps:
        body = {"settings": {"number_of_shards": 1, "number_of_replicas": 0}, "mappings": MAPPINGS[index]}
        if call(f"{node_url}/{index}", "PUT", body).status != 200:  # a bare node lacks this kind of field
            bare_ = json.dumps(body).replace("search_as_you_type", "text").replace("completion", "keyword")
            assert call(f"{node_url}/{index}", "PUT", json.loads(bare_)).status == 200, index
    lines = []
    for key, source in documents(index):
        lines += [{"index": {"_id": key}}, source]
    bulk = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    assert not call(f"{node_url}/{index}/_bulk?refresh=true", "POST", bulk).json["errors"], index


@pytest.fixture(scope="module")
def proxy(node_url: str, engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    row = engine_named(engine)
    made = {**{index: [] for index in INDICES}, **creations(row.family, row.version.split(".")[0])}
    for index, steps in made.items():
        make(node_url, index, steps)
    folder = tmp_path_factory.mktemp("captured")
    recorded = folder / "answers.jsonl"
    strings = {
        t for r in _all() for t in re.findall(r'"([^"\\]{3,80})"', r.get("body") or r.get("body_decompressed") or "")
    }
    texts = strings | {t.strip("()") for t in strings} | {t.replace(" AND ", " ").strip("()") for t in strings}
    recorded.write_text("".join(json.dumps({"id": t, "answer": json.dumps(WORDS)}) + "\n" for t in sorted(texts)))
    content = {
        "cluster": {"url": node_url},
        "indices": {i: {"text_fields": TEXT_FIELDS.get(i, ["title", "text"])} for i in made},
    }
    with Running(folder, content, "--recorded", str(recorded)) as running:
        yield running
    for index in made:
        call(f"{node_url}/{index}", "DELETE")


def _all() -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(Path(FOLDER).glob("*/*.json"))]


def test_replayed_requests_keep_what_their_clients_see(proxy: Running, node_url: str, engine: str) -> None:
    """Passed ones are equal in status, headers and answer.

    Rewritten ones in number of hits, aggregations, suggestions, and in each hit with its highlights: on the page that was
    asked for, and on one that holds all hits.
    """
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
        elif changed:
            found, counted = compared(request, plain, got, proxy.url, node_url)
            wrong += [(request["name"], what) for what in found]
            outcomes.update(counted)
        elif "json" in got.headers.get("content-type", ""):
            if bare(got.json) != bare(plain.json):
                wrong.append((request["name"], expansion))
        elif got.body != plain.body and "_cat" not in request["path"]:
            wrong.append((request["name"], expansion))
    print(dict(outcomes), len(requests))  # noqa: T201  shown with -s
    assert not wrong, wrong[:5]
    assert outcomes["rewritten"] > len(requests) // 10, outcomes
    assert outcomes["rewritten, with hits"] > outcomes["rewritten"] * 0.7, outcomes
    assert outcomes["highlights compared"] > 0, outcomes


def test_every_captured_request_is_on_the_wire_as_its_client_sent_it(tmp_path: Path) -> None:
    """Where nothing of it is rewritten: request target, headers and body; writes, scrolls and points in time too."""
    indices = {i: {"text_fields": ["title", "text"]} for i in INDICES}
    nothing = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
    with RawNode(nothing) as node, Running(tmp_path, {"cluster": {"url": node.url}, "indices": indices}) as proxy:
        for request in _all():
            packed = request.get("body_gzip_base64")
            body = base64.b64decode(packed) if packed else request["body"].encode()
            node.seen.clear()
            assert replay(proxy.url, request).status == 200
            sent = [one for one in node.seen if not (one.header(b"x-opaque-id") or b"").startswith(b"sira-es")]
            assert len(sent) == 1
            assert sent[0].first.decode() == f"{request['method']} {request['path']} HTTP/1.1"
            assert sent[0].body == body
            given = [(k.lower(), v.strip()) for k, v in request["headers"].items() if k.lower() not in HOP]
            assert [(k.decode(), v.decode()) for k, v in sent[0].headers if k.decode() not in HOP] == given
