"""Bulk requests in which no item is lost: our two fields of existing documents, and new collections.

A document is changed only as it was read (`if_seq_no`, `if_primary_term`), and only in the fields `enriched_terms` and
`sira`. What the cluster is too busy for is sent again, in smaller requests; what it refuses is told, item by item.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from sira_es.cluster.connect import Cluster, cause_of, dumps, expected, segment
from sira_es.cluster.scan import Hit
from sira_es.cluster.target import ENRICHED, SIRA
from sira_es.errors import ClusterRefused, ClusterUnreachable, InputError

__all__ = ["Change", "Loaded", "Outcome", "index_documents", "merge", "refresh", "update"]

_MOST_ITEMS = 500
_MOST_BYTES = 5_000_000
_ATTEMPTS = 8  # in a row without a single item settled
_MERGE_PAUSES = (0, 2, 4, 8, 10, 10)  # seconds before each attempt
_PAUSE = 0.2  # seconds before the first repetition; doubled each time, at most _LONGEST_PAUSE
_LONGEST_PAUSE = 10.0
_REFRESHED = 1.2  # seconds after which an index with default settings shows what was written
_BUSY = frozenset({429, 502, 503, 504})
_LOST_NODE = frozenset({"node_not_connected_exception", "node_disconnected_exception", "node_closed_exception"})
_LONGEST_ID = 512  # bytes; a longer one makes the whole request an error
_OURS = (ENRICHED, SIRA)
_REMOVE = {
    "lang": "painless",
    "source": "boolean found = false;"
    " for (String key : params.keys) { if (ctx._source.containsKey(key)) { ctx._source.remove(key); found = true } }"
    " if (!found) { ctx.op = 'none' }",
    "params": {"keys": list(_OURS)},
}

_NULLED = "set to null: this cluster runs no scripts"

Status = Literal["updated", "noop", "conflict", "missing", "failed"]


class Change(NamedTuple):
    """What to write into a document as it was read: `doc` holds our fields, None removes them."""

    hit: Hit
    doc: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one document.

    "conflict": it was changed after it was read. "missing": it, or its index, is gone. `reason` explains "failed";
    beside "updated" it says what was done otherwise than asked.
    """

    index: str
    id: str
    status: Status
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Loaded:
    """How many documents, of different ids, were indexed, and the outcomes of those that were not."""

    documents: int
    failed: tuple[Outcome, ...]


async def update(cluster: Cluster, changes: Sequence[Change]) -> list[Outcome]:
    """Write our fields into documents, each only if it is still as it was read. One outcome a change, in their order.

    Where the cluster runs no scripts, removing sets the fields to null. Items for which the cluster stays too busy or
    away are "failed". Nothing is written where our fields are not mapped ("conflict"): the cluster would map them by
    guess. Raises ClusterRefused where a whole request is refused (credentials, privileges), ValueError for other fields.
    """
    if foreign := {key for change in changes if change.doc is not None for key in change.doc} - set(_OURS):
        raise ValueError(f"only {' and '.join(_OURS)} may be written, not {sorted(foreign)}")
    mapped = {index: await _maps_ours(cluster, index) for index in {c.hit.index for c in changes}}
    present = [
        i for i, c in enumerate(changes) if mapped[c.hit.index] or (c.doc is None and mapped[c.hit.index] is not None)
    ]
    sent = await _send(cluster, [_update_lines(changes[i].hit, _body(changes[i])) for i in present])
    results = dict(zip(present, sent, strict=True))
    outcomes = [
        _outcome(c.hit, results[i]) if i in results else _unsent(c.hit, gone=mapped[c.hit.index] is None)
        for i, c in enumerate(changes)
    ]
    unscripted = [i for i, result in results.items() if changes[i].doc is None and result.wants_scripts]
    nulls = [_update_lines(changes[i].hit, {"doc": _nulls(changes[i].hit)}) for i in unscripted]
    for i, result in zip(unscripted, await _send(cluster, nulls), strict=True):
        outcome = _outcome(changes[i].hit, result)
        outcomes[i] = replace(outcome, reason=_NULLED) if outcome.status == "updated" else outcome
    return outcomes


