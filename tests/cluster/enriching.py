"""For tests of the enrichment: a job on a real node, answers from a file or a model server, and what was seen on the wire."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.wire import Forward, Reply, Seen, Wire
from sira_es.cluster.connect import Cluster
from sira_es.cluster.schema import ensure_fields
from sira_es.cluster.statistics import DocumentFrequencies
from sira_es.cluster.target import describe
from sira_es.enrich.job import Enrichment
from sira_es.enrich.ledger import Ledger
from sira_es.enrich.page import PageEnricher
from sira_es.llm.answer import is_usable
from sira_es.llm.model import AnswerSource, Model
from sira_es.llm.recorded import RecordedAnswers
from sira_es.llm.store import AnswerStore, StoredSource
from sira_es.settings import IndexSettings, LlmStage
from sira_es.vocabulary import HumanTerms
from tests.model_server import ModelServer

OURS = {"enriched_terms", "sira"}
BODY = IndexSettings(text_fields=["body"])
MAPPING = {"properties": {"body": {"type": "text"}, "price": {"type": "integer"}}}


def documents(count: int) -> dict[str, Any]:
    return {str(i): {"body": f"fan number {i} is loud", "price": i} for i in range(count)}


def answers(count: int) -> dict[str, str]:
    return {str(i): answer(f"noise {i}", f"cooler {i}") for i in range(count)}


def answer(*terms: str) -> str:
    return json.dumps({"terms": list(terms)})


def recorded(answers: Mapping[str, str]) -> RecordedAnswers:
    """Answers by document id."""
    return RecordedAnswers(answers)


@dataclass
class Bench:
    """What a job is made of, so that a test can make it again as a second process would."""

    cluster: Cluster
    index: str
    folder: Path
    settings: IndexSettings
    concurrency: int = 4

    async def job(
        self,
        source: AnswerSource,
        *,
        page_size: int = 200,
        keep_alive: str = "5m",
        human: HumanTerms | None = None,
        settings: IndexSettings | None = None,
    ) -> Enrichment:
        settings = settings or self.settings
        fields = [name for name, _ in settings.fields]
        await ensure_fields(self.cluster, await describe(self.cluster, self.index, fields), settings.main)
        target = await describe(self.cluster, self.index, fields)
        frequencies = DocumentFrequencies(self.cluster)
        page = PageEnricher(frequencies, source, target, settings, concurrency=self.concurrency, human=human)
        ledger = Ledger(self.folder / "ledger.sqlite")
        return Enrichment(
            self.cluster,
            frequencies,
            target,
            page,
            ledger,
            text_fields=fields,
            read_fields=settings.read_fields,
            updated_field=settings.updated_field,
            page_size=page_size,
            keep_alive=keep_alive,
        )

    @contextmanager
    def model(self, server: ModelServer, **stage: Any) -> Iterator[StoredSource]:
        """A model behind the answer store of the folder."""
        settings = LlmStage(
            model="openai/test", api_base=server.api_base, api_key="k", concurrency=self.concurrency, **stage
        )
        store = AnswerStore(self.folder / "answers.sqlite")
        try:
            yield StoredSource(
                Model(settings, backoff=0.05),
                store,
                usable=lambda prompt, given: is_usable(given.text, prompt.kind),
            )
        finally:
            store.close()


async def close_models() -> None:
    """Close the connections that litellm pools for the process: a later test has another event loop."""
    if litellm := sys.modules.get("litellm"):
        await litellm.close_litellm_async_clients()
        litellm.in_memory_llm_clients_cache.flush_cache()


def others(source: Mapping[str, Any]) -> dict[str, Any]:
    """A `_source` without our two fields."""
    return {key: value for key, value in source.items() if key not in OURS}


def fetched(wire: Wire) -> list[str]:
    """The ids of all documents that searches brought, each as often as it came."""
    searches = [s for s in wire.requests("/_search") if s.reply is not None and s.reply.status == 200]
    return [hit["_id"] for s in searches if s.reply for hit in s.reply.json["hits"]["hits"]]


def refuse_items(share: float, seed: int = 7) -> Any:
    """A handler for /_bulk that answers a share of the items with 429 itself and has the node carry out the others."""
    import random

    chance = random.Random(seed)
    busy = {"status": 429, "error": {"type": "es_rejected_execution_exception", "reason": "planted: queue is full"}}

    async def handle(seen: Seen, forward: Forward) -> Reply:
        lines = seen.body.splitlines(keepends=True)
        pairs = [lines[i : i + 2] for i in range(0, len(lines), 2)]
        refused = [chance.random() < share for _ in pairs]
        kept = [line for pair, no in zip(pairs, refused, strict=True) if not no for line in pair]
        done: list[Any] = []
        if kept:
            reply = await forward(Seen(seen.method, seen.path, seen.query, seen.headers, b"".join(kept)))
            if reply.status != 200:
                return reply
            done = reply.json["items"]
        answers = iter(done)
        items = [{"update": busy} if no else next(answers) for no in refused]
        return Reply.of(200, {"took": 1, "errors": True, "items": items})

    return handle
