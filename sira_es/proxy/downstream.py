"""The client's side of one exchange: its body as it comes, its answer as it goes, and whether it is still there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import orjson

from sira_es.proxy.wire import RawHeaders

__all__ = ["ClientLeft", "Cut", "Downstream"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

BODY_PAUSE_SECONDS = 120.0
"""How long a client may send nothing in the middle of a body."""


class ClientLeft(Exception):  # noqa: N818
    """The client closed the connection, or stopped in the middle of its body."""


class Cut(Exception):  # noqa: N818
    """The answer broke off upstream: the connection is to be closed, so that the client sees that it is not whole."""


class Downstream:
    """Made by the task that serves the request: while that waits upstream, it is cancelled when the client leaves.

    `takes_chunks`: the client understands an answer whose length is not told ahead; for others it is held until it is known.
    """

    def __init__(self, receive: Receive, send: Send, *, takes_chunks: bool = True) -> None:
        self._receive = receive
        self._send = send
        self._takes_chunks = takes_chunks
        self._held: tuple[RawHeaders, list[bytes]] | None = None
        self._task = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None
        self._finished = False
        self.taken = False
        self.left = False
        self.started = False
        self.status = 0
        self.sent = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body; `taken` is True from its first part on. Raises ClientLeft."""
        more = True
        while more:
            try:
                async with asyncio.timeout(BODY_PAUSE_SECONDS):
                    message = await self._receive()
            except TimeoutError:
                raise ClientLeft from None
            if message["type"] == "http.disconnect":
                self.left = not self._finished
                raise ClientLeft
            self.taken = True
            more = message.get("more_body", False)
            if part := message.get("body"):
                yield part
        self.watch()

    async def read(self, limit: int) -> tuple[bytes, AsyncIterator[bytes] | None]:
        """The whole body, or what came of one that is longer than `limit` and the rest of it."""
        parts, size = [], 0
        rest = self.chunks()
        async for part in rest:
            parts.append(part)
            size += len(part)
            if size > limit:
                return b"".join(parts), rest
        return b"".join(parts), None

    def watch(self) -> None:
        """From now on cancel the serving task when the client leaves; the body must have been taken."""
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._wait())
            self._watcher.add_done_callback(self._cancel)

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def _cancel(self, watcher: asyncio.Task[None]) -> None:
        if not watcher.cancelled() and not self._finished and self._task is not None:
            self.left = True
            self._task.cancel()

    async def start(self, status: int, headers: RawHeaders) -> None:
        self.started, self.status = True, status
        if self._takes_chunks or any(name.lower() == b"content-length" for name, _ in headers):
            await self._send({"type": "http.response.start", "status": status, "headers": headers})
        else:
            self._held = headers, []

    async def write(self, part: bytes) -> None:
        self.sent += len(part)
        if self._held is not None:
            self._held[1].append(part)
            return
        await self._send({"type": "http.response.body", "body": part, "more_body": True})

    async def finish(self, part: bytes = b"") -> None:
        """Send the last part."""
        self._finished = True
        self.sent += len(part)
        if self._held is not None:
            headers, part = self._held[0], b"".join((*self._held[1], part))
            length = (b"content-length", str(len(part)).encode())
            await self._send({"type": "http.response.start", "status": self.status, "headers": [*headers, length]})
        await self._send({"type": "http.response.body", "body": part, "more_body": False})

    async def answer(self, status: int, headers: RawHeaders, body: bytes) -> None:
        """A whole answer at once."""
        await self.start(status, headers)
        await self.finish(body)

    async def refuse(self, status: int, kind: str, reason: str) -> None:
        """An error of ours, in the form in which engines tell theirs."""
        body = orjson.dumps({"error": {"type": kind, "reason": f"sira-es proxy: {reason}"}, "status": status})
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self.answer(status, headers, body)

    def close(self) -> None:
        """The exchange is over."""
        self._finished = True
        if self._watcher is not None:
            self._watcher.cancel()
