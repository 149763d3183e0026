"""One call to a model: what is sent, what comes back, and every way in which a provider can fail, over real HTTP."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import pytest

from sira_es.errors import ConfigurationError, ModelError
from sira_es.llm.model import Model, estimate_tokens, used_tokens
from sira_es.llm.prompts import document_prompt
from sira_es.settings import LlmStage
from tests.model_server import Fault, ModelServer

pytestmark = pytest.mark.anyio

Stage = Callable[..., LlmStage]
PROMPT = document_prompt("t1a1", {"text": ["Use tildes around the words"]}, "frequent questions")
ANSWER = '{"terms": ["GFM", "strike out text"]}'
KEY = "sk-planted-0123456789abcdef"


async def ask(stage: LlmStage, *, times: int = 1) -> str:
    model = Model(stage, backoff=0.01)
    for _ in range(times):
        answer = await model.ask(PROMPT)
    await model.close()
    return answer.text


async def failure(stage: LlmStage) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(stage)
    error = caught.value
    assert "\n" not in str(error)
    assert "openai/small" in str(error)
    assert "Traceback" not in str(error)
    return error


# -- what is sent and what comes back


async def test_an_answer_carries_text_tokens_and_the_name_of_the_model(server: ModelServer, stage: Stage) -> None:
    answer = await Model(stage()).ask(PROMPT)
    assert (answer.text, answer.model, answer.source) == (ANSWER, "openai/small", "model")
    assert answer.prompt_tokens > 100
    assert answer.completion_tokens == len(ANSWER) // 4


@pytest.mark.parametrize("usage", ['"prompt_tokens": -1000000', f'"completion_tokens": {10**30}'])
async def test_token_counts_that_cannot_be_are_not_believed_and_the_cost_is_unknown(
    server: ModelServer, stage: Stage, usage: str
) -> None:
    body = f'{{"choices": [{{"index": 0, "message": {{"role": "assistant", "content": "a"}}}}], "usage": {{{usage}}}}}'
    server.next(Fault.raw(body.encode()))
    answer = await Model(stage(model="openai/gpt-4.1-mini")).ask(PROMPT)
    assert (answer.text, answer.prompt_tokens, answer.completion_tokens, answer.cost) == ("a", 0, 0, None)


@pytest.mark.parametrize("count", [math.inf, math.nan, -1, 10**30, "many", [1]])
def test_tokens_of_a_response_are_numbers_of_bearable_size_or_none(count: Any) -> None:
    usage = SimpleNamespace(prompt_tokens=3, completion_tokens=count)
    assert used_tokens(SimpleNamespace(usage=usage)) is None


@pytest.mark.parametrize("response", [SimpleNamespace(), SimpleNamespace(usage=None), None])
def test_a_response_that_tells_no_tokens_used_none(response: Any) -> None:
    assert used_tokens(response) == (0, 0)


async def test_json_and_temperature_0_are_asked_for(server: ModelServer, stage: Stage) -> None:
    await ask(stage())
    sent = server.calls[0]
    assert sent["response_format"] == {"type": "json_object"}
    assert sent["temperature"] == 0
    assert sent["messages"] == [dict(m) for m in PROMPT.messages]


async def test_the_price_of_an_unknown_model_is_unknown(server: ModelServer, stage: Stage) -> None:
    assert (await Model(stage()).ask(PROMPT)).cost is None
    assert Model(stage()).price(1000, 1000) is None


async def test_the_price_of_a_known_model_is_that_of_the_price_list(server: ModelServer, stage: Stage) -> None:
    model = Model(stage(model="openai/gpt-4.1-mini"))
    answer = await model.ask(PROMPT)
    assert answer.cost == pytest.approx(answer.prompt_tokens * 0.4e-6 + answer.completion_tokens * 1.6e-6)
    assert model.price(answer.prompt_tokens, answer.completion_tokens) == pytest.approx(answer.cost)


@pytest.mark.parametrize("option", ["response_format", "temperature"])
async def test_an_option_that_the_server_refuses_is_left_out_from_then_on(
    server: ModelServer, stage: Stage, option: str
) -> None:
    server.next(Fault.status(400, message=f"unknown parameter: {option}"))
    assert await ask(stage(), times=2) == ANSWER
    assert [option in call for call in server.calls] == [True, False, False]


async def test_an_option_that_is_refused_to_several_calls_at_a_time_fails_none_of_them(
    server: ModelServer, stage: Stage
) -> None:
    server.latency = 0.1
    server.next(*[Fault.status(400, message="unknown parameter: response_format")] * 4)
    model = Model(stage(concurrency=4))
    answers = await asyncio.gather(*(model.ask(PROMPT) for _ in range(4)))
    await model.close()
    assert [answer.text for answer in answers] == [ANSWER] * 4


async def test_an_answer_cut_off_by_the_length_limit_is_handed_on(server: ModelServer, stage: Stage) -> None:
    server.next(Fault.cut(20))
    assert await ask(stage()) == ANSWER[:20]


async def test_half_a_surrogate_pair_in_an_answer_is_replaced(server: ModelServer, stage: Stage) -> None:
    server.next(Fault.raw(b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "a\\ud800b"}}]}'))
    assert await ask(stage()) == "a?b"


async def test_no_model_in_the_configuration_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match=r"llm\.documents\.model"):
        Model(LlmStage())


# -- keys


async def test_a_wrong_key_is_named_as_the_cause_and_not_shown(server: ModelServer, stage: Stage) -> None:
    server.api_key = "sk-right"
    error = await failure(stage(api_key=KEY))
    assert error.reason == "wrong key"
    assert KEY not in repr(error)
    assert error.__cause__ is None
    assert error.__context__ is None
    assert len(server.calls) == 1


async def test_a_key_that_a_provider_repeats_in_another_error_is_masked(server: ModelServer, stage: Stage) -> None:
    server.always(Fault.status(400, message=f"bad thing with {KEY} and Bearer abcdef"))
    error = await failure(stage(api_key=KEY))
    assert error.reason == "bad request"
    assert "bad thing with ***" in str(error)
    assert "abcdef" not in str(error)


async def test_with_an_api_base_no_key_of_the_environment_is_sent(
    server: ModelServer, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.api_key = KEY
    assert (await failure(stage())).reason == "wrong key"


# -- failures that would only repeat: one call


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.status(401), "wrong key"),
        (Fault.status(403), "wrong key"),
        (Fault.status(404, code="model_not_found"), "unknown model"),
        (Fault.status(402), "quota"),
        (Fault.status(429, message="You exceeded your current quota", code="insufficient_quota"), "quota"),
        (Fault.status(400, message="This model's maximum context length is 10 tokens"), "context length"),
        (Fault.status(413), "context length"),
        (Fault.status(400, message="no"), "bad request"),
        (Fault.says(None), "empty answer"),
        (Fault.says(" \n"), "empty answer"),
        (Fault.cut(0), "empty answer"),
        (Fault.filtered(), "refused"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.kind}-{value.code}",
)
async def test_a_failure_that_would_only_repeat_is_reported_after_one_call(
    server: ModelServer, stage: Stage, fault: Fault, reason: str
) -> None:
    server.always(fault)
    assert (await failure(stage())).reason == reason
    assert len(server.calls) == 1


@pytest.mark.parametrize("body", [b"<html>It works!</html>", b"", b'{"hello": 1}', b"[1]"])
async def test_an_answer_that_is_none_of_this_protocol_is_told_and_not_asked_for_again(
    server: ModelServer, stage: Stage, body: bytes
) -> None:
    server.always(Fault.raw(body))
    error = await failure(stage())
    assert error.reason == "bad answer"
    assert str(error).endswith("answered something that is not an OpenAI-compatible answer; check api_base")
    assert len(server.calls) == 1


# -- failures that may pass: a few calls


@pytest.mark.parametrize(
    ("fault", "reason", "calls"),
    [
        (Fault.status(500), "server error", 4),
        (Fault.status(502), "server error", 4),
        (Fault.status(503), "server error", 4),
        (Fault.status(529), "server error", 4),
        (Fault.status(504), "timeout", 2),
        (Fault.drop(), "unreachable", 3),
        (Fault.status(429), "rate limit", 5),
    ],
    ids=lambda value: f"{value.kind}-{value.code}" if isinstance(value, Fault) else None,
)
async def test_a_failure_that_may_pass_is_retried_a_few_times(
    server: ModelServer, stage: Stage, fault: Fault, reason: str, calls: int
) -> None:
    server.always(fault)
    assert (await failure(stage())).reason == reason
    assert len(server.calls) == calls


@pytest.mark.parametrize(
    "fault", [Fault.status(500), Fault.drop(), Fault.status(429, retry_after=0)], ids=lambda f: f.kind
)
async def test_a_failure_that_passes_leaves_no_trace(server: ModelServer, stage: Stage, fault: Fault) -> None:
    server.next(fault)
    assert await ask(stage()) == ANSWER
    assert len(server.calls) == 2


@pytest.mark.parametrize("fault", [Fault.hang(), Fault.dribble()], ids=lambda f: f.kind)
async def test_a_model_that_never_finishes_is_given_up_after_the_timeout(
    server: ModelServer, stage: Stage, fault: Fault
) -> None:
    server.always(fault)
    begun = time.monotonic()
    assert (await failure(stage(timeout=0.4))).reason == "timeout"
    assert len(server.calls) == 2
    assert 0.8 <= time.monotonic() - begun < 2


async def test_an_address_where_nothing_listens_is_unreachable(server: ModelServer, stage: Stage) -> None:
    error = await failure(stage(api_base="http://127.0.0.1:1/v1"))
    assert error.reason == "unreachable"
    assert "127.0.0.1:1" in str(error)
    assert "api_base" in str(error)


async def test_a_cancelled_call_ends_at_once(server: ModelServer, stage: Stage) -> None:
    server.always(Fault.hang())
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await ask(stage(timeout=30))
    assert time.monotonic() - begun < 1


# -- pace


async def test_after_retry_after_one_call_tries_and_only_then_the_others_follow(
    server: ModelServer, stage: Stage
) -> None:
    """opensearch-project/ml-commons#2249, #2438: throttled calls that all come back at once are throttled again."""
    model = Model(stage(concurrency=20), backoff=0.01)
    await model.ask(PROMPT)
    server.forget()
    server.latency = 0.1
    server.next(*[Fault.status(429, retry_after=1)] * 20)
    answers = await asyncio.gather(*(model.ask(PROMPT) for _ in range(60)))
    assert {answer.text for answer in answers} == {ANSWER}
    assert len(server.calls) == 80
    refused, probe, next_one = server.times[19], server.times[20], server.times[21]
    assert probe - refused >= 0.95, "the pause was cut short"
    assert probe - refused < 2
    assert next_one - probe >= 0.09, "others came along before the one that tried was answered"


