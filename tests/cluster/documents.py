"""Indices and documents for tests of the cluster room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sira_es.cluster.connect import Cluster
from sira_es.cluster.scan import Hit, scan
from sira_es.cluster.target import Target

TEXT: Mapping[str, Any] = {"properties": {"body": {"type": "text"}}}


async def make_index(
    cluster: Cluster,
    name: str,
    *,
    shards: int = 1,
    mappings: Mapping[str, Any] = TEXT,
    settings: Mapping[str, Any] | None = None,
) -> None:
    body = {"settings": {"number_of_shards": shards, "number_of_replicas": 0, **(settings or {})}, "mappings": mappings}
    await cluster.request("PUT", f"/{name}", body=body)


async def fill(cluster: Cluster, name: str, documents: Mapping[str, Any] | int, routing: str | None = None) -> None:
    """Index documents by id, or that many made up ones, and make them searchable."""
    if isinstance(documents, int):
        documents = {str(i): {"body": f"document number {i}"} for i in range(documents)}
    extra = {"routing": routing} if routing else {}
    lines = [part for key, d in documents.items() for part in ({"index": {"_index": name, "_id": key, **extra}}, d)]
    answer = await cluster.request("POST", "/_bulk", params={"refresh": True}, lines=lines)
    assert not answer["errors"], answer


async def read_all(cluster: Cluster, target: Target, **options: Any) -> list[Hit]:
    return [hit async for page in scan(cluster, target, **options) for hit in page]


async def sources(cluster: Cluster, name: str) -> dict[str, Any]:
    """What is stored of each document, by id, as the engine's own get request returns it."""
    await cluster.request("POST", f"/{name}/_refresh")
    found = await cluster.request("POST", f"/{name}/_search", body={"size": 10000})
    return {hit["_id"]: hit["_source"] for hit in found["hits"]["hits"]}


def ids(hits: Sequence[Hit]) -> list[str]:
    return sorted(hit.id for hit in hits)


async def scripts_run(cluster: Cluster) -> bool:
    answer = await cluster.request("GET", "/_script_language")
    return any(context["language"] == "painless" for context in answer["language_contexts"])


async def undone(cluster: Cluster, name: str) -> dict[str, Any]:
    """Sources after an undo: without our keys; where the cluster runs no scripts they are there, as null."""
    found = await sources(cluster, name)
    if await scripts_run(cluster):
        return found
    ours = ("sira", "enriched_terms")
    return {key: {k: v for k, v in s.items() if k not in ours or v is not None} for key, s in found.items()}
