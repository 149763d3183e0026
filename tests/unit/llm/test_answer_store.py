"""Every answer is paid for once."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sira_es.errors import ConfigurationError, ModelError
from sira_es.llm.answer import is_usable
from sira_es.llm.model import Answer, Model, Prompt
from sira_es.llm.prompts import document_prompt, query_prompt
from sira_es.llm.store import AnswerStore, NoModel, StoredSource, key_of
from sira_es.settings import LlmStage
from tests.model_server import Fault, ModelServer

pytestmark = pytest.mark.anyio

Stage = Callable[..., LlmStage]
PROMPT = document_prompt("t1a1", {"text": ["Use tildes around the words"]}, "frequent questions")
ANSWER = Answer("text é \U0001f600", "openai/small", 10, 5, 0.25)


def usable(prompt: Prompt, answer: Answer) -> bool:
    return is_usable(answer.text, prompt.kind)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AnswerStore]:
    opened = AnswerStore(tmp_path / "state" / "answers.sqlite")
    yield opened
    opened.close()


# -- the store


async def test_an_answer_comes_back_as_it_was_but_for_its_source(store: AnswerStore) -> None:
    store.put("k", ANSWER)
    assert store.get("k") == ANSWER._replace(source="store")
    assert store.get("other") is None


async def test_an_unknown_price_stays_unknown(store: AnswerStore) -> None:
    store.put("k", ANSWER._replace(cost=None))
    found = store.get("k")
    assert found is not None
    assert found.cost is None


async def test_a_page_of_thousands_of_keys_is_looked_up_at_once(store: AnswerStore) -> None:
    for number in range(0, 5000, 1000):
        store.put(f"k{number}", ANSWER)
    assert set(store.get_many([f"k{n}" for n in range(5000)])) == {"k0", "k1000", "k2000", "k3000", "k4000"}


async def test_the_first_answer_of_a_key_stays(store: AnswerStore) -> None:
    store.put("k", ANSWER)
    store.put("k", ANSWER._replace(text="other"))
    found = store.get("k")
    assert found is not None
    assert found.text == ANSWER.text


async def test_what_was_spent_is_summed_by_model_and_time(store: AnswerStore) -> None:
    begun = time.time()
    for key, cost, model in [("a", 0.25, "m"), ("b", 0.5, "m"), ("c", None, "m"), ("d", 9.0, "other")]:
        store.put(key, ANSWER._replace(cost=cost, model=model))
    assert store.spent_since(begun - 1, "m") == 0.75
    assert store.spent_since(time.time() + 1, "m") == 0


def test_answers_survive_the_end_of_a_process_by_sigkill(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    code = f"""
import os, signal
from sira_es.llm.model import Answer
from sira_es.llm.store import AnswerStore
AnswerStore({str(path)!r}).put("k", Answer("text", "m"))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == -9
    store = AnswerStore(path)
    assert store.get("k") is not None
    store.close()


def test_several_processes_open_and_write_one_new_store_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    code = f"""
import sys
from sira_es.llm.model import Answer
from sira_es.llm.store import AnswerStore
sys.stdin.readline()
store = AnswerStore({str(path)!r})
for n in range(100):
    store.put(f"{{sys.argv[1]}}-{{n}}", Answer("text", "m"))
    store.put(f"shared-{{n}}", Answer(sys.argv[1], "m"))
store.close()
"""
    workers = [
        subprocess.Popen([sys.executable, "-c", code, str(n)], stdin=subprocess.PIPE, text=True) for n in range(4)
    ]
    for worker in workers:
        assert worker.stdin
        worker.stdin.write("go\n")
        worker.stdin.close()
    assert [worker.wait(60) for worker in workers] == [0, 0, 0, 0]
    store = AnswerStore(path)
    keys = [f"{who}-{n}" for who in ["0", "1", "2", "3", "shared"] for n in range(100)]
    assert len(store.get_many(keys)) == 500
    store.close()


def not_a_database(path: Path) -> None:
    path.write_bytes(b"this is not a database, however long it may be" * 100)


