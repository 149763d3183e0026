"""An index of a dozen documents, answers of a model to a few queries, and searches through a proxy."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.model_server import ModelServer

_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

HOT = "laptop gets hot"
SLOW = "slow network"
AGAIN = "laptop hot again"
TOGETHER = "laptop hot colours"
TYPED = "network bag wet"
NONE = "quiet garden"
_HOT = json.dumps({"terms": [["overheating", 0.9], ["fan", 0.7], ["thermal paste", 0.6]]})
ANSWERS = {
    **dict.fromkeys((HOT, AGAIN, TOGETHER), _HOT),
    SLOW: json.dumps({"terms": [["bandwidth", 0.9], ["latency", 0.8]]}),
}
DOCUMENTS = [
    ("hot", "Hot colours", "a bag for a laptop gets hot colours, in many sizes and for every kind of day"),
    ("fan", "Overheating laptop", "hot: clean the fan and renew the thermal paste"),
    ("bag", "Laptop bag", "a bag that gets wet"),
    ("net", "Network is slow", "slow slow network at night"),
    ("band", "Network bandwidth", "measure latency and bandwidth of a network that is slow"),
    ("old", "Overheating", "fan and thermal paste of computers that burn"),
    *((f"other{i}", f"Document {i}", f"nothing of interest number {i}") for i in range(12)),
]


@dataclass
class Got:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def expansion(self) -> str:
        return self.headers.get("x-sira-expansion", "")

    @property
    def ids(self) -> list[str]:
        return [h["_id"] for h in self.json["hits"]["hits"]]


def call(url: str, method: str = "GET", body: Any = None, **headers: str) -> Got:
    """One request; an underscore in the name of a header stands for a hyphen."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    sent = {"content-type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    request = urllib.request.Request(url, data=data, method=method, headers=sent)
    try:
        with _open(request, timeout=60) as answer:
            return Got(answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Got(error.code, {k.lower(): v for k, v in error.headers.items()}, error.read())


def match(text: str, **more: Any) -> dict[str, Any]:
    return {"query": {"multi_match": {"query": text, "fields": ["title", "text"]}}, **more}


def search(url: str, index: str, body: Any, **headers: str) -> Got:
    return call(f"{url}/{index}/_search", "POST", body, **headers)


def fill(node_url: str, index: str, documents: Any = None) -> None:
    text = {"type": "text", "analyzer": "english"}
    properties = {"title": text, "text": text, "kind": {"type": "keyword"}, "enriched_terms": text}
    body = {"settings": {"number_of_shards": 1, "number_of_replicas": 0}, "mappings": {"properties": properties}}
    assert call(f"{node_url}/{index}", "PUT", body).status == 200
    lines = []
    for name, title, words in documents or DOCUMENTS:
        lines += [{"index": {"_id": name}}, {"title": title, "text": words, "kind": name[:3]}]
    bulk = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    assert not call(f"{node_url}/{index}/_bulk?refresh=true", "POST", bulk).json["errors"]


def settings(url: str | list[str], index: str, model: ModelServer | None = None, **proxy: Any) -> dict[str, Any]:
    """A configuration for the index of this module."""
    content: dict[str, Any] = {
        "cluster": {"url": url},
        "indices": {index: {"text_fields": ["title", "text"], "proxy": proxy}},
    }
    if model is not None:
        queries = {"model": "openai/tiny", "api_base": model.api_base, "api_key": "x", "deadline": "3s"}
        content["llm"] = {"queries": queries}
    return content