async def index_documents(
    cluster: Cluster,
    index: str,
    documents: AsyncIterable[tuple[str, Mapping[str, Any]]] | Iterable[tuple[str, Mapping[str, Any]]],
) -> Loaded:
    """Index (id, source) pairs into an existing index and make them searchable; ids that it holds are replaced.

    Raises InputError where the index does not exist, ClusterRefused where a whole request is refused.
    """
    if await _maps_ours(cluster, index) is None:
        raise InputError(f"no index '{index}' at {cluster.url}; create it first")
    done: set[str] = set()
    failed: list[Outcome] = []
    async for batch in _batches(documents):
        lines = []
        sent = []
        for key, source in batch:
            if not key or len(key.encode("utf-8", "surrogatepass")) > _LONGEST_ID:
                failed.append(Outcome(index, key, "failed", f"its id must have 1 to {_LONGEST_ID} bytes"))
                continue
            sent.append(key)
            lines.append(dumps({"index": {"_index": index, "_id": key}}) + b"\n" + dumps(source))
        for key, result in zip(sent, await _send(cluster, lines), strict=True):
            if result.status < 300:
                done.add(key)
            else:
                failed.append(Outcome(index, key, "failed", result.problem))
    await refresh(cluster, index)
    return Loaded(len(done), tuple(failed))


async def refresh(cluster: Cluster, name: str) -> None:
    """Make what was written searchable now; where that may not be asked for, wait until it comes about by itself."""
    try:
        await cluster.request("POST", f"/{segment(name)}/_refresh")
    except ClusterRefused as error:
        if error.status not in {403, 404, 405, 410}:
            raise
        await asyncio.sleep(_REFRESHED)


async def merge(cluster: Cluster, index: str) -> None:
    """Leave one segment without deleted documents, so that scores and figures are those of the documents alone.

    Engines keep deleted documents for copies that may still ask for them, and look every 30 seconds whether any may: it is
    tried again until then.
    """
    for pause in _MERGE_PAUSES:
        await asyncio.sleep(pause)
        await cluster.request("POST", f"/{segment(index)}/_flush", params={"force": True})
        await cluster.request("POST", f"/{segment(index)}/_forcemerge", params={"max_num_segments": 1})
        answer = await cluster.request("GET", f"/{segment(index)}/_stats/docs")
        with expected(f"the statistics of '{index}'"):
            if not answer["_all"]["primaries"]["docs"]["deleted"]:
                break
    await refresh(cluster, index)


class _Result(NamedTuple):
    """One item of a bulk answer; status 0 where none came."""

    status: int
    result: str = ""
    kind: str = ""
    reason: str = ""

    @property
    def problem(self) -> str:
        return f"{self.kind}: {self.reason}" if self.kind else self.reason

    @property
    def settled(self) -> bool:
        """Nothing would be different another time. A full disk is 429 too, and stays so."""
        busy = self.status in _BUSY and self.kind != "cluster_block_exception"
        return not (busy or self.status == 413 or self.kind in _LOST_NODE)

    @property
    def wants_scripts(self) -> bool:
        return self.status == 400 and self.kind == "illegal_argument_exception" and "script" in self.reason


