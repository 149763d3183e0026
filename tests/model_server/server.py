"""The server: aiohttp on a loop and thread of its own, so that tests meet it as they would meet a provider."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
import time
import unicodedata
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

import orjson
from aiohttp import web

from tests.model_server.batches import Batches

__all__ = ["Fault", "ModelServer", "join_answers"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
NOTHING = '{"terms": [], "concepts": [], "also": []}'


@dataclass(frozen=True)
class Fault:
    """One way to misbehave, made by the constructors below."""

    kind: Literal["status", "content", "filtered", "cut", "hang", "drop", "dribble", "raw"]
    code: int = 200
    content: str | bytes | None = None
    error: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def status(
        cls, status: int, /, *, retry_after: float | str | None = None, message: str = "planted", **error: Any
    ) -> Fault:
        """An HTTP error as OpenAI words it; `error` holds further keys such as code="insufficient_quota"."""
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        return cls("status", status, error={"message": message, "type": "planted", **error}, headers=headers)

    @classmethod
    def says(cls, content: str | None) -> Fault:
        """A well-formed response with this content: nonsense, or nothing."""
        return cls("content", content=content)

    @classmethod
    def cut(cls, characters: int) -> Fault:
        """The right answer, ended after `characters` with finish_reason "length"."""
        return cls("cut", code=characters)

    @classmethod
    def hang(cls) -> Fault:
        """Takes the request and never answers."""
        return cls("hang")

    @classmethod
    def dribble(cls) -> Fault:
        """Sends headers, then a blank every tenth of a second, and never ends: no single read times out."""
        return cls("dribble")

    @classmethod
    def drop(cls) -> Fault:
        """Closes the connection without an answer."""
        return cls("drop")

    @classmethod
    def raw(cls, body: bytes) -> Fault:
        """Status 200 with these bytes for a response."""
        return cls("raw", content=body)

    @classmethod
    def not_json(cls) -> Fault:
        """Status 200 with the page of some other server."""
        return cls.raw(b"<html>It works!</html>")

    @classmethod
    def filtered(cls) -> Fault:
        """No content, with finish_reason "content_filter"."""
        return cls("filtered")


def normal(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


class ModelServer:
    """Answers POST /v1/chat/completions from `answers`: text -> answer.

    The last message decides: an answer whose key is that message is taken, else the one with the longest key that
    occurs in it (white space and case do not count), else `default`. With `api_key`, any other key is refused as OpenAI
    refuses it, the wrong key in the message. `batches` answers the batch endpoints, from the same answers.
    """

    def __init__(
        self,
        answers: Mapping[str, str] | None = None,
        *,
        default: str = NOTHING,
        latency: float = 0.0,
        api_key: str | None = None,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.answers = {normal(text): answer for text, answer in (answers or {}).items()}
        self.default = default
        self.latency = latency
        self.api_key = api_key
        self.port = port
        self.tls = tls
        self.calls: list[dict[str, Any]] = []
        """The bodies of all calls, refused ones among them."""
        self.times: list[float] = []
        """When each call arrived, in seconds of time.monotonic()."""
        self.most_at_once = 0
        self.batches = Batches(
            lambda body: completion(body, self.look_up(str(body["messages"][-1]["content"])), "stop")
        )
        self._at_once = 0
        self._next: deque[Fault | None] = deque()
        self._always: Fault | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="model-server", daemon=True)
        self._runner: web.AppRunner | None = None

    # -- what a test tells it

    def next(self, *faults: Fault | None) -> None:
        """Misbehave in the next calls, one fault each (None: behave), then as before."""
        self._next.extend(faults)

    def always(self, fault: Fault) -> None:
        self._always = fault

    def heal(self) -> None:
        """Behave from now on."""
        self._next.clear()
        self._always = None

    def forget(self) -> None:
        """Start counting anew."""
        self.calls, self.times, self.most_at_once = [], [], 0

    @property
    def api_base(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/v1"

    # -- its life

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _open(self) -> None:
        app = web.Application(client_max_size=256 * 2**20, middlewares=[self._keyed])
        app.router.add_routes(self.batches.routes())
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_get("/v1/calls", self._tell)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self.tls)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _close(self) -> None:
        if self._runner:
            await self._runner.cleanup()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    # -- what it does

    def look_up(self, message: str) -> str:
        said = normal(message)
        if said in self.answers:
            return self.answers[said]
        held = [text for text in self.answers if text in said]
        return self.answers[max(held, key=len)] if held else self.default

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        self.calls.append(body)
        self.times.append(time.monotonic())
        fault = self._next.popleft() if self._next else self._always
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await asyncio.sleep(self.latency)
            return await self._respond(request, body, fault)
        finally:
            self._at_once -= 1

    @web.middleware
    async def _keyed(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The batch endpoints want the same key as the others."""
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.api_key is not None and given != self.api_key and not request.path.startswith("/v1/chat"):
            error = {"message": f"Incorrect API key provided: {given}.", "code": "invalid_api_key"}
            return json_response({"error": error}, status=401)
        return await handler(request)

    async def _tell(self, request: web.Request) -> web.StreamResponse:
        """How many calls arrived, for a test in another process."""
        return web.json_response({"calls": len(self.calls)})

    async def _respond(self, request: web.Request, body: Mapping[str, Any], fault: Fault | None) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.api_key is not None and given != self.api_key:
            fault = Fault.status(401, message=f"Incorrect API key provided: {given}.", code="invalid_api_key")
        kind = fault.kind if fault else "answer"
        if fault and kind == "status":
            return json_response({"error": dict(fault.error)}, status=fault.code, headers=fault.headers)
        if kind == "drop":
            if request.transport:
                request.transport.abort()
            return web.Response()
        if kind == "hang":
            await asyncio.sleep(3600)
        if kind == "dribble":
            return await dribble(request)
        if fault and kind == "raw":
            return web.Response(body=fault.content, content_type="application/json")
        if fault and kind == "content":
            return json_response(completion(body, fault.content, "stop"))
        if kind == "filtered":
            return json_response(completion(body, None, "content_filter"))
        answer = self.look_up(str(body["messages"][-1]["content"]))
        if fault and kind == "cut":
            return json_response(completion(body, answer[: fault.code], "length"))
        return json_response(completion(body, answer, "stop"))


def json_response(body: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, headers=headers, content_type="application/json")


def completion(body: Mapping[str, Any], answer: str | bytes | None, finish_reason: str) -> dict[str, Any]:
    """A response in the shape of OpenAI; four characters count as one token."""
    asked, said = sum(len(m["content"]) for m in body["messages"]) // 4, len(answer or "") // 4
    return {
        "id": "chatcmpl-test",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body["model"],
        "choices": [{"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said},
    }


async def dribble(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.1)
    return response


def join_answers(answers: Iterable[Mapping[str, str]], texts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Recorded answers by the text they were given for.

    `answers` are rows with `id` and `answer`, `texts` rows with `id` or `_id`, `title` and `text`. Each answer stands
    under the text alone and under the message of a document prompt: equal texts with different titles stay apart.
    """
    by_id = {row["id"]: row["answer"] for row in answers}
    joined: dict[str, str] = {}
    for row in texts:
        answer = by_id.get(row.get("_id") or row["id"])
        if answer is None:
            continue
        title, text = row.get("title") or "", row.get("text") or ""
        for key in (text or title, f"title: {title}\ntext: {text}"):
            joined[key] = answer
    return joined
