"""A run: what it reads, what it writes, what it does about documents that change or fail meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from cluster.documents import fill, make_index, sources, undone
from cluster.enriching import (
    BODY,
    MAPPING,
    OURS,
    Bench,
    answer,
    answers,
    documents,
    fetched,
    others,
    recorded,
    refuse_items,
)
from cluster.wire import Forward, Reply, Seen, Wire
from sira_es.cluster.connect import connect
from sira_es.enrich.report import Limits, Progress
from sira_es.errors import ClusterError, ConfigurationError
from sira_es.llm.model import Answer, Prompt
from sira_es.settings import ClusterSettings
from tests.model_server import Fault, ModelServer

pytestmark = pytest.mark.anyio

# What is read


async def test_second_run_fetches_no_document(bench: Bench, wire: Wire) -> None:
    """elastic/elasticsearch-py#389: a job that cannot resume reads everything again."""
    await fill(bench.cluster, bench.index, documents(30))
    first = await (await bench.job(recorded(answers(30)))).run()
    assert (first.enriched, first.pending) == (30, 0)
    wire.clear()
    second = await (await bench.job(recorded(answers(30)))).run()
    assert fetched(wire) == []
    assert second.done == 0


async def test_next_run_fetches_what_others_wrote_since_and_enriches_only_changed_texts(
    bench: Bench, wire: Wire
) -> None:
    await fill(bench.cluster, bench.index, documents(30))
    await (await bench.job(recorded(answers(30)))).run()
    lines = [
        part
        for key, doc in (("3", {"body": "another text"}), ("4", {"price": 99}))
        for part in ({"update": {"_index": bench.index, "_id": key}}, {"doc": doc})
    ]
    await bench.cluster.request("POST", "/_bulk", lines=lines)
    wire.clear()
    report = await (await bench.job(recorded({"3": answer("new words")}))).run()
    assert sorted(fetched(wire)) == ["3", "4"]
    assert report.done == 1
    assert (await sources(bench.cluster, bench.index))["3"]["enriched_terms"] == ["new words"]


async def test_only_text_fields_and_bookkeeping_are_read(bench: Bench, wire: Wire) -> None:
    await fill(bench.cluster, bench.index, {"1": {"body": "fan", "secret": "not for a model"}})
    await (await bench.job(recorded(answers(2)))).run()
    read = [hit["_source"] for s in wire.requests("/_search") if s.reply for hit in s.reply.json["hits"]["hits"]]
    assert read
    assert all(set(source) <= {"body", "sira"} for source in read)


async def test_another_recipe_makes_every_document_stale(bench: Bench) -> None:
    await fill(bench.cluster, bench.index, documents(5))
    await (await bench.job(recorded(answers(5)))).run()
    smaller = BODY.model_copy(update={"chunk_tokens": 500})
    report = await (await bench.job(recorded(answers(5)), settings=smaller)).run()
    assert report.done == 5
    recipes = {s["sira"]["recipe"] for s in (await sources(bench.cluster, bench.index)).values()}
    assert recipes == {"recorded/document_v1/500"}


async def test_slices_are_disjoint_and_together_complete(bench: Bench) -> None:
    await fill(bench.cluster, bench.index, documents(40))
    done = [(await (await bench.job(recorded(answers(40)))).run(part=(i, 3))).done for i in range(3)]
    assert sum(done) == 40
    assert all(done)
    assert all("sira" in s for s in (await sources(bench.cluster, bench.index)).values())


async def test_document_without_a_text_is_no_candidate_and_a_binary_one_is_skipped_with_a_reason(bench: Bench) -> None:
    held = {"1": {"price": 1}, "2": {"body": "iVBORw0KGgo" * 100}, "3": {"body": "  "}, "4": {"body": "fan"}}
    await fill(bench.cluster, bench.index, held)
    report = await (await bench.job(recorded({"4": answer("noise")}))).run()
    assert report.skipped == {"binary": 1, "no text": 1}
    assert report.enriched == 1
    assert report.failed == {}


# What is written


