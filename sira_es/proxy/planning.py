"""What to send for a search: the caller's own bytes, or the same with better text clauses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sira_es.dsl.clauses import Reason
from sira_es.dsl.compile import Coverage
from sira_es.dsl.endpoint import Endpoint
from sira_es.dsl.locate import Located, Mode, Passed, locate
from sira_es.dsl.msearch import Search, join_msearch, split_msearch
from sira_es.dsl.rewrite import Rewritten, rewrite
from sira_es.errors import SiraError
from sira_es.proxy.expansions import Expansions
from sira_es.proxy.indices import Indices, Known
from sira_es.proxy.memory import Served
from sira_es.proxy.options import ASKED, Asked, Options
from sira_es.proxy.outcome import Outcome, Stages
from sira_es.proxy.shapes import Shapes
from sira_es.proxy.wire import Request, inflated
from sira_es.settings import Settings

__all__ = ["Plan", "Planner", "Rewrite", "plain", "sample_key"]

READ_LIMIT = 1 << 20
"""Bytes; a longer body is not read, and passes."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One search that was changed: its place in an `_msearch`, its index, and its body as the caller sent it."""

    position: int
    index: str
    original: bytes


@dataclass(frozen=True, slots=True)
class Plan:
    """`body` None: the caller's own bytes go out. `rescue`: they go out first, `body` only where they find nothing."""

    outcomes: tuple[Outcome, ...]
    body: bytes | None = None
    rescue: bool = False
    changed: tuple[Rewrite, ...] = ()


@dataclass(slots=True)
class _Line:
    """One search on its way: `located` once its texts are known."""

    index: str
    body: bytes
    outcome: Outcome | None = None
    known: Known | None = None
    located: Located | None = None
    texts: dict[str, tuple[Served, bool]] = field(default_factory=dict)


def plain(state: str, reason: str, count: int = 1) -> Plan:
    """A plan that sends the caller's own bytes, for a reason."""
    outcome = Outcome("failed" if state == "failed" else "skipped", reason)
    return Plan((outcome,) * count)


