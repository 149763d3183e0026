"""Which documents a pass over a target has to look at: pending ones, those of another recipe, those written since.

A shard gives every operation the next `_seq_no`, and knows up to which one (its global checkpoint) all copies hold
everything. A pass that went through a shard without leaving a changed document behind has seen all up to the
checkpoint that it began with; where the only writes since were its own, up to the present one. The next pass asks for
what has a higher number.

Where the cluster does not tell checkpoints, a date that every change of a document sets may stand in for the number: the
pass has seen all up to the latest date when it began, but for those that became visible late.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sira_es.cluster.connect import Cluster, expected, segment
from sira_es.cluster.target import Target
from sira_es.errors import ClusterRefused, UnsupportedError

__all__ = ["Shard", "latest_update", "made_otherwise", "pending_query", "shards_of", "wanted"]

HASHED = {"exists": {"field": "sira.source_hash"}}
OVERLAP = 60_000
"""Milliseconds that a change may become visible later than its date says: a refresh interval, and a slow writer."""

WRITTEN = "written since"
_NOT_TOLD = frozenset({400, 403, 404, 405, 410})


@dataclass(slots=True)
class Shard:
    """One shard of a target, as a target of its own, in one pass.

    `checkpoint` is its global checkpoint when the pass began, None where the cluster does not tell. `updated` counts
    our own writes, `unsettled` the documents with older terms that could not be done: those would be forgotten if the
    next pass began behind them.
    """

    target: Target
    index: str
    number: int
    uuid: str = ""
    checkpoint: int | None = None
    updated: int = field(default=0, compare=False)
    unsettled: int = field(default=0, compare=False)


async def shards_of(cluster: Cluster, target: Target) -> list[Shard]:
    """Every shard that a target reaches, with its checkpoint; what it holds is visible to a search that begins now."""
    told = await checkpoints(cluster, target)
    try:
        await cluster.request("POST", f"/{segment(target.name)}/_refresh")
    except ClusterRefused as error:
        if error.status not in _NOT_TOLD:
            raise
        told = {}  # documents below the checkpoint may not be visible yet
    shards = []
    for index in target.indices:
        for number in index.reached:
            alone = replace(target, indices=(replace(index, reached=(number,)),))
            uuid, checkpoint = told.get((index.name, number), ("", None))
            shards.append(Shard(alone, index.name, number, uuid, checkpoint))
    return shards


async def latest_update(cluster: Cluster, target: Target, field: str) -> int:
    """The latest date in a field of a target, and not after now: milliseconds since 1970; -1 where none has it.

    Raises UnsupportedError where the field is no date.
    """
    place = f"/{segment(target.name)}"
    caps = await cluster.request("GET", f"{place}/_field_caps", params={"fields": field})
    with expected(f"the fields of '{target.name}'"):
        kinds = set(caps["fields"].get(field, {})) - {"unmapped"}
    if not kinds or not kinds <= {"date", "date_nanos"}:
        raise UnsupportedError(
            f"updated_field '{field}' of '{target.name}' is {', '.join(sorted(kinds)) or 'not mapped'}; name a date"
        )
    body = {"size": 0, "aggs": {"latest": {"max": {"field": field}}}}
    answer = await cluster.request("POST", f"{place}/_search", body=body)
    with expected(f"the latest date of '{target.name}'"):
        latest = answer["aggregations"]["latest"]["value"]
        return -1 if latest is None else min(int(latest), int(time.time() * 1000))


async def checkpoints(cluster: Cluster, target: Target) -> dict[tuple[str, int], tuple[str, int | None]]:
    """UUID of the index and global checkpoint of each shard; empty where it may not be asked (privilege `monitor`)."""
    try:
        answer = await cluster.request(
            "GET",
            f"/{segment(target.name)}/_stats/docs",
            params={"level": "shards", "filter_path": "indices.*.uuid,indices.*.shards.*.seq_no"},
        )
    except ClusterRefused as error:
        if error.status not in _NOT_TOLD:
            raise
        return {}
    with expected(f"the statistics of '{target.name}'"):
        return {
            (name, int(number)): (
                str(index["uuid"]),
                max((copy["seq_no"]["global_checkpoint"] for copy in copies if "seq_no" in copy), default=None),
            )
            for name, index in ((answer or {}).get("indices") or {}).items()
            for number, copies in index.get("shards", {}).items()
        }


def pending_query(fields: Sequence[str], recipe: str) -> dict[str, Any]:
    """Documents with a text that have no terms, or terms made by another recipe. Without `fields`: with or without text."""
    pending: dict[str, Any] = {"bool": {"must_not": [HASHED]}}
    if fields:
        pending["bool"]["filter"] = [
            {"bool": {"should": [{"exists": {"field": f}} for f in fields], "minimum_should_match": 1}}
        ]
    return {"bool": {"should": [pending, made_otherwise(recipe)], "minimum_should_match": 1}}


def made_otherwise(recipe: str) -> dict[str, Any]:
    """Documents with terms made by another recipe."""
    return {"bool": {"filter": [HASHED], "must_not": [{"term": {"sira.recipe": recipe}}]}}


def wanted(
    shard: Shard,
    cursor: int,
    fields: Sequence[str],
    recipe: str,
    query: Mapping[str, Any] | None,
    *,
    updated_field: str | None = None,
) -> dict[str, Any]:
    """What a pass reads of a shard whose documents up to `cursor` are known to be done.

    `cursor` is a `_seq_no` or, with `updated_field`, a date in milliseconds; -1: nothing is known. What it reads because
    it was written since matches the clause `WRITTEN`.
    """
    written: dict[str, Any] = {"filter": [HASHED], "_name": WRITTEN}
    if shard.checkpoint is not None:
        written["filter"] = [HASHED, {"range": {"_seq_no": {"gt": cursor, "lte": shard.checkpoint}}}]
    elif updated_field and cursor >= 0:
        later = {"range": {updated_field: {"gte": cursor - OVERLAP, "format": "epoch_millis"}}}
        undated = {"bool": {"must_not": [{"exists": {"field": updated_field}}]}}
        written |= {"should": [later, undated], "minimum_should_match": 1}
    due = {"bool": {"should": [pending_query(fields, recipe), {"bool": written}], "minimum_should_match": 1}}
    return {"bool": {"filter": [due, *([query] if query else [])]}}