async def test_document_whose_text_is_gone_loses_the_terms_of_it(bench: Bench) -> None:
    await fill(bench.cluster, bench.index, documents(4))
    await (await bench.job(recorded(answers(4)))).run()
    for key, text in (("0", ""), ("1", None), ("2", "QUJD" * 300)):
        await bench.cluster.request("POST", f"/{bench.index}/_update/{key}", body={"doc": {"body": text}})
    job = await bench.job(recorded(answers(4)))
    report = await job.run()
    after = await undone(bench.cluster, bench.index)
    assert [key for key, s in after.items() if OURS & set(s)] == ["3"]
    assert {key: others(s)["price"] for key, s in after.items()} == {str(i): i for i in range(4)}
    counts = (report.enriched, report.skipped, report.without_text, report.pending)
    assert counts == (1, {"binary": 1, "no text": 1}, 1, 0)
    again = await (await bench.job(recorded(answers(4)))).run()
    assert (again.enriched, again.skipped, again.without_text, again.pending) == counts


async def test_every_other_key_of_every_document_stays_as_it_was(bench: Bench) -> None:
    """appbaseio/ai-scripts: whole-document upserts, and an index deleted on the way."""
    odd = {
        "1": {
            "body": ["fan", "noise"],
            "n": 1.0,
            "none": None,
            "o": {"a": [1, [2]], "b": {"c": None}},
            "dotted.key": "x",
        }
    }
    await fill(bench.cluster, bench.index, odd)
    await (await bench.job(recorded({"1": answer("cooler")}))).run()
    after = (await sources(bench.cluster, bench.index))["1"]
    assert others(after) == odd["1"]
    assert after["enriched_terms"] == ["cooler"]


async def test_no_pipeline_of_the_index_runs_on_our_updates(bench: Bench) -> None:
    """elastic/elasticsearch#36219, #104941, #114811, OpenSearch#16663: pipelines run on some updates, not on others."""
    counter = {"processors": [{"set": {"field": "processed", "value": True}}]}
    await fill(bench.cluster, bench.index, documents(3))
    await bench.cluster.request("PUT", f"/_ingest/pipeline/{bench.index}", body=counter)
    try:
        both = {"index.default_pipeline": bench.index, "index.final_pipeline": bench.index}
        await bench.cluster.request("PUT", f"/{bench.index}/_settings", body=both)
        await (await bench.job(recorded(answers(3)))).run()
        after = await sources(bench.cluster, bench.index)
        assert all("sira" in s and "processed" not in s for s in after.values())
    finally:
        none = {"index.default_pipeline": None, "index.final_pipeline": None}
        await bench.cluster.request("PUT", f"/{bench.index}/_settings", body=none)
        await bench.cluster.request("DELETE", f"/_ingest/pipeline/{bench.index}")


async def test_index_that_is_deleted_during_a_run_is_not_made_again(bench: Bench, wire: Wire) -> None:
    """A bulk update on an index that is gone would create it, empty."""
    await fill(bench.cluster, bench.index, documents(3))
    job = await bench.job(recorded(answers(3)))

    async def delete_first(seen: Seen, forward: Forward) -> Reply:
        await bench.cluster.request("DELETE", f"/{bench.index}")
        return await forward(seen)

    wire.on(".*/_mtermvectors", handler=delete_first, times=1)
    with pytest.raises(ClusterError):
        await job.run()
    found = await bench.cluster.request("GET", "/_cat/indices", params={"format": "json"})
    assert bench.index not in {row["index"] for row in found}


async def test_writer_of_the_same_documents_loses_no_update(bench: Bench) -> None:
    """OpenSearch#7413, mozilla/sumo#718, elastic/elasticsearch#19632, #22723: conflicts and lost updates."""
    count, rounds = 60, 5
    await fill(bench.cluster, bench.index, documents(count))

    async def write() -> None:
        for number in range(1, rounds * count + 1):
            body = {"doc": {"price": 1000 * number}}
            place = f"/{bench.index}/_update/{number % count}"
            await bench.cluster.request("POST", place, params={"retry_on_conflict": 10}, body=body)

    with ModelServer(default=answer("noise"), latency=0.02) as server, bench.model(server) as source:
        job = await bench.job(source, page_size=10)
        writer = asyncio.create_task(write())
        report = await job.run()
        await writer
    after = await sources(bench.cluster, bench.index)
    last = {str(n % count): 1000 * n for n in range(1, rounds * count + 1)}
    assert {key: s["price"] for key, s in after.items()} == last
    unfinished = {key for key, s in after.items() if "sira" not in s}
    assert len(unfinished) <= report.stale