class Planner:
    """Reads searches. Made once for each configuration; `shapes` outlives it."""

    def __init__(
        self, settings: Settings, options: Options, indices: Indices, expansions: Expansions, shapes: Shapes
    ) -> None:
        self._settings = settings
        self._options = options
        self._indices = indices
        self._expansions = expansions
        self._shapes = shapes

    async def plan(
        self, request: Request, found: Endpoint, body: bytes, stages: Stages, *, serving: bool | None = None
    ) -> Plan:
        """What to send for one `_search`, `_count` or `_msearch` with this body, as it came.

        `serving`: whether this user gets better searches; None: as the options say.
        """
        asked = (request.header(b"x-sira") or "").lower() or None
        if asked is not None and asked not in ASKED:
            return plain("skipped", "X-Sira is not understood")
        if asked == "off":
            return plain("skipped", "off")
        if request.caller.signs_requests:
            return plain("skipped", "signed request")
        if serving is None and asked is None and not self._options.serves(sample_key(request)):
            return plain("skipped", "not in the sample")
        unpacked = _unpacked(request.header(b"content-encoding"), body)
        if unpacked is None:
            return plain("skipped", "content encoding")
        if found.kind == "msearch":
            return await self._several(request, found, unpacked, asked, stages)
        line = _Line(found.index, unpacked)
        await self._read([(line, found.params)], request, asked, stages)
        rewritten = self._rewritten(line, asked is not None)
        stages.done("rewrite")
        outcome = line.outcome or Outcome("applied")
        if rewritten is None:
            return Plan((outcome,))
        changed = (Rewrite(0, line.index, unpacked),)
        return Plan((outcome,), rewritten.body, rewritten.mode == "rescue", changed)

    async def _several(self, request: Request, found: Endpoint, body: bytes, asked: str | None, stages: Stages) -> Plan:
        searches = split_msearch(body)
        if isinstance(searches, Passed):
            return plain("skipped", searches.reason.value)
        lines = [_line(found, search) for search in searches]
        pairs = [(line, _params(found, search)) for line, search in zip(lines, searches, strict=True)]
        await self._read(pairs, request, asked, stages, several=True)
        replaced, changed = {}, []
        for i, line in enumerate(lines):
            await _let_others(i)
            rewritten = self._rewritten(line, asked is not None)
            if rewritten is not None:
                replaced[i] = rewritten.body
                changed.append(Rewrite(i, line.index, line.body))
        outcomes = tuple(line.outcome or Outcome("applied") for line in lines)
        joined = join_msearch(body, searches, replaced) if replaced else None
        stages.done("rewrite")
        return Plan(outcomes, joined, changed=tuple(changed))

    async def _read(
        self,
        pairs: Sequence[tuple[_Line, Mapping[str, str]]],
        request: Request,
        asked: str | None,
        stages: Stages,
        *,
        several: bool = False,
    ) -> None:
        """Locate the texts of each search, and expand all of them together."""
        for i, (line, params) in enumerate(pairs):
            await _let_others(i)
            await self._locate(line, params, request, asked, several)
        stages.done("read")
        by_index: dict[str, list[_Line]] = {}
        for line, _ in pairs:
            if line.located is not None:
                by_index.setdefault(line.index, []).append(line)
        work = [self._expand(index, lines, request) for index, lines in by_index.items()]
        if len(work) == 1:
            await work[0]
        elif work:
            await asyncio.gather(*work)
        stages.done("expand")

    async def _locate(
        self, line: _Line, params: Mapping[str, str], request: Request, asked: str | None, several: bool
    ) -> None:
        if line.outcome is not None:
            return
        settings = self._settings.indices.get(line.index)
        if settings is None:
            line.outcome = Outcome("skipped", "not configured")
            return
        mode = _mode(asked) or self._options.mode_of(settings)
        if mode == "off":
            line.outcome = Outcome("skipped", "off")
            return
        try:
            line.known = await self._indices.get(line.index, request.caller)
        except SiraError:
            line.outcome = Outcome("failed", "index look-up")
            return
        wanted: Mode = "rerank" if mode == "rescue" and several else mode
        found = locate(line.body, line.known.fields, mode=wanted, params=params, explained=asked is not None)
        if isinstance(found, Passed):
            line.outcome = Outcome("skipped", found.reason.value)
        elif self._shapes.refused(line.index, line.body):
            line.outcome = Outcome("skipped", "refused before")
        else:
            line.located = found

    async def _expand(self, index: str, lines: list[_Line], request: Request) -> None:
        texts = tuple(dict.fromkeys(t for line in lines if line.located for t in line.located.texts))
        known = lines[0].known
        if known is None:
            return
        online = self._options.online_of(self._settings.index(index))
        found = await self._expansions.get(texts, index, known, request.caller, online)
        for line in lines:
            line.texts = {t: found[t] for t in line.located.texts} if line.located else {}

    def _rewritten(self, line: _Line, explained: bool) -> Rewritten | None:
        """The search with better clauses; None where nothing changes. Settles the outcome."""
        if line.located is None or line.known is None:
            return None
        served = {text: one for text, (one, _) in line.texts.items()}
        expansions = {text: one.expansion for text, one in served.items() if one.expansion is not None}
        coverage: Coverage = next((one.coverage for one in served.values() if one.expansion is not None), "none")
        made = rewrite(line.located, expansions, replace(line.known.shape, coverage=coverage))
        line.outcome = _outcome(line.texts, made.changed)
        return made if made.changed else None


def _outcome(texts: Mapping[str, tuple[Served, bool]], changed: bool) -> Outcome:
    for one, _ in texts.values():
        if one.reason:
            return Outcome("failed" if one.failed else "skipped", one.reason)
    if not changed:
        return Outcome("skipped", "no further words")
    return Outcome("applied" if any(fresh for _, fresh in texts.values()) else "cached")


def _mode(asked: str | None) -> Asked | None:
    return next((mode for mode in ASKED if mode == asked), None)


def _line(found: Endpoint, search: Search) -> _Line:
    if not search.readable:
        return _Line("", search.line, Outcome("skipped", Reason.HEADER.value))
    return _Line(",".join(search.index) or found.index, search.line)


async def _let_others(done: int) -> None:
    """After some searches of an `_msearch` it is the turn of other requests."""
    if done % 8 == 7:
        await asyncio.sleep(0)


def _params(found: Endpoint, search: Search) -> dict[str, str]:
    return {**found.params, **search.params}


def sample_key(request: Request) -> str:
    """What tells users apart where a share of them is served: what the application says, else who signs in, else where.

    Never a cookie: there are such as change with each request.
    """
    forwarded = (request.header(b"x-forwarded-for") or "").partition(",")[0].strip()
    return request.header(b"x-sira-key") or request.header(b"authorization") or forwarded or request.client


def _unpacked(encoding: str | None, body: bytes) -> bytes | None:
    """The body as JSON; None for an encoding that is not gzip or deflate, or content that is not what it says."""
    if encoding is None or encoding.lower() == "identity":
        return body
    return inflated(body, READ_LIMIT) if encoding.lower() in {"gzip", "x-gzip", "deflate"} else None
