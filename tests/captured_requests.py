"""Requests that real clients sent, and what becomes of each: the table of client x outcome.

    SIRA_ES_CAPTURED=<folder> python tests/captured_requests.py

prints the table. Every search of an _msearch counts as one.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sira_es.dsl.endpoint import endpoint
from sira_es.dsl.fields import Fields, fields_of
from sira_es.dsl.locate import Located, Mode, Passed, locate
from sira_es.dsl.msearch import split_msearch

FOLDER = os.environ.get("SIRA_ES_CAPTURED", "")

_WORDS: dict[str, Any] = {"type": "text", "fields": {"keyword": {"type": "keyword"}}}
PRODUCTS: dict[str, Any] = {
    "properties": {
        "title": _WORDS,
        "text": {"type": "text"},
        "brand": _WORDS,
        "type": _WORDS,
        "price": {"type": "float"},
        "color": {"type": "keyword"},
        "released": {"type": "date"},
        "sku": {"type": "keyword"},
    }
}
MAPPINGS: dict[str, Any] = {
    "ui_products": PRODUCTS,
    "ui_faq": {
        "properties": {
            "title": {
                "type": "text",
                "fields": {"keyword": {"type": "keyword"}, "sayt": {"type": "search_as_you_type"}},
            },
            "text": {"type": "text"},
            "thread": {"type": "integer"},
            "site": {"type": "keyword"},
            "length": {"type": "integer"},
            "created": {"type": "date"},
        }
    },
    "ui_suggest": {"properties": {"title": {"type": "text"}, "suggest": {"type": "completion"}}},
    "ui_vendure": {
        "properties": {name: {"type": "text"} for name in ("productName", "productVariantName", "description", "sku")}
    },
    "examplecom-post-1": {
        "properties": {
            "post_title": {"type": "text", "fields": {"suggest": {"type": "text", "analyzer": "edge_ngram_analyzer"}}},
            "post_excerpt": {"type": "text"},
            "post_content": {"type": "text"},
        }
    },
    "magento2_product_1": {"properties": {n: {"type": "text"} for n in ("sku", "_search", "name")}},
    "accounts": {
        "properties": {
            "username": {"type": "text", "fields": {"edge_ngram": {"type": "text", "analyzer": "edge_ngram_analyzer"}}},
            "display_name": {"type": "text"},
            "text": {"type": "text", "fields": {"stemmed": {"type": "text"}}},
        }
    },
    "public_statuses": {"properties": {"text": {"type": "text", "fields": {"stemmed": {"type": "text"}}}}},
    "nextcloud": {"properties": {n: {"type": "text"} for n in ("content", "title")}},
    "products_production": {
        "properties": {
            n: {
                "type": "text",
                "fields": {
                    "analyzed": {"type": "text"},
                    "word_start": {"type": "text", "analyzer": "edge_ngram_analyzer"},
                },
            }
            for n in ("name", "description")
        }
    },
    "logs-*": {"properties": {"message": {"type": "text"}}},
    "ui_lch": {"properties": {"text": {"type": "text"}, "vector": {"type": "dense_vector"}}},
}
_GRAMS = {"analysis": {"analyzer": {"edge_ngram_analyzer": {"tokenizer": "edge_ngram"}}}}


@dataclass(frozen=True)
class Capture:
    """One search as a client sent it; `line` is its position in an _msearch."""

    client: str
    file: str
    line: int
    index: str
    params: dict[str, str]
    body: bytes
    status: int | None
    engine: str


def captured() -> list[Capture]:
    """Every `_search` with a body and every search of an `_msearch`, in the order sent."""
    return [capture for path in sorted(Path(FOLDER).glob("*/*.json")) for capture in _searches(path)]


def _searches(path: Path) -> Iterator[Capture]:
    request = json.loads(path.read_text())
    found = endpoint(request["method"], request["path"])
    if found is None or found.kind == "count":
        return
    body = raw_body(request)
    base = Capture(
        client=path.parent.name,
        file=path.name,
        line=0,
        index=found.index,
        params=dict(found.params),
        body=body,
        status=request.get("answer_status"),
        engine=request.get("engine") or "",
    )
    if found.kind == "search":
        yield base
        return
    searches = split_msearch(body)
    assert not isinstance(searches, Passed), path
    for i, search in enumerate(searches):
        index = ",".join(search.index) or found.index
        yield replace(base, line=i, index=index, params={**found.params, **search.params}, body=search.line)


def raw_body(request: dict[str, Any]) -> bytes:
    if "body_gzip_base64" in request:
        return gzip.decompress(base64.b64decode(request["body_gzip_base64"]))
    return str(request["body"]).encode()


def fields_by_index() -> dict[str, Fields]:
    """The fields of every index: as documented with the recordings, or as the clients themselves created it."""
    fields = {name: fields_of(mapping, _GRAMS) for name, mapping in MAPPINGS.items()}
    for path in sorted(Path(FOLDER).glob("*/*.json")):
        request = json.loads(path.read_text())
        name = request["path"].partition("?")[0].strip("/").removesuffix("/_mapping")
        if request["method"] != "PUT" or "/" in name or not name:
            continue
        body = json.loads(raw_body(request) or b"{}")
        mapping = body.get("mappings") or ({"properties": body["properties"]} if "properties" in body else None)
        if mapping and name not in MAPPINGS:
            fields[name] = fields_of(mapping, body.get("settings"))
    return fields


def fields_for(capture: Capture, fields: dict[str, Fields]) -> Fields:
    found = [fields[name] for name in capture.index.split(",") if name in fields]
    found = found or [fields["ui_products"]]
    return Fields(
        frozenset().union(*(f.text for f in found)),
        frozenset().union(*(f.prefix for f in found)),
        frozenset().union(*(f.other for f in found)),
        found[0].default,
    )


def classified(mode: Mode = "rerank") -> list[tuple[Capture, Located | Passed]]:
    fields = fields_by_index()
    return [(c, locate(c.body, fields_for(c, fields), mode=mode, params=c.params)) for c in captured()]


def table() -> str:
    """Client x outcome in Markdown: how many searches are rewritten, how many pass, and why."""
    rows: dict[str, Counter[str]] = {}
    for capture, outcome in classified():
        reason = outcome.reason.value if isinstance(outcome, Passed) else "rewritten"
        rows.setdefault(capture.client, Counter())[reason] += 1
    lines = ["| client | searches | rewritten | passed, and why |", "|---|---|---|---|"]
    for client, counts in rows.items():
        passed = ", ".join(f"{reason} {n}" for reason, n in counts.most_common() if reason != "rewritten")
        lines.append(f"| {client} | {counts.total()} | {counts['rewritten']} | {passed} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())  # noqa: T201