async def test_document_whose_text_changes_while_the_model_thinks_gets_no_terms_of_the_old_text(bench: Bench) -> None:
    await fill(bench.cluster, bench.index, documents(1))
    with ModelServer(default=answer("noise"), latency=1.0) as server, bench.model(server) as source:
        running = asyncio.create_task((await bench.job(source)).run())
        while not server.calls:  # noqa: ASYNC110  the server lives in another thread
            await asyncio.sleep(0.02)
        await bench.cluster.request("POST", f"/{bench.index}/_update/0", body={"doc": {"body": "other"}})
        report = await running
    assert report.stale == 1
    assert "enriched_terms" not in (await sources(bench.cluster, bench.index))["0"]


async def copy_unmapped(bench: Bench, count: int) -> None:
    """Enriched documents of another index, copied into one that keeps what it does not map unsearchable."""
    other = f"{bench.index}-old"
    await make_index(bench.cluster, other, mappings=MAPPING)
    await fill(bench.cluster, other, documents(count))
    await (await replace(bench, index=other).job(recorded(answers(count)))).run()
    await bench.cluster.request("PUT", f"/{bench.index}/_mapping", body={"dynamic": False})
    before = {"enriched_at": "2026-01-01T00:00:00+00:00"}
    made = await sources(bench.cluster, other)
    await fill(bench.cluster, bench.index, {key: {**s, "sira": s["sira"] | before} for key, s in made.items()})


async def test_terms_that_were_copied_where_our_fields_were_not_mapped_become_searchable(bench: Bench) -> None:
    await copy_unmapped(bench, 5)
    report = await (await bench.job(recorded(answers(5)))).run()
    assert (report.enriched, report.pending) == (5, 0)
    found = await bench.cluster.request("GET", f"/{bench.index}/_count", params={"q": "enriched_terms:cooler"})
    assert found["count"] == 5
    again = await (await bench.job(recorded(answers(5)))).run()
    assert again.done == 0


async def test_undo_finds_terms_that_were_copied_where_our_fields_were_not_mapped(bench: Bench) -> None:
    await copy_unmapped(bench, 5)
    assert await (await bench.job(recorded({}))).undo() == 5
    assert await undone(bench.cluster, bench.index) == documents(5)


# What fails


class _FullDisk:
    """A source that cannot go on after its first answer, while other questions are under way."""

    name = "m"

    def __init__(self) -> None:
        self.asked = self.answered = 0

    async def ask(self, prompt: Prompt) -> Answer:
        self.asked += 1
        if self.asked == 1:
            await asyncio.sleep(0.05)
            raise ConfigurationError("disk full")
        await asyncio.sleep(0.2)
        self.answered += 1
        return Answer(answer("noise"), self.name)

    async def close(self) -> None:
        """Nothing is open."""


async def test_where_a_run_ends_in_an_error_no_question_goes_on(bench: Bench) -> None:
    await fill(bench.cluster, bench.index, documents(20))
    source = _FullDisk()
    job = await bench.job(source)
    with pytest.raises(ConfigurationError):
        await job.run()
    await asyncio.sleep(0.4)
    assert (source.asked, source.answered) == (bench.concurrency + 1, 0)  # one took the place of the first


async def test_failed_documents_are_the_ones_that_the_next_run_asks_about(bench: Bench) -> None:
    """Failed documents marked done: with 10 % failures the next run has to redo exactly those."""
    await fill(bench.cluster, bench.index, documents(20))
    with ModelServer(default=answer("noise")) as server, bench.model(server) as source:
        server.next(*[Fault.filtered() if i % 10 == 3 else None for i in range(20)])
        job = await bench.job(source)
        first = await job.run()
        assert first.failed == {"refused": 2}
        failed = {doc_id for _, doc_id, _ in job.failures()}
        server.heal()
        server.forget()
        second_job = await bench.job(source)
        second = await second_job.run()
        assert (second.failed, second.pending) == ({}, 0)
        asked = [call["messages"][-1]["content"] for call in server.calls]
    assert sorted(asked) == sorted(f"body: {documents(20)[i]['body']}" for i in failed)
    assert second_job.failures() == []


