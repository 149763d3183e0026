"""A model behind a guard: asked while it works, left alone while it fails, never asked twice at once in vain."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sira_es.errors import ModelError
from sira_es.expand.breaker import Breaker
from sira_es.expand.guard import Guarded
from sira_es.llm.answer import is_usable
from sira_es.llm.model import Answer, Model, Prompt
from sira_es.llm.prompts import query_prompt
from sira_es.settings import LlmStage
from tests.model_server import Fault, ModelServer

pytestmark = pytest.mark.anyio


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def guarded(server: ModelServer, clock: Clock) -> Guarded:
    stage = LlmStage(model="openai/small", api_base=server.api_base, timeout=10)

    def usable(prompt: Prompt, answer: Answer) -> bool:
        return is_usable(answer.text, prompt.kind)

    breaker = Breaker(failures=3, pause=10, clock=clock)
    return Guarded(Model(stage), usable=usable, breaker=breaker, pause=5, pause_of_query=600, clock=clock)


async def reason(guarded: Guarded, text: str) -> str:
    try:
        await guarded.ask(query_prompt("", text))
    except ModelError as error:
        return error.reason
    return "answered"


async def test_a_query_that_failed_is_asked_again_after_a_pause_that_doubles(
    guarded: Guarded, server: ModelServer, clock: Clock
) -> None:
    server.always(Fault.says("no JSON"))
    calls = []
    for seconds in (0, 599, 1, 1199, 1):
        clock.now += seconds
        assert await reason(guarded, "why") == "unusable answer"
        calls.append(len(server.calls))
    assert calls == [1, 1, 2, 2, 3]


async def test_what_is_wrong_with_one_query_is_not_held_against_the_model(
    guarded: Guarded, server: ModelServer
) -> None:
    server.always(Fault.says("no JSON"))
    for i in range(6):
        await reason(guarded, f"question {i}")
    assert len(server.calls) == 6
    server.heal()
    assert await reason(guarded, "another") == "answered"


async def test_a_model_that_fails_is_left_alone_and_tried_once_a_pause(
    guarded: Guarded, server: ModelServer, clock: Clock
) -> None:
    server.always(Fault.status(401))
    for i in range(3):
        assert await reason(guarded, f"question {i}") == "wrong key"
    assert await reason(guarded, "another") == "resting"
    clock.now += 10
    server.heal()
    assert await reason(guarded, "another") == "answered"
    assert await reason(guarded, "question 0") == "answered"
    assert len(server.calls) == 5


async def test_the_message_says_for_how_long(guarded: Guarded, server: ModelServer) -> None:
    server.always(Fault.status(401))
    for i in range(3):
        await reason(guarded, f"question {i}")
    with pytest.raises(
        ModelError, match=r"openai/small failed several times in a row and is left alone for another 10 s"
    ):
        await guarded.ask(query_prompt("", "another"))
    with pytest.raises(ModelError, match=r"refused the key.* \(not asked again for 5 s\)"):
        await guarded.ask(query_prompt("", "question 0"))
