"""Batches: many prompts handed in as a file and answered within a day, at half the price with most providers.

The endpoints are those of OpenAI's shape (files, batches), through litellm: by its blocking functions, in threads, as the
others leave an open client behind each call.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import orjson

from sira_es.errors import ConfigurationError, ModelError
from sira_es.llm.model import (
    ATTEMPTS,
    LONGEST_REST,
    OPTIONS,
    Answer,
    Model,
    Prompt,
    UselessAnswerError,
    load_litellm,
    used_tokens,
)

__all__ = ["BATCH_REASONS", "Batch", "BatchModel", "Reply"]

R = TypeVar("R")

PROVIDERS = ("openai", "azure", "hosted_vllm", "litellm_proxy", "xai")
"""Those whose batches litellm can submit, read and list."""

PATH = "/v1/chat/completions"
REPLIES = 500
MOST_LISTED = 5000
SECONDS_A_FILE = 600.0
_ALONE = {"Connection": "close"}  # litellm makes a client a call, and leaves it to the garbage
_CREATED_BEFORE = 3600  # clocks differ: a batch is looked for among those of an hour more

_NOT_THERE = "unknown model"  # what an HTTP 404 is called

LEFT_OUT = "no answer in the batch"
EXPIRED, CANCELLED, REFUSED, GONE = "batch expired", "batch cancelled", "batch refused", "batch gone"
LINE_FAILED = "error in the batch"
BATCH_REASONS = frozenset({LEFT_OUT, EXPIRED, CANCELLED, REFUSED, GONE, LINE_FAILED})
"""Why a batch has no answer to a question that may be asked again."""

_ENDS = {"completed": LEFT_OUT, "expired": EXPIRED, "cancelled": CANCELLED, "failed": REFUSED}
_CODES = {
    "batch_expired": EXPIRED,
    "batch_cancelled": CANCELLED,
    "context_length_exceeded": "context length",
    "content_filter": "refused",
    "content_policy_violation": "refused",
}


@dataclass(frozen=True, slots=True)
class Batch:
    """Where a batch stands: how many of its questions are answered; `files` hold how each ended.

    `rest`, once it has ended, is why a question that is in no file has no answer; `error` what the provider said.
    """

    id: str
    answered: int
    files: tuple[str, ...] = ()
    rest: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """How one question ended: with an answer, or for a reason without one that is of use."""

    key: str
    answer: Answer | None
    reason: str = ""


class BatchModel(Model):
    """A model that is asked by the file. Every method raises ModelError as `Model.ask` does."""

    def line(self, key: str, prompt: Prompt) -> bytes:
        """One line of a file: a question under its key."""
        body = {"model": self._place[0], "messages": [dict(m) for m in prompt.messages], **self._taken}
        return orjson.dumps({"custom_id": key, "method": "POST", "url": PATH, "body": body}) + b"\n"

    async def submit(self, file: Path, token: str) -> str:
        """Hand in a file of lines; the id of the batch, which bears the token.

        After a ModelError it may be there all the same: `find` tells.
        """
        uploaded = await self._call("create_file", file=file, purpose="batch", timeout=SECONDS_A_FILE)
        batch = await self._call(
            "create_batch",
            again={"rate limit"},
            completion_window="24h",
            endpoint=PATH,
            input_file_id=uploaded.id,
            metadata={"sira_es": token},
        )
        return str(batch.id)

    async def find(self, token: str, since: float) -> str | None:
        """The id of the batch that was submitted with a token at a time (Unix), None where there is none."""
        after, seen = None, 0
        while True:
            try:
                page = await self._call("list_batches", limit=100, after=after)
            except ModelError as error:
                if error.reason != _NOT_THERE:
                    raise
                raise self._error(
                    "bad request", "does not list its batches, so that it is not known whether one was submitted"
                ) from None
            batches = list(page.data or ())
            for batch in batches:
                if dict(batch.metadata or {}).get("sira_es") == token:
                    return str(batch.id)
            seen += len(batches)
            older = bool(batches) and (batches[-1].created_at or 0) < since - _CREATED_BEFORE
            if not batches or not getattr(page, "has_more", False) or older or seen >= MOST_LISTED:
                return None
            after = batches[-1].id

    async def look(self, batch_id: str) -> Batch:
        """Where a batch stands; one that the provider does not know has ended."""
        try:
            batch = await self._call("retrieve_batch", batch_id=batch_id)
        except ModelError as error:
            if error.reason != _NOT_THERE:
                raise
            return Batch(batch_id, 0, rest=GONE)
        files = tuple(f for f in (batch.output_file_id, batch.error_file_id) if f)
        counts = batch.request_counts
        errors = getattr(batch.errors, "data", None) or ()
        said = next((e.message for e in errors if e.message), "")
        return Batch(
            batch_id,
            int(getattr(counts, "completed", 0) or 0),
            files,
            _ENDS.get(batch.status, ""),
            self._masked(said),
        )

    async def replies(self, batch: Batch) -> AsyncGenerator[list[Reply], None]:
        """What is in the files of a batch, some hundred lines at a time, in any order; lines that say nothing are left out."""
        for file in batch.files:
            try:
                content = await self._call("file_content", file_id=file, stream=True, timeout=SECONDS_A_FILE)
            except ModelError as error:
                if error.reason != _NOT_THERE:
                    raise
                continue
            lines = _lines(content.stream_iterator)
            while True:
                try:
                    some = await _in_thread(lambda: list(islice(lines, REPLIES)))  # noqa: B023  awaited here
                    failure = None
                except Exception as error:
                    failure = self._explain(error)
                if failure:
                    raise failure
                if not some:
                    break
                yield [reply for line in some if (reply := self._reply(line)) is not None]

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """The price of a batch where the list has one, else the ordinary price."""
        if self.rates is None:
            return super().price(prompt_tokens, completion_tokens)
        return prompt_tokens * self.rates[0] + completion_tokens * self.rates[1]

    @cached_property
    def rates(self) -> tuple[float, float] | None:
        """US dollars for a token in and out in a batch, None where they are not known."""
        try:
            known = load_litellm().get_model_info(self.name)
        except Exception:  # litellm has no class of its own for "not in the price list"
            return None
        asked, said = known.get("input_cost_per_token_batches"), known.get("output_cost_per_token_batches")
        return None if asked is None or said is None else (float(asked), float(said))

    async def prepare(self) -> None:
        """Load in a thread what the other methods need. Raises ConfigurationError where the model has no batches."""
        await asyncio.to_thread(lambda: self._taken)

    async def close(self) -> None:
        """Nothing is open between calls."""

    @cached_property
    def _place(self) -> tuple[str, str]:
        """The name of the model with its provider, and the provider's. Raises ConfigurationError."""
        try:
            name, provider, *_ = load_litellm().get_llm_provider(self.name, api_base=self._stage.api_base)
        except Exception:
            name, provider = self.name, ""
        if provider not in PROVIDERS:
            raise ConfigurationError(
                f"model {self.name} cannot be asked in batches; leave --batch out, or use a model of {', '.join(PROVIDERS)}"
            )
        return name, provider

    @cached_property
    def _taken(self) -> Mapping[str, Any]:
        """Our options as this model takes them."""
        name, provider = self._place
        taken = load_litellm().utils.get_optional_params(
            model=name, custom_llm_provider=provider, drop_params=True, **OPTIONS
        )
        return {key: value for key, value in taken.items() if key not in {"stream", "extra_body"}}

    async def _call(self, function: str, /, *, again: Collection[str] = ATTEMPTS, **given: Any) -> Any:
        attempt = 1
        while True:
            try:
                return await self._once(function, given)
            except ModelError as error:
                most = ATTEMPTS.get(error.reason, 1) if error.reason in again else 1
                if attempt >= most or (error.retry_after or 0) > LONGEST_REST:
                    raise
                await asyncio.sleep(self._pause(attempt) if error.retry_after is None else error.retry_after)
            attempt += 1

    async def _once(self, function: str, given: Mapping[str, Any]) -> Any:
        self._litellm = await asyncio.to_thread(load_litellm)
        where = {"custom_llm_provider": self._place[1], "api_base": self._stage.api_base, "api_key": self._key}
        options = {"timeout": self._stage.timeout, "max_retries": 0, "extra_headers": _ALONE, **where, **given}
        try:
            return await _in_thread(partial(getattr(self._litellm, function), **options))
        except Exception as error:
            failure = self._explain(error)
        raise failure from None  # the original may quote the request, and with it a key

    def _reply(self, line: bytes) -> Reply | None:
        try:
            row = json.loads(line, object_hook=lambda values: SimpleNamespace(**values))
        except (ValueError, RecursionError):
            return None
        key = getattr(row, "custom_id", None)
        if not isinstance(key, str):
            return None
        response = getattr(row, "response", None)
        body = getattr(response, "body", None)
        if getattr(response, "status_code", None) == 200:
            try:
                return Reply(key, self._read(body))
            except UselessAnswerError as error:
                return Reply(key, error.answer, error.reason)
            except (TypeError, ValueError):
                return Reply(key, None, "unusable answer")
        said = getattr(row, "error", None) or getattr(body, "error", None)
        return Reply(key, None, _CODES.get(str(getattr(said, "code", "")), LINE_FAILED))

    def _cost(self, response: Any) -> float | None:
        used = used_tokens(response)
        return self.price(*used) if used else None


async def _in_thread(function: Callable[[], R]) -> R:
    """The result of a blocking function. Cancelled, nobody waits for it, not even the end of the program."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()

    def settle(how: Callable[[Any], None], value: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(lambda: None if future.done() else how(value))

    def run() -> None:
        try:
            result = function()
        except Exception as error:
            settle(future.set_exception, error)
        else:
            settle(future.set_result, result)

    threading.Thread(target=run, name="sira-es batch", daemon=True).start()
    return await future


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
    if rest:
        yield rest
