"""Why a document is not among the hits of a search, or not higher: asked of the engine, under the caller's identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sira_es.cluster.connect import Cluster, expected, segment
from sira_es.expand.explain import parts_of

__all__ = ["WhyNot", "why_not"]


@dataclass(frozen=True, slots=True)
class WhyNot:
    """What a search makes of one document.

    `found` says that the caller can see it; `score` is None where it does not match; `rank` counts from 1, equal
    scores before it included; `last` is the
    score of the last hit that was shown, None where none was. `parts` are the clauses with the score of each, None for
    those that do not match. `enriched`: the document has been enriched.
    """

    id: str
    index: str
    found: bool
    score: float | None = None
    rank: int | None = None
    last: float | None = None
    parts: tuple[tuple[str, float | None], ...] = ()
    enriched: bool = False

    @property
    def reason(self) -> str:
        """One line for people."""
        if not self.found:
            return f"there is no document '{self.id}' in {self.index} that these credentials may see"
        if self.score is None:
            without = "" if self.enriched else "; it is not enriched"
            return f"it does not match: none of the words in its text, or a filter of the search keeps it out{without}"
        missing = [part for part, score in self.parts if score is None]
        lacks = f"; it lacks {', '.join(missing)}" if missing else ""
        return f"it is hit {self.rank} with a score of {self.score:.3f}{lacks}{'' if self.enriched else '; it is not enriched'}"

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "index": self.index,
            "found": self.found,
            "score": _rounded(self.score),
            "rank": self.rank,
            "last": _rounded(self.last),
            "enriched": self.enriched,
            "reason": self.reason,
            "parts": [{"part": part, "score": _rounded(score)} for part, score in self.parts],
        }


async def why_not(cluster: Cluster, target: str, request: Mapping[str, Any], doc_id: str, last: float | None) -> WhyNot:
    """Ask for one document: whether it is there, what each clause of the request gives it, and its place.

    Two round trips. The rank is that among the matches before any rescoring. Raises ClusterError.
    """
    ids = {"ids": {"values": [doc_id]}}
    whole = request.get("query") or {"match_all": {}}
    parts = parts_of(request)
    queries: list[Mapping[str, Any]] = [
        ids,
        {"bool": {"filter": [ids, {"exists": {"field": "sira.source_hash"}}]}},
        *({"bool": {"must": [clause], "filter": [ids]}} for clause in (whole, *(clause for _, clause in parts))),
    ]
    lines: list[Mapping[str, Any]] = []
    for query in queries:
        lines += [{}, {"_source": False, "size": 1, "query": query}]
    answer = await cluster.request("POST", f"/{segment(target)}/_msearch", lines=lines)
    with expected(f"asking for '{doc_id}' in {target}"):
        found, enriched, *scored = [_score(response) for response in answer["responses"]]
    score, *of_parts = scored
    rank = None
    if score is not None:
        body = {"size": 0, "track_total_hits": True, "min_score": score * (1 - 1e-6), "query": whole}
        counted = await cluster.request("POST", f"/{segment(target)}/_search", body=body)
        with expected(f"the rank of '{doc_id}' in {target}"):
            total = counted["hits"]["total"]
            rank = max(1, int(total["value"] if isinstance(total, Mapping) else total))
    return WhyNot(
        doc_id,
        target,
        found is not None,
        score=score,
        rank=rank,
        last=last,
        parts=tuple((name, value) for (name, _), value in zip(parts, of_parts, strict=True)),
        enriched=enriched is not None,
    )


def _score(response: Mapping[str, Any]) -> float | None:
    hits = response["hits"]["hits"]
    return float(hits[0]["_score"]) if hits else None


def _rounded(score: float | None) -> float | None:
    return None if score is None else round(score, 4)