async def test_retry_after_may_be_a_date(server: ModelServer, stage: Stage) -> None:
    later = datetime.now(UTC) + timedelta(hours=3)
    server.always(Fault.status(429, retry_after=format_datetime(later, usegmt=True)))
    error = await failure(stage())
    assert error.retry_after == pytest.approx(3 * 3600, abs=10)


async def test_a_pause_of_hours_is_not_waited_for_and_no_further_call_made(server: ModelServer, stage: Stage) -> None:
    server.always(Fault.status(429, retry_after=7200))
    model = Model(stage())
    for _ in range(3):
        with pytest.raises(ModelError) as caught:
            await model.ask(PROMPT)
        assert caught.value.reason == "rate limit"
        assert caught.value.retry_after == pytest.approx(7200, abs=10)
    assert len(server.calls) == 1


async def test_no_more_calls_at_a_time_than_concurrency_allows(server: ModelServer, stage: Stage) -> None:
    model = Model(stage(concurrency=3))
    server.latency = 0.05
    await asyncio.gather(*(model.ask(PROMPT) for _ in range(12)))
    assert server.most_at_once == 3


async def test_requests_a_minute_are_spread_over_the_minute(server: ModelServer, stage: Stage) -> None:
    model = Model(stage(rpm=600, concurrency=100))
    await model.ask(PROMPT)
    begun = time.monotonic()
    await asyncio.gather(*(model.ask(PROMPT) for _ in range(70)))
    assert time.monotonic() - begun >= 0.9, "60 may come at once, each further one waits a tenth of a second"


