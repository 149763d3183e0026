"""What an enrichment would take, from counts and a sample: no call to a model, nothing written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sira_es.cluster.connect import Cluster, expected, segment
from sira_es.cluster.statistics import DocumentFrequencies
from sira_es.cluster.target import Target, mapped_fields
from sira_es.cluster.write import refresh
from sira_es.enrich.page import PageEnricher
from sira_es.enrich.passes import HASHED, made_otherwise, pending_query
from sira_es.errors import ClusterRefused
from sira_es.llm.batch import BatchModel
from sira_es.llm.model import Model, Prompt, estimate_tokens
from sira_es.settings import LlmStage

__all__ = ["plan"]

SAMPLE = 200
SECONDS_A_CALL = 2.0  # what a hosted model takes for an answer of this length
ANSWER_TOKENS = 40  # measured: 31 and 41 on two collections with ten phrases at most
QUESTIONS_TOKENS = 70
FEWEST_KNOWN = 10  # stored answers from which their own figures are better than the ones above
BYTES_A_DOCUMENT = 310  # measured on merged segments: our two fields with eight phrases, stored and indexed


@dataclass(frozen=True, slots=True)
class _Sample:
    """Prompts of a sample of documents with something to read, its size, and how many are answered, or out in a batch."""

    documents: int
    prompts: tuple[Prompt, ...]
    stored: int = 0
    out: int = 0


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
    questions: bool = False,
    batch: bool = False,
) -> dict[str, Any]:
    """Documents pending, stale and enriched by the present recipe; calls, tokens, cost (US dollars) and seconds that
    enriching them takes; how the index grows; and what an update sets off besides. With recorded answers no model is
    called: `recorded` tells about how many were found, and how many lack.

    `out` are the questions that a batch is to answer already. With `batch` the cost is that of batches where it is known,
    and the seconds are None: it takes up to a day. `stale` counts documents made by another recipe; those whose text
    changed since are found by the run itself.
    """
    await refresh(cluster, target.name)
    frequencies.forget()
    coverage = await frequencies.coverage(target, text_fields)
    only = [query] if query else []
    fields = text_fields if page.fields == list(text_fields) else []
    due = {"bool": {"filter": [pending_query(fields, page.recipe), *only]}}
    other = {"bool": {"filter": [made_otherwise(page.recipe), *only]}}
    made = {"bool": {"filter": [HASHED, {"term": {"sira.recipe": page.recipe}}]}}
    place = f"/{segment(target.name)}"
    answers = [await cluster.request("POST", f"{place}/_count", body={"query": asked}) for asked in (due, other, made)]
    with expected(f"a count of '{target.name}'"):
        counts = [int(answer["count"]) for answer in answers]
    sample = await _sample(cluster, target, page, due)
    prompts = counts[0] * len(sample.prompts) / sample.documents if sample.documents else 0.0
    missing = round(prompts * (1 - sample.stored / len(sample.prompts))) if sample.prompts else 0
    out = round(prompts * sample.out / len(sample.prompts)) if sample.prompts else 0
    calls = 0 if page.recorded else missing - out
    model = (BatchModel(stage) if batch else Model(stage)) if stage.model else None
    if isinstance(model, BatchModel):
        await model.prepare()
    asked, answered = await _tokens_a_call(cluster, target, page, model, sample, questions=questions)
    limits = [
        calls * SECONDS_A_CALL / concurrency,
        60 * calls / stage.rpm if stage.rpm else 0.0,
        60 * calls * (asked + answered) / stage.tpm if stage.tpm else 0.0,
    ]
    return {
        "documents": coverage.documents,
        "enriched": counts[2],
        "pending": counts[0] - counts[1],
        "stale": counts[1],
        "calls": calls,
        "out": out,
        "tokens": round(calls * (asked + answered)),
        "cost": 0.0 if page.recorded else model.price(round(calls * asked), round(calls * answered)) if model else None,
        "seconds": None if batch else round(max(limits), 1),
        "growth": await _growth(cluster, target, counts[0] - counts[1]),
        **({"recorded": {"found": round(prompts) - missing, "missing": missing}} if page.recorded else {}),
        "warnings": [*_prices(model), *(await _side_effects(cluster, target, counts[0]))],
    }


def _prices(model: Model | None) -> list[str]:
    if isinstance(model, BatchModel) and model.rates is None:
        return [f"no price of batches is known for {model.name}: the cost is at its ordinary price"]
    return []


async def _sample(cluster: Cluster, target: Target, page: PageEnricher, query: Mapping[str, Any]) -> _Sample:
    random = {"function_score": {"query": query, "random_score": {"seed": 7, "field": "_seq_no"}}}
    body = {
        "size": min(SAMPLE, target.most_hits),
        "_source": target.source_of(page.fields),
        "query": random,
    }
    answer = await cluster.request("POST", f"/{segment(target.name)}/_search", body=body)
    with expected(f"a sample of '{target.name}'"):
        prompts = [page.prompts(h["_id"], h.get("_source") or {}) for h in answer["hits"]["hits"]]
    flat = tuple(p for ps in prompts for p in ps)
    known = await page.known(flat)
    out = sum(left and answer is None for left, answer in zip(page.left(flat), known, strict=True))
    return _Sample(len(prompts), flat, sum(a is not None for a in known), out)


async def _tokens_a_call(
    cluster: Cluster, target: Target, page: PageEnricher, model: Model | None, sample: _Sample, *, questions: bool
) -> tuple[float, float]:
    """Tokens of a prompt and of an answer: counted in the sample, and corrected by what stored answers really took."""

    def count(prompts: Sequence[Prompt]) -> int:
        return sum(model.tokens(p) if model else estimate_tokens(p) for p in prompts)

    asked = count(sample.prompts) / len(sample.prompts) if sample.prompts else 0.0
    answered = float(ANSWER_TOKENS + (QUESTIONS_TOKENS if questions else 0))
    done = await _sample(cluster, target, page, {"bool": {"filter": [HASHED]}})
    known = [(p, a) for p, a in zip(done.prompts, await page.known(done.prompts), strict=True) if a and a.prompt_tokens]
    if len(known) >= FEWEST_KNOWN:
        asked *= sum(a.prompt_tokens for _, a in known) / count([p for p, _ in known])
        answered = sum(a.completion_tokens for _, a in known) / len(known)
    return asked, answered


async def _growth(cluster: Cluster, target: Target, documents: int) -> dict[str, Any]:
    """Bytes that a copy of the index grows by once its segments are merged, and their share of what it has now."""
    grown = documents * BYTES_A_DOCUMENT
    try:
        stats = await cluster.request("GET", f"/{segment(target.name)}/_stats/store")
        size = int(stats["_all"]["primaries"]["store"]["size_in_bytes"])
    except (ClusterRefused, KeyError, TypeError, ValueError):
        return {"bytes": grown, "share": None}  # not allowed to ask
    return {"bytes": grown, "share": round(grown / size, 3) if size else None}


async def _side_effects(cluster: Cluster, target: Target, documents: int) -> list[str]:
    """What an update of a document sets off: inference for semantic fields, copies into other fields."""
    mappings = await cluster.request("GET", f"/{segment(target.name)}/_mapping")
    with expected(f"the mapping of '{target.name}'"):
        fields = [f for index in mappings.values() for f in mapped_fields(index["mappings"].get("properties", {}))]
    semantic = sorted({name for name, mapping, _ in fields if mapping.get("type") in {"semantic_text", "semantic"}})
    copied = sorted({name for name, mapping, _ in fields if mapping.get("copy_to")})
    warnings = []
    if semantic:
        warnings.append(
            f"{', '.join(semantic)}: an update may run the inference of a semantic field again: up to "
            f"{documents * len(semantic)} calls of its model; try a few documents with --max-docs first"
        )
    if copied:
        warnings.append(f"{', '.join(copied)}: copied to other fields (copy_to), which an update indexes again")
    return warnings