def newer(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()


def anothers(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE theirs (x)")
    database.close()


def damaged(path: Path) -> None:
    AnswerStore(path).close()
    content = bytearray(path.read_bytes())
    content[100:] = b"\xff" * (len(content) - 100)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (not_a_database, "not a database"),
        (newer, "newer sira-es"),
        (anothers, "another program's"),
        (damaged, "malformed"),
        (Path.mkdir, "unable to open"),
    ],
)
async def test_a_file_that_is_no_store_is_refused_and_left_alone(
    tmp_path: Path, spoil: Callable[[Path], None], says: str
) -> None:
    path = tmp_path / "a.sqlite"
    spoil(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(ConfigurationError, match=says) as caught:
        AnswerStore(path)
    assert "`state`" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (path.read_bytes() if path.is_file() else b"") == before


async def test_a_folder_that_cannot_be_made_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="`state`"):
        AnswerStore(tmp_path / "file" / "a.sqlite")


async def test_a_store_whose_disk_is_full_says_so(store: AnswerStore) -> None:
    store._file.connection.execute("PRAGMA max_page_count = 1")
    with pytest.raises(ConfigurationError, match="full"):
        store.put("k", ANSWER._replace(text="x" * 1_000_000))


# -- the key


def test_the_key_depends_on_all_that_determines_an_answer() -> None:
    prompts = [
        PROMPT,
        PROMPT._replace(version="document_v9"),
        document_prompt("t1a1", {"text": ["Use tildes around the words"]}, "another collection"),
        document_prompt("t1a1", {"text": ["Use tildes around the word"]}, "frequent questions"),
        query_prompt("t1a1", "text: Use tildes around the words", "frequent questions"),
    ]
    keys = {key_of(name, prompt) for prompt in prompts for name in ("openai/small", "openai/large")}
    assert len(keys) == 10


def test_the_key_does_not_depend_on_the_id() -> None:
    assert key_of("m", PROMPT) == key_of("m", PROMPT._replace(id="another"))


def _to_user(text: str) -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": text},)


@pytest.mark.parametrize(
    "messages",
    [
        PROMPT.messages,
        _to_user("".join(map(chr, range(128)))),
        _to_user('\u00fc "x" \u2028 \U0001f600'),
        _to_user(""),
        ({"role": "user", "content": "x", "name": "y"},),
        ({"role": "system", "content": "x"},),
    ],
)
def test_a_key_is_the_hash_of_one_json_array_so_that_answers_outlive_an_upgrade(
    messages: tuple[dict[str, str], ...],
) -> None:
    prompt = PROMPT._replace(messages=messages)
    options = {"temperature": 0, "response_format": {"type": "json_object"}, "max_tokens": 2000}
    parts = ["m", prompt.kind, prompt.version, list(messages), options]
    assert key_of("m", prompt) == hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


# -- the source in front of which it stands


async def test_an_answer_is_asked_for_once_and_then_stored(
    server: ModelServer, stage: Stage, store: AnswerStore
) -> None:
    source = StoredSource(Model(stage()), store, usable=usable)
    first, second = await source.ask(PROMPT), await source.ask(PROMPT)
    assert (first.source, second.source) == ("model", "store")
    assert first.text == second.text
    assert second.prompt_tokens == first.prompt_tokens
    assert len(server.calls) == 1
    await source.close()


async def test_a_hundred_equal_questions_at_a_time_are_one_call(
    server: ModelServer, stage: Stage, store: AnswerStore
) -> None:
    server.latency = 0.1
    source = StoredSource(Model(stage()), store, usable=usable)
    answers = await asyncio.gather(*(source.ask(PROMPT) for _ in range(100)))
    assert len({answer.text for answer in answers}) == 1
    assert len(server.calls) == 1
    await source.close()


async def test_a_hundred_equal_questions_share_a_failure_and_the_next_one_asks_anew(
    server: ModelServer, stage: Stage, store: AnswerStore
) -> None:
    server.next(Fault.status(401))
    source = StoredSource(Model(stage()), store, usable=usable)
    results = await asyncio.gather(*(source.ask(PROMPT) for _ in range(100)), return_exceptions=True)
    assert all(isinstance(result, ModelError) for result in results)
    assert len(server.calls) == 1
    assert (await source.ask(PROMPT)).source == "model"
    await source.close()


async def test_an_unusable_answer_is_handed_on_but_not_kept(
    server: ModelServer, stage: Stage, store: AnswerStore
) -> None:
    server.next(Fault.says("I cannot help with that."))
    source = StoredSource(Model(stage()), store, usable=usable)
    assert (await source.ask(PROMPT)).text == "I cannot help with that."
    assert (await source.ask(PROMPT)).source == "model"
    assert len(server.calls) == 2
    await source.close()


