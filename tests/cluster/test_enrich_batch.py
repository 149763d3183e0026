"""Answers by the batch: submitted, waited for, collected, and gone on with after anything that may happen in between."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.documents import fill, make_index, sources
from cluster.enriching import Bench, answer, close_models, others
from sira_es.cluster.connect import Cluster
from sira_es.enrich.batches import BatchedSource, Batching, owner_of
from sira_es.enrich.notes import Notes
from sira_es.enrich.report import EnrichReport, Limits
from sira_es.errors import ConfigurationError, ModelError
from sira_es.llm.answer import is_usable
from sira_es.llm.batch import BatchModel
from sira_es.llm.model import Answer, Model, Prompt
from sira_es.llm.prompts import document_prompt
from sira_es.llm.store import AnswerStore, StoredSource
from sira_es.settings import IndexSettings, LlmStage
from tests.model_server import Fault, Line, ModelServer

pytestmark = pytest.mark.anyio
KEY = "sk-planted-a1b2c3"
PRICED = "openai/gpt-4.1-mini"


@pytest.fixture(autouse=True)
async def _models_closed() -> AsyncIterator[None]:
    # What litellm builds at its first answer it builds with a warning, which it silences only where it is imported.
    await Model(LlmStage(model="openai/test")).prepare()
    yield
    await close_models()


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(default=answer("noise"), api_key=KEY) as running:
        yield running


def _usable(prompt: Prompt, given: Answer) -> bool:
    return is_usable(given.text, prompt.kind)


class Desk:
    """A state folder, from which runs with batches are made as processes one after the other would."""

    def __init__(self, cluster: Cluster, index: str, folder: Path, server: ModelServer) -> None:
        self.bench = Bench(cluster, index, folder, IndexSettings(text_fields=["body"]))
        self.server = server
        self.said: list[str] = []
        self.page_size = 200

    @contextmanager
    def batching(self, *, model: str = "openai/test", **options: Any) -> Iterator[Any]:
        stage = LlmStage(model=model, api_base=self.server.api_base, api_key=KEY)
        store, notes = AnswerStore(self.bench.folder / "answers.sqlite"), Notes(self.bench.folder / "batches.sqlite")

        async def make() -> Batching:
            batched = BatchedSource(stage, lambda: notes)
            source = StoredSource(batched, store, usable=lambda prompt, given: True, left=batched.left)
            job = await self.bench.job(source, page_size=self.page_size)
            settings = {"pause": 0.02, "settle": 0.0, "say": self.said.append, **options}
            return Batching(job, BatchModel(stage, backoff=0.01), store, notes, owner_of(stage), **settings)

        try:
            yield make
        finally:
            store.close()
            notes.close()

    async def run(self, **options: Any) -> EnrichReport:
        with self.batching(**options) as make:
            return await (await make()).run()

    async def ordinary(self, limits: Limits | None = None) -> EnrichReport:
        """A run without batches in the same folder."""
        stage = LlmStage(model="openai/test", api_base=self.server.api_base, api_key=KEY)
        store, notes = AnswerStore(self.bench.folder / "answers.sqlite"), Notes(self.bench.folder / "batches.sqlite")
        try:
            source = BatchedSource(stage, lambda: notes, Model(stage, backoff=0.01))
            kept = StoredSource(source, store, usable=_usable, left=source.left)
            return await (await self.bench.job(kept)).run(limits)
        finally:
            store.close()
            notes.close()

    async def change(self, texts: dict[str, str]) -> None:
        """Change the texts of documents, which keep what was added to them."""
        for key, text in texts.items():
            body = {"doc": {"body": text}}
            path = f"/{self.bench.index}/_update/{key}"
            await self.bench.cluster.request("POST", path, params={"refresh": True}, body=body)

    async def enriched(self) -> set[str]:
        found = await sources(self.bench.cluster, self.bench.index)
        return {key for key, source in found.items() if "sira" in source}


@pytest.fixture
async def desk(cluster: Cluster, index_name: str, tmp_path: Path, server: ModelServer) -> Desk:
    """Twelve documents of ten texts."""
    await make_index(cluster, index_name)
    await fill(cluster, index_name, {str(i): {"body": f"fan number {i % 10}", "price": i} for i in range(12)})
    return Desk(cluster, index_name, tmp_path, server)


async def test_a_batch_fills_the_store_and_every_document_is_enriched_from_it(desk: Desk) -> None:
    before = await sources(desk.bench.cluster, desk.bench.index)
    report = await desk.run()
    assert (report.enriched, report.pending, report.failed, report.stopped) == (12, 0, {}, "")
    assert (report.calls, len(desk.server.batches.paid), desk.server.calls) == (10, 10, [])
    after = await sources(desk.bench.cluster, desk.bench.index)
    assert {key: others(source) for key, source in after.items()} == before
    assert all(source["enriched_terms"] == ["noise"] for source in after.values())


async def test_a_person_is_told_how_many_questions_are_out_and_how_to_go_on(desk: Desk) -> None:
    await desk.run()
    assert desk.said[0].startswith("batches with 10 questions are out (1)")
    assert "the same command goes on" in desk.said[0]


async def test_files_are_as_long_as_allowed_and_hold_no_key(desk: Desk) -> None:
    desk.server.batches.most_lines = 4
    await desk.run(lines=4)
    uploaded = [content for name, content in desk.server.batches.files.items() if name.startswith("file-")]
    assert [len(content.splitlines()) for content in uploaded] == [4, 4, 2]
    assert not any(KEY.encode() in content for content in uploaded)
    assert not any(KEY.encode() in file.read_bytes() for file in desk.bench.folder.iterdir())
    assert not list(desk.bench.folder.glob("*.jsonl"))


async def test_files_are_as_large_as_allowed(desk: Desk) -> None:
    await desk.run(size=4000)
    uploaded = [content for name, content in desk.server.batches.files.items() if name.startswith("file-")]
    assert len(uploaded) > 2
    assert all(len(content) <= 4000 for content in uploaded)


async def test_an_interrupted_wait_is_gone_on_with_and_nothing_is_paid_again(desk: Desk) -> None:
    desk.server.batches.polls = None
    with desk.batching() as make:
        task = asyncio.create_task((await make()).run())
        async with asyncio.timeout(30):
            while not desk.said:  # noqa: ASYNC110  the server lives in another thread
                await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    desk.server.batches.polls = 0
    report = await desk.run()
    assert (report.enriched, len(desk.server.batches.made), len(desk.server.batches.paid)) == (12, 1, 10)


async def test_new_documents_are_asked_about_beside_the_batch_that_is_out(desk: Desk) -> None:
    desk.server.batches.polls = None
    assert (await desk.run(limits=Limits(seconds=0.3))).stopped == "time"
    await fill(desk.bench.cluster, desk.bench.index, {"new": {"body": "another"}})
    desk.server.batches.polls = 0
    report = await desk.run()
    assert (report.enriched, len(desk.server.batches.paid)) == (13, 11)


async def test_a_submission_that_broke_off_after_it_arrived_is_found_by_its_token(desk: Desk) -> None:
    desk.server.batches.after_creation = lambda: "drop"
    with pytest.raises(ModelError, match="cannot be reached"):
        await desk.run()
    desk.server.batches.after_creation = lambda: ""
    report = await desk.run()
    assert (report.enriched, len(desk.server.batches.made), len(desk.server.batches.paid)) == (12, 1, 10)


async def test_it_is_found_days_later_too(desk: Desk) -> None:
    desk.server.batches.after_creation = lambda: "drop"
    with pytest.raises(ModelError, match="cannot be reached"):
        await desk.run()
    desk.server.batches.after_creation = lambda: ""
    days = 3 * 86_400
    for made in desk.server.batches.made.values():
        made["created_at"] -= days
    with sqlite3.connect(desk.bench.folder / "batches.sqlite") as notes:
        notes.execute("UPDATE batches SET created = created - ?", (days,))
    assert (await desk.run()).enriched == 12
    assert len(desk.server.batches.made) == 1


async def test_a_submission_that_never_arrived_is_made_again(desk: Desk) -> None:
    with desk.batching() as make:
        batching = await make()
        batching.notes.begin(batching.owner, "t0", ["of no text"], 0.0)
    report = await desk.run()
    assert (report.enriched, len(desk.server.batches.made), desk.server.batches.lists_asked) == (12, 1, 1)


async def test_it_is_found_on_a_later_page_of_the_list(desk: Desk) -> None:
    other = {"object": "batch", "endpoint": "/v1/chat/completions", "input_file_id": "file-x", "status": "completed",
             "completion_window": "24h", "created_at": int(time.time()), "metadata": None}  # fmt: skip
    desk.server.batches.after_creation = lambda: "drop"
    with pytest.raises(ModelError):
        await desk.run()
    for number in range(150):
        desk.server.batches.made[f"of-others-{number}"] = {**other, "id": f"of-others-{number}"}
    desk.server.batches.after_creation = lambda: ""
    report = await desk.run()
    assert (report.enriched, len(desk.server.batches.paid), desk.server.batches.lists_asked) == (12, 10, 2)


async def test_where_the_provider_does_not_list_batches_nothing_is_sent_twice(desk: Desk) -> None:
    desk.server.batches.after_creation, desk.server.batches.lists = (lambda: "drop"), False
    with pytest.raises(ModelError):
        await desk.run()
    with pytest.raises(ModelError, match="does not list its batches"):
        await desk.run()
    assert len(desk.server.batches.made) == 1


async def test_an_expired_batch_keeps_what_it_answered_and_the_rest_is_asked_by_the_next_run(desk: Desk) -> None:
    desk.server.batches.ends = "expired"
    desk.server.batches.line = lambda number: Line("answer" if number < 6 else "expired")
    first = await desk.run()
    assert first.failed == {"batch expired": 12 - first.enriched}
    assert first.calls == 6
    desk.server.batches.ends, desk.server.batches.line = "completed", lambda number: Line()
    second = await desk.run()
    assert (second.enriched, second.calls, len(set(desk.server.batches.paid))) == (12, 4, 10)
    assert len(desk.server.batches.paid) == 10


@pytest.mark.parametrize(
    ("ends", "line", "reason"),
    [
        ("completed", Line("missing"), "no answer in the batch"),
        ("cancelled", Line("missing"), "batch cancelled"),
        ("completed", Line("error", status=500), "error in the batch"),
        ("completed", Line("says", "no json at all"), "unusable answer"),
        ("completed", Line("says", ""), "empty answer"),
    ],
)
async def test_a_question_without_an_answer_fails_its_document_alone(
    desk: Desk, ends: str, line: Line, reason: str
) -> None:
    desk.server.batches.ends = ends
    desk.server.batches.line = lambda number: line if number == 9 else Line()
    report = await desk.run()
    assert report.failed == {reason: 12 - report.enriched}
    assert report.enriched >= 10
    assert report.calls == len(desk.server.batches.paid)


async def test_a_question_that_a_batch_could_not_answer_is_asked_one_by_one_without_batches(desk: Desk) -> None:
    desk.server.batches.line = lambda number: Line("missing" if number == 0 else "answer")
    await desk.run()
    report = await desk.ordinary()
    assert (report.enriched, report.failed, len(desk.server.calls)) == (12, {}, 1)


async def test_a_run_without_batches_leaves_to_them_what_they_ask(desk: Desk) -> None:
    desk.server.batches.polls = None
    await desk.run(limits=Limits(seconds=0.3))
    await fill(desk.bench.cluster, desk.bench.index, {"new": {"body": "another"}})
    report = await desk.ordinary()
    assert (report.enriched, report.pending, report.failed, len(desk.server.calls)) == (1, 12, {}, 1)


async def test_documents_that_are_left_to_batches_do_not_use_up_a_limit_of_documents(desk: Desk) -> None:
    desk.server.batches.polls = None
    await desk.run(limits=Limits(seconds=0.3))
    report = await desk.ordinary(Limits(documents=5))
    assert (report.stopped, report.enriched, report.pending) == ("", 0, 12)
    await fill(desk.bench.cluster, desk.bench.index, {f"z{i}": {"body": f"another {i}"} for i in range(4)})
    report = await desk.ordinary(Limits(documents=3))
    assert (report.stopped, report.enriched) == ("documents", 3)


async def test_a_batch_that_the_provider_refuses_says_why(desk: Desk) -> None:
    desk.server.batches.most_lines = 5
    report = await desk.run()
    assert report.failed == {"batch refused": 12}
    assert any("more than 5 lines" in line for line in desk.said)


async def test_a_batch_that_the_provider_does_not_know_any_more_is_given_up(desk: Desk) -> None:
    desk.server.batches.polls = None
    await desk.run(limits=Limits(seconds=0.3))
    desk.server.batches.made.clear()
    assert (await desk.run()).failed == {"batch gone": 12}
    desk.server.batches.polls = 0
    assert (await desk.run()).enriched == 12


async def test_answers_that_nobody_asked_for_are_not_stored(desk: Desk) -> None:
    desk.server.batches.polls = None
    await desk.run(limits=Limits(seconds=0.3))
    planted = desk.server.batches.files["file-0"].replace(b'"custom_id":"', b'"custom_id":"0').splitlines()[0]
    desk.server.batches.files["file-0"] += planted + b"\n"
    desk.server.batches.polls = 0
    report = await desk.run()
    assert (report.calls, report.enriched) == (10, 12)


async def test_a_line_that_comes_twice_is_booked_once(desk: Desk) -> None:
    desk.server.batches.polls = None
    await desk.run(limits=Limits(seconds=0.3))
    desk.server.batches.files["file-0"] *= 2
    desk.server.batches.polls = 0
    report = await desk.run()
    assert (report.calls, report.enriched) == (10, 12)


async def test_pauses_of_the_provider_while_waiting_are_waited_out(desk: Desk) -> None:
    desk.server.batches.polls = 3
    desk.server.batches.faults.extend([Fault.status(500), Fault.status(429, retry_after=0.1), Fault.status(503)])
    report = await desk.run()
    assert (report.enriched, len(desk.server.batches.made)) == (12, 1)


async def test_a_wrong_key_is_told_without_it(desk: Desk) -> None:
    desk.server.api_key = "sk-another"
    with pytest.raises(ModelError, match="refused the key") as caught:
        await desk.run()
    assert KEY not in str(caught.value)
    desk.server.api_key = KEY
    assert (await desk.run()).enriched == 12


async def test_a_provider_without_batches_is_told_before_anything_is_sent(desk: Desk) -> None:
    with pytest.raises(ConfigurationError, match="cannot be asked in batches"):
        await desk.run(model="cohere/command-r")


async def test_answers_cost_the_price_of_a_batch(desk: Desk) -> None:
    report = await desk.run(model=PRICED)
    whole = Model(LlmStage(model=PRICED)).price(1000, 1000)
    assert whole is not None
    assert BatchModel(LlmStage(model=PRICED)).price(1000, 1000) == pytest.approx(whole / 2)
    assert 0 < report.cost < 0.01


async def test_a_limit_of_cost_is_kept_and_the_next_run_goes_on(desk: Desk) -> None:
    with desk.batching(model=PRICED) as make:
        batching = await make()
        ((first,), *_) = [prompts async for page in batching.job.unanswered() for prompts in page]
        one = batching.model.price(batching.model.tokens(first), 2000) * 1.15
    report = await desk.run(model=PRICED, most_cost=3.5 * one)
    assert report.stopped == "cost"
    assert 3 <= len(desk.server.batches.paid) <= 10
    assert report.cost <= 3.5 * one
    assert report.enriched >= report.calls
    report = await desk.run(model=PRICED)
    assert (report.enriched, len(desk.server.batches.paid)) == (12, 10)


async def test_a_limit_of_cost_without_a_price_is_refused(desk: Desk) -> None:
    with pytest.raises(ConfigurationError, match="no price is known"):
        await desk.run(most_cost=1.0)


async def test_a_limit_of_documents_is_kept(desk: Desk) -> None:
    report = await desk.run(limits=Limits(documents=4))
    assert (report.enriched, report.stopped, len(desk.server.batches.paid)) == (4, "documents", 4)


async def test_a_limit_of_documents_that_cuts_off_nothing_is_not_hit(desk: Desk) -> None:
    report = await desk.run(limits=Limits(documents=12))
    assert (report.enriched, report.stopped) == (12, "")


async def test_a_limit_that_cut_off_questions_is_told_though_no_answer_is_stored_of_the_rest(desk: Desk) -> None:
    await fill(desk.bench.cluster, desk.bench.index, {"new": {"body": "another"}})
    report = await desk.run(limits=Limits(documents=12))
    assert (report.enriched, report.pending, report.stopped) == (12, 1, "documents")


async def test_documents_with_nothing_to_ask_do_not_use_up_a_limit_of_documents(desk: Desk) -> None:
    index = desk.bench.index
    own = {f"{i}": {"body": f"fan number {i}", "sira": {"of": "their own"}} for i in range(3)}
    await fill(desk.bench.cluster, index, own)
    await fill(desk.bench.cluster, index, {f"{i}": {"body": f"fan number {i}"} for i in range(3, 12)})
    for _ in range(3):
        await desk.run(limits=Limits(documents=3))
    assert await desk.enriched() == {str(i) for i in range(12)}
    assert (await desk.run()).enriched == 9


async def test_a_changed_document_beyond_a_limit_is_asked_about_by_the_next_run(desk: Desk) -> None:
    await desk.run()
    await desk.change({str(i): f"changed {i}" for i in range(12)})
    assert (await desk.run(limits=Limits(documents=3))).stopped == "documents"
    await desk.run()
    assert len(desk.server.batches.paid) == 10 + 12


async def test_a_changed_document_that_is_left_to_a_batch_gets_its_terms_when_that_is_there(desk: Desk) -> None:
    await desk.run()
    await desk.change({"3": "changed"})
    desk.server.batches.polls = None
    await desk.run(limits=Limits(seconds=0.3))
    await desk.ordinary()
    before = (await sources(desk.bench.cluster, desk.bench.index))["3"]["sira"]
    desk.server.batches.polls = 0
    await desk.run()
    after = (await sources(desk.bench.cluster, desk.bench.index))["3"]["sira"]
    assert after["source_hash"] != before["source_hash"]


async def test_a_document_one_of_whose_parts_a_batch_could_not_answer_fails(desk: Desk) -> None:
    desk.bench.settings = IndexSettings(text_fields=["body"], chunk_tokens=200)
    await desk.change({"3": " ".join(f"word{i}" for i in range(200))})
    desk.server.batches.line = lambda number: Line("missing" if number == 10 else "answer")
    report = await desk.run()
    assert report.failed == {"no answer in the batch": 1}
    assert "3" not in await desk.enriched()


async def test_unusable_answers_do_not_stop_a_first_run_that_others_prove_right(desk: Desk) -> None:
    await fill(desk.bench.cluster, desk.bench.index, {f"more {i}": {"body": f"other {i}"} for i in range(40)})
    desk.server.batches.line = lambda number: Line("says", "no json at all") if number >= 20 else Line()
    report = await desk.run()
    assert (report.enriched, sum(report.failed.values())) == (
        52 - sum(report.failed.values()),
        report.failed["unusable answer"],
    )
    assert report.failed["unusable answer"] >= 20


async def test_two_runs_of_one_folder_do_not_submit_at_the_same_time(desk: Desk) -> None:
    with desk.batching() as make:
        batching = await make()
        with batching.notes.submitting(), pytest.raises(ConfigurationError, match="another run submits"):
            await desk.run()


async def test_two_runs_that_wait_for_the_same_batch_book_it_once(desk: Desk) -> None:
    desk.server.batches.polls = None
    runs = []
    for told in (1, 2):
        runs.append(asyncio.create_task(desk.run()))
        async with asyncio.timeout(30):
            while len(desk.said) < told:  # noqa: ASYNC110  the server lives in another thread
                await asyncio.sleep(0.02)
    desk.server.batches.polls = 0
    reports = await asyncio.gather(*runs)
    assert sum(report.calls for report in reports) == len(desk.server.batches.paid) == 10
    assert await desk.enriched() == {str(i) for i in range(12)}


async def test_what_an_earlier_version_of_a_text_was_asked_does_not_enrich_the_later_one(desk: Desk) -> None:
    desk.server.batches.polls = None
    await desk.run(limits=Limits(seconds=0.3))
    await fill(desk.bench.cluster, desk.bench.index, {"3": {"body": "quite another text"}})
    desk.server.batches.polls = 0
    report = await desk.run()
    assert (report.enriched, report.pending, len(desk.server.batches.paid)) == (12, 0, 11)


async def test_equal_texts_on_different_pages_are_asked_once(desk: Desk) -> None:
    desk.page_size = 3
    report = await desk.run(lines=7)
    assert (report.enriched, len(desk.server.batches.paid)) == (12, 10)


@pytest.fixture
async def elsewhere(desk: Desk, cluster: Cluster, index_name: str) -> AsyncIterator[Desk]:
    """The same folder and model with another index, which has one text in common."""
    other = f"{index_name}-other"
    await make_index(cluster, other)
    await fill(cluster, other, {"a": {"body": "fan number 3"}, "b": {"body": "another"}})
    yield Desk(cluster, other, desk.bench.folder, desk.server)
    await cluster.request("DELETE", f"/{other}")


async def test_any_run_with_the_model_collects_what_is_out(desk: Desk, elsewhere: Desk) -> None:
    desk.server.batches.polls = None
    await desk.run(limits=Limits(seconds=0.3))
    await desk.bench.cluster.request("DELETE", f"/{desk.bench.index}/_doc/5", params={"refresh": True})
    desk.server.batches.polls = 0
    report = await elsewhere.run()
    assert (report.enriched, report.calls, len(desk.server.batches.paid)) == (2, 11, 11)
    assert (await desk.ordinary()).enriched == 11
    assert desk.server.calls == []


async def test_what_a_batch_of_another_index_could_not_answer_is_asked_again(desk: Desk, elsewhere: Desk) -> None:
    desk.server.batches.line = lambda number: Line("missing")
    await desk.run()
    desk.server.batches.line = lambda number: Line()
    report = await elsewhere.run()
    assert (report.enriched, report.failed) == (2, {})


async def test_what_another_process_is_about_to_submit_is_not_waited_for(desk: Desk) -> None:
    waiting: list[str] = []

    def begin(line: str) -> None:
        if not waiting:
            waiting.append(line)
            batching.notes.begin(batching.owner, "t" * 32, ["a key"], 0.0)

    desk.server.batches.polls = 3
    with desk.batching(say=begin) as make:
        batching = await make()
        report = await batching.run()
        assert [noted.id for noted in batching.notes.open(batching.owner)] == [""]
    assert (report.enriched, report.failed) == (12, {})
    assert waiting


@pytest.mark.parametrize("written", ["{}/", "{}"])
async def test_an_address_of_the_model_may_be_written_otherwise(desk: Desk, written: str) -> None:
    stage = LlmStage(model="openai/test", api_base=desk.server.api_base)
    other = LlmStage(model="openai/test", api_base=written.format(desk.server.api_base.replace("http", "HTTP", 1)))
    assert owner_of(stage) == owner_of(other)
    assert owner_of(stage) != owner_of(LlmStage(model="openai/other", api_base=desk.server.api_base))


async def test_a_limit_of_cost_counts_what_went_out_without_one(desk: Desk) -> None:
    desk.server.batches.polls = None
    await desk.run(model=PRICED, limits=Limits(seconds=0.3))
    with desk.batching(model=PRICED) as make:
        batching = await make()
        (out,) = batching.notes.open(batching.owner)
    await fill(desk.bench.cluster, desk.bench.index, {"new": {"body": "another"}})
    report = await desk.run(model=PRICED, limits=Limits(seconds=0.3), most_cost=out.cost)
    assert out.cost > 0
    assert (report.stopped, len(desk.server.batches.made)) == ("cost", 1)


async def test_notes_of_another_program_are_refused(tmp_path: Path) -> None:
    (tmp_path / "batches.sqlite").write_text("not a database at all, but long enough to look like one" * 40)
    with pytest.raises(ConfigurationError, match="cannot use the notes of batches"):
        Notes(tmp_path / "batches.sqlite")


async def test_the_options_of_a_model_are_those_that_it_takes(server: ModelServer) -> None:
    stage = LlmStage(model="gpt-5", api_base=server.api_base, api_key=KEY)
    line = BatchModel(stage).line("k", document_prompt("1", {"body": ("fan",)}, ""))
    assert b'"max_completion_tokens":2000' in line
    assert b"temperature" not in line
