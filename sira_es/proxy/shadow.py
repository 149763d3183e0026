"""Searches done a second time, expanded, unseen by the user: what would change is known before it is switched on."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from sira_es.dsl.endpoint import Endpoint
from sira_es.proxy.exchange import Answer, Exchange
from sira_es.proxy.metrics import Metrics
from sira_es.proxy.outcome import Stages
from sira_es.proxy.room import Room
from sira_es.proxy.wire import Request
from sira_es.rankings import jaccard, rbo

__all__ = ["Shadow"]

DEPTH = 10
WAITING = 64
LARGEST = 1 << 20
"""Bytes of an answer that waits here; so all that wait hold 64 MB at most."""
AT_ONCE = 4

log = logging.getLogger(__name__)

_Work = tuple[Request, Endpoint, bytes, Answer, float]


class Shadow:
    """A bounded queue beside the request path: what does not fit is left out and counted.

    Writes a line of JSON for each comparison to `shadow.jsonl` in the state folder; a text is told by a hash only.
    """

    def __init__(self, room: Room, metrics: Metrics) -> None:
        self.room = room
        self._metrics = metrics
        self._queue: asyncio.Queue[_Work] = asyncio.Queue(WAITING)
        self._workers = [asyncio.create_task(self._work()) for _ in range(AT_ONCE)]
        self._path: Path = room.settings.state / "shadow.jsonl"

    def offer(self, request: Request, found: Endpoint, body: bytes, answer: Answer, seconds: float) -> None:
        """Compare this search, if it is one of the share and there is room."""
        share = self.room.options.shadow
        if share < 1 and random.random() >= share:  # noqa: S311  a sample, not a secret
            return
        if answer.status != 200 or answer.rest is not None or "scroll" in found.params:
            return
        if self._queue.full() or len(answer.body) > LARGEST:
            self._metrics.shadowed.labels("left out").inc()
        else:
            self._queue.put_nowait((request, found, body, answer, seconds))

    async def close(self) -> None:
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            work = await self._queue.get()
            try:
                await self._compare(*work)
            except Exception as error:
                self._metrics.shadowed.labels("failed").inc()
                log.warning("a shadow search failed: %s", type(error).__name__)

    async def _compare(self, request: Request, found: Endpoint, body: bytes, answer: Answer, seconds: float) -> None:
        room = self.room
        with room:
            plan = await room.planner.plan(request, found, body, Stages(), serving=True)
            if plan.body is None:
                self._metrics.shadowed.labels(plan.outcomes[0].reason).inc()
                return
            started = time.perf_counter()
            exchange = Exchange(room.upstream, request.marked("sira-es-shadow"), body, plan, lambda *_: None)
            expanded = await exchange.run()
            if expanded.rest is not None:
                expanded.rest.close()
            took = time.perf_counter() - started
        before, after = _hits(answer), _hits(expanded)
        if before is None or after is None:
            self._metrics.shadowed.labels("no hits told").inc()
            return
        line = {
            "at": time.time(),
            "index": found.index,
            "search": hashlib.blake2b(body, digest_size=8).hexdigest(),
            "outcome": str(exchange.outcomes[0]),
            "rbo": round(rbo(before[1], after[1]), 4),
            "jaccard": round(jaccard(before[1], after[1]), 4),
            "total": before[0],
            "total_expanded": after[0],
            "rescued": not before[0] and bool(after[0]),
            "ms": round(1000 * seconds, 2),
            "ms_expanded": round(1000 * took, 2),
        }
        self._tell(line, seconds, took)
        await asyncio.to_thread(_append, self._path, orjson.dumps(line) + b"\n")

    def _tell(self, line: Mapping[str, Any], seconds: float, took: float) -> None:
        nothing = "rescued" if line["rescued"] else "nothing found" if not line["total"] else "compared"
        self._metrics.shadowed.labels(nothing).inc()
        self._metrics.rbo.observe(line["rbo"])
        self._metrics.jaccard.observe(line["jaccard"])
        self._metrics.shadow_seconds.labels("plain").observe(seconds)
        self._metrics.shadow_seconds.labels("expanded").observe(took)


def _append(path: Path, line: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(line)


def _hits(answer: Answer) -> tuple[int, list[str]] | None:
    """How many hits there are, and index and id of the first ten; None where the answer does not tell."""
    try:
        hits = orjson.loads(answer.whole or b"")["hits"]
        total = hits["total"]
        count = total["value"] if isinstance(total, dict) else total
        return int(count), [f"{h['_index']}/{h['_id']}" for h in hits["hits"][:DEPTH]]
    except (ValueError, KeyError, TypeError):
        return None
