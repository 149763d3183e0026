"""One call to a language model: messages in; text, tokens and cost out.

    Prompt, Answer      what goes in and what comes out
    AnswerSource        anything that answers prompts: a model, a store in front of one, recorded answers
    Model               the live one, through litellm

litellm takes seconds to import, so it is imported when the first call is made, in a thread.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import random
import re
import ssl
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import urlsplit

from aiolimiter import AsyncLimiter

from sira_es.errors import ConfigurationError, ModelError
from sira_es.settings import LlmStage

__all__ = [
    "ATTEMPTS",
    "LONGEST_REST",
    "OPTIONS",
    "Answer",
    "AnswerSource",
    "Model",
    "Prompt",
    "UselessAnswerError",
    "estimate_tokens",
    "load_litellm",
    "used_tokens",
]

OPTIONS: Mapping[str, Any] = {"temperature": 0, "response_format": {"type": "json_object"}, "max_tokens": 2000}
"""Asked of every model, as far as it takes them. `max_tokens` ends an answer that runs away, with room for thinking."""

ATTEMPTS = {"rate limit": 5, "server error": 4, "unreachable": 3, "timeout": 2}
"""How often a prompt is sent at most, by what went wrong; whatever is not named here would only fail again."""

LONGEST_REST = 90.0
"""Seconds; a model that asks for a longer pause (a daily quota) is not waited for."""

EXPECTED_ANSWER_TOKENS = 250
_MOST_TOKENS = 2**31
_REFUSED = "refused the text as against its content policy; the others go on without it"


class Prompt(NamedTuple):
    """A question to a model.

    `id` is the id of the document or query where it is known, else empty; `text` is what is asked about. `version`
    names the wording: it is part of what determines an answer.
    """

    kind: Literal["document", "query"]
    version: str
    messages: tuple[Mapping[str, str], ...]
    id: str
    text: str


class Answer(NamedTuple):
    """What a model said. `cost` is in US dollars, None where the price is not known.

    Tokens and cost are those of the call that made the answer: only with source "model" have they just been spent.
    """

    text: str
    model: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    source: Literal["model", "store", "recorded"] = "model"


class UselessAnswerError(ModelError):
    """The model answered, but with nothing of use; `answer` tells what was paid for it all the same."""

    def __init__(self, message: str, *, reason: str, answer: Answer) -> None:
        super().__init__(message, reason=reason)
        self.answer = answer


class AnswerSource(Protocol):
    """Anything that answers prompts. `name` identifies it in recipes and in keys of the store."""

    @property
    def name(self) -> str: ...

    async def ask(self, prompt: Prompt) -> Answer:
        """Answer, or raise ModelError."""
        ...

    async def close(self) -> None: ...


def estimate_tokens(prompt: Prompt) -> int:
    """Tokens of the messages, roughly: a token for each four bytes of UTF-8."""
    return sum(len(message["content"].encode()) for message in prompt.messages) // 4 + 1


class Model:
    """A language model behind any provider that litellm knows.

    Holds the stage's limits of requests and tokens a minute and of calls at a time. A model that says "too many
    requests" is left alone by all callers for as long as it asks; then one call tries, and the others follow when it
    was answered.

    With `api_base` set, no key of the environment is sent there: only the stage's `api_key`.
    """

    _in_use = 0  # models of this process that have connections

    def __init__(self, stage: LlmStage, *, backoff: float = 0.5) -> None:
        """`backoff` is the pause before the second attempt, in seconds; it doubles with each further one."""
        if not stage.model:
            raise ConfigurationError(
                "no language model is configured; set llm.documents.model or llm.queries.model, or use --recorded"
            )
        self.name = stage.model
        self._stage = stage
        self._backoff = backoff
        self._options = dict(OPTIONS)
        self._slots = asyncio.Semaphore(stage.concurrency)
        self._requests = _limiter(stage.rpm, at_least=1)
        self._tokens = _limiter(stage.tpm, at_least=4000)
        self._resting = False
        self._resume_at = 0.0
        self._probe = asyncio.Lock()
        self._litellm: Any = None

    async def ask(self, prompt: Prompt) -> Answer:
        """Ask, again where that may help. Raises ModelError; its `reason` is one word or two for a tally."""
        attempt = 1
        while True:
            try:
                return await self._one_call(prompt, attempt)
            except ModelError as error:
                if attempt >= ATTEMPTS.get(error.reason, 1) or (error.retry_after or 0) > LONGEST_REST:
                    raise
                if error.reason != "rate limit":  # there the pause is everybody's
                    await asyncio.sleep(self._pause(attempt))
            attempt += 1

    async def prepare(self) -> None:
        """Load in a thread what the first call would load: seconds of imports, some of which hold up the event loop.

        Raises ModelError, of what can be told without a call.
        """
        options = {**self._options, "model": self.name, "messages": [{"role": "user", "content": "-"}]}

        def load() -> None:
            asyncio.run(load_litellm().acompletion(mock_response="{}", api_key="none", drop_params=True, **options))

        try:
            await asyncio.to_thread(load)
        except Exception as error:
            raise self._explain(error) from None

    async def close(self) -> None:
        """Close the connections, which litellm pools for the process, with the last model of the process."""
        litellm, self._litellm = self._litellm, None
        if litellm is None:
            return
        Model._in_use -= 1
        if Model._in_use == 0:
            await litellm.close_litellm_async_clients()
            litellm.in_memory_llm_clients_cache.flush_cache()

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """What so many tokens cost, in US dollars; None where the price is not known. Makes no call."""
        try:
            costs = load_litellm().cost_per_token(
                self.name, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens
            )
        except Exception:  # litellm has no class of its own for "not in the price list"
            return None
        return float(sum(costs))

    def tokens(self, prompt: Prompt) -> int:
        """Tokens of a prompt as this model counts them, as far as its tokenizer is known here. Makes no call."""
        try:
            counted = load_litellm().token_counter(model=self.name, messages=[dict(m) for m in prompt.messages])
        except Exception:  # no tokenizer, or one that would have to be downloaded
            return estimate_tokens(prompt)
        return int(counted)

    async def _one_call(self, prompt: Prompt, attempt: int) -> Answer:
        async with self._slots:
            if self._requests:
                await self._requests.acquire()
            if self._tokens:
                await self._tokens.acquire(min(estimate_tokens(prompt) + EXPECTED_ANSWER_TOKENS, self._tokens.max_rate))
            if not self._resting:
                return await self._send(prompt, attempt)
            async with self._probe:
                if self._resting:
                    await self._rest()
                    return await self._send(prompt, attempt)
            return await self._send(prompt, attempt)

    async def _rest(self) -> None:
        left = self._resume_at - time.monotonic()
        if left > LONGEST_REST:
            raise self._error(
                "rate limit", f"asks for a pause of {left:.0f} s; try later, or lower rpm and tpm", retry_after=left
            )
        await asyncio.sleep(max(0.0, left))

    async def _send(self, prompt: Prompt, attempt: int) -> Answer:
        try:
            answer = self._read(await self._complete(prompt))
        except ModelError as error:
            if error.reason == "rate limit":
                self._resting = True
                pause = error.retry_after if error.retry_after is not None else self._pause(attempt)
                self._resume_at = max(self._resume_at, time.monotonic() + pause)
            raise
        self._resting = False
        return answer

    async def _complete(self, prompt: Prompt) -> Any:
        if self._litellm is None:
            litellm = await asyncio.to_thread(load_litellm)
            if self._litellm is None:
                self._litellm = litellm
                Model._in_use += 1
        stage, options = self._stage, dict(self._options)
        try:
            async with asyncio.timeout(stage.timeout):  # litellm's own limit is one for each read, not for the whole
                return await self._litellm.acompletion(
                    model=self.name,
                    messages=[dict(message) for message in prompt.messages],
                    api_base=stage.api_base,
                    api_key=self._key,
                    timeout=stage.timeout,
                    max_retries=0,
                    drop_params=True,
                    **options,
                )
        except TimeoutError:
            raise self._error(
                "timeout", f"gave no answer within {stage.timeout:g} s; raise llm timeout or try later"
            ) from None
        except Exception as error:
            refused = _option_refused(error, options)
            failure = None if refused else self._explain(error)
        if failure:
            raise failure from None  # the original may quote the request, and with it a key
        self._options.pop(refused, None)  # a call beside this one may have been told first
        return await self._complete(prompt)

    @property
    def _key(self) -> str | None:
        """The key to send; None leaves it to the provider's variable."""
        key = self._stage.api_key.get_secret_value() if self._stage.api_key else None
        return key or ("none" if self._stage.api_base else None)

    def _read(self, response: Any) -> Answer:
        """Text, tokens and cost of a response, whatever the provider left out of it. Raises UselessAnswerError."""
        choice = next(iter(getattr(response, "choices", None) or ()), None)
        text = getattr(getattr(choice, "message", None), "content", None)
        ended = getattr(choice, "finish_reason", None)
        used = used_tokens(response)
        answer = Answer(
            # half a surrogate pair could not be stored
            text=text.encode("utf-8", "replace").decode() if isinstance(text, str) else "",
            model=self.name,
            prompt_tokens=used[0] if used else 0,
            completion_tokens=used[1] if used else 0,
            cost=self._cost(response) if used else None,
        )
        error = None
        if ended == "content_filter":
            error = self._error("refused", _REFUSED)
        elif not answer.text.strip() and ended == "length":
            error = self._error(
                "empty answer", "thought until its answer was full; use a model that does not reason first"
            )
        elif not answer.text.strip():
            error = self._error("empty answer", "gave an empty answer; try again, or another model")
        if error is not None:
            raise UselessAnswerError(str(error), reason=error.reason, answer=answer._replace(text=""))
        return answer

    def _cost(self, response: Any) -> float | None:
        try:
            return float(self._litellm.completion_cost(completion_response=response, model=self.name))
        except Exception:  # litellm has no class of its own for "not in the price list"
            return None

    def _pause(self, attempt: int) -> float:
        spread = random.uniform(0.5, 1.0)  # noqa: S311  not a secret
        return min(self._backoff * float(2 ** (attempt - 1)), 30.0) * spread

    def _error(self, reason: str, text: str, *, retry_after: float | None = None) -> ModelError:
        place = urlsplit(self._stage.api_base or "")
        where = f" at {place.hostname}{f':{place.port}' if place.port else ''}" if place.hostname else ""
        return ModelError(f"model {self.name}{where} {text}", reason=reason, retry_after=retry_after)

    def _explain(self, error: Exception) -> ModelError:
        """An error of litellm as one of ours, by class and status; its text only where no key belongs in it, masked."""
        known, status, said = load_litellm().exceptions, _status(error), str(error)
        if isinstance(error, known.ContextWindowExceededError) or status == 413:
            return self._error("context length", "cannot take a text of this length; use a model with a longer context")
        if isinstance(error, known.ContentPolicyViolationError):
            return self._error("refused", _REFUSED)
        if status in {401, 403}:
            return self._error(
                "wrong key", f"refused the key (HTTP {status}); check llm api_key or the provider's variable"
            )
        if "api_key client option must be set" in said:
            return self._error("wrong key", "needs a key; set llm api_key or the provider's variable")
        if status == 402 or "insufficient_quota" in said or "exceeded your current quota" in said:
            return self._error("quota", "has no credit left on this key; top it up or use another")
        if status == 404 or "LLM Provider NOT provided" in said:
            return self._error(
                "unknown model",
                "does not exist there; check the name (provider/model, as litellm spells it) and api_base",
            )
        if status == 429:
            return self._error(
                "rate limit",
                "says too many requests; lower llm rpm, tpm or concurrency",
                retry_after=_retry_after(error),
            )
        if isinstance(error, known.Timeout):
            return self._error("timeout", "did not answer in time; raise llm timeout or try later")
        if _is_connection(error):
            return self._no_connection(error)
        if _is_unreadable(error):
            return self._error(
                "bad answer", "answered something that is not an OpenAI-compatible answer; check api_base"
            )
        if status >= 500 or isinstance(error, known.APIConnectionError):
            return self._error("server error", f"failed (HTTP {status or 'none'}); try later, or check api_base")
        return self._error("bad request", f"refused the request: {self._masked(said)}")

    def _no_connection(self, error: Exception) -> ModelError:
        if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error)):
            hint = "name the file of your CA in the variable SSL_CERT_FILE"
            return self._error("not trusted", f"shows a certificate that is not trusted; {hint}")
        return self._error(
            "unreachable", "cannot be reached or broke the connection; check api_base, network and proxy"
        )

    def _masked(self, text: str) -> str:
        key = self._stage.api_key.get_secret_value() if self._stage.api_key else ""
        text = " ".join(text.replace(key, "***").split() if key else text.split())
        return re.sub(r"(?i)\b(sk-|bearer |key[-_a-z]*[=: ]+)\S+", r"\1***", text)[:200]


