"""The enrichment of a live index: scanned in pages, written by conditional updates, resumable at any point, reversible."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sira_es.cluster.connect import Cluster
from sira_es.cluster.scan import Hit, reread, scan
from sira_es.cluster.statistics import DocumentFrequencies
from sira_es.cluster.target import Target
from sira_es.cluster.write import Change, Outcome, refresh, update
from sira_es.enrich.ledger import Entry, Ledger
from sira_es.enrich.page import Enriched, PageEnricher
from sira_es.errors import ClusterError, ConfigurationError, ModelError

__all__ = ["EnrichReport", "Enrichment", "Limits", "Progress"]

PAGE = 200
CONFLICT_TRIES = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a run stops, with exit code 4: cost in US dollars, documents, seconds. None: no limit."""

    cost: float | None = None
    documents: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is. `total` is what was to be done when it began; `cost` is None while no price is known."""

    total: int
    done: int = 0
    enriched: int = 0
    stale: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    terms: int = 0
    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class EnrichReport:
    """What `enrich --json` and `status --json` print. `stopped` names the limit that ended the run, empty where none did."""

    documents: int
    enriched: int
    pending: int
    stale: int
    failed: Mapping[str, int]
    terms_per_document: float
    calls: int
    tokens: int
    cost: float
    seconds: float
    stopped: str = ""

    def to_json(self) -> dict[str, Any]:
        """The document of interface `enrich --json`."""
        return {
            "documents": self.documents,
            "enriched": self.enriched,
            "pending": self.pending,
            "stale": self.stale,
            "failed": dict(self.failed),
            "terms_per_document": round(self.terms_per_document, 2),
            "calls": self.calls,
            "tokens": self.tokens,
            "cost": round(self.cost, 6),
            "seconds": round(self.seconds, 1),
            **({"stopped": self.stopped} if self.stopped else {}),
        }


class Enrichment:
    """One job on one target. A document is pending without `sira.source_hash`, stale when its text or the recipe changed."""

    def __init__(
        self,
        cluster: Cluster,
        frequencies: DocumentFrequencies,
        target: Target,
        page: PageEnricher | None,
        ledger: Ledger,
        *,
        text_fields: Sequence[str],
    ) -> None:
        self._cluster = cluster
        self._frequencies = frequencies
        self._target = target
        self._pages = page
        self._ledger = ledger
        self._fields = list(text_fields)
        self._key = f"{cluster.url}/{target.name}"
        self._progress = Progress(total=0)
        self._limits = Limits()
        self._limit_hit = ""
        self._asked = 0
        self._started = 0.0

    async def run(
        self,
        limits: Limits | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> EnrichReport:
        """Enrich what is pending or stale, and only that.

        `query` restricts it to documents that match. Raises ClusterError, and ModelError where the model fails for every
        document; failures of single documents are in the report and the ledger, and the next run tries them again.
        """
        self._limits = limits or Limits()
        self._started = time.monotonic()
        _, pending, _ = await self._counts()
        self._progress = Progress(total=pending)
        tasks: list[asyncio.Task[None]] = []
        try:
            async for hits in scan(
                self._cluster, self._target, query=query, source=[*self._fields, "sira"], page_size=PAGE
            ):
                todo = [h for h in hits if not self._current(h)]
                if todo:
                    tasks.append(asyncio.create_task(self._do(todo, on_progress)))
                while len(tasks) > 1:
                    await tasks.pop(0)
                if self._limit_hit or self._over():
                    break
            while tasks:
                await tasks.pop(0)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._frequencies.forget()
        return await self._report()

    def _current(self, hit: Hit) -> bool:
        done = hit.source.get("sira")
        if not isinstance(done, Mapping) or done.get("recipe") != self._page.recipe:
            return False
        return bool(done.get("source_hash") == self._page.hash_of(hit.source))

    async def _do(self, hits: Sequence[Hit], on_progress: Callable[[Progress], None]) -> None:
        results = await self._page.enrich([(h.id, h.source) for h in hits], self._may_ask)
        pairs = list(zip(hits, results, strict=True))
        outcomes = await self._write([(h, r) for h, r in pairs if r.fields is not None])
        entries = [self._entry(h, r, outcomes.get((h.index, h.id))) for h, r in pairs if r.reason != "limit"]
        self._account(entries, results)
        on_progress(self._progress)
        if self._page.broken is not None:
            raise ModelError(f"the model fails for every document, the run was stopped: {self._page.broken}")

    async def _write(self, pairs: Sequence[tuple[Hit, Enriched]]) -> dict[tuple[str, str], Outcome]:
        """Write, and where somebody else wrote first read again and retry while the text is still the same."""
        outcomes: dict[tuple[str, str], Outcome] = {}
        left = list(pairs)
        for _ in range(CONFLICT_TRIES):
            if not left:
                break
            results = await update(self._cluster, [Change(h, dict(r.fields or {})) for h, r in left])
            outcomes.update({(h.index, h.id): o for (h, _), o in zip(left, results, strict=True)})
            conflicts = [p for p, o in zip(left, results, strict=True) if o.status == "conflict"]
            fresh = await reread(self._cluster, [h for h, _ in conflicts], source=[*self._fields, "sira"])
            left = [
                (now, r)
                for (_, r), now in zip(conflicts, fresh, strict=True)
                if now is not None and self._page.hash_of(now.source) == r.source_hash
            ]
        return outcomes

    def _entry(self, hit: Hit, result: Enriched, outcome: Outcome | None) -> Entry:
        if outcome is None:
            kind, reason = ("skipped" if result.reason == "no text" else "failed"), result.reason
        elif outcome.status in {"updated", "noop"}:
            kind, reason = "enriched", ""
        elif outcome.status in {"conflict", "missing"}:
            kind, reason = "stale", outcome.status
        else:
            kind, reason = "failed", outcome.reason
        return Entry(
            hit.index, hit.id, kind, reason, result.source_hash, self._page.recipe, len(result.terms), result.rejected
        )

    def _account(self, entries: Sequence[Entry], results: Sequence[Enriched]) -> None:
        paid = list(
            {id(r.answer): r.answer for r in results if r.answer is not None and r.answer.source == "model"}.values()
        )
        tokens = sum(a.prompt_tokens + a.completion_tokens for a in paid)
        cost = sum(a.cost or 0.0 for a in paid)
        now = time.monotonic() - self._started
        before = self._progress
        self._ledger.record(self._key, entries)
        self._ledger.spend(self._key, calls=len(paid), tokens=tokens, cost=cost, seconds=now - before.seconds)
        kinds = Counter(e.outcome for e in entries)
        failed = Counter(before.failed) + Counter(e.reason for e in entries if e.outcome == "failed")
        self._progress = replace(
            before,
            done=before.done + len(entries),
            enriched=before.enriched + kinds["enriched"],
            stale=before.stale + kinds["stale"],
            failed=dict(failed),
            terms=before.terms + sum(e.terms for e in entries if e.outcome == "enriched"),
            calls=before.calls + len(paid),
            tokens=before.tokens + tokens,
            cost=before.cost + cost,
            seconds=now,
        )
        if self._limits.cost is not None and any(a.cost is None for a in paid):
            raise ConfigurationError(
                f"no price is known for {paid[0].model}, so --max-cost cannot be kept; use --max-docs instead"
            )

    def _may_ask(self) -> bool:
        if self._limit_hit or self._over():
            return False
        if self._limits.documents is not None and self._asked >= self._limits.documents:
            self._limit_hit = "documents"
            return False
        self._asked += 1
        return True

    def _over(self) -> bool:
        if self._limits.cost is not None and self._progress.cost >= self._limits.cost:
            self._limit_hit = "cost"
        elif self._limits.seconds is not None and time.monotonic() - self._started >= self._limits.seconds:
            self._limit_hit = "time"
        return bool(self._limit_hit)

    @property
    def _page(self) -> PageEnricher:
        assert self._pages is not None  # noqa: S101  only `run` needs it, and is given it
        return self._pages

    async def status(self) -> EnrichReport:
        """How much is enriched now, and what all runs spent."""
        documents, pending, enriched = await self._counts()
        total = self._ledger.totals(self._key)
        return EnrichReport(
            documents=documents,
            enriched=enriched,
            pending=pending,
            stale=total.stale,
            failed=total.failed,
            terms_per_document=total.terms / total.enriched if total.enriched else 0.0,
            calls=total.calls,
            tokens=total.tokens,
            cost=total.cost,
            seconds=total.seconds,
        )

    async def _counts(self) -> tuple[int, int, int]:
        """Documents, pending and enriched ones, what was just written included. Raises ClusterError where a shard did not answer."""
        await refresh(self._cluster, self._target.name)
        self._frequencies.forget()
        coverage = await self._frequencies.coverage(self._target, self._fields)
        if coverage.documents is None or coverage.with_text is None or coverage.enriched is None:
            raise ClusterError(
                f"the documents of {self._target.name} could not be counted; check that all its shards are assigned"
            )
        return coverage.documents, max(0, coverage.with_text - coverage.enriched), coverage.enriched

    def failures(self) -> list[tuple[str, str, str]]:
        """Index, id and reason of each document that failed last time."""
        return self._ledger.failures(self._key)

    async def _report(self) -> EnrichReport:
        documents, pending, enriched = await self._counts()
        p = self._progress
        return EnrichReport(
            documents=documents,
            enriched=enriched,
            pending=pending,
            stale=p.stale,
            failed=p.failed,
            terms_per_document=p.terms / p.enriched if p.enriched else 0.0,
            calls=p.calls,
            tokens=p.tokens,
            cost=p.cost,
            seconds=time.monotonic() - self._started,
            stopped=self._limit_hit,
        )

    async def undo(
        self, *, query: Mapping[str, Any] | None = None, on_progress: Callable[[int], None] = lambda _: None
    ) -> int:
        """Remove what was added. Every other key of `_source` stays; resumes where it was interrupted.

        Returns the number of documents it was removed from. Raises ClusterError where some could not be.
        """
        asked = {"bool": {"filter": [{"exists": {"field": "sira.source_hash"}}, *([query] if query else [])]}}
        removed = 0
        left: Counter[str] = Counter()
        async for hits in scan(
            self._cluster, self._target, query=asked, source=["sira", "enriched_terms"], page_size=PAGE
        ):
            outcomes = await update(self._cluster, [Change(h, None) for h in hits])
            conflicts = [h for h, o in zip(hits, outcomes, strict=True) if o.status == "conflict"]
            fresh = [h for h in await reread(self._cluster, conflicts, source=["sira"]) if h is not None]
            outcomes = [o for o in outcomes if o.status != "conflict"]
            outcomes += await update(self._cluster, [Change(h, None) for h in fresh])
            done = [o for o in outcomes if o.status in {"updated", "noop", "missing"}]
            left.update(o.reason or o.status for o in outcomes if o.status in {"failed", "conflict"})
            removed += len(done)
            self._ledger.forget(self._key, [(h.index, h.id) for h in hits])
            on_progress(removed)
        self._frequencies.forget()
        if left:
            reason, count = left.most_common(1)[0]
            raise ClusterError(
                f"{sum(left.values())} documents of {self._target.name} keep what was added ({count}: {reason}); "
                "run 'sira-es enrich --undo' again"
            )
        return removed