async def test_an_answer_that_comes_after_everybody_left_is_kept(
    server: ModelServer, stage: Stage, store: AnswerStore
) -> None:
    source = StoredSource(Model(stage()), store, usable=usable)
    server.latency = 0.3
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await source.ask(PROMPT)
    await asyncio.sleep(0.5)
    assert source.known([PROMPT])[0] is not None
    assert len(server.calls) == 1
    await source.close()


async def test_one_who_leaves_does_not_take_the_call_from_the_others(
    server: ModelServer, stage: Stage, store: AnswerStore
) -> None:
    source = StoredSource(Model(stage()), store, usable=usable, abandoned=0)
    server.latency = 0.3
    other = asyncio.create_task(source.ask(PROMPT))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await source.ask(PROMPT)
    assert (await other).source == "model"
    await source.close()


async def test_calls_that_nobody_waits_for_do_not_pile_up(
    server: ModelServer, stage: Stage, store: AnswerStore
) -> None:
    source = StoredSource(Model(stage(concurrency=100)), store, usable=usable, abandoned=4)
    server.always(Fault.hang())
    asked = [source.ask(query_prompt("", f"query {n}")) for n in range(30)]
    results = await asyncio.gather(*(asyncio.wait_for(one, 0.5) for one in asked), return_exceptions=True)
    assert all(isinstance(result, TimeoutError) for result in results)
    await asyncio.sleep(0.1)
    assert len(source._calls) == 4
    await source.close()
    assert not source._calls


async def test_closing_ends_the_calls_under_way(server: ModelServer, stage: Stage, store: AnswerStore) -> None:
    source = StoredSource(Model(stage()), store, usable=usable)
    server.always(Fault.hang())
    waiting = asyncio.create_task(source.ask(PROMPT))
    await asyncio.sleep(0.2)
    await source.close()
    with pytest.raises(ModelError) as caught:
        await waiting
    assert caught.value.reason == "closed"


async def test_an_answer_that_has_arrived_is_kept_though_the_source_is_closed(
    server: ModelServer, stage: Stage, store: AnswerStore
) -> None:
    source = StoredSource(Model(stage()), store, usable=usable)
    writer = sqlite3.connect(store.path, isolation_level=None, check_same_thread=False)
    writer.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(source.ask(PROMPT))
    while not source._keeping:  # noqa: ASYNC110  the server lives in another thread
        await asyncio.sleep(0.02)
    threading.Timer(0.3, lambda: writer.execute("ROLLBACK")).start()
    waiting.cancel()
    await source.close()
    assert store.get(key_of(source.name, PROMPT)) is not None
    writer.close()


async def test_without_a_model_the_store_still_answers(server: ModelServer, stage: Stage, store: AnswerStore) -> None:
    live = StoredSource(Model(stage()), store, usable=usable)
    await live.ask(PROMPT)
    await live.close()
    source = StoredSource(NoModel(live.name), store, usable=usable)
    assert (await source.ask(PROMPT)).source == "store"
    with pytest.raises(ModelError) as caught:
        await source.ask(query_prompt("", "unknown"))
    assert caught.value.reason == "not stored"
    await source.close()


async def test_what_is_known_of_a_page_is_told_without_a_call(
    server: ModelServer, stage: Stage, store: AnswerStore
) -> None:
    source = StoredSource(Model(stage()), store, usable=usable)
    await source.ask(PROMPT)
    known = source.known([query_prompt("", "unknown"), PROMPT, PROMPT])
    assert [answer and answer.source for answer in known] == [None, "store", "store"]
    assert len(server.calls) == 1
    await source.close()


async def test_a_days_money_is_not_exceeded_but_stored_answers_are_free(
    server: ModelServer, stage: Stage, store: AnswerStore
) -> None:
    model = Model(stage(model="openai/gpt-4.1-mini"))
    source = StoredSource(model, store, usable=usable, max_cost_per_day=1e-6)
    assert (await source.ask(PROMPT)).source == "model"
    with pytest.raises(ModelError, match="max_cost_per_day") as caught:
        await source.ask(query_prompt("", "another"))
    assert caught.value.reason == "daily limit"
    assert (await source.ask(PROMPT)).source == "store"
    assert len(server.calls) == 1
    await source.close()
