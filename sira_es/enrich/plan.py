"""What an enrichment would take, from counts and a sample: no call to a model, nothing written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sira_es.cluster.connect import Cluster, segment
from sira_es.cluster.statistics import DocumentFrequencies
from sira_es.cluster.target import Target
from sira_es.enrich.page import PageEnricher
from sira_es.llm.model import EXPECTED_ANSWER_TOKENS, Model, estimate_tokens
from sira_es.settings import LlmStage

__all__ = ["plan"]

SAMPLE = 200
SECONDS_A_CALL = 2.0  # what a hosted model takes for an answer of this length, until the first run has measured it


async def plan(
    cluster: Cluster,
    frequencies: DocumentFrequencies,
    target: Target,
    page: PageEnricher,
    stage: LlmStage,
    *,
    text_fields: Sequence[str],
    query: Mapping[str, Any] | None,
    concurrency: int,
) -> dict[str, Any]:
    """Documents pending, stale and enriched, and the calls, tokens, cost (US dollars) and seconds that enriching them takes.

    `stale` counts documents made by another recipe; those whose text changed since are found by the run itself.
    """
    coverage = await frequencies.coverage(target, text_fields)
    enriched = {"exists": {"field": "sira.source_hash"}}
    has_text = {"bool": {"should": [{"exists": {"field": f}} for f in text_fields]}}
    only = [query] if query else []
    pending = {"bool": {"filter": [has_text, *only], "must_not": [enriched]}}
    other = {"bool": {"filter": [enriched, *only], "must_not": [{"term": {"sira.recipe": page.recipe}}]}}
    place = f"/{segment(target.name)}"
    counts = [
        (await cluster.request("POST", f"{place}/_count", body={"query": asked}))["count"] for asked in (pending, other)
    ]
    body = {
        "size": SAMPLE,
        "_source": list(text_fields),
        "query": {"bool": {"should": [pending, other], "minimum_should_match": 1}},
    }
    hits = (await cluster.request("POST", f"{place}/_search", body=body))["hits"]["hits"]
    sizes = [estimate_tokens(page.prompt(h["_id"], page.values(h.get("_source") or {}))) for h in hits]
    calls = sum(counts)
    asked = round(calls * sum(sizes) / len(sizes)) if sizes else 0
    answered = calls * EXPECTED_ANSWER_TOKENS
    limits = [
        calls * SECONDS_A_CALL / concurrency,
        60 * calls / stage.rpm if stage.rpm else 0.0,
        60 * (asked + answered) / stage.tpm if stage.tpm else 0.0,
    ]
    return {
        "documents": coverage.documents,
        "enriched": coverage.enriched,
        "pending": counts[0],
        "stale": counts[1],
        "calls": calls,
        "tokens": asked + answered,
        "cost": Model(stage).price(asked, answered) if stage.model else None,
        "seconds": round(max(limits), 1),
    }
