"""Judged collections on a node: what enriching half of an index, or all of it, does to queries."""

from __future__ import annotations

import asyncio
import math
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sira_es.cluster.connect import Cluster
from sira_es.evaluate import read_documents, read_judgments, read_queries
from sira_es.resources import data_file
from sira_es.settings import Settings
from sira_es.sira import AsyncSira, Sides

pytestmark = pytest.mark.anyio

FAQ = data_file("examples", "stackfaq")


def facade(node_url: str, index: str, state: Path, answers: Path) -> AsyncSira:
    """The default configuration, with recorded answers for queries and documents."""
    return AsyncSira(
        Settings(
            cluster={"url": [node_url]},  # type: ignore[arg-type]
            state=state,
            indices={index: {"text_fields": ["title", "text"], "language": "en"}},  # type: ignore[dict-item]
        ),
        query_answers=next(answers.glob("queries*.jsonl*")),
        document_answers=next(answers.glob("documents.jsonl*")),
    )


async def each(queries: Mapping[str, str], work: Any) -> dict[str, Any]:
    gate = asyncio.Semaphore(4)

    async def one(query_id: str, text: str) -> tuple[str, Any]:
        async with gate:
            return query_id, await work(query_id, text)

    return dict(await asyncio.gather(*(one(i, t) for i, t in queries.items())))


async def recall_of_the_others(
    sira: AsyncSira, index: str, queries: Mapping[str, str], others: Mapping[str, set[str]], sides: Sides
) -> float:
    """Mean over queries of the share of these relevant documents that is among the first ten hits."""

    async def found(query_id: str, text: str) -> float:
        result = await sira.search(text, index, sides=sides, query_id=query_id, source=False, deadline=math.inf)
        return len({h.id for h in result.hits} & others[query_id]) / len(others[query_id])

    shares = await each({i: t for i, t in queries.items() if others.get(i)}, found)
    return sum(shares.values()) / len(shares)


async def assert_that_the_others_lose_nothing(
    cluster: Cluster, index: str, state: Path, collection: Path, qrels: Path, answers: Path
) -> None:
    queries = read_queries(collection / "queries.jsonl.gz").texts
    grades = read_judgments(qrels).grades
    async with facade(cluster.url, index, state, answers) as sira:
        documents = list(read_documents(collection / "corpus.jsonl.gz"))
        await sira.load(index, documents)
        half = set(random.Random(5).sample([doc for doc, _ in documents], len(documents) // 2))
        await sira.enrich(index, query={"ids": {"values": sorted(half)}})
        await cluster.request("POST", f"/{index}/_refresh")
        (await sira.frequencies()).forget()
        assert (await sira.shape(index)).coverage == "partial"
        others = {q: {d for d, grade in judged.items() if grade > 0} - half for q, judged in grades.items()}
        plain = await recall_of_the_others(sira, index, queries, others, "baseline")
        assert await recall_of_the_others(sira, index, queries, others, "both") >= plain
        alone = await recall_of_the_others(sira, index, queries, others, "documents")
        assert alone >= 0.97 * plain  # a query without an answer of the model has nothing to make up for it


async def test_relevant_documents_of_the_faq_that_are_not_enriched_lose_nothing(
    cluster: Cluster, index_name: str, tmp_path: Path
) -> None:
    await assert_that_the_others_lose_nothing(cluster, index_name, tmp_path, FAQ, FAQ / "qrels.tsv", FAQ / "recorded")


async def test_relevant_documents_of_cranfield_that_are_not_enriched_lose_nothing(
    cluster: Cluster, index_name: str, tmp_path: Path
) -> None:
    folder, answers = os.environ.get("SIRA_ES_COLLECTIONS"), os.environ.get("SIRA_ES_RECORDINGS")
    if not folder or not answers:
        pytest.skip("SIRA_ES_COLLECTIONS and SIRA_ES_RECORDINGS name no folders with cranfield")
    collection = Path(folder) / "cranfield"
    await assert_that_the_others_lose_nothing(
        cluster, index_name, tmp_path, collection, collection / "qrels" / "test.tsv", Path(answers) / "cranfield"
    )


async def test_kept_words_are_the_same_before_and_after_every_document_was_updated_once(
    cluster: Cluster, index_name: str, tmp_path: Path
) -> None:
    """elastic/elasticsearch#95444: an update leaves a deleted copy, and term vectors go on counting it."""
    queries = read_queries(FAQ / "queries.jsonl.gz").texts
    async with facade(cluster.url, index_name, tmp_path, FAQ / "recorded") as sira:
        await sira.load(index_name, read_documents(FAQ / "corpus.jsonl.gz"))
        await cluster.request("PUT", f"/{index_name}/_settings", body={"index.merge.policy.max_merged_segment": "2mb"})

        async def kept(query_id: str, text: str) -> list[str]:
            expanded = await sira.expand(text, index_name, query_id=query_id, deadline=math.inf)
            assert expanded.gathered.statistics.source == "term_vectors"
            return [t.word for t in expanded.expansion.clauses]

        before = await each(queries, kept)
        lines: list[Any] = []
        for doc, _ in read_documents(FAQ / "corpus.jsonl.gz"):
            lines += [{"update": {"_id": doc}}, {"doc": {"touched": 1}}]
        await cluster.request("POST", f"/{index_name}/_bulk", params={"refresh": True}, lines=lines)
        deleted = (await cluster.request("GET", f"/{index_name}/_stats/docs"))["_all"]["primaries"]["docs"]["deleted"]
        assert deleted > 500
        (await sira.frequencies()).forget()
        after = await each(queries, kept)
    assert len(before) >= 300
    assert sum(map(len, before.values())) > 2000
    assert before == after
