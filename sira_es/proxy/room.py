"""One configuration in service: the facade, what is known and remembered, and the connections to the cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from sira_es.errors import ConfigurationError, ModelError, SiraError
from sira_es.llm.model import Answer, AnswerSource, Model, Prompt
from sira_es.proxy.door import Door
from sira_es.proxy.expansions import Expansions
from sira_es.proxy.indices import Indices
from sira_es.proxy.memory import Memory
from sira_es.proxy.metrics import Metrics
from sira_es.proxy.options import Options
from sira_es.proxy.planning import Planner
from sira_es.proxy.shapes import Shapes
from sira_es.proxy.upstream import Upstream
from sira_es.proxy.wire import Caller
from sira_es.settings import Settings
from sira_es.sira import AsyncSira

__all__ = ["Room", "check"]

LEAVE_SECONDS = 60.0

log = logging.getLogger(__name__)


class Room:
    """Made on the running event loop; raises ConfigurationError. Requests hold it while they use it."""

    def __init__(self, settings: Settings, options: Options, memory: Memory, metrics: Metrics) -> None:
        self.settings = settings
        self.options = options
        self.shapes = Shapes()
        self.sira = AsyncSira(
            settings,
            query_answers=options.recorded,
            watch=lambda source: _Watched(source, metrics),
            transport=Door(settings.cluster, lambda: self.upstream),
        )
        if settings.indices:
            self.sira.answers("queries")  # what is wrong with the recorded ones or the store is said now
        self.upstream = Upstream(settings.cluster)
        self.indices = Indices(self.sira)
        asks = bool(settings.llm.queries.model or options.recorded)
        self._expansions = Expansions(self.sira, memory, metrics, asks=asks)
        self.planner = Planner(settings, options, self.indices, self._expansions, self.shapes)
        self.prepared = False
        self._users = 0
        self._idle: Callable[[], None] | None = None

    async def prepare(self) -> None:
        """Do ahead what would make the first searches slow; what cannot be done without a caller is left to them."""
        if len(self.upstream.nodes) > 1:
            await self.upstream.check()
        if self.settings.llm.queries.model and not self.options.recorded:
            try:
                await Model(self.settings.llm.queries).prepare()
            except ModelError as error:
                log.warning("searches are served without words of a model: %s", error)
        nobody = Caller({})
        looks = (self.indices.get(index, nobody) for index in self.settings.indices)
        await asyncio.gather(*looks, return_exceptions=True)
        self.prepared = True

    def __enter__(self) -> Room:
        self._users += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._users -= 1
        if not self._users and self._idle is not None:
            self._idle()

    async def close(self) -> None:
        """Wait for those who use it, for a while, then give everything back."""
        if self._users:
            idle = asyncio.Event()
            self._idle = idle.set
            with suppress(TimeoutError):
                await asyncio.wait_for(idle.wait(), LEAVE_SECONDS)
        await self._expansions.close()
        await self.indices.close()
        try:
            await self.sira.close()
        except SiraError as error:
            log.warning("closing: %s", error)
        await self.upstream.close()


async def check(settings: Settings, options: Options) -> None:
    """Raise a SiraError where recorded answers, or a state folder that is needed, cannot be used."""
    async with AsyncSira(settings, query_answers=options.recorded) as sira:
        if settings.indices:
            sira.answers("queries")
    if options.shadow:
        try:
            settings.state.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"cannot use {settings.state}: {error.strerror}; name another folder with `state`"
            ) from None


class _Watched:
    """A model whose answers and failures are counted."""

    def __init__(self, source: AnswerSource, metrics: Metrics) -> None:
        self.name = source.name
        self._source = source
        self._metrics = metrics

    async def ask(self, prompt: Prompt) -> Answer:
        try:
            answer = await self._source.ask(prompt)
        except ModelError as error:
            self._metrics.asked_in_vain(error.reason)
            raise
        self._metrics.asked(answer)
        return answer

    async def close(self) -> None:
        await self._source.close()
