"""The ASGI application: searches are read, everything else goes through."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp

from sira_es.dsl.endpoint import Endpoint, endpoint
from sira_es.errors import ConfigurationError, SiraError
from sira_es.proxy.access_log import AccessLog
from sira_es.proxy.downstream import ClientLeft, Cut, Downstream, Receive, Send
from sira_es.proxy.exchange import Answer, Exchange
from sira_es.proxy.memory import LocalMemory, Memory
from sira_es.proxy.metrics import Metrics
from sira_es.proxy.options import Options
from sira_es.proxy.outcome import NOT_LOOKED_AT, Outcome, Stages, own_headers, told
from sira_es.proxy.own_pages import PREFIX, own_page
from sira_es.proxy.planning import READ_LIMIT, Plan, Rewrite, plain
from sira_es.proxy.room import Room
from sira_es.proxy.server import TARGET
from sira_es.proxy.shadow import Shadow
from sira_es.proxy.shapes import Verdict
from sira_es.proxy.streaming import pass_through, tell
from sira_es.proxy.upstream import Lost, Unreachable
from sira_es.proxy.wire import BadRequest, Request, returned_headers
from sira_es.settings import Settings

__all__ = ["Proxy"]

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"})
"""At another one engines close the connection without a word."""

log = logging.getLogger(__name__)


class Proxy:
    """`load` reads the configuration, again at each SIGHUP. `quiet`: no access log. `memory` makes what is remembered,
    `say` tells a person of a reload.

    `failure`: why it could not start.
    """

    def __init__(
        self,
        load: Callable[[], Settings],
        options: Options,
        *,
        memory: Callable[[Settings], Memory] = lambda _: LocalMemory(),
        quiet: bool = False,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.failure: SiraError | None = None
        self._load = load
        self._options = options
        self._make_memory = memory
        self._memory: Memory | None = None
        self._say = say
        self._metrics = Metrics()
        self._log = None if quiet else AccessLog()
        self._room: Room | None = None
        self._shadow: Shadow | None = None
        self._background: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    # Starting, reloading, ending

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            self._room = self._make(self._load())
            self._shadow = Shadow(self._room, self._metrics) if self._options.shadow else None
        except SiraError as error:
            self.failure = error
            await send({"type": "lifespan.startup.failed"})
            return
        self._beside(self._room.prepare())
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reload)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for task in self._background:
            task.cancel()
        if self._shadow is not None:
            await self._shadow.close()
        await self._room.close()
        if self._memory is not None:
            self._memory.close()
        if self._log is not None:
            self._log.flush()
        await send({"type": "lifespan.shutdown.complete"})

    def _make(self, settings: Settings) -> Room:
        self._memory = self._memory or self._make_memory(settings)
        return Room(settings, self._options, self._memory, self._metrics)

    def reload(self) -> None:
        """Read the configuration again; one with an error, or without any index where there were some, changes nothing.

        Requests under way end with the old one.
        """
        try:
            room = self._make(self._again())
        except SiraError as error:
            self._metrics.reloads.labels("failed").inc()
            log.error("the configuration stays as it was: %s", error)
            return
        old, self._room = self._room, room
        if self._shadow is not None:
            self._shadow.room = room
        self._metrics.reloads.labels("done").inc()
        count, urls = len(room.settings.indices), room.settings.cluster.url
        indices = "1 index" if count == 1 else f"{count} indices"
        self._say(f"sira-es: configuration read again: {indices}, the cluster at {', '.join(urls)}")
        self._beside(room.prepare())
        if old is not None:
            self._beside(old.close())

    def _again(self) -> Settings:
        settings = self._load()
        if not settings.indices and self._room is not None and self._room.settings.indices:
            raise ConfigurationError("it names no index any more; start again if none is to be served")
        return settings

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # Serving

    async def _serve(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        client = Downstream(receive, send, takes_chunks=scope["http_version"] != "1.0")
        peer = scope.get("client") or ("", 0)
        told_as: tuple[str, tuple[Outcome, ...]] = ("refused", ())
        self._metrics.in_flight.inc()
        try:
            if scope["method"] not in _METHODS:
                raise BadRequest(f"the cluster knows no method {scope['method']}")
            request = Request(scope["method"], scope[TARGET], scope["headers"], peer[0])
            told_as = await self._answer(request, client)
        except BadRequest as error:
            await client.refuse(400, "sira_bad_request", str(error))
        except (Unreachable, Lost) as error:
            await tell(client, error)
        except ClientLeft:
            if not client.left:
                await client.refuse(408, "sira_request_timeout", "the rest of the body did not come")
        except asyncio.CancelledError:
            if client.started and not client.left:
                raise Cut from None
            if not client.left:
                await client.refuse(502, "sira_stopped", "it was stopped before the cluster answered")
        except Cut:
            raise
        except Exception as error:
            log.error("unexpected %s", type(error).__name__, exc_info=error)
            if client.started:
                raise Cut from None
            await client.refuse(502, "sira_error", "unexpected error; see the log")
        finally:
            client.close()
            self._metrics.in_flight.dec()
            self._note(scope, client, told_as, time.perf_counter() - started)

    async def _answer(self, request: Request, client: Downstream) -> tuple[str, tuple[Outcome, ...]]:
        """Serve a request; returns what kind it was, and what became of its searches."""
        room = self._room
        assert room is not None  # noqa: S101  made before the first request is taken
        with room:
            if request.path.startswith(PREFIX):
                await own_page(room, request, client, self._metrics)
                return "own", ()
            found = endpoint(request.method, request.target)
            if found is None:
                await pass_through(room.upstream, request, client)
                return "passed", (NOT_LOOKED_AT,)
            return found.kind, await self._search(room, request, found, client)

    async def _search(self, room: Room, request: Request, found: Endpoint, client: Downstream) -> tuple[Outcome, ...]:
        stages = Stages()
        body, rest = await client.read(READ_LIMIT)
        if rest is not None:
            outcome = Outcome("skipped", "body too large")
            own = [(b"x-sira-expansion", str(outcome).encode())]
            await pass_through(room.upstream, request, client, begun=(body, rest), own=own)
            return (outcome,)
        client.watch()
        plan = await self._plan(room, request, found, body, stages)

        def settled(search: Rewrite, verdict: Verdict) -> None:
            room.shapes.remember(search.index, search.original, verdict)
            self._metrics.refused.inc(verdict != "taken")

        exchange = Exchange(room.upstream, request, body, plan, settled)
        answer = await exchange.run()
        stages.done("upstream")
        if self._shadow is not None and plan.body is None and found.kind == "search":
            self._shadow.offer(request, found, body, answer, stages.seconds["upstream"])
        self._metrics.stages(stages.seconds)
        for outcome in exchange.outcomes:
            self._metrics.outcome(outcome)
        await _give(answer, client, exchange.outcomes, stages)
        return exchange.outcomes

    async def _plan(self, room: Room, request: Request, found: Endpoint, body: bytes, stages: Stages) -> Plan:
        try:
            return await room.planner.plan(request, found, body, stages)
        except Exception as error:  # whatever it is, the caller's own bytes go out
            log.error("not rewritten: unexpected %s", type(error).__name__, exc_info=error)
            return plain("failed", "error")

    def _note(
        self, scope: dict[str, Any], client: Downstream, told_as: tuple[str, tuple[Outcome, ...]], seconds: float
    ) -> None:
        kind, outcomes = told_as
        self._metrics.requests.labels(kind, str(client.status)).inc()
        if self._log is None:
            return
        path = scope[TARGET].partition(b"?")[0].decode("utf-8", "replace")
        more = {"expansion": told(outcomes)} if outcomes and kind != "passed" else {}
        if client.left:
            more["left"] = "client"
        self._log.line(
            method=scope["method"],
            path=path if path.startswith("/") else "",  # what is no path may hold credentials
            status=client.status,
            bytes=client.sent,
            ms=round(1000 * seconds, 2),
            kind=kind,
            client=(scope.get("client") or ("",))[0],
            **more,
        )


async def _give(answer: Answer, client: Downstream, outcomes: tuple[Outcome, ...], stages: Stages) -> None:
    headers = returned_headers(answer.headers, own_headers(outcomes, stages))
    if answer.rest is None:
        if not any(name.lower() == b"content-length" for name, _ in headers):
            headers.append((b"content-length", str(len(answer.body)).encode()))
        await client.answer(answer.status, headers, answer.body)
        return
    try:
        await client.start(answer.status, headers)
        await client.write(answer.body)
        async for part in answer.rest.content.iter_any():
            await client.write(part)
        await client.finish()
    except (aiohttp.ClientError, TimeoutError, OSError):
        raise Cut from None
    finally:
        answer.rest.close()
