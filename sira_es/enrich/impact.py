"""What the added terms cost the index: its size, and the time that searches take with and without them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sira_es.cluster.connect import Cluster, expected, segment
from sira_es.cluster.target import ENRICHED, Target
from sira_es.enrich.passes import HASHED
from sira_es.errors import ClusterError

__all__ = ["Impact", "index_bytes", "search_times"]

TEXTS = 40
MOST_SECONDS = 3.0
FEWEST = 5


@dataclass(frozen=True, slots=True)
class Impact:
    """`bytes` of one copy of the documents now and `bytes_before` a run; None where not known.

    `plain` and `enriched` are the times in seconds within which 95 % of searches were answered: over the text fields,
    and over `enriched_terms` too. None where nothing is enriched.
    """

    bytes: int | None = None
    bytes_before: int | None = None
    plain: float | None = None
    enriched: float | None = None

    def to_json(self) -> dict[str, Any]:
        def ms(seconds: float | None) -> float | None:
            return None if seconds is None else round(1000 * seconds, 1)

        return {
            "index_bytes": {"now": self.bytes, "before": self.bytes_before},
            "search_p95_ms": {"plain": ms(self.plain), "enriched": ms(self.enriched)},
        }


async def index_bytes(cluster: Cluster, target: Target) -> int | None:
    """The bytes of one copy of a target's documents, as far as they are searchable and not deleted.

    Of each segment the share of its live documents counts: copies of updated documents go when segments are merged. None
    where it may not be asked (index privilege `monitor`).
    """
    kept = ",".join(f"segments.*.{name}" for name in ("size_in_bytes", "num_docs", "deleted_docs"))
    asked = {"filter_path": ",".join(f"indices.*.shards.*.{path}" for path in ["routing.primary", *kept.split(",")])}
    try:
        answer = await cluster.request("GET", f"/{segment(target.name)}/_segments", params=asked)
        copies = [c for index in answer["indices"].values() for shard in index["shards"].values() for c in shard]
        segments = [s for c in copies if c["routing"]["primary"] for s in c.get("segments", {}).values()]
        live = (s["size_in_bytes"] * s["num_docs"] / (s["num_docs"] + s["deleted_docs"] or 1) for s in segments)
        return int(sum(live))
    except (ClusterError, KeyError, TypeError, AttributeError):
        return None


async def search_times(cluster: Cluster, target: Target, fields: Sequence[str]) -> tuple[float | None, float | None]:
    """The p95 of searches without and with `enriched_terms`, in seconds, for phrases that were added to some documents.

    Each phrase is searched both ways, one after the other, for some seconds at most. None where there are too few, or
    where the cluster does not answer one of them.
    """
    plain, enriched = [], []
    give_up = time.monotonic() + MOST_SECONDS
    try:
        for text in await _phrases(cluster, target):
            if time.monotonic() > give_up:
                break
            plain.append(await _seconds(cluster, target, text, fields))
            enriched.append(await _seconds(cluster, target, text, [*fields, ENRICHED]))
    except ClusterError:  # the documents are written all the same
        return None, None
    if len(plain) < FEWEST:
        return None, None
    return _p95(plain[1:]), _p95(enriched[1:])  # the first warms up


async def _phrases(cluster: Cluster, target: Target) -> list[str]:
    random = {"function_score": {"query": HASHED, "random_score": {"seed": 7, "field": "_seq_no"}}}
    body = {"size": min(TEXTS, target.most_hits), "_source": [ENRICHED], "query": random}
    answer = await cluster.request("POST", f"/{segment(target.name)}/_search", body=body)
    with expected(f"a sample of '{target.name}'"):
        kept = [(h.get("_source") or {}).get(ENRICHED) or [] for h in answer["hits"]["hits"]]
    return [terms[0] for terms in kept if isinstance(terms, list) and terms and isinstance(terms[0], str)]


async def _seconds(cluster: Cluster, target: Target, text: str, fields: Sequence[str]) -> float:
    query: Mapping[str, Any] = {"multi_match": {"query": text, "fields": list(fields)}}
    body = {"size": min(10, target.most_hits), "_source": False, "query": query}
    started = time.monotonic()
    await cluster.request("POST", f"/{segment(target.name)}/_search", body=body)
    return time.monotonic() - started


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]
