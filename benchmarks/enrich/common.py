"""What the benchmarks of the enrichment share: documents, answers in a store, and a job on a real node."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import random
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import elasticsearch.helpers
import opensearchpy.helpers
from elasticsearch import AsyncElasticsearch
from opensearchpy import AsyncOpenSearch

from sira_es.cli import GARBAGE
from sira_es.cluster.connect import Cluster
from sira_es.cluster.scan import Hit, scan
from sira_es.cluster.schema import create_index, ensure_fields
from sira_es.cluster.statistics import DocumentFrequencies
from sira_es.cluster.target import Target, describe
from sira_es.cluster.write import Change, index_documents, update
from sira_es.enrich.job import Enrichment
from sira_es.enrich.ledger import Ledger
from sira_es.enrich.page import PageEnricher
from sira_es.enrich.paging import PAGE
from sira_es.llm.answer import is_usable
from sira_es.llm.model import Answer
from sira_es.llm.store import AnswerStore, NoModel, StoredSource, key_of
from sira_es.resources import data_file
from sira_es.settings import IndexSettings

gc.set_threshold(*GARBAGE)

FIELDS = ["title", "text"]
SETTINGS = IndexSettings(text_fields=FIELDS)
FAQ = data_file("examples", "stackfaq")


def documents(count: int, joined: int = 1) -> Iterator[tuple[str, dict[str, str], str]]:
    """Id, source and answer: the FAQ over and over, its sentences in another order each time, so that no text repeats.

    A text is that of `joined` rows, of about 0.4 KB each.
    """
    with gzip.open(FAQ / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    with gzip.open(FAQ / "recorded" / "documents.jsonl.gz", "rt", encoding="utf-8") as lines:
        answers = {row["id"]: row["answer"] for row in map(json.loads, lines)}
    chance = random.Random(1)
    for number in range(count):
        row = rows[number % len(rows)]
        key = row.get("_id") or row["id"]
        texts = [rows[(number + 89 * further) % len(rows)]["text"] for further in range(joined)]
        sentences = " ".join(texts).split(". ")
        chance.shuffle(sentences)
        source = {"title": row.get("title", ""), "text": f"{'. '.join(sentences)} ({number})"}
        yield str(number), source, answers[key]


async def load(cluster: Cluster, index: str, count: int, joined: int = 1) -> Target:
    await create_index(cluster, index)
    await index_documents(cluster, index, ((key, source) for key, source, _ in documents(count, joined)))
    await ensure_fields(cluster, await describe(cluster, index, FIELDS), "text")
    return await describe(cluster, index, FIELDS)


def make_job(cluster: Cluster, target: Target, folder: Path, store: AnswerStore) -> Enrichment:
    source = StoredSource(NoModel("openai/bench"), store, usable=lambda p, a: is_usable(a.text, p.kind))
    frequencies = DocumentFrequencies(cluster)
    page = PageEnricher(frequencies, source, target, SETTINGS, concurrency=8)
    return Enrichment(cluster, frequencies, target, page, Ledger(folder / "ledger.sqlite"), text_fields=FIELDS)


def fill_store(job: Enrichment, store: AnswerStore, count: int, joined: int = 1) -> None:
    """Put an answer for every document into the store, as earlier calls would have."""
    page = job._page
    store._file.connection.execute("PRAGMA synchronous = OFF")
    for key, source, answer in documents(count, joined):
        for prompt in page.prompts(key, source):
            store.put(key_of("openai/bench", prompt), Answer(answer, "openai/bench", 400, 30, 0.0002))


WRITTEN: dict[str, Any] = {
    "enriched_terms": [
        "strike out text", "cross out text", "line through text", "GFM", "HTML tag", "md formatting", "strike-through",
    ],
    "sira": {"source_hash": "0" * 64, "recipe": "openai/bench/document_v1", "enriched_at": "2026-01-01T00:00:00Z"},
}  # fmt: skip


async def by_helpers(cluster: Cluster, index: str) -> int:
    """The same two fields, written by the scan and the bulk helper of the engine's official client as they are."""
    of_opensearch = cluster.engine.family == "opensearch"
    client: Any = AsyncOpenSearch(cluster.url) if of_opensearch else AsyncElasticsearch(cluster.url)
    helpers: Any = opensearchpy.helpers if of_opensearch else elasticsearch.helpers
    query = {"query": {"match_all": {}}, "_source": [*FIELDS, "sira"], "seq_no_primary_term": True}

    async def updates() -> AsyncIterator[dict[str, Any]]:
        async for hit in helpers.async_scan(client, index=index, query=query):
            version = {"if_seq_no": hit["_seq_no"], "if_primary_term": hit["_primary_term"]}
            yield {"_op_type": "update", "_index": index, "_id": hit["_id"], **version, "doc": WRITTEN}

    try:
        written, _ = await helpers.async_bulk(client, updates())
        return int(written)
    finally:
        await client.close()


async def bare(cluster: Cluster, target: Target, at_a_time: int) -> int:
    """The pages of an enrichment, with the same two fields written into each document, so many pages at a time."""
    written = 0
    tasks: deque[asyncio.Task[int]] = deque()

    async def one(hits: list[Hit]) -> int:
        return len(await update(cluster, [Change(hit, WRITTEN) for hit in hits]))

    async with aclosing(scan(cluster, target, source=[*FIELDS, "sira"], page_size=PAGE)) as pages:
        async for hits in pages:
            tasks.append(asyncio.create_task(one(hits)))
            if len(tasks) >= at_a_time:
                written += await tasks.popleft()
    while tasks:
        written += await tasks.popleft()
    return written