def used_tokens(response: Any) -> tuple[int, int] | None:
    """The tokens of prompt and answer, 0 where a response does not tell; None where what it tells cannot be."""
    usage = getattr(response, "usage", None)
    told = [getattr(usage, name, 0) or 0 for name in ("prompt_tokens", "completion_tokens")]
    if not all(isinstance(count, int | float) and 0 <= count < _MOST_TOKENS for count in told):
        return None
    return int(told[0]), int(told[1])


def load_litellm() -> Any:
    """The module litellm, silent, and without what it does at import: fetching a price list, reading a `.env`.

    A litellm that the program has imported itself stays as it was set up.
    """
    ours = "litellm" not in sys.modules
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
    import litellm

    if ours:
        litellm.suppress_debug_info = True
        litellm.telemetry = False
        for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    return litellm


def _limiter(per_minute: int | None, *, at_least: int) -> AsyncLimiter | None:
    """A bucket for a tenth of a minute's worth: a full one would let twice the limit pass in the first minute."""
    if per_minute is None:
        return None
    burst = min(float(per_minute), max(per_minute / 10, float(at_least)))
    return AsyncLimiter(burst, 60 * burst / per_minute)


def _option_refused(error: Exception, sent: Mapping[str, Any]) -> str:
    """The option of ours that a 400 names: servers that do not know it answer without it."""
    if _status(error) not in {400, 422}:
        return ""
    return next((o for o in ("response_format", "temperature") if o in sent and o in str(error)), "")