async def test_busy_cluster_and_failing_model_end_with_all_done_or_the_failed_ones_listed(
    bench: Bench, wire: Wire
) -> None:
    """elastic/elasticsearch#103665, #150635, #26153, opensearch-js#417, ml-commons#2438: failures lost inside a 200."""
    count = 120
    await fill(bench.cluster, bench.index, documents(count))
    wire.on("/_bulk", handler=refuse_items(0.3))
    ways = [
        Fault.status(500), Fault.status(429, retry_after=0.1), Fault.drop(), Fault.says("no json at all"),
        Fault.says(None), Fault.filtered(),
    ]  # fmt: skip
    chance = random.Random(5)
    with ModelServer(default=answer("noise")) as server, bench.model(server) as source:
        server.next(*[chance.choice(ways) if chance.random() < 0.1 else None for _ in range(3 * count)])
        job = await bench.job(source, page_size=40)
        first = await job.run()
        after = await sources(bench.cluster, bench.index)
        assert {key for key, s in after.items() if "sira" not in s} == {doc_id for _, doc_id, _ in job.failures()}
        assert first.enriched + sum(first.failed.values()) == count
        server.heal()
        second = await (await bench.job(source)).run()
    assert (second.failed, second.pending, second.enriched) == ({}, 0, count)
    sizes = [len(s.lines) // 2 for s in wire.requests("/_bulk")]
    assert any(later < earlier for earlier, later in itertools.pairwise(sizes)), "bulk requests shrink"


async def test_lost_point_in_time_loses_no_document(bench: Bench, wire: Wire) -> None:
    """elasticsearch-dsl-py#796, taraslayshchuk/es2csv#10: an expired scroll left partial data."""
    await fill(bench.cluster, bench.index, documents(40))
    gone = {"error": {"type": "search_context_missing_exception", "reason": "No search context found"}, "status": 404}
    pages = 0

    async def lose_some(seen: Seen, forward: Forward) -> Reply:
        nonlocal pages
        pages += "pit" in json.loads(seen.body)
        return Reply.of(404, gone) if pages in {2, 5} else await forward(seen)

    wire.on("/_search", handler=lose_some)
    report = await (await bench.job(recorded(answers(40)), page_size=7)).run()
    assert (report.enriched, report.pending) == (40, 0)


async def test_at_most_two_contexts_are_open_and_none_is_left(bench: Bench, wire: Wire) -> None:
    await fill(bench.cluster, bench.index, documents(40))
    await (await bench.job(recorded(answers(40)), page_size=7)).run()
    open_now = most = 0
    for seen in wire.seen:
        if seen.path.endswith(("/_search/point_in_time", "/_pit")):
            open_now += 1 if seen.method == "POST" else -1
            most = max(most, open_now)
    assert most <= 2
    assert open_now == 0


@pytest.mark.slow
async def test_slow_model_outlives_the_keep_alive_of_a_point_in_time(bench: Bench, wire: Wire) -> None:
    """elastic/elasticsearch-py#456: a scan failed after about an hour, as its consumer was slower than keep_alive."""
    await fill(bench.cluster, bench.index, documents(60))
    with ModelServer(default=answer("noise"), latency=4.0) as server, bench.model(server) as source:
        report = await (await bench.job(source, page_size=10, keep_alive="5s")).run()
        assert len(server.calls) == 60
    assert (report.enriched, report.pending, report.failed) == (60, 0, {})
    open_now = most = 0
    for seen in wire.seen:
        if seen.path.endswith(("/_search/point_in_time", "/_pit")):
            open_now += 1 if seen.method == "POST" else -1
            most = max(most, open_now)
    assert most <= 2


async def test_model_that_never_answers_fails_its_document_and_the_job_moves_on(bench: Bench) -> None:
    """elastic/elasticsearch PR #147172: inference hangs indefinitely."""
    await fill(bench.cluster, bench.index, documents(5))
    with ModelServer(default=answer("noise")) as server, bench.model(server, timeout=0.5) as source:
        server.next(Fault.hang(), Fault.hang(), Fault.hang(), Fault.hang())
        bench.concurrency = 1
        report = await (await bench.job(source)).run()
    assert report.enriched + report.failed.get("timeout", 0) == 5
    assert report.enriched >= 3


# Limits


async def test_cost_limit_is_kept_and_the_next_run_goes_on(bench: Bench) -> None:
    """ES|QL COMPLETION stops at 100 rows by default: cost surprises."""
    await fill(bench.cluster, bench.index, documents(60))
    with ModelServer(default=answer("noise")) as server:
        bench.concurrency = 2
        with bench.model(server) as source:
            source._source.name = source.name = "openai/gpt-4.1-mini"  # type: ignore[attr-defined]
            whole = await (await bench.job(source)).run(Limits(documents=5))
            one = whole.cost / 5
            part = await (await bench.job(source)).run(Limits(cost=10.5 * one))
            assert part.stopped == "cost"
            assert part.cost <= 10.5 * one * 1.05
            rest = await (await bench.job(source)).run()
            assert (rest.pending, rest.stopped) == (0, "")
            assert len(server.calls) == 60


@pytest.mark.parametrize(
    "fault", [Fault.says(None), Fault.filtered(), Fault.cut(0)], ids=["empty", "refused", "thought"]
)
async def test_what_a_useless_answer_cost_counts_as_well(bench: Bench, fault: Fault) -> None:
    """ES|QL COMPLETION stops at 100 rows by default: cost surprises."""
    await fill(bench.cluster, bench.index, documents(10))
    with ModelServer(default=answer("noise")) as server, bench.model(server) as source:
        source._source.name = source.name = "openai/gpt-4.1-mini"  # type: ignore[attr-defined]
        server.next(*[fault] * 4)
        report = await (await bench.job(source)).run()
        assert (sum(report.failed.values()), report.calls) == (4, 10)
        one = report.cost / 10
        server.always(fault)
        report = await (await bench.job(source)).run(Limits(cost=one / 2))
        assert report.stopped == "cost"


async def test_time_limit_stops_cleanly(bench: Bench) -> None:
    await fill(bench.cluster, bench.index, documents(60))
    with ModelServer(default=answer("noise"), latency=0.2) as server, bench.model(server) as source:
        report = await (await bench.job(source, page_size=20)).run(Limits(seconds=1.0))
        assert report.stopped == "time"
        assert report.enriched == len(server.calls)
        assert 0 < report.enriched < 60


async def test_the_ledger_knows_a_cluster_by_another_spelling_of_its_address_and_with_another_node(
    bench: Bench, node_url: str
) -> None:
    await fill(bench.cluster, bench.index, documents(3))
    keys = set()
    for url in ([node_url], [f"{node_url}/"], [node_url, "http://127.0.0.1:1"]):
        cluster = await connect(ClusterSettings(url=url))
        other = Bench(cluster, bench.index, bench.folder, bench.settings)
        keys.add((await other.job(recorded({}))).key)
        await cluster.close()
    assert len(keys) == 1


async def test_answers_that_arrive_after_an_interruption_are_booked_as_they_are_stored(bench: Bench) -> None:
    await fill(bench.cluster, bench.index, documents(30))
    with ModelServer(default=answer("noise"), latency=0.5) as server, bench.model(server) as source:
        job = await bench.job(source)
        running = asyncio.create_task(job.run())
        async with asyncio.timeout(30):
            while len(server.calls) < bench.concurrency:  # noqa: ASYNC110  the server lives in another thread
                await asyncio.sleep(0.02)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await asyncio.sleep(1.5)
        await source.close()
        spent = (await job.status()).calls
    with closing(sqlite3.connect(bench.folder / "answers.sqlite")) as store:
        assert store.execute("SELECT count(*) FROM answers").fetchone() == (spent,)
    assert spent == bench.concurrency


async def test_equal_texts_are_paid_once(bench: Bench) -> None:
    await fill(bench.cluster, bench.index, {str(i): {"body": f"fan {i % 4}"} for i in range(40)})
    with ModelServer(default=answer("noise"), latency=0.05) as server, bench.model(server) as source:
        report = await (await bench.job(source)).run()
        assert report.enriched == 40
        assert len(server.calls) == report.calls == 4


async def test_rate_limit_of_the_model_is_one_for_all_and_causes_no_stampede(bench: Bench) -> None:
    """ml-commons#2249, #2438, #1840, #4889: throttling, and retries with backoff, asked for."""
    await fill(bench.cluster, bench.index, documents(30))
    with ModelServer(default=answer("noise")) as server, bench.model(server) as source:
        server.next(*[Fault.status(429, retry_after=1.0)] * 4)
        report = await (await bench.job(source)).run()
        first = server.times[0]
        early = [t for t in server.times if t < first + 0.95]
    assert (report.enriched, report.failed) == (30, {})
    assert len(early) <= bench.concurrency


async def test_progress_tells_rate_cost_and_failures_by_reason(bench: Bench) -> None:
    await fill(bench.cluster, bench.index, documents(20))
    told: list[Progress] = []
    some = {str(i): answer("noise") for i in range(15)}
    await (await bench.job(recorded(some), page_size=5)).run(on_progress=told.append)
    assert [p.done for p in told] == sorted(p.done for p in told)
    assert told[-1].done == told[-1].total == 20
    assert told[-1].failed == {"not recorded": 5}
    assert told[-1].rate > 0
