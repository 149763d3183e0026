"""Every document of a target once, in pages.

Sorting a point in time by anything that is not unique in it loses documents on OpenSearch, which adds no tiebreak.
`_seq_no` is unique within a shard on every engine. So each shard is read through a point in time of its own, in the
order of `_seq_no`. Where one is lost (expired, a node gone) a new one goes on after the last number that was seen:
what was changed meanwhile has a higher number and may come twice, nothing is left out.

Serverless offerings do not show shards. There an index is read whole: each page begins with the number that the last
one ended with, of which there may be one in every shard, and leaves out what was seen of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from sira_es.cluster.connect import Cluster, expected, segment
from sira_es.cluster.target import WHOLE, Target
from sira_es.errors import ClusterError, ClusterRefused, ClusterUnreachable, UnsupportedError

__all__ = ["Hit", "reread", "scan"]

_ATTEMPTS = 6  # in a row, before a scan gives up
_PAUSE = 0.25  # seconds before the second attempt to go on; doubled each time
_MOST_CHARACTERS = 4_000_000  # in the texts of a page, about; the first page tells how many documents that are
_SMALL_PAGE = 200  # documents of the first page, and of any that follows one that was worked on for long
_SOON = 1.0  # seconds within which the next page is asked for where pages may grow
_LONGEST_VIEW = 1800.0  # seconds, after which a new one goes on: the old one keeps the cluster from merging segments
_TRY_AGAIN = frozenset({429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Hit:
    """A document as it stood when the page was read; `seq_no` and `primary_term` say which version.

    `matched` are the clauses with a name (`_name`) of the query that it matches.
    """

    index: str
    id: str
    routing: str | None
    seq_no: int
    primary_term: int
    source: Mapping[str, Any] = field(hash=False)
    matched: tuple[str, ...] = field(default=(), compare=False)


async def scan(
    cluster: Cluster,
    target: Target,
    *,
    query: Mapping[str, Any] | None = None,
    source: Sequence[str] | bool = True,
    page_size: int = 200,
    keep_alive: str = "5m",
    part: tuple[int, int] = (0, 1),
) -> AsyncGenerator[list[Hit], None]:
    """Yield the documents of `target` that match `query`, in pages of at most `page_size` (1 to 10,000).

    Pages begin small and grow while the next one is asked for soon; of long documents they hold fewer.

    `source` selects keys of the documents, True all, False none. `keep_alive` is how long a page may be worked on
    before its point in time must be opened again. `part` (i, n) is the i-th, from 0, of n disjoint parts. Closing the
    generator frees what the cluster holds for it. Raises UnsupportedError for an engine without points in time,
    ClusterError rather than yield fewer documents than there are.
    """
    if not cluster.engine.can_point_in_time:
        raise UnsupportedError(f"{cluster.engine} has no point in time, which a complete scan needs; upgrade it")
    for index in target.indices:
        wanted = [q for q in (query, index.filter) if q is not None]
        body: dict[str, Any] = {
            "size": min(page_size, index.most_hits),
            "query": {"bool": {"filter": wanted}} if wanted else {"match_all": {}},
            "sort": [{"_seq_no": "asc"}],
            "seq_no_primary_term": True,
            "_source": list(source) if not isinstance(source, bool) else source,
            **({"slice": {"id": part[0], "max": part[1]}} if part[1] > 1 and cluster.engine.can_stable_slices else {}),
        }
        for shard in index.reached:
            reader = _Shard(cluster, index.name, shard, body, keep_alive)
            try:
                while page := await reader.page():
                    if "slice" not in body and part[1] > 1:
                        page = [hit for hit in page if crc32(hit.id.encode()) % part[1] == part[0]]
                    if page:
                        yield page
            finally:
                # The scan may be ending because its task was cancelled; the cluster is told all the same.
                await asyncio.shield(asyncio.ensure_future(reader.close()))


class _Shard:
    def __init__(self, cluster: Cluster, index: str, shard: int, body: Mapping[str, Any], keep_alive: str) -> None:
        self._cluster = cluster
        self._index = index
        self._shard = shard
        self._body = body
        self._size: int = min(body["size"], _SMALL_PAGE)
        self._keep_alive = keep_alive
        self._view: str | None = None
        self._opened = 0.0
        self._last: int | None = None
        self._left: int | None = None  # documents still to come in this view
        self._given = 0.0  # when the last page was
        self._seen: set[tuple[int, str]] = set()  # at the last number, where it may be that of several documents

    async def page(self) -> list[Hit]:
        """The next page; empty at the end."""
        if time.monotonic() - self._given > _SOON:
            self._size = min(self._size, _SMALL_PAGE)
        hits = await self._tried()
        self._given = time.monotonic()
        if hits and self._shard != WHOLE:
            length = sum([_characters(hit.source) for hit in hits]) / len(hits)
            most = min(self._body["size"], int(_MOST_CHARACTERS / max(1.0, length)))
            self._size = max(1, min(most, max(_SMALL_PAGE, self._size * 5 // 4)))
        return hits

    async def _tried(self) -> list[Hit]:
        if self._view is not None and time.monotonic() - self._opened > _LONGEST_VIEW:
            await self.close()
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await self._page()
            except (ClusterUnreachable, ClusterRefused) as error:
                if attempt == _ATTEMPTS or not self._passing(error):
                    raise
            if self._shard != WHOLE:  # there a page must hold more than those of one number
                self._size = max(1, self._size // 2)
            await self.close()
            if attempt > 1:
                await asyncio.sleep(_PAUSE * 2 ** (attempt - 2))
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Free the point in time, as far as the cluster still knows it."""
        view, self._view = self._view, None
        if view is None:
            return
        engine = self._cluster.engine
        ids: str | list[str] = [view] if engine.family == "opensearch" else view
        with suppress(ClusterError):
            await self._cluster.request("DELETE", f"/{engine.point_in_time_path}", body={engine.point_in_time_key: ids})

    async def _page(self) -> list[Hit]:
        first = self._view is None
        if first:
            await self._open()
        view = {"id": self._view, "keep_alive": self._keep_alive}
        body = {**self._body, "size": self._size, "pit": view, "track_total_hits": first}
        if self._last is not None and self._shard == WHOLE:
            body["query"] = {"bool": {"filter": [body["query"], {"range": {"_seq_no": {"gte": self._last}}}]}}
        elif self._last is not None:
            body["search_after"] = [self._last]
        answer = await self._cluster.request(
            "POST", "/_search", params={"allow_partial_search_results": False}, body=body
        )
        with expected(self._what):
            self._check(answer)
            self._view = answer.get("pit_id") or self._view
            found = [_hit(hit) for hit in answer["hits"]["hits"]]
            hits = [hit for hit in found if (hit.seq_no, hit.id) not in self._seen]
            if len(hits) < len(found) == self._size and not hits:
                raise ClusterError(f"{self._what}: pages of {len(found)} are smaller than its shards are many")
            self._count(hits, answer["hits"]["total"]["value"] if first and self._last is None else None)
        if hits:
            self._last = hits[-1].seq_no
            if self._shard == WHOLE:
                self._seen = {(hit.seq_no, hit.id) for hit in found if hit.seq_no == self._last}
        return hits

    async def _open(self) -> None:
        engine = self._cluster.engine
        path = f"/{segment(self._index)}/{engine.point_in_time_path}"
        params: dict[str, str | int | bool] = {"keep_alive": self._keep_alive}
        if self._shard != WHOLE:
            params["preference"] = f"_shards:{self._shard}"
        answer = await self._cluster.request("POST", path, params=params)
        with expected(self._what):
            self._view = str(answer[engine.point_in_time_key])
        self._opened = time.monotonic()
        self._left = None

    def _check(self, answer: Mapping[str, Any]) -> None:
        """A 200 may hide that a shard did not answer."""
        shards = answer["_shards"]
        if answer["timed_out"] or shards["failed"] or shards["successful"] < 1:
            problem = f"{self._what}: the shard did not answer in full; look at the cluster's health"
            raise ClusterRefused(problem, status=503)

    def _count(self, hits: Sequence[Hit], total: int | None) -> None:
        if total is not None:
            self._left = total
        if self._left is not None:
            self._left -= len(hits)
            if not hits and self._left:
                raise ClusterError(f"{self._what}: {self._left} documents were not returned; start again")

    def _passing(self, error: ClusterUnreachable | ClusterRefused) -> bool:
        """A new point in time may help: the old one is gone (404), or a node is, or the cluster is busy."""
        if isinstance(error, ClusterUnreachable):
            return True
        return error.status in _TRY_AGAIN or (error.status == 404 and self._view is not None)

    @property
    def _what(self) -> str:
        return f"reading {'' if self._shard == WHOLE else f'shard {self._shard} of '}'{self._index}'"


def _characters(source: Any) -> int:
    """How many characters the texts of a document have."""
    total, left = 0, [source]
    while left:
        value = left.pop()
        if isinstance(value, str):
            total += len(value)
        elif isinstance(value, dict):
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)
    return total


def _hit(hit: Mapping[str, Any]) -> Hit:
    version = hit["_seq_no"], hit["_primary_term"]
    matched = tuple(hit.get("matched_queries") or ())
    return Hit(hit["_index"], hit["_id"], hit.get("_routing"), *version, hit.get("_source") or {}, matched)


async def reread(cluster: Cluster, hits: Sequence[Hit], *, source: Sequence[str]) -> list[Hit | None]:
    """The same documents as they are now, in their order; None for those that are gone. Raises ClusterError."""
    if not hits:
        return []
    docs = [
        {"_index": h.index, "_id": h.id, "_source": list(source), **({"routing": h.routing} if h.routing else {})}
        for h in hits
    ]
    answer = await cluster.request("POST", "/_mget", body={"docs": docs})
    with expected("reading documents again"):
        found = zip(hits, answer["docs"], strict=True)
        return [_hit(doc) if doc.get("found") else None for _, doc in found]
