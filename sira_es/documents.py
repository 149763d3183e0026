"""What the facade does with documents: enriches, follows, plans, judges again, undoes, and tells how far it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sira_es.cluster.checks import preflight
from sira_es.cluster.pipelines import install_pipeline, remove_pipeline
from sira_es.cluster.schema import ensure_fields
from sira_es.cluster.target import ENRICHED, SIRA
from sira_es.enrich.batches import BatchedSource, Batching, owner_of
from sira_es.enrich.follow import RETRY_SECONDS, follow
from sira_es.enrich.impact import Impact, index_bytes, search_times
from sira_es.enrich.job import Enrichment
from sira_es.enrich.own import is_ours
from sira_es.enrich.page import PageEnricher
from sira_es.enrich.plan import plan
from sira_es.enrich.report import Budget, EnrichReport, Limits, Progress
from sira_es.errors import ClusterError, ConfigurationError, SiraError
from sira_es.foundation import Foundation, require
from sira_es.llm.batch import BatchModel
from sira_es.llm.model import AnswerSource
from sira_es.llm.store import NoModel, StoredSource, midnight

__all__ = ["Documents"]


class Documents(Foundation):
    """The part of the facade that writes into documents; each method names the index."""

    async def _page(
        self, index: str, *, concurrency: int | None = None, source: AnswerSource | None = None
    ) -> PageEnricher:
        settings = self.settings.index(index)
        source = source or self.answers("documents")
        if source is None:
            raise ConfigurationError("no model for documents; set llm.documents.model, or use --recorded FILE")
        return PageEnricher(
            await self.frequencies(),
            source,
            await self.target(index),
            settings,
            concurrency=concurrency or self.settings.llm.documents.concurrency,
            human=self._terms.human(index),
        )

    def _text_fields(self, index: str) -> list[str]:
        return [name for name, _ in self.settings.index(index).fields]

    async def _preflight(self, index: str) -> None:
        settings = self.settings.index(index)
        fields = self._text_fields(index)
        await preflight(await self.cluster(), index, fields, read=settings.read, pattern=settings.pattern)

    async def _job(self, index: str, page: PageEnricher | None) -> Enrichment:
        settings = self.settings.index(index)
        return Enrichment(
            await self.cluster(),
            await self.frequencies(),
            await self.target(index),
            page,
            self.ledger(),
            text_fields=self._text_fields(index),
            read_fields=settings.read_fields,
            updated_field=settings.updated_field,
        )

    async def prepare(self, index: str) -> None:
        """Add our two fields to the mapping of an index; nothing happens where they are there."""
        target = await self.target(index)
        if target.has_enriched and all(i.has_sira for i in target.indices):
            return
        await ensure_fields(await self.cluster(), target, self.settings.index(index).main)
        self._targets.pop(index, None)

    async def enrich(
        self,
        index: str,
        *,
        limits: Limits | None = None,
        query: Mapping[str, Any] | None = None,
        part: tuple[int, int] = (0, 1),
        concurrency: int | None = None,
        batch: bool = False,
        on_progress: Callable[[Progress], None] = lambda _: None,
        on_notice: Callable[[str], None] = lambda _: None,
    ) -> EnrichReport:
        """Add `enriched_terms` to every pending or stale document. Adds the two fields to the mapping where they lack.

        `query` restricts it to documents that match, `part` (i, n) to the i-th, from 0, of n disjoint parts. `concurrency`:
        calls to the model at a time, None as configured. `batch`: have the answers made in batches, within a
        day; `on_notice` is told how far they are, and a run that was interrupted is gone on with by the next. Raises
        ConfigurationError, ClusterError, ModelError; what fails for single documents is in the report.
        """
        stage = self.settings.llm.documents
        if batch and (stage.model is None or self._recorded["documents"]):
            raise ConfigurationError(
                "only a model is asked in batches; set llm.documents.model, without recorded answers"
            )
        batched = BatchedSource(stage, self.notes)
        source = self.stored(batched, left=batched.left) if batch else None
        page = await self._page(index, concurrency=concurrency, source=source)
        await self._preflight(index)
        await self.prepare(index)
        job = await self._job(index, page)
        before = await index_bytes(await self.cluster(), await self.target(index))
        if batch:
            batching = Batching(
                job,
                BatchModel(stage),
                self.store(),
                self.notes(),
                owner_of(stage),
                limits or Limits(),
                self._most_cost(limits.cost if limits else None),
                on_notice,
                shared=self.shared(),
            )
            report = await batching.run(query=query, part=part, on_progress=on_progress)
        else:
            self._tell_of_batches(on_notice)
            report = await job.run(limits, query=query, part=part, on_progress=on_progress)
        return replace(report, impact=await self._impact(index, before))

    async def _impact(self, index: str, before: int | None) -> Impact:
        cluster, target = await self.cluster(), await self.target(index)
        fields = [name for name in self._text_fields(index) if name != ENRICHED]
        plain, enriched = await search_times(cluster, target, fields) if fields else (None, None)
        return Impact(await index_bytes(cluster, target), before, plain, enriched)

    def _most_cost(self, limit: float | None) -> float | None:
        """The limit of a run, or what is left of the day's where that is less."""
        stage = self.settings.llm.documents
        if stage.max_cost_per_day is None:
            return limit
        left = stage.max_cost_per_day - self.store().spent_since(midnight(), stage.model or "")
        return left if limit is None else min(left, limit)

    def _tell_of_batches(self, on_notice: Callable[[str], None]) -> None:
        notes = self.known_notes()
        if notes is not None and (out := notes.open(owner_of(self.settings.llm.documents))):
            questions = sum(noted.questions for noted in out)
            on_notice(
                f"batches with {questions} questions are out; their documents are left to 'sira-es enrich --batch', "
                "which collects the answers"
            )

    async def follow(
        self,
        index: str,
        *,
        limits: Limits | None = None,
        query: Mapping[str, Any] | None = None,
        concurrency: int | None = None,
        pause: float = 5.0,
        on_progress: Callable[[Progress], None] = lambda _: None,
        on_trouble: Callable[[SiraError], None] = lambda _: None,
        on_notice: Callable[[str], None] = lambda _: None,
    ) -> EnrichReport:
        """Enrich, and go on with what is new or changed, looking every `pause` seconds; until cancelled, or at a limit.

        A document that failed is tried again after ten minutes. What passes by itself, such as a restart of the
        cluster, is told to `on_trouble`; `on_notice` hears of batches that are out. Raises as `enrich` does.
        """
        budget = Budget(limits)
        place = ("", "")
        told = False

        async def one_pass() -> EnrichReport | None:
            nonlocal place, told
            self._targets.pop(index, None)
            try:
                await self.prepare(index)
            except ConfigurationError as error:  # it had its fields before: it is being made anew
                raise ClusterError(str(error)) from None
            job = await self._job(index, await self._page(index, concurrency=concurrency))
            if not told:
                self._tell_of_batches(on_notice)
                told = True
            place = await job.forget_deleted(place)
            if query is None and not budget.over() and await job.is_idle(RETRY_SECONDS):
                return None
            return await job.run(budget, query=query, rest=RETRY_SECONDS, on_progress=on_progress)

        self._targets.pop(index, None)
        await self._preflight(index)
        return await follow(one_pass, pause=pause, on_trouble=on_trouble, seconds_left=budget.seconds_left)

    async def rejudge(
        self,
        index: str,
        *,
        query: Mapping[str, Any] | None = None,
        part: tuple[int, int] = (0, 1),
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> EnrichReport:
        """Judge every enriched document again from its stored or recorded answer, after `max_df` or terms were changed.

        No model is called. Documents whose answer is not stored stay as they are, and are counted as failed.
        """
        source = self.answers("documents")
        if isinstance(source, StoredSource):
            source = self.stored(NoModel(source.name))
        page = await self._page(index, source=source)
        await self._preflight(index)
        return await (await self._job(index, page)).rejudge(query=query, part=part, on_progress=on_progress)

    async def plan(
        self,
        index: str,
        *,
        query: Mapping[str, Any] | None = None,
        concurrency: int | None = None,
        batch: bool = False,
    ) -> dict[str, Any]:
        """What `enrich` would take: documents, calls, tokens, cost (US dollars), seconds. Calls no model, writes nothing."""
        settings, stage = self.settings.index(index), self.settings.llm.documents
        await self._preflight(index)
        return await plan(
            await self.cluster(),
            await self.frequencies(),
            await self.target(index),
            await self._page(index),
            stage,
            text_fields=self._text_fields(index),
            query=query,
            concurrency=concurrency or stage.concurrency,
            questions=settings.questions,
            batch=batch,
        )

    async def undo(
        self,
        index: str,
        *,
        query: Mapping[str, Any] | None = None,
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> int:
        """Remove what `enrich` added, from all documents or those that match; returns from how many."""
        return await (await self._job(index, None)).undo(query=query, on_progress=on_progress)

    async def status(self, index: str) -> EnrichReport:
        """How much of an index is enriched, and what all runs on it spent."""
        page = await self._page(index) if self.answers("documents") else None
        report = await (await self._job(index, page)).status()
        return replace(report, impact=Impact(await index_bytes(await self.cluster(), await self.target(index))))

    async def failures(self, index: str) -> list[tuple[str, str, str]]:
        """Index, id and reason of each document that failed last time."""
        return (await self._job(index, None)).failures()

    async def noted(self, index: str) -> list[tuple[str, str, str]]:
        """Index, id and note of documents that were skipped, read in part, or give orders to models."""
        return (await self._job(index, None)).noted()

    async def install_pipeline(self, index: str) -> dict[str, str]:
        """Have the cluster drop terms from documents whose text changes; the final pipeline of each concrete index.

        Raises ClusterRefused, UnsupportedError where the cluster runs no scripts.
        """
        fields = self.settings.index(index).read
        return await install_pipeline(await self.cluster(), await self.target(index), fields)

    async def remove_pipeline(self, index: str) -> dict[str, str]:
        """Undo `install_pipeline`: every index has the final pipeline that it had before."""
        target = await self.target(index)
        return await remove_pipeline(await self.cluster(), target)

    async def enrich_documents(
        self, documents: Sequence[Mapping[str, Any]], index: str, *, id_field: str = "_id"
    ) -> list[dict[str, Any]]:
        """The ingest step for a loader of your own: the same documents with our two fields, ready for bulk.

        `id_field`, else `id`, holds the id of each, by which recorded answers are found. Adds the two fields to the mapping.
        A document for which the model failed comes back unchanged, to be picked up by the next `enrich`; so does one that has a
        field of its own named `sira` or `enriched_terms`. One whose text is gone comes back without ours.
        Raises InputError, before anything is asked, where one is no mapping.
        """
        for document in documents:
            require(document, Mapping, "each of the documents")
        await self.prepare(index)
        page = await self._page(index)
        given = [(str(d.get(id_field, d.get("id", ""))), d) for d in documents]
        results = await page.enrich(given)
        return [
            {k: v for k, v in d.items() if k not in {ENRICHED, SIRA}}
            if r.skipped and is_ours(d)
            else {**d, **(r.fields or {})}
            for (_, d), r in zip(given, results, strict=True)
        ]