async def test_tokens_a_minute_hold_calls_back(server: ModelServer, stage: Stage) -> None:
    tokens = estimate_tokens(PROMPT) + 250
    model = Model(stage(tpm=240_000, concurrency=100))
    await model.ask(PROMPT)
    begun, extra = time.monotonic(), 6
    await asyncio.gather(*(model.ask(PROMPT) for _ in range(24_000 // tokens + extra)))
    assert time.monotonic() - begun >= (extra - 1) * tokens / 4000


# -- the library


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout + done.stderr


async def test_importing_the_room_does_not_import_litellm() -> None:
    modules = "sira_es.llm.model, sira_es.llm.prompts, sira_es.llm.answer, sira_es.llm.store, sira_es.llm.recorded"
    assert run(f"import sys, {modules}; print('litellm' in sys.modules)") == "False\n"


async def test_a_failing_call_prints_nothing(server: ModelServer) -> None:
    server.always(Fault.status(400, message="no"))
    code = f"""
import asyncio
from sira_es.errors import ModelError
from sira_es.llm.model import Model
from sira_es.llm.prompts import query_prompt
from sira_es.settings import LlmStage
async def main():
    try:
        await Model(LlmStage(model="openai/small", api_base="{server.api_base}")).ask(query_prompt("", "x"))
    except ModelError as error:
        print(error.reason)
asyncio.run(main())
"""
    assert run(code) == "bad request\n"
