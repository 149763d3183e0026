"""`store: index`: answers are kept in the cluster, where each machine finds what another has paid for."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.counting import add, create
from cluster.enriching import answer
from cluster.searching import DOCUMENTS, ENGLISH, QUERY, settings_for
from cluster.wire import Wire
from sira_es.cluster.answers import ANSWERS, AnswersIndex
from sira_es.cluster.connect import Cluster
from sira_es.enrich.report import Limits
from sira_es.errors import ClusterError
from sira_es.sira import AsyncSira
from tests.model_server import ModelServer

pytestmark = pytest.mark.anyio
Machine = Callable[..., AsyncSira]
READ, WRITE = f"/{ANSWERS}/_mget", f"/{ANSWERS}/_bulk"


@pytest.fixture(autouse=True)
async def _no_answers(cluster: Cluster) -> AsyncIterator[None]:
    await cluster.request("DELETE", f"/{ANSWERS}", params={"ignore_unavailable": True})
    yield
    await cluster.request("DELETE", f"/{ANSWERS}", params={"ignore_unavailable": True})


@pytest.fixture
async def plain(cluster: Cluster, index: str, model: ModelServer) -> AsyncIterator[str]:
    """The same documents without our fields, and a model that proposes a word for each."""
    model.default = answer("noise")
    name = f"{index}-plain"
    await create(cluster, name, properties={"title": ENGLISH, "text": ENGLISH})
    await add(cluster, name, [{"title": d["title"], "text": d["text"]} for d in DOCUMENTS])
    yield name
    await cluster.request("DELETE", f"/{name}")


@pytest.fixture
async def machine(wire: Wire, index: str, model: ModelServer, tmp_path: Path) -> AsyncIterator[Machine]:
    """A facade with a state folder of its own."""
    made: list[AsyncSira] = []

    def one(of: str = index, **options: Any) -> AsyncSira:
        settings = settings_for(wire.url, of, tmp_path / f"state-{len(made)}", model, deadline=10)
        documents = settings.llm.documents.model_copy(
            update={"model": "openai/small", "api_base": model.api_base, "api_key": settings.llm.queries.api_key}
        )
        llm = settings.llm.model_copy(update={"documents": documents})
        made.append(AsyncSira(settings.model_copy(update={"store": "index", "llm": llm}), **options))
        return made[-1]

    yield one
    for sira in made:
        await sira.close()


def answers_in(cluster: Cluster) -> AnswersIndex:
    async def connected() -> Cluster:
        return cluster

    return AnswersIndex(connected)


async def words(sira: AsyncSira, index: str) -> list[str]:
    return [t.word for t in (await sira.expand(QUERY, index)).terms]


async def test_what_one_machine_paid_for_another_finds_without_a_call(
    machine: Machine, index: str, model: ModelServer
) -> None:
    first = await words(machine(), index)
    assert first
    assert len(model.calls) == 1
    assert await words(machine(), index) == first
    assert len(model.calls) == 1


async def test_a_machine_that_may_ask_no_model_finds_it_too(machine: Machine, index: str) -> None:
    first = await words(machine(), index)
    assert await words(machine(ask_model=False), index) == first


async def test_what_was_found_once_is_on_the_machine(machine: Machine, index: str, wire: Wire) -> None:
    await words(machine(), index)
    second = machine()
    await words(second, index)
    wire.clear()
    await words(second, index)
    assert not wire.count(READ)


async def test_an_enrichment_goes_on_where_another_machine_stopped(
    machine: Machine, plain: str, model: ModelServer, wire: Wire
) -> None:
    await machine(plain).enrich(plain, limits=Limits(documents=3))
    assert len(model.calls) == 3
    await machine(plain).undo(plain)
    wire.clear()
    report = await machine(plain).enrich(plain)
    assert (report.enriched, report.calls, len(model.calls)) == (6, 3, 6)


async def test_answers_of_a_whole_page_are_one_request(machine: Machine, plain: str, wire: Wire) -> None:
    await machine(plain).enrich(plain)
    await machine(plain).undo(plain)
    wire.clear()
    await machine(plain).enrich(plain)
    assert wire.count(READ) == 1


async def test_answers_of_a_batch_are_shared(machine: Machine, plain: str, model: ModelServer) -> None:
    assert (await machine(plain).enrich(plain, batch=True)).enriched == 6
    await machine(plain).undo(plain)
    report = await machine(plain).enrich(plain)
    assert (report.enriched, report.calls) == (6, 0)
    assert not model.calls


async def test_the_first_answer_of_a_question_stays(cluster: Cluster, anyio_backend: str) -> None:
    one, other = answers_in(cluster), answers_in(cluster)
    await one.write({"k": {"text": "first", "model": "m"}})
    await other.write({"k": {"text": "second", "model": "m"}, "l": {"text": "third", "model": "m"}})
    found = await one.read(["k", "l", "unknown"])
    assert {key: document["text"] for key, document in found.items()} == {"k": "first", "l": "third"}


async def test_a_search_over_all_indices_does_not_find_them(machine: Machine, index: str, cluster: Cluster) -> None:
    await words(machine(), index)
    await cluster.request("POST", f"/{ANSWERS}/_refresh")
    found = await cluster.request("POST", "/*/_search", body={"query": {"exists": {"field": "prompt_tokens"}}})
    everything = await cluster.request("POST", "/_search", body={"size": 1000})
    assert not found["hits"]["hits"]
    assert ANSWERS not in {hit["_index"] for hit in everything["hits"]["hits"]}


async def test_the_index_is_made_again_where_somebody_deleted_it(
    machine: Machine, index: str, cluster: Cluster
) -> None:
    sira = machine()
    await words(sira, index)
    await cluster.request("DELETE", f"/{ANSWERS}")
    await sira.expand("headphones for planes", index)
    mapping = await cluster.request("GET", f"/{ANSWERS}/_mapping")
    assert mapping[ANSWERS]["mappings"]["_meta"] == {"made_by": "sira-es"}


@pytest.mark.parametrize("path", [READ, WRITE])
async def test_a_cluster_that_refuses_costs_a_call_and_no_search(
    path: str, machine: Machine, index: str, wire: Wire, model: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    body = {"error": {"type": "security_exception", "reason": "action is unauthorized"}, "status": 403}
    wire.on(path, status=403, body=body)
    sira = machine()
    with caplog.at_level(logging.WARNING):
        assert await words(sira, index)
    assert ANSWERS in caplog.text
    assert await words(sira, index)
    assert len(model.calls) == 1


@pytest.mark.parametrize(
    "document", [{}, {"text": 7, "model": "m"}, {"text": "no JSON", "model": "m"}, {"text": None, "model": None}]
)
async def test_what_is_no_answer_is_passed_over(
    document: dict[str, Any], machine: Machine, index: str, wire: Wire, model: ModelServer
) -> None:
    def replaced(found: Any) -> None:
        for one in found["docs"]:
            one.clear()
            one.update({"_index": ANSWERS, "_id": wire.seen[-1].json["ids"][0], "found": True, "_source": document})

    wire.on(READ, edit=replaced)
    assert await words(machine(), index)
    assert len(model.calls) == 1


@pytest.mark.parametrize("given", [{}, [], {"docs": 7}, {"docs": [7]}, {"docs": [{"found": True}]}])
async def test_an_answer_that_is_none_of_a_cluster_is_told_as_that(given: Any, wired: Cluster, wire: Wire) -> None:
    wire.on(READ, status=200, body=given)
    with pytest.raises(ClusterError, match="unexpected form"):
        await answers_in(wired).read(["k"])


async def test_a_full_disk_is_told(wired: Cluster, wire: Wire) -> None:
    full = {"create": {"_id": "k", "status": 429, "error": {"type": "cluster_block_exception", "reason": "disk"}}}
    wire.on(WRITE, status=200, body={"errors": True, "items": [full]})
    with pytest.raises(ClusterError, match="cluster_block_exception"):
        await answers_in(wired).write({"k": {"text": "x", "model": "m"}})
