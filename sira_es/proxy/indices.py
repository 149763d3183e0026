"""What is known of an index when a search for it comes: its fields, its target, what clauses for it look like."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass

from sira_es.cluster.target import Target
from sira_es.dsl.compile import Shape
from sira_es.dsl.fields import Fields
from sira_es.errors import ClusterRefused, ClusterUnreachable, SiraError, UnsupportedError
from sira_es.proxy.wire import Caller
from sira_es.sira import AsyncSira

__all__ = ["Indices", "Known"]

FRESH_SECONDS = 60.0
RETRY_SECONDS = 5.0
LOOK_SECONDS = 2.0
"""How long a search waits for the first look at its index."""

MOST_CALLERS = 2000


@dataclass(frozen=True, slots=True)
class Known:
    """What a search is read and rewritten with.

    `shape` leaves out how much is enriched. `sees`: the facade under the caller's own credentials.
    """

    fields: Fields
    target: Target
    shape: Shape
    sees: AsyncSira


class Indices:
    """Asks our own credentials where they are allowed to look at an index, else the caller's.

    What is known for longer than a minute is given at once and looked at again in the background; what failed is not
    asked again for a few seconds.
    """

    def __init__(self, sira: AsyncSira) -> None:
        self._sira = sira
        self._views: OrderedDict[str, AsyncSira] = OrderedDict()
        self._known: OrderedDict[tuple[str, str], tuple[float, Known | SiraError]] = OrderedDict()
        self._asking: dict[tuple[str, str], asyncio.Task[Known]] = {}

    async def get(self, index: str, caller: Caller) -> Known:
        """Raises SiraError."""
        key = (caller.identity, index)
        found = self._known.get(key)
        if found is not None:
            age, known = time.monotonic() - found[0], found[1]
            if isinstance(known, Known):
                if age > FRESH_SECONDS:
                    self._ask(key, caller)
                return known
            if age < RETRY_SECONDS:
                raise known.with_traceback(None)  # else it would hold everybody who was told so, with his request
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await asyncio.shield(self._ask(key, caller))
        except TimeoutError:
            raise ClusterUnreachable(f"looking at '{index}' takes the cluster too long; it goes on") from None

    async def view(self, caller: Caller) -> AsyncSira:
        """The facade as this caller. Raises SiraError."""
        view = self._views.get(caller.identity)
        if view is None:
            try:
                view = await self._sira.as_caller(caller.headers)
            except UnsupportedError:
                if caller.headers:
                    raise
                view = self._sira  # everybody without credentials goes on under our certificate
            self._views[caller.identity] = view
            if len(self._views) > MOST_CALLERS:
                self._views.popitem(last=False)
        return view

    async def close(self) -> None:
        for task in self._asking.values():
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)

    def _ask(self, key: tuple[str, str], caller: Caller) -> asyncio.Task[Known]:
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._look(key[1], caller))
            task.add_done_callback(lambda done: self._keep(key, done))
        return task

    def _keep(self, key: tuple[str, str], done: asyncio.Task[Known]) -> None:
        self._asking.pop(key, None)
        if done.cancelled():
            return
        error = done.exception()
        if error is not None and not isinstance(error, SiraError):
            error = SiraError(f"{type(error).__name__}")
        earlier = self._known.get(key)
        if error is None or earlier is None or not isinstance(earlier[1], Known) or isinstance(error, ClusterRefused):
            self._known[key] = (time.monotonic(), error if error is not None else done.result())
        else:
            self._known[key] = (time.monotonic() - FRESH_SECONDS + RETRY_SECONDS, earlier[1])
        self._known.move_to_end(key)
        while len(self._known) > MOST_CALLERS:
            self._known.popitem(last=False)

    async def _look(self, index: str, caller: Caller) -> Known:
        view = await self.view(caller)
        try:
            return await _known(self._sira, index, view)
        except ClusterRefused as error:
            if error.status not in {401, 403} or view is self._sira:
                raise
            return await _known(view, index, view)


async def _known(looks: AsyncSira, index: str, sees: AsyncSira) -> Known:
    fields = await looks.query_fields(index)
    target = await looks.target(index)
    shape = await looks.shape(index, "baseline")
    return Known(fields, target, shape, sees)
