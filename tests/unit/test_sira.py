"""The facade, as far as it needs no cluster: how its blocking twin ends, and what it gives back."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from sira_es import sira as facade
from sira_es.cluster.look import Look
from sira_es.cluster.target import FieldInfo
from sira_es.errors import ConfigurationError
from sira_es.llm.model import Model
from sira_es.settings import LlmStage, Settings
from sira_es.sira import AsyncSira, Sira
from tests.model_server import ModelServer


def test_a_call_that_is_interrupted_does_not_go_on_in_the_background() -> None:
    ended = threading.Event()

    async def work() -> None:
        threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.01)  # as what gives back a point in time does
            ended.set()

    with Sira(Settings()) as sira, pytest.raises(KeyboardInterrupt):
        sira.run(work())
    assert ended.is_set()


def test_closing_right_after_the_start_ends_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    started = threading.Event()
    begin = asyncio.BaseEventLoop.run_forever

    def late(self: Any) -> None:
        started.wait(5)
        begin(self)

    monkeypatch.setattr(asyncio.BaseEventLoop, "run_forever", late)
    sira = Sira(Settings())
    threading.Timer(0.05, started.set).start()
    sira.close()
    assert not sira._thread.is_alive()


@pytest.mark.anyio
async def test_closing_closes_every_part_whatever_becomes_of_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sira = AsyncSira(Settings(state=tmp_path))
    store, ledger = sira.store(), sira.ledger()

    def fail() -> None:
        raise OSError("no space left")

    monkeypatch.setattr(store, "close", fail)
    with pytest.raises(OSError, match="no space left"):
        await sira.close()
    with pytest.raises(ConfigurationError, match="closed database"):
        ledger.totals("http://localhost:9200/docs")


@pytest.mark.anyio
async def test_drafting_a_description_leaves_no_connection_to_the_model_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async def cluster(self: AsyncSira) -> None:
        return None

    async def look_at(cluster: Any, index: str) -> Look:
        return Look((FieldInfo("text", "english", "english"),), "en", ({"text": "The fan is loud"},))

    monkeypatch.setattr(AsyncSira, "cluster", cluster)
    monkeypatch.setattr(facade, "look_at", look_at)
    before = Model._in_use
    with ModelServer(default='{"description": "office equipment"}') as server:
        stage = LlmStage(model="openai/small", api_base=server.api_base)
        async with AsyncSira(Settings(llm={"documents": stage})) as sira:  # type: ignore[arg-type]
            found = await sira.look_at("docs", describe=True)
    assert found["description"] == "office equipment"
    assert Model._in_use == before
