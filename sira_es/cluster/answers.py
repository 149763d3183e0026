"""Answers of models in an index of their own, so that many machines share them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from sira_es.cluster.connect import Cluster, expected
from sira_es.errors import ClusterError, ClusterRefused
from sira_es.resources import filled

__all__ = ["ANSWERS", "AnswersIndex"]

ANSWERS = "sira-answers"
"""The index, hidden: a search over `*` does not reach it. Made with the first answer; may be deleted at any time."""

_WRITTEN = frozenset({200, 201, 409})  # 409: it was there before


class AnswersIndex:
    """One document an answer, its id the key. Both methods raise ClusterError."""

    def __init__(self, cluster: Callable[[], Awaitable[Cluster]]) -> None:
        self._cluster = cluster
        self._there = False

    async def read(self, keys: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """What is kept under these keys, in one request; also what was written a moment ago. Its form is not checked."""
        cluster = await self._cluster()
        try:
            answer = await cluster.request("POST", f"/{ANSWERS}/_mget", body={"ids": list(keys)})
        except ClusterRefused as error:
            if error.status != 404:
                raise
            answer = {"docs": []}
        with expected(f"answers of '{ANSWERS}'"):
            documents = [dict(d) for d in answer["docs"]]
            self._there = not any("error" in d for d in documents) and bool(documents)
            refused = next((d["error"] for d in documents if "error" in d), None)
            if refused is not None and refused["type"] != "index_not_found_exception":
                raise ClusterError(f"'{ANSWERS}' cannot be read: {refused['type']}; see cluster.url and its health")
            return {str(d["_id"]): dict(d["_source"]) for d in documents if d.get("found")}

    async def write(self, documents: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep documents under their keys, in one request; what is there already stays."""
        cluster = await self._cluster()
        if not self._there:
            await self._make(cluster)
        lines: list[Any] = []
        for key, document in documents.items():
            lines += [{"create": {"_id": key}}, document]
        answer = await cluster.request("POST", f"/{ANSWERS}/_bulk", lines=lines)
        with expected(f"what was written to '{ANSWERS}'"):
            items = [dict(item["create"]) for item in answer["items"]]
            failed = next((i for i in items if i["status"] not in _WRITTEN), None)
            if failed is not None:
                why = dict(failed.get("error") or {}).get("type", failed["status"])
                raise ClusterError(f"'{ANSWERS}' takes no answers: {why}; see the health and the disks of the cluster")

    async def _make(self, cluster: Cluster) -> None:
        try:
            await cluster.request("PUT", f"/{ANSWERS}", body=filled("mappings", "answers.json"))
        except ClusterRefused as error:
            if error.error_type != "resource_already_exists_exception":
                raise
        self._there = True
