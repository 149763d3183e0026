"""The expansions of the texts in a request: what was served before, else made anew within a deadline."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from sira_es.dsl.clauses import same
from sira_es.dsl.compile import Coverage
from sira_es.errors import SiraError
from sira_es.expand import Expanded
from sira_es.foundation import coverage_kind
from sira_es.proxy.indices import Known
from sira_es.proxy.memory import Key, Memory, Served
from sira_es.proxy.metrics import Metrics
from sira_es.proxy.options import Online
from sira_es.proxy.wire import Caller
from sira_es.sira import AsyncSira

__all__ = ["Expansions"]

LOOK_UP_SECONDS = 1.0
"""How long the look-ups of a search may take beside the model."""

UNDER_WAY = 512
TOGETHER = 32
"""Texts of one request that are looked up together; those of the next do not wait for them, nor they for those."""

GROWS_SECONDS = 2.0
BACKGROUND = 200

log = logging.getLogger(__name__)


class Expansions:
    """Made once for each configuration. `asks`: there is a model, or a file of recorded answers in its place."""

    def __init__(self, sira: AsyncSira, memory: Memory, metrics: Metrics, *, asks: bool) -> None:
        self._sira = sira
        self._memory = memory
        self._metrics = metrics
        self._asks = asks
        self._deadline = sira.settings.llm.queries.deadline
        self._under_way: dict[Key, asyncio.Task[None]] = {}
        self._marks: dict[str, str] = {}
        self._typed: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._background: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._filler: asyncio.Task[None] | None = None

    async def get(
        self, texts: Sequence[str], index: str, known: Known, caller: Caller, online: Online
    ) -> dict[str, tuple[Served, bool]]:
        """What is served for each text, and whether it was made for this request. Never fails, and waits not too long."""
        keys = {text: (caller.identity, self._marked(index), same(text)) for text in texts}
        found = {text: served for text, key in keys.items() if (served := self._memory.get(key))}
        missing = [text for text in texts if text not in found]
        self._metrics.memory.labels("hit").inc(len(found))
        if missing:
            self._metrics.memory.labels("miss").inc(len(missing))
            await self._make(missing, keys, index, known, online)
            for text in missing:
                late = Served(None, reason="too slow", failed=True)
                found[text] = self._memory.get(keys[text]) or self._memory.put(keys[text], late)
        return {text: (found[text], text in missing) for text in texts}

    async def close(self) -> None:
        tasks = {*self._under_way.values(), *([self._filler] if self._filler else [])}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _marked(self, index: str) -> str:
        """The name of an index with a mark of what its expansions are made with: what changes it has nothing served yet."""
        if index not in self._marks:
            settings = self._sira.settings
            parts = (settings.index(index), settings.cluster, settings.llm.queries)
            made_with = "\n".join((str(settings.state), *(part.model_dump_json() for part in parts)))
            mark = hashlib.blake2b(made_with.encode(), digest_size=16).hexdigest()
            self._marks[index] = f"{index} {mark}"
        return self._marks[index]

    async def _make(self, texts: Sequence[str], keys: dict[str, Key], index: str, known: Known, online: Online) -> None:
        new = [text for text in texts if keys[text] not in self._under_way]
        if new and len(self._under_way) < UNDER_WAY:
            quiet = online == "never" or (len(new) == 1 and self._grows(index, new[0]))
            for i in range(0, len(new), TOGETHER):
                self._start(new[i : i + TOGETHER], keys, index, known, quiet)
        waiting = {self._under_way[keys[text]] for text in texts if keys[text] in self._under_way}
        if waiting:
            await asyncio.wait(waiting, timeout=self._deadline + LOOK_UP_SECONDS)

    def _start(self, texts: Sequence[str], keys: dict[str, Key], index: str, known: Known, quiet: bool) -> None:
        task = asyncio.create_task(self._expand(texts, keys, index, known, quiet))
        for text in texts:
            self._under_way[keys[text]] = task
        task.add_done_callback(lambda _: [self._under_way.pop(keys[text], None) for text in texts])

    async def _expand(self, texts: Sequence[str], keys: dict[str, Key], index: str, known: Known, quiet: bool) -> None:
        """Make expansions of texts and remember them. `quiet`: no model is asked by this request."""
        try:
            served = await self._served(texts, index, known, quiet)
        except SiraError as error:
            log.warning("not expanded: %s", type(error).__name__)
            served = [Served(None, reason="look-up failed", failed=True)] * len(texts)
        except Exception as error:
            log.error("not expanded: unexpected %s", type(error).__name__, exc_info=error)
            served = [Served(None, reason="error", failed=True)] * len(texts)
        for text, one in zip(texts, served, strict=True):
            self._memory.put(keys[text], one)

    async def _served(self, texts: Sequence[str], index: str, known: Known, quiet: bool) -> list[Served]:
        names = [name for name, _ in self._sira.settings.index(index).fields]
        coverage = await (await known.sees.frequencies()).coverage(known.target, names)
        if coverage.documents is None:  # who may not count may not have a model asked for him either
            return [Served(None, reason="no document frequencies", failed=True)] * len(texts)
        deadline = 0.0 if quiet else self._deadline
        expanded = await known.sees.expand_all(texts, index, target=known.target, deadline=deadline)
        if quiet and self._asks:
            for text, one in zip(texts, expanded, strict=True):
                if one.problem and not one.origin:
                    self._fill(index, text)
        kind = coverage_kind(coverage)
        why_not = "no model" if not self._asks else "not stored" if quiet else ""
        return [_served(one, kind, why_not) for one in expanded]

    def _grows(self, index: str, text: str) -> bool:
        """Whether a text is one of a moment ago with some letters more: somebody types, and no model is asked for that."""
        now, text = time.monotonic(), text.casefold()
        self._typed[index, text] = now
        self._typed.move_to_end((index, text))
        while len(self._typed) > 5000:
            self._typed.popitem(last=False)
        return any(now - self._typed.get((index, text[:-n]), 0.0) < GROWS_SECONDS for n in (1, 2, 3) if len(text) > n)

    def _fill(self, index: str, text: str) -> None:
        """Have the model asked in the background, so that the store knows the text next time."""
        self._background[index, text] = None
        if len(self._background) > BACKGROUND:
            self._background.popitem(last=False)
        if self._filler is None or self._filler.done():
            self._filler = asyncio.create_task(self._filling())

    async def _filling(self) -> None:
        while self._background:
            await asyncio.sleep(GROWS_SECONDS)  # what is still being typed is only asked for in its last form
            batch: dict[str, list[str]] = {}
            for index, text in self._background:
                batch.setdefault(index, []).append(text)
            self._background.clear()
            for index, texts in batch.items():
                whole = [t for t in texts if not any(o != t and o.startswith(t) for o in texts)]
                try:
                    await self._sira.warm(index, whole)
                except Exception as error:
                    log.warning("no answers in the background: %s", type(error).__name__)


def _served(expanded: Expanded, coverage: Coverage, why_not: str) -> Served:
    """What becomes of a text; `why_not`: why no model was asked. Of its expansion only what makes clauses is kept."""
    slim = replace(expanded.expansion, terms=expanded.expansion.clauses, phrases=())
    if expanded.skipped is not None:
        reason = expanded.skipped.why.value
        return Served(None if expanded.bare else slim, coverage, reason)
    unknown = expanded.terms and all(t.df is None for t in expanded.terms)
    if expanded.origin and (expanded.problem or unknown):
        return Served(None, reason="no document frequencies", failed=True)
    if expanded.problem:
        return Served(slim, coverage, why_not or "no answer from the model", failed=not why_not)
    return Served(slim, coverage)
