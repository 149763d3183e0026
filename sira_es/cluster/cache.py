"""What was asked a moment ago: values that age, and equal calls that share one run."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

__all__ = ["Cache", "SingleFlight"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[V]):
    """At most `size` values, each for `ttl` seconds; the least recently used goes first."""

    def __init__(self, size: int, ttl: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._size, self._ttl, self._clock = size, ttl, clock
        self._values: OrderedDict[Hashable, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable) -> V | None:
        """The value, or None where there is none that is young enough."""
        return self.get_many((key,)).get(key)

    def get_many(self, keys: Iterable[K]) -> dict[K, V]:
        """Those of the values that are there and young enough, by key."""
        now = self._clock()
        found: dict[K, V] = {}
        for key in keys:
            held = self._values.get(key)
            if held is None:
                continue
            if now - held[0] >= self._ttl:
                del self._values[key]
                continue
            self._values.move_to_end(key)
            found[key] = held[1]
        return found

    def put(self, key: Hashable, value: V) -> None:
        self._values[key] = (self._clock(), value)
        self._values.move_to_end(key)
        while len(self._values) > self._size:
            self._values.popitem(last=False)

    def clear(self) -> None:
        self._values.clear()


class SingleFlight:
    """Equal calls at the same time share one run, which goes on when a caller goes away: the next wants its answer."""

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[Any]] = {}

    async def run(self, key: Hashable, call: Callable[[], Awaitable[V]]) -> V:
        """What `call()` returns or raises; not called where an equal call is under way."""
        result: V = await asyncio.shield(self.start(key, call))
        return result

    def start(self, key: Hashable, call: Callable[[], Awaitable[V]]) -> asyncio.Task[V]:
        """The same in the background; what it raises is nobody's concern."""
        task = self._running.get(key)
        if task is None:
            task = asyncio.ensure_future(_started(call))
            self._running[key] = task
            task.add_done_callback(lambda done: self._forget(key, done))
        return task

    async def close(self) -> None:
        """End what is still under way."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _forget(self, key: Hashable, done: asyncio.Task[Any]) -> None:
        self._running.pop(key, None)
        if not done.cancelled():
            done.exception()  # seen: a run whose callers all went away must not complain at exit


async def _started(call: Callable[[], Awaitable[V]]) -> V:
    return await call()
