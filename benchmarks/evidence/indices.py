"""The indices that are measured on, always in the same order of documents, so that ties fall the same way every time."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from sira_es.cluster.connect import Cluster
from sira_es.cluster.schema import create_index, made_by
from sira_es.cluster.write import index_documents
from sira_es.sira import AsyncSira

__all__ = ["bytes_of", "delete", "enriched", "half_of", "load_in_order", "set_similarity"]

Document = tuple[str, dict[str, Any]]
MARK = "sira-es evidence"
_PAGE = 200
_SEED = 20260701


async def load_in_order(sira: AsyncSira, index: str, documents: Iterable[Document], *, shards: int = 1) -> None:
    """Make an index whose documents stand in the order given: one writer, no refresh before the end, one segment."""
    cluster = await sira.cluster()
    await delete(cluster, index)
    await create_index(cluster, index, shards=shards, made_by=MARK)
    settings = {"index": {"refresh_interval": "-1", "auto_expand_replicas": False, "number_of_replicas": 0}}
    await cluster.request("PUT", f"/{index}/_settings", body=settings)
    await sira.prepare(index)
    loaded = await index_documents(cluster, index, documents)
    if loaded.failed:
        raise RuntimeError(f"{index}: {len(loaded.failed)} documents were refused: {loaded.failed[0].reason}")
    await cluster.request("POST", f"/{index}/_forcemerge", params={"max_num_segments": 1, "flush": True})
    await cluster.request("POST", f"/{index}/_refresh")


async def enriched(sira: AsyncSira, index: str, documents: Sequence[Document]) -> list[Document]:
    """The documents with `enriched_terms`, by the way a loader of one's own takes; `index` holds them without."""
    found: list[Document] = []
    for start in range(0, len(documents), _PAGE):
        page = documents[start : start + _PAGE]
        made = await sira.enrich_documents([{"_id": key, **source} for key, source in page], index)
        found += [(d.pop("_id"), d) for d in made]
    return found


def half_of(documents: Sequence[Document]) -> set[str]:
    """The ids of a random half, the same every time."""
    return set(random.Random(_SEED).sample(sorted(key for key, _ in documents), len(documents) // 2))


async def bytes_of(cluster: Cluster, index: str) -> int:
    """What an index takes on disk."""
    answer = await cluster.request("GET", f"/{index}/_stats/store")
    return int(answer["_all"]["primaries"]["store"]["size_in_bytes"])


async def set_similarity(cluster: Cluster, index: str, k1: float, b: float) -> None:
    """Give all fields of an index other parameters of BM25."""
    await cluster.request("POST", f"/{index}/_close")
    similarity = {"index": {"similarity": {"default": {"type": "BM25", "k1": k1, "b": b}}}}
    await cluster.request("PUT", f"/{index}/_settings", body=similarity)
    await cluster.request("POST", f"/{index}/_open")
    await cluster.request(
        "GET",
        f"/_cluster/health/{index}",
        params={"wait_for_status": "yellow", "wait_for_no_initializing_shards": True},
    )


async def delete(cluster: Cluster, index: str) -> None:
    """Delete an index that was made here; nothing where there is none. Raises RuntimeError for somebody else's."""
    if await made_by(cluster, index) not in {None, MARK}:
        raise RuntimeError(f"index {index} exists and was not made by this benchmark; delete or rename it")
    await cluster.request("DELETE", f"/{index}", params={"ignore_unavailable": True})
