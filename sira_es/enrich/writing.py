"""What is written into documents, and taken out again, with what becomes of each."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from sira_es.cluster.connect import Cluster, expected, segment
from sira_es.cluster.scan import Hit, reread, scan
from sira_es.cluster.target import ENRICHED, SIRA, Target
from sira_es.cluster.write import Change, Outcome, update
from sira_es.enrich.ledger import Ledger
from sira_es.enrich.own import is_ours, own_field
from sira_es.enrich.page import Enriched
from sira_es.enrich.paging import PAGE
from sira_es.enrich.passes import HASHED
from sira_es.errors import ClusterError

__all__ = ["forget_deleted", "take_out", "write"]

log = logging.getLogger(__name__)

CONFLICT_TRIES = 4


async def write(
    cluster: Cluster,
    pairs: Sequence[tuple[Hit, Enriched]],
    *,
    source: Sequence[str],
    hash_of: Callable[[Mapping[str, Any]], str],
) -> dict[tuple[str, str], Outcome]:
    """Write, and where somebody else wrote first read again and retry while the text is still the same.

    `source` is what to read of a document. Where a result has no fields, ours are removed.
    """
    outcomes: dict[tuple[str, str], Outcome] = {}
    left = list(pairs)
    for _ in range(CONFLICT_TRIES):
        if not left:
            break
        results = await update(cluster, [Change(h, r.fields) for h, r in left])
        outcomes.update({(h.index, h.id): o for (h, _), o in zip(left, results, strict=True)})
        conflicts = [p for p, o in zip(left, results, strict=True) if o.status == "conflict"]
        fresh = await reread(cluster, [h for h, _ in conflicts], source=source)
        left = [
            (now, r)
            for (_, r), now in zip(conflicts, fresh, strict=True)
            if now is not None and hash_of(now.source) == r.source_hash and not own_field(now.source)
        ]
    return outcomes


async def take_out(
    cluster: Cluster,
    target: Target,
    *,
    query: Mapping[str, Any] | None,
    on_page: Callable[[Sequence[Hit], int], None],
) -> int:
    """Remove our fields from the documents that have them from us, and match `query`; returns from how many.

    `on_page` is told each page, and how many so far. Raises ClusterError where some could not be done. Where the
    cluster runs no scripts the two keys stay, as null; a warning tells.
    """
    # Copied into an index that did not map our fields, they are in documents that no query finds by them.
    hidden = any(i.keeps_unmapped for i in target.indices)
    asked = {"bool": {"filter": [*([] if hidden else [HASHED]), *([query] if query else [])]}}
    removed, nulled = 0, ""
    left: Counter[str] = Counter()
    ours = [SIRA, ENRICHED]
    async with aclosing(scan(cluster, target, query=asked, source=ours, page_size=PAGE)) as pages:
        async for hits in pages:
            outcomes = await _remove(cluster, [h for h in hits if is_ours(h.source)])
            removed += sum(o.status in {"updated", "noop", "missing"} for o in outcomes)
            left.update(o.reason or o.status for o in outcomes if o.status in {"failed", "conflict"})
            nulled = nulled or next((o.reason for o in outcomes if o.status == "updated"), "")
            on_page(hits, removed)
    if nulled:
        log.warning("%s and %s of %s are %s", *ours, target.name, nulled)
    if left:
        reason, count = left.most_common(1)[0]
        raise ClusterError(
            f"{sum(left.values())} documents of {target.name} keep what was added ({count}: {reason}); "
            "run 'sira-es enrich --undo' again"
        )
    return removed


async def _remove(cluster: Cluster, hits: Sequence[Hit]) -> list[Outcome]:
    """Remove what was added; documents that somebody changed meanwhile are read again and tried again."""
    settled: list[Outcome] = []
    for tries_left in reversed(range(CONFLICT_TRIES)):
        outcomes = await update(cluster, [Change(h, None) for h in hits])
        conflicts = [h for h, o in zip(hits, outcomes, strict=True) if o.status == "conflict"]
        settled += [o for o in outcomes if o.status != "conflict" or not tries_left]
        again = await reread(cluster, conflicts, source=[SIRA, ENRICHED]) if tries_left else []
        hits = [h for h in again if h is not None and is_ours(h.source)]
        if not hits:
            break
    return settled


async def forget_deleted(
    cluster: Cluster,
    ledger: Ledger,
    key: str,
    after: tuple[str, str] = ("", ""),
    *,
    most: int,
    unfinished: bool = False,
) -> tuple[str, str]:
    """Drop those of the next `most` documents of the ledger that the cluster has no more; returns where to go on.

    `unfinished`: look at those only that are not enriched.
    """
    listed = ledger.documents(key, after, most, unfinished=unfinished)
    gone: list[tuple[str, str]] = []
    for index in sorted({index for index, _ in listed}):
        ids = [doc_id for name, doc_id in listed if name == index]
        body = {"size": len(ids), "_source": False, "query": {"ids": {"values": ids}}}
        answer = await cluster.request(
            "POST", f"/{segment(index)}/_search", params={"ignore_unavailable": True}, body=body
        )
        with expected(f"a search of '{index}'"):
            if answer["_shards"]["failed"]:
                continue
            there = {h["_id"] for h in answer["hits"]["hits"]}
        gone += [(index, doc_id) for doc_id in ids if doc_id not in there]
    ledger.forget(key, gone)
    return listed[-1] if len(listed) == most else ("", "")


def with_terms(hit: Hit, result: Enriched) -> bool:
    """Whether a document has the terms of the result already."""
    held = hit.source.get(ENRICHED) or []
    return (held if isinstance(held, list) else [held]) == result.terms


def as_found(result: Enriched, hit: Hit) -> Enriched:
    """The result with the recipe of the document as it is: only the terms are new."""
    return result._replace(fields={"enriched_terms": result.terms, "sira": hit.source["sira"]})
