"""A real HTTP server in front of a real node: passes everything through, remembers it, fails where a test says so.

async with Wire(node_url) as wire:
    wire.on("/_bulk", status=429, times=2)              # answered here, the node never sees it
    wire.on("/docs/_search", delay=3)                   # late
    wire.on("/_bulk", drop="after")                     # carried out, but the answer is lost
    wire.on("/_search", edit=lambda answer: answer["_shards"].update(failed=1))
    ...
    assert wire.count("/_bulk") == 3
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import aiohttp
from aiohttp import web

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "upgrade", "te", "trailer"}


@dataclass
class Reply:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @classmethod
    def of(cls, status: int, body: Any) -> Reply:
        if isinstance(body, bytes):
            return cls(status, body)
        return cls(status, json.dumps(body).encode(), {"content-type": "application/json"})


@dataclass
class Seen:
    """A request as it came in, with the answer that was given (None: the connection was dropped)."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    reply: Reply | None = None

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]


Forward = Callable[[Seen], Awaitable[Reply]]
Handler = Callable[[Seen, Forward], Awaitable[Reply]]


@dataclass
class Rule:
    """What happens to requests whose path matches; `times` None: always, else that often and then no more."""

    path: re.Pattern[str]
    method: str | None
    status: int | None
    body: Any
    headers: Mapping[str, str]
    delay: float
    drop: Literal["before", "after"] | None
    edit: Callable[[Any], Any] | None
    handler: Handler | None
    times: int | None

    def takes(self, seen: Seen) -> bool:
        return self.times != 0 and self.method in {None, seen.method} and self.path.fullmatch(seen.path) is not None


class Wire:
    """`url` is where it listens; `seen` holds the requests in the order in which they came."""

    def __init__(self, node_url: str, *, tls: ssl.SSLContext | None = None) -> None:
        self.node_url = node_url
        self.tls = tls
        self.url = ""
        self.seen: list[Seen] = []
        self._rules: list[Rule] = []

    def on(
        self,
        path: str,
        *,
        method: str | None = None,
        status: int | None = None,
        body: Any = b"",
        headers: Mapping[str, str] | None = None,
        delay: float = 0,
        drop: Literal["before", "after"] | None = None,
        edit: Callable[[Any], Any] | None = None,
        handler: Handler | None = None,
        times: int | None = None,
    ) -> None:
        """Add a rule for paths that match the pattern `path` as a whole; the newest rule that fits is taken.

        `status` answers without the node. `delay` waits, in seconds. `drop` cuts the connection before or after the
        node has carried the request out. `edit` changes the node's JSON answer, in place or by returning another.
        `handler` does anything, and may forward.
        """
        rule = Rule(re.compile(path), method, status, body, headers or {}, delay, drop, edit, handler, times)
        self._rules.insert(0, rule)

    def clear(self) -> None:
        """Forget all rules and all requests."""
        self._rules.clear()
        self.seen.clear()

    def requests(self, path: str, method: str | None = None) -> list[Seen]:
        return [s for s in self.seen if re.fullmatch(path, s.path) and method in {None, s.method}]

    def count(self, path: str, method: str | None = None) -> int:
        return len(self.requests(path, method))

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=False),  # the node behind may have a certificate of its own making
            auto_decompress=False,
            skip_auto_headers=("accept-encoding", "accept", "content-type", "user-agent"),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self.tls)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"{'https' if self.tls else 'http'}://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        headers = {k.lower(): v for k, v in request.headers.items()}
        seen = Seen(request.method, request.rel_url.raw_path, dict(request.query), headers, await request.read())
        self.seen.append(seen)
        rule = next((r for r in self._rules if r.takes(seen)), None)
        target = request.raw_path

        async def forward(changed: Seen) -> Reply:
            return await self.forward_to(changed, target)

        if rule:
            headers.pop("accept-encoding", None)  # a rule wants to read the answer
        reply = await self._apply(rule, seen, forward) if rule else await forward(seen)
        if reply is None:
            assert request.transport is not None
            request.transport.abort()
            await asyncio.sleep(0)
            return web.Response()
        seen.reply = reply
        kept = {k: v for k, v in reply.headers.items() if k.lower() not in HOP_BY_HOP}
        return web.Response(status=reply.status, body=reply.body, headers=kept)

    async def _apply(self, rule: Rule, seen: Seen, forward: Forward) -> Reply | None:
        if rule.times is not None:
            rule.times -= 1
        if rule.delay:
            await asyncio.sleep(rule.delay)
        if rule.drop:
            if rule.drop == "after":
                await forward(seen)
            return None
        if rule.handler:
            return await rule.handler(seen, forward)
        if rule.status is not None:
            reply = Reply.of(rule.status, rule.body)
            return Reply(reply.status, reply.body, {**reply.headers, **rule.headers})
        reply = await forward(seen)
        if rule.edit:
            value = reply.json
            changed = rule.edit(value)
            body = json.dumps(value if changed is None else changed).encode()
            reply = Reply(reply.status, body, reply.headers)
        return reply

    async def forward_to(self, seen: Seen, target: str) -> Reply:
        """Send a request to the node, as one for `target` (path and query)."""
        headers = {k: v for k, v in seen.headers.items() if k not in HOP_BY_HOP}
        async with self._session.request(
            seen.method, self.node_url + target, data=seen.body or None, headers=headers
        ) as answer:
            return Reply(answer.status, await answer.read(), dict(answer.headers))