def _status(error: Exception) -> int:
    status = getattr(error, "status_code", 0)
    return status if isinstance(status, int) else 0


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what lies under it."""
    depth = 0
    while error is not None and depth < 20:
        yield error
        error, depth = error.__cause__ or error.__context__, depth + 1


def _is_connection(error: BaseException) -> bool:
    """Whether a failed connection lies under this error; litellm reports it as an HTTP 500 that nobody sent."""
    names = {"ConnectError", "ReadError", "RemoteProtocolError", "ProxyError"}
    return any(isinstance(cause, OSError) or type(cause).__name__ in names for cause in _causes(error))


def _is_unreadable(error: BaseException) -> bool:
    """Whether an HTTP 200 lies under this error whose body makes no sense; litellm reports that as an HTTP 500, too."""
    causes = list(_causes(error))
    if any(type(cause).__name__ == "HTTPStatusError" for cause in causes):
        return False
    said = ("response with no 'choices'", "Empty or invalid response from LLM endpoint")
    return any(isinstance(cause, json.JSONDecodeError) for cause in causes) or any(s in str(error) for s in said)


def _retry_after(error: Exception) -> float | None:
    """The pause that a 429 asks for, in seconds, from its Retry-After: a number or a date."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    value = str(headers.get("retry-after", ""))
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
