"""Searches of one index under any variant of the method: a query is expanded once, an equal request is sent once."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Collection, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

import orjson

from sira_es.dsl.compile import Mode, Shape, compile_search, fill, original_query
from sira_es.evaluate.run import Search
from sira_es.evaluate.variants import Variant
from sira_es.expand import Expanded
from sira_es.sira import AsyncSira
from sira_es.vocabulary import Expansion, Rules

__all__ = ["Bench"]

_IDS = 1000  # asked for at a time

Ranking = list[tuple[str, float]]


class Bench:
    """One index to measure on. `size` is how many hits a search asks for.

    `template` is a search body with {{query}}, in place of the configured baseline. Raises ConfigurationError where it
    is none. `exact`: document frequencies are counted, not read from term vectors.
    """

    def __init__(
        self,
        sira: AsyncSira,
        index: str,
        *,
        size: int = 100,
        mode: Mode | None = None,
        template: Mapping[str, Any] | None = None,
        exact: bool = False,
    ) -> None:
        settings = sira.settings.index(index)
        self.index = index
        self.mode: Mode = mode or settings.search.mode
        self.rules = Rules(**settings.expansion.model_dump())
        self._sira = sira
        self._size = size
        self._exact = exact
        self._template = template if template is not None else settings.search.baseline
        self._expanded: dict[tuple[str, str], asyncio.Future[Expanded]] = {}
        self._rankings: dict[bytes, asyncio.Future[Ranking]] = {}
        if self._template is not None:
            fill(self._template, "")

    @property
    def settings(self) -> dict[str, Any]:
        """What figures made here depend on."""
        return {"index": self.index, "mode": self.mode, **asdict(self.rules)}

    def search(self, variant: Variant) -> Search:
        """The search of one run, as `evaluate` takes it."""

        async def search(query_id: str, text: str) -> Ranking:
            return await self.rank(await self.request(variant, query_id, text))

        return search

    async def expanded(self, query_id: str, text: str) -> Expanded:
        """The expansion of a query as configured; made once."""
        work = self._sira.expand(text, self.index, query_id=query_id, exact=self._exact, deadline=math.inf)
        found: Expanded = await _once(self._expanded, (query_id, text), work)
        return found

    async def expansion(self, variant: Variant, query_id: str, text: str) -> Expansion:
        """The expansion of a query under a variant."""
        return variant.expansion((await self.expanded(query_id, text)).gathered, self.rules)

    async def request(
        self, variant: Variant, query_id: str, text: str, *, expansion: Expansion | None = None
    ) -> dict[str, Any]:
        """The body of the one request; `expansion` in place of the variant's own."""
        shape = await self._shape(variant)
        body = None if self._template is None else fill(self._template, text)
        if variant.plain:
            return {"query": original_query(text, shape)} if body is None else body
        expansion = expansion or await self.expansion(variant, query_id, text)
        if (await self.expanded(query_id, text)).bare:
            shape = replace(shape, coverage="none")
        return compile_search(text, expansion, shape, mode=variant.mode or self.mode, body=body)

    async def rank(self, request: Mapping[str, Any]) -> Ranking:
        """Ids and scores of the hits, the best first."""
        key = orjson.dumps(request, option=orjson.OPT_SORT_KEYS)
        return list(await _once(self._rankings, key, self._rank(request, self._size)))

    async def known(self, ids: Collection[str]) -> set[str]:
        """Those of the ids that a document of the index has."""
        wanted = sorted(ids)
        found: set[str] = set()
        for start in range(0, len(wanted), _IDS):
            part = wanted[start : start + _IDS]
            found.update(doc for doc, _ in await self._rank({"query": {"ids": {"values": part}}}, 10 * len(part)))
        return found

    async def problems(self) -> Counter[str]:
        """Why queries were not expanded, with how many they are."""
        return Counter([e.problem for e in await _all(self._expanded.values()) if e.problem])

    async def terms(self) -> dict[str, list[dict[str, Any]]]:
        """By query id, the terms of the configured expansion as `expand --json` has them."""
        found = await _all(self._expanded.values())
        return {query: e.to_json()["terms"] for (query, _), e in zip(self._expanded, found, strict=True)}

    async def _shape(self, variant: Variant) -> Shape:
        shape = await self._sira.shape(self.index, "both" if variant.documents and not variant.plain else "queries")
        return shape if variant.enriched_weight is None else replace(shape, enriched_weight=variant.enriched_weight)

    async def _rank(self, request: Mapping[str, Any], size: int) -> Ranking:
        size = min(size, 10_000)
        result = await self._sira.search("", self.index, size=size, sides="baseline", source=False, body=request)
        return [(hit.id, hit.score or 0.0) for hit in result.hits]


async def _once(kept: dict[Any, Any], key: Any, work: Any) -> Any:
    """What `work` returns, or returned when it was asked for first."""
    if key in kept:
        work.close()
    else:
        kept[key] = asyncio.ensure_future(work)
    return await kept[key]


async def _all(futures: Iterable[Awaitable[Expanded]]) -> list[Expanded]:
    return [await future for future in list(futures)]
