"""A search and its answer: sent rewritten, and as the caller sent it wherever that does not work out."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import orjson

from sira_es.proxy.outcome import Outcome
from sira_es.proxy.planning import Plan, Rewrite
from sira_es.proxy.shapes import Verdict
from sira_es.proxy.upstream import Lost, Node, Upstream
from sira_es.proxy.wire import RawHeaders, Request, inflated

__all__ = ["Answer", "Exchange"]

HELD = 8 << 20
"""Bytes of an answer that are held before it goes back, so that another node can be asked if it breaks off."""

UNPACKED = 64 << 20
"""Bytes that an answer may have without its compression; of a longer one nobody here knows what it says."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the cluster. `rest` is set where it is longer than what is held: what follows `body`."""

    status: int
    headers: RawHeaders
    body: bytes
    node: Node
    rest: aiohttp.ClientResponse | None = None

    @property
    def whole(self) -> bytes | None:
        """The body without compression; None where it is not held whole, not readable or too long."""
        if self.rest is not None:
            return None
        encoding = next((v.lower() for k, v in self.headers if k.lower() == b"content-encoding"), b"")
        if encoding in {b"", b"identity"}:
            return self.body
        return inflated(self.body, UNPACKED) if encoding in {b"gzip", b"deflate"} else None


class Exchange:
    """One search. `settled` is called with each rewritten search and what the cluster made of it, where that is known.

    It refused one that it took only as the caller sent it; one refused either way is the caller's affair, unless the
    cluster may be busy: then it is spared the second try for a while.
    """

    def __init__(
        self, upstream: Upstream, request: Request, body: bytes, plan: Plan, settled: Callable[[Rewrite, Verdict], None]
    ) -> None:
        self._upstream = upstream
        self._request = request
        self._body = body
        self._plan = plan
        self._tell = settled
        self.outcomes = plan.outcomes

    async def run(self) -> Answer:
        """The answer for the client; `outcomes` then say what became of the plan. Raises Unreachable, Lost."""
        if self._plan.body is None:
            return await self._own()
        if self._plan.rescue:
            return await self._rescued(self._plan.body)
        try:
            answer = await self._fetch(self._plan.body)
        except Lost as lost:
            if lost.timed_out:
                raise
            self._fell_back("answer lost")
            return await self._fetch(None, but=lost.node)
        return await self._settled(answer)

    async def _own(self) -> Answer:
        try:
            return await self._fetch(None)
        except Lost as lost:
            if lost.timed_out:
                raise
            return await self._fetch(None, but=lost.node)

    async def _settled(self, answer: Answer) -> Answer:
        """Where something went wrong with the rewritten body, the caller's own decides whether that is ours."""
        failing = _failing(answer, len(self._plan.outcomes))
        if not any(r.position in failing for r in self._plan.changed):
            if answer.status == 200:
                self._judge(failing, {})
            return answer
        _close(answer)
        own = await self._own()
        self._judge(failing, _failing(own, len(self._plan.outcomes)))
        self._fell_back("refused")
        return own

    def _judge(self, failing: Mapping[int, bool], still: Collection[int]) -> None:
        """Tell what became of the rewritten searches; `still` failed as the caller sent them, too."""
        for r in self._plan.changed:
            if r.position not in failing:
                self._tell(r, "taken")
            elif not failing[r.position]:
                self._tell(r, "unsure")
            elif r.position not in still:
                self._tell(r, "refused")

    async def _rescued(self, wider: bytes) -> Answer:
        own = await self._own()
        if _finds_something(own):
            self.outcomes = tuple(replace(o, state="skipped", reason="found without") for o in self.outcomes)
            return own
        try:
            answer = await self._fetch(wider)
        except Lost:
            self._fell_back("answer lost")
            return own
        failing = _failing(answer, 1)
        if answer.status >= 300 or failing:
            _close(answer)
            self._judge(failing or {0: False}, ())
            self._fell_back("refused")
            return own
        self._judge({}, ())
        return answer

    def _fell_back(self, reason: str) -> None:
        changed = {r.position for r in self._plan.changed}
        self.outcomes = tuple(
            Outcome("failed", reason) if i in changed else outcome for i, outcome in enumerate(self.outcomes)
        )

    async def _fetch(self, body: bytes | None, *, but: Node | None = None) -> Answer:
        """Send a body, None for the caller's own, and hold the answer. Raises Unreachable, Lost."""
        request = self._request
        if body is None:
            headers, data = request.headers, self._body or None
        else:
            headers, data = request.headers_for(body), body
        response, node = await self._upstream.send(request.method, request.target, headers, data, but=but)
        try:
            return await _held(response, node)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            response.close()
            raise Lost(node, error) from None
        except BaseException:
            response.close()  # the client has left: so is the search to be
            raise


async def _held(response: aiohttp.ClientResponse, node: Node) -> Answer:
    length = response.content_length
    if length is not None and length <= HELD:
        return Answer(response.status, list(response.raw_headers), await response.read(), node)
    parts, size = [], 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > HELD:
            return Answer(response.status, list(response.raw_headers), b"".join(parts), node, response)
    response.release()
    return Answer(response.status, list(response.raw_headers), b"".join(parts), node)


def _close(answer: Answer) -> None:
    if answer.rest is not None:
        answer.rest.close()


REFUSED = frozenset({400, 413})
"""A rewritten body was refused for what it is."""

BUSY = frozenset({429, 500, 503})
"""It may be: what we add makes a search heavier, and the caller's own may still be taken."""

_SHARDS = re.compile(rb'"failed"\s*:\s*[1-9]')


def _failing(answer: Answer, searches: int) -> dict[int, bool]:
    """The searches that failed, on any shard, by position, with whether that was surely for what they are."""
    if answer.status in REFUSED | BUSY:
        return dict.fromkeys(range(searches), answer.status in REFUSED)
    body = (answer.whole or b"") if answer.status == 200 else b""
    if b'"error"' not in body and _SHARDS.search(body) is None:
        return {}
    found = _parsed(body)
    items = found.get("responses") if isinstance(found, dict) else None
    items = items if isinstance(items, list) else [found]
    return {i: item.get("status") in REFUSED for i, item in enumerate(items) if _failed(item)}


def _failed(item: Any) -> bool:
    """Whether an answer to one search says so itself; what is in its hits does not count."""
    if not isinstance(item, dict):
        return False
    shards = item.get("_shards")
    return item.get("status") in REFUSED | BUSY or (isinstance(shards, dict) and bool(shards.get("failed")))


def _finds_something(answer: Answer) -> bool:
    """Whether a search found a hit, or a count is not 0; also where that cannot be told, as on a page behind the last hit."""
    found = _parsed(answer.whole or b"")
    if answer.status != 200 or not isinstance(found, dict):
        return True
    hits = found.get("hits")
    total = hits.get("total") if isinstance(hits, dict) else found.get("count")
    if isinstance(total, dict):
        total = total.get("value") if total.get("relation") == "eq" else None
    return total != 0


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except ValueError:
        return None
