"""What each clause of a request adds to the score of a hit: asked of the engine itself, one round trip for all hits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sira_es.cluster.connect import Cluster, segment
from sira_es.errors import ClusterError

__all__ = ["Contribution", "contributions", "parts_of"]

Contribution = dict[str, Any]
"""`part` (the word, "original query" or "reach") and `score`, what it adds."""


async def contributions(
    cluster: Cluster, target: str, request: Mapping[str, Any], hits: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], list[Contribution]]:
    """For each hit, given as (index, id), the parts of the request that matched it with their scores, largest first.

    Raises ClusterError.
    """
    parts = parts_of(request)
    ids = {"ids": {"values": sorted({doc_id for _, doc_id in hits})}}
    lines: list[Mapping[str, Any]] = []
    for _, clause in parts:
        body = {"_source": False, "query": {"bool": {"must": [clause], "filter": [ids]}}}
        lines += [{}, {**body, "size": min(10_000, 10 * len(hits) or 1)}]
    found: dict[tuple[str, str], list[Contribution]] = {hit: [] for hit in hits}
    if not hits:
        return found
    answer = await cluster.request("POST", f"/{segment(target)}/_msearch", lines=lines)
    try:
        for (part, _), response in zip(parts, answer["responses"], strict=True):
            for hit in response["hits"]["hits"]:
                key = (str(hit["_index"]), str(hit["_id"]))
                if key in found:
                    found[key].append({"part": part, "score": round(float(hit["_score"]), 4)})
    except (KeyError, TypeError, ValueError):
        raise ClusterError(
            f"the cluster could not score the clauses on {target} one by one; search without --explain"
        ) from None
    return {hit: sorted(scored, key=lambda c: -c["score"]) for hit, scored in found.items()}


def parts_of(request: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The clauses of a compiled request, each with its name."""
    query = request["query"]
    if "rescore" in request:
        added = request["rescore"]["query"]["rescore_query"]["bool"]["should"]
        return [("original query", query), *((_name(c), c) for c in added)]
    inner = query.get("bool") if isinstance(query, Mapping) else None
    if isinstance(inner, Mapping) and set(inner) == {"minimum_should_match", "should"}:
        original, *added = inner["should"]
    elif isinstance(inner, Mapping) and set(inner) == {"must", "should"} and len(inner["must"]) == 1:
        original, added = inner["must"][0], inner["should"]
    else:
        return [("original query", query)]
    return [("original query", original), *((_name(c), c) for c in added)]


def _name(clause: Mapping[str, Any]) -> str:
    inner = clause.get("multi_match")
    if isinstance(inner, Mapping) and inner.get("type") in {"best_fields", "phrase"}:
        return str(inner["query"])
    return "reach"