async def _send(cluster: Cluster, items: Sequence[bytes]) -> list[_Result]:
    """Send bulk items (their lines joined), each until it is settled; the results in their order."""
    results: dict[int, _Result] = {}
    waiting = deque(range(len(items)))
    most, attempts = _MOST_ITEMS, 0
    while waiting:
        chunk = _take(waiting, items, most)
        try:
            answers = await _bulk(cluster, [items[i] for i in chunk])
        except (ClusterRefused, ClusterUnreachable) as error:
            answers = _refused(error, len(chunk))
        settled = {
            i: a for i, a in zip(chunk, answers, strict=True) if a.settled or (a.status == 413 and len(chunk) == 1)
        }
        results |= settled
        left = [i for i in chunk if i not in settled]
        waiting.extendleft(reversed(left))
        if not left:
            most, attempts = min(_MOST_ITEMS, most * 2), 0
            continue
        most = max(1, len(chunk) // 2)
        if answers[0].status == 413:
            continue
        attempts = 0 if settled else attempts + 1
        if attempts == _ATTEMPTS:
            last = dict(zip(chunk, answers, strict=True))[left[0]]
            results |= dict.fromkeys(waiting, last)
            break
        await asyncio.sleep(min(_LONGEST_PAUSE, _PAUSE * 2**attempts) * random.uniform(0.5, 1))  # noqa: S311
    return [results[i] for i in range(len(items))]


def _take(waiting: deque[int], items: Sequence[bytes], most: int) -> list[int]:
    chunk = [waiting.popleft()]
    size = len(items[chunk[0]])
    while waiting and len(chunk) < most and size + len(items[waiting[0]]) <= _MOST_BYTES:
        size += len(items[waiting[0]])
        chunk.append(waiting.popleft())
    return chunk


def _refused(error: ClusterRefused | ClusterUnreachable, items: int) -> list[_Result]:
    """The same result for every item, where sending again can help; raises the error otherwise.

    An item whose answer was lost can be sent again: if it was carried out it is a conflict now, or indexed twice alike.
    """
    if isinstance(error, ClusterUnreachable):
        return [_Result(503, reason=str(error))] * items
    if error.status == 413 or (error.status in _BUSY and error.error_type != "cluster_block_exception"):
        return [_Result(error.status, kind=error.error_type, reason=error.reason or str(error))] * items
    raise error


async def _bulk(cluster: Cluster, items: Sequence[bytes]) -> list[_Result]:
    params = {"timeout": "20s", "filter_path": "items.*.status,items.*.result,items.*.error"}
    answer = await cluster.request("POST", "/_bulk", params=params, lines=items)
    with expected("the bulk request"):
        found = [next(iter(item.values())) for item in answer["items"]]
        if len(found) != len(items):
            raise ValueError(f"{len(found)} answers for {len(items)} items")
        return [_Result(a["status"], a.get("result", ""), *cause_of(a.get("error"))) for a in found]


def _unsent(hit: Hit, *, gone: bool) -> Outcome:
    if gone:
        return Outcome(hit.index, hit.id, "missing", "the index is gone")
    return Outcome(hit.index, hit.id, "conflict", "the index was made anew, without our fields")


async def _maps_ours(cluster: Cluster, index: str) -> bool | None:
    """Whether an index maps our fields; None where there is no such index.

    Asked before every bulk request: that would create an index that is gone, and add fields to one that was made anew.
    """
    try:
        found = await cluster.request("GET", f"/{segment(index)}/_mapping/field/{SIRA}.source_hash")
    except ClusterRefused as error:
        if error.status == 404:
            return None
        raise
    with expected(f"the mapping of '{index}'"):
        return bool((found or {}).get(index, {}).get("mappings"))


def _update_lines(hit: Hit, body: Mapping[str, Any]) -> bytes:
    action = {"_index": hit.index, "_id": hit.id, "if_seq_no": hit.seq_no, "if_primary_term": hit.primary_term}
    if hit.routing is not None:
        action["routing"] = hit.routing
    return dumps({"update": action}) + b"\n" + dumps(body)


def _body(change: Change) -> Mapping[str, Any]:
    return {"script": _REMOVE} if change.doc is None else {"doc": change.doc}


def _nulls(hit: Hit) -> dict[str, None]:
    return dict.fromkeys([name for name in _OURS if name in hit.source] or _OURS)


def _outcome(hit: Hit, result: _Result) -> Outcome:
    status: Status = "failed"
    if result.status in {200, 201}:
        status = "noop" if result.result == "noop" else "updated"
    elif result.status == 409:
        status = "conflict"
    elif result.status == 404:
        status = "missing"
    return Outcome(hit.index, hit.id, status, result.problem)


async def _batches(
    documents: AsyncIterable[tuple[str, Mapping[str, Any]]] | Iterable[tuple[str, Mapping[str, Any]]],
) -> AsyncIterator[list[tuple[str, Mapping[str, Any]]]]:
    batch: list[tuple[str, Mapping[str, Any]]] = []
    async for document in _each(documents):
        batch.append(document)
        if len(batch) == _MOST_ITEMS:
            yield batch
            batch = []
    if batch:
        yield batch


async def _each(
    documents: AsyncIterable[tuple[str, Mapping[str, Any]]] | Iterable[tuple[str, Mapping[str, Any]]],
) -> AsyncIterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(documents, AsyncIterable):
        async for document in documents:
            yield document
    else:
        for document in documents:
            yield document
