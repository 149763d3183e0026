"""The enrichment of a live index: scanned in pages, written by conditional updates, resumable at any point, reversible."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from sira_es.cluster.connect import Cluster, expected, segment
from sira_es.cluster.scan import Hit, scan
from sira_es.cluster.statistics import DocumentFrequencies
from sira_es.cluster.target import SIRA, Target
from sira_es.cluster.write import Outcome, refresh
from sira_es.enrich.ledger import Entry, Ledger, Totals, address
from sira_es.enrich.own import is_ours
from sira_es.enrich.page import Enriched, PageEnricher
from sira_es.enrich.paging import PAGE, each_page
from sira_es.enrich.passes import (
    HASHED,
    WRITTEN,
    Shard,
    checkpoints,
    latest_update,
    made_otherwise,
    pending_query,
    shards_of,
    wanted,
)
from sira_es.enrich.report import Budget, EnrichReport, Limits, Progress
from sira_es.enrich.text import text_values
from sira_es.enrich.watch import Watch
from sira_es.enrich.writing import as_found, forget_deleted, take_out, with_terms, write
from sira_es.errors import ClusterError, ModelError
from sira_es.llm.model import Answer, Prompt

__all__ = ["Enrichment"]

OnProgress = Callable[[Progress], None]
DELETED = "deleted meanwhile"


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
        read_fields: Sequence[str] = (),
        updated_field: str | None = None,
        page_size: int = PAGE,
        keep_alive: str = "5m",
    ) -> None:
        self._cluster = cluster
        self._frequencies = frequencies
        self._target = target
        self._pages = page
        self._ledger = ledger
        self._fields = list(text_fields)
        self._with_text = [] if read_fields else self._fields
        """The fields that a document with something to read has one of; none where others are read: they may be nested."""
        self._updated_field = updated_field
        self._scan = {"page_size": page_size, "keep_alive": keep_alive}
        self.key = f"{address(cluster.url.split(', ')[0])}/{target.name}"
        """What this target is called in the ledger: by the first node, so that others may be added."""
        self._progress = Progress(total=0)
        self._budget = Budget()
        self._spent = (0, 0, 0.0, 0.0)
        self._resting: dict[tuple[str, str], str] = {}

    # What there is to do

    async def run(
        self,
        limits: Limits | Budget | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        part: tuple[int, int] = (0, 1),
        rest: float = 0.0,
        on_progress: OnProgress = lambda _: None,
    ) -> EnrichReport:
        """Enrich what is pending or stale, and only that.

        `query` restricts it to documents that match, `part` (i, n) to the i-th of n disjoint parts. Documents that
        failed less than `rest` seconds ago, with the same text, are left for later. Raises ClusterError, and
        ModelError where the model fails for every document; failures of single documents are in the report and the
        ledger, and the next run tries them again.
        """
        shards = await shards_of(self._cluster, self._target)
        latest = await self._latest(shards)
        self._begin(limits, await self._count(pending_query(self._with_text, self._page.recipe), query))
        self._page.watch = Watch(self._ledger.words(self.key), allowed=self._page.allowed)
        self._page.proven = self._ledger.has_made(self.key, self._page.recipe)
        whole = query is None and part[1] == 1
        self._resting = self._ledger.failed_since(self.key, time.time() - rest) if rest else {}
        done = []
        try:
            for shard in shards:
                asked = self._wanted(shard, query)
                await self._each_page(shard.target, asked, part, self._enriching(shard), on_progress)
                if self._budget.over():
                    break
                done.append(shard)
        finally:
            self._spend()
            self._ledger.keep_words(self.key, self._page.watch.counts)
        self._budget.check()
        if whole:
            await self._advance([s for s in done if not s.unsettled], latest)
            place = await self.forget_deleted(unfinished=True)
            while place != ("", ""):
                place = await self.forget_deleted(place, unfinished=True)
        self._frequencies.forget()
        return await self._report()

    async def unanswered(
        self, *, query: Mapping[str, Any] | None = None, part: tuple[int, int] = (0, 1)
    ) -> AsyncGenerator[list[list[Prompt]], None]:
        """What a run would have to ask a model, page by page: for each document that it would work on, what no answer
        is stored of. Raises ClusterError.
        """
        for shard in await shards_of(self._cluster, self._target):
            async with aclosing(self._scanned(shard.target, self._wanted(shard, query), part)) as pages:
                async for hits in pages:
                    due = [h for h in hits if not self._is_done(h)]
                    asked = [prompts for h in due if (prompts := self._page.prompts(h.id, h.source))]
                    known = iter(await self._page.known([p for prompts in asked for p in prompts]))
                    yield [[p for p in prompts if next(known) is None] for prompts in asked]

    def book(self, budget: Budget, answer: Answer) -> None:
        """Write down an answer that was paid outside of a run, in the ledger and in a budget."""
        tokens, cost = answer.prompt_tokens + answer.completion_tokens, answer.cost or 0.0
        self._ledger.spend(self.key, calls=1, tokens=tokens, cost=cost, seconds=0.0)
        budget.calls, budget.tokens, budget.cost = budget.calls + 1, budget.tokens + tokens, budget.cost + cost

    async def rejudge(
        self,
        *,
        query: Mapping[str, Any] | None = None,
        part: tuple[int, int] = (0, 1),
        on_progress: OnProgress = lambda _: None,
    ) -> EnrichReport:
        """Judge every enriched document again from stored answers; only changed terms are written, no model is asked.

        Documents whose answer is not stored fail with reason "not stored" or "not recorded" and stay as they are.
        """
        asked = {
            "bool": {"filter": [HASHED, {"term": {"sira.recipe": self._page.recipe}}, *([query] if query else [])]}
        }
        self._begin(None, await self._count(asked, None))
        self._page.watch = Watch(self._ledger.words(self.key), allowed=self._page.allowed, counting=False)
        await self._each_page(self._target, asked, part, self._judge_again, on_progress)
        self._frequencies.forget()
        return await self._report()

    async def undo(self, *, query: Mapping[str, Any] | None = None, on_progress: OnProgress = lambda _: None) -> int:
        """Remove what was added. Every other key of `_source` stays; resumes where it was interrupted.

        Returns the number of documents it was removed from. Raises ClusterError where some could not be.
        """

        def on_page(hits: Sequence[Hit], removed: int) -> None:
            self._ledger.forget(self.key, [(h.index, h.id) for h in hits])
            on_progress(replace(begun, done=removed, seconds=time.monotonic() - started))

        await refresh(self._cluster, self._target.name)
        begun, started = Progress(total=await self._count(HASHED, query)), time.monotonic()
        removed = await take_out(self._cluster, self._target, query=query, on_page=on_page)
        await refresh(self._cluster, self._target.name)
        self._frequencies.forget()
        if query is None:
            self._ledger.forget_all(self.key)
        return removed

    async def forget_deleted(self, after: tuple[str, str] = ("", ""), *, unfinished: bool = False) -> tuple[str, str]:
        """Drop documents from the ledger that were deleted, some 500 a call; returns where the next call goes on.

        `unfinished`: look at those only that are not enriched.
        """
        most = min(500, self._target.most_hits)
        return await forget_deleted(self._cluster, self._ledger, self.key, after, most=most, unfinished=unfinished)

    async def is_idle(self, rest: float) -> bool:
        """Whether a run would find nothing to do, as far as three cheap requests tell; `rest` as in `run`."""
        told = await checkpoints(self._cluster, self._target)
        for index in self._target.indices:
            for number in index.reached:
                uuid, checkpoint = told.get((index.name, number), ("", None))
                if checkpoint is None or self._ledger.cursor(self.key, uuid, number, self._made_by) != checkpoint:
                    return False
        pending = await self._count(pending_query(self._with_text, self._page.recipe), None)
        left = len(self._ledger.failed_since(self.key, time.time() - rest))
        return pending == left + sum(self._ledger.totals(self.key).skipped.values())

    # What was done

    async def status(self) -> EnrichReport:
        """How much is enriched now, and what all runs spent.

        Documents made by another recipe are stale where the present one is known. Raises ClusterError.
        """
        total = self._ledger.totals(self.key)
        counts = await self._counts(total)
        return EnrichReport(
            **counts,
            changed=total.stale,
            failed=total.failed,
            noted=total.noted,
            held=Watch(self._ledger.words(self.key)).held,
            terms_per_document=total.terms / total.enriched if total.enriched else None,
            calls=total.calls,
            tokens=total.tokens,
            cost=total.cost,
            seconds=total.seconds,
        )

    def failures(self) -> list[tuple[str, str, str]]:
        """Index, id and reason of each document that failed last time."""
        return self._ledger.failures(self.key)

    def noted(self) -> list[tuple[str, str, str]]:
        """Index, id and note of documents that were skipped, read in part, or give orders to models."""
        return self._ledger.noted(self.key)

    # How

    @property
    def _page(self) -> PageEnricher:
        assert self._pages is not None  # noqa: S101  `run` and `rejudge` need it, and are given it
        return self._pages

    @property
    def _made_by(self) -> str:
        """What the cursors of a ledger depend on."""
        return f"{self._page.recipe} {' '.join(self._page.fields)}"

    def _begin(self, limits: Limits | Budget | None, total: int) -> None:
        self._budget = limits if isinstance(limits, Budget) else Budget(limits)
        self._budget.book = self._spend
        self._progress = Progress(total=total)
        self._spent = (self._budget.calls, self._budget.tokens, self._budget.cost, self._budget.seconds)

    def _scanned(
        self, target: Target, query: Mapping[str, Any], part: tuple[int, int]
    ) -> AsyncGenerator[list[Hit], None]:
        """The documents as a run reads them: what the model is shown, and what we wrote before."""
        source = self._target.source_of(self._page.fields)
        return scan(self._cluster, target, query=query, source=source, part=part, **self._scan)  # type: ignore[arg-type]

    async def _each_page(
        self,
        target: Target,
        query: Mapping[str, Any],
        part: tuple[int, int],
        handle: Callable[[Sequence[Hit]], Awaitable[None]],
        on_progress: OnProgress,
    ) -> None:
        def tell() -> None:
            self._look_at_budget()
            on_progress(self._progress)

        pages = self._scanned(target, query, part)
        await each_page(pages, handle, is_over=self._budget.over, on_progress=tell)

    def _enriching(self, shard: Shard) -> Callable[[Sequence[Hit]], Awaitable[None]]:
        async def handle(hits: Sequence[Hit]) -> None:
            stale = [h for h in hits if not self._is_done(h)]
            due = [h for h in stale if not self._rests(h)]
            shard.unsettled += sum("sira" in h.source for h in stale) - sum("sira" in h.source for h in due)
            if not due:
                return
            results = await self._page.enrich([(h.id, h.source) for h in due], self._budget)
            pairs = list(zip(due, results, strict=True))
            # One that has no text any more loses the terms of the old one.
            outcomes = await self._write(
                [(h, r) for h, r in pairs if r.fields is not None or (r.skipped and is_ours(h.source))]
            )
            told = [
                (h, self._entry(h, r, outcomes.get((h.index, h.id))))
                for h, r in pairs
                if not self._page.is_of_the_run(r)
            ]
            shard.updated += sum(o.status == "updated" for o in outcomes.values())
            # What has a hash is found again only by its number: this pass must not end behind it.
            shard.unsettled += sum(self._page.is_of_the_run(r) and "sira" in h.source for h, r in pairs)
            shard.unsettled += sum(e.outcome in {"failed", "stale"} and "sira" in h.source for h, e in told)
            self._account([e for _, e in told])
            skipped = [h for h, e in told if e.outcome == "skipped" and is_ours(h.source)]
            self._ledger.forget(self.key, [(h.index, h.id) for h in skipped if self._is_no_candidate(h)])
            if self._page.broken is not None:
                raise ModelError(
                    f"the model fails for every document, the run was stopped: {self._page.broken}",
                    reason=self._page.broken.reason,
                )

        return handle

    async def _judge_again(self, hits: Sequence[Hit]) -> None:
        due = [h for h in hits if self._is_current(h)]
        results = await self._page.enrich([(h.id, h.source) for h in due], self._budget)
        pairs = list(zip(due, results, strict=True))
        changed = [(h, as_found(r, h)) for h, r in pairs if r.fields is not None and not with_terms(h, r)]
        outcomes = await self._write(changed)
        # A document without a stored answer keeps its terms and its line in the ledger.
        entries = [self._entry(h, r, outcomes.get((h.index, h.id))) for h, r in pairs if r.fields is not None]
        refused = [e for e in entries if e.outcome == "failed"]  # the next run would not look at them: they are current
        self._account([e for e in entries if e.outcome != "failed"])
        missing = Counter(r.reason for r in results if r.fields is None) + Counter(e.reason for e in refused)
        self._progress = replace(self._progress, failed=dict(Counter(self._progress.failed) + missing))

    def _is_current(self, hit: Hit) -> bool:
        if not is_ours(hit.source):
            return False
        made = hit.source[SIRA]
        return bool(made["recipe"] == self._page.recipe and made["source_hash"] == self._page.hash_of(hit.source))

    def _is_done(self, hit: Hit) -> bool:
        """Current, and searchable: a document that was copied where our fields were not mapped is not."""
        return WRITTEN in hit.matched and self._is_current(hit)

    def _is_no_candidate(self, hit: Hit) -> bool:
        return bool(self._with_text) and not any(text_values(hit.source, self._page.fields).values())

    def _rests(self, hit: Hit) -> bool:
        failed = self._resting.get((hit.index, hit.id))
        return failed is not None and failed == self._page.hash_of(hit.source)

    async def _write(self, pairs: Sequence[tuple[Hit, Enriched]]) -> dict[tuple[str, str], Outcome]:
        return await write(
            self._cluster, pairs, source=self._target.source_of(self._page.fields), hash_of=self._page.hash_of
        )

    def _entry(self, hit: Hit, result: Enriched, outcome: Outcome | None) -> Entry:
        if result.fields is None and (outcome is None or outcome.status in {"updated", "noop"}):
            kind, reason = ("skipped" if result.skipped else "failed"), result.reason
        elif outcome is None or outcome.status in {"updated", "noop"}:
            kind, reason = "enriched", result.note
        elif outcome.status == "missing":
            kind, reason = "skipped", DELETED
        elif outcome.status == "conflict":
            kind, reason = "stale", outcome.status
        else:
            kind, reason = "failed", outcome.reason
        return Entry(
            hit.index, hit.id, kind, reason, result.source_hash, self._page.recipe, len(result.terms), result.rejected
        )

    def _account(self, entries: Sequence[Entry]) -> None:
        self._ledger.record(self.key, entries)
        self._spend()
        before = self._progress
        kinds = Counter(e.outcome for e in entries)

        def reasons(so_far: Mapping[str, int], kind: str) -> dict[str, int]:
            return dict(Counter(so_far) + Counter(e.reason for e in entries if e.outcome == kind))

        notes = Counter(e.reason.partition(":")[0] for e in entries if e.outcome == "enriched" and e.reason)
        self._progress = replace(
            before,
            done=before.done + len(entries),
            enriched=before.enriched + kinds["enriched"],
            stale=before.stale + kinds["stale"],
            failed=reasons(before.failed, "failed"),
            skipped=reasons(before.skipped, "skipped"),
            noted=dict(Counter(before.noted) + notes),
            held=self._page.watch.held,
            terms=before.terms + sum(e.terms for e in entries if e.outcome == "enriched"),
        )
        self._look_at_budget()

    def _look_at_budget(self) -> None:
        b = self._budget
        self._progress = replace(self._progress, calls=b.calls, tokens=b.tokens, cost=b.cost, seconds=b.seconds)

    def _spend(self) -> None:
        """Write down what was spent since the last time."""
        now = (self._budget.calls, self._budget.tokens, self._budget.cost, self._budget.seconds)
        calls, tokens, cost, seconds = (a - b for a, b in zip(now, self._spent, strict=True))
        self._ledger.spend(self.key, calls=int(calls), tokens=int(tokens), cost=cost, seconds=seconds)
        self._spent = now

    def _wanted(self, shard: Shard, query: Mapping[str, Any] | None) -> dict[str, Any]:
        cursor = self._ledger.cursor(self.key, self._place(shard), shard.number, self._made_by)
        return wanted(shard, cursor, self._with_text, self._page.recipe, query, updated_field=self._updated_field)

    def _place(self, shard: Shard) -> str:
        """Where a shard's cursor is kept: under its index, or, where it is a date, under the field that holds it."""
        return shard.uuid if shard.checkpoint is not None else f"{shard.index} {self._updated_field}"

    async def _latest(self, shards: Sequence[Shard]) -> int:
        """The latest date of a change, where changes are found by date; else -1."""
        if self._updated_field is None or all(s.checkpoint is not None for s in shards):
            return -1
        return await latest_update(self._cluster, self._target, self._updated_field)

    async def _advance(self, shards: Sequence[Shard], latest_date: int) -> None:
        """Note for the next pass how far every document of these shards is done."""
        now = await checkpoints(self._cluster, self._target)
        for shard in shards:
            if shard.checkpoint is None and latest_date >= 0:
                self._ledger.advance(self.key, self._place(shard), shard.number, self._made_by, latest_date)
            _, latest = now.get((shard.index, shard.number), ("", None))
            if shard.checkpoint is None or latest is None:
                continue
            ours_alone = latest - shard.checkpoint == shard.updated
            reached = latest if ours_alone else shard.checkpoint
            self._ledger.advance(self.key, shard.uuid, shard.number, self._made_by, reached)

    async def _count(self, asked: Mapping[str, Any], query: Mapping[str, Any] | None) -> int:
        body = {"query": {"bool": {"filter": [asked, *([query] if query else [])]}}}
        answer = await self._cluster.request("POST", f"/{segment(self._target.name)}/_count", body=body)
        with expected(f"a count of '{self._target.name}'"):
            return int(answer["count"])

    async def _counts(self, known: Totals) -> dict[str, Any]:
        """What the index holds, what was just written included: the fields of a report that add up to its documents.

        `known` tells of skipped documents. Raises ClusterError where a shard did not answer.
        """
        await refresh(self._cluster, self._target.name)
        self._frequencies.forget()
        coverage = await self._frequencies.coverage(self._target, self._fields)
        if coverage.documents is None or coverage.with_text is None or coverage.enriched is None:
            await self._cluster.request(
                "GET", f"/{segment(self._target.name)}/_count"
            )  # what refuses to count says why
            raise ClusterError(
                f"the documents of {self._target.name} could not be counted; check that all its shards are assigned"
            )
        other = await self._count(made_otherwise(self._pages.recipe), None) if self._pages else 0
        skipped = {reason: n for reason, n in known.skipped.items() if reason != DELETED}
        with_text = coverage.with_text if self._with_text else coverage.documents
        return {
            "documents": coverage.documents,
            "enriched": max(0, coverage.enriched - other),
            "stale": other + known.stale,
            "pending": max(0, with_text - coverage.enriched - sum(skipped.values())),
            "without_text": max(0, coverage.documents - with_text),
            "skipped": skipped,
        }

    async def _report(self) -> EnrichReport:
        counts = await self._counts(self._ledger.totals(self.key))
        self._look_at_budget()
        p = self._progress
        return EnrichReport(
            **counts,
            changed=p.stale,
            failed=p.failed,
            noted=p.noted,
            held=p.held,
            terms_per_document=p.terms / p.enriched if p.enriched else None,
            calls=p.calls,
            tokens=p.tokens,
            cost=p.cost,
            seconds=p.seconds,
            stopped=self._budget.hit,
            done=p.done,
        )
