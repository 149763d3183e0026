"""What the facade stands on: one connection, the statistics of its indices, where answers come from, files of state."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from sira_es.cluster.answers import AnswersIndex
from sira_es.cluster.connect import Cluster, connect
from sira_es.cluster.engine import clause_limit
from sira_es.cluster.statistics import Coverage, DocumentFrequencies
from sira_es.cluster.target import Target, describe
from sira_es.cluster.transport import Transport
from sira_es.dsl.compile import Coverage as CoverageKind
from sira_es.dsl.compile import Shape
from sira_es.dsl.fields import Fields
from sira_es.enrich.batches import BatchedSource
from sira_es.enrich.ledger import Ledger
from sira_es.enrich.notes import Notes
from sira_es.errors import ConfigurationError, InputError
from sira_es.expand import (
    Expander,
    Guarded,
    TermStore,
)
from sira_es.llm.answer import is_usable
from sira_es.llm.model import Answer, AnswerSource, Model, Prompt
from sira_es.llm.recorded import RecordedAnswers
from sira_es.llm.store import AnswerStore, NoModel, StoredSource
from sira_es.settings import LlmStage, Settings, load_settings

__all__ = ["Foundation", "Sides", "closed", "coverage_kind", "require"]

Sides = Literal["both", "queries", "documents", "baseline"]
"""Which vocabulary a search uses: that of queries and documents, of one of them, or none (the plain query)."""

TARGET_SECONDS = 60.0
STORE = "answers.sqlite"
NOTES = "batches.sqlite"


class Foundation:
    """Settings, connection, statistics, sources of answers and files of state; each is made at its first use.

    `query_answers` and `document_answers` are files of recorded answers; given one, no model is called for its side.
    `ask_model=False`: nor is it for anything else; only stored answers count. `watch` wraps each model: what it is asked
    and says goes through there. `transport`: what requests to the cluster go through, in place of connections of its own.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        query_answers: Path | str | None = None,
        document_answers: Path | str | None = None,
        ask_model: bool = True,
        watch: Callable[[AnswerSource], AnswerSource] = lambda source: source,
        transport: Transport | None = None,
    ) -> None:
        self.settings = settings
        self._transport = transport
        self._watch = watch
        self._ask_model = ask_model
        self._recorded = {"queries": query_answers, "documents": document_answers}
        self._sources: dict[str, AnswerSource | None] = {}
        self._closed = False
        self._connecting = asyncio.Lock()
        self._cluster: Cluster | None = None
        self._frequencies: DocumentFrequencies | None = None
        self._expander: Expander | None = None
        self._store: AnswerStore | None = None
        self._terms = TermStore(settings.state / "terms.sqlite")
        self._signed_in = False
        self._ledger: Ledger | None = None
        self._notes: Notes | None = None
        self._clause_limit: int | None = None
        self._query_fields: dict[str, tuple[float, Fields]] = {}
        self._targets: dict[str, tuple[float, Target]] = {}

    @classmethod
    def from_config(cls, path: Path | str | None = None, **options: Any) -> Self:
        """Read `sira-es.yml`; `options` override its keys by dotted name. Raises ConfigurationError."""
        return cls(load_settings(path, **options))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Give back connections and files; whatever is called afterwards raises ConfigurationError."""
        self._closed = True
        async with AsyncExitStack() as parts:  # the last is closed first, and each whatever becomes of the others
            for file in (self._notes, self._ledger, self._terms, self._store):
                if file is not None:
                    parts.callback(file.close)
            for part in (self._cluster, *self._sources.values(), self._frequencies, self._expander):
                if part is not None:
                    parts.push_async_callback(part.close)

    def _require_open(self) -> None:
        if self._closed:
            raise closed()

    async def as_caller(self, headers: Mapping[str, str]) -> Self:
        """The same under somebody else's credentials, for look-ups only; closed with this one. Raises as Cluster's does."""
        self.answers("queries")  # made here, so that it is closed here
        other = copy.copy(self)
        other._cluster = (await self.cluster(headers)).as_caller(headers)
        other._frequencies = (await self.frequencies()).as_caller(headers)
        other._signed_in = bool(headers)
        other._expander, other._clause_limit, other._targets, other._query_fields = None, None, {}, {}
        return other

    async def cluster(self, caller: Mapping[str, str] | None = None) -> Cluster:
        """The connection, made at the first use; `caller` as in `connect`. Raises ClusterError."""
        self._require_open()
        async with self._connecting:
            if self._cluster is None:
                self._cluster = await connect(self.settings.cluster, caller=caller, transport=self._transport)
                self._frequencies = DocumentFrequencies(self._cluster)
            return self._cluster

    async def frequencies(self) -> DocumentFrequencies:
        """Document frequencies of the cluster."""
        await self.cluster()
        assert self._frequencies is not None  # noqa: S101  made together with the connection
        return self._frequencies

    async def target(self, index: str) -> Target:
        """What is known of an index and its text fields; looked at again after a minute. Raises ClusterError."""
        self._require_open()
        cached = self._targets.get(index)
        if cached is not None and time.monotonic() - cached[0] < TARGET_SECONDS:
            return cached[1]
        settings = self.settings.index(index)
        fields = [name for name, _ in settings.fields]
        target = await describe(await self.cluster(), index, fields, pattern=settings.pattern)
        self._targets[index] = (time.monotonic(), target)
        return target

    async def shape(self, index: str, sides: Sides = "both") -> Shape:
        """What clauses for this index must look like, from its mapping and from how much of it is enriched."""
        settings = self.settings.index(index)
        target = await self.target(index)
        coverage = None
        if sides in {"both", "documents"}:
            coverage = await (await self.frequencies()).coverage(target, [name for name, _ in settings.fields])
        return Shape(
            fields=settings.fields,
            coverage=coverage_kind(coverage),
            one_analyzer=target.one_analyzer,
            clause_limit=await self._limit(),
            enriched_weight=settings.search.enriched_weight,
        )

    async def _limit(self) -> int:
        if self._clause_limit is None:
            self._clause_limit = (await clause_limit(await self.cluster())).count
        return self._clause_limit

    def answers(self, side: Literal["queries", "documents"]) -> AnswerSource | None:
        """Where answers of one side come from: the recorded file, else store and model; None where neither is configured."""
        self._require_open()
        if side not in self._sources:
            self._sources[side] = self._make_source(side)
        return self._sources[side]

    def _make_source(self, side: Literal["queries", "documents"]) -> AnswerSource | None:
        recorded = self._recorded[side]
        if recorded is not None:
            return RecordedAnswers.from_file(recorded)
        stage: LlmStage = getattr(self.settings.llm, side)
        if stage.model is None:
            known = side == "queries" and (self.settings.state / STORE).exists()
            return self.stored(NoModel(RecordedAnswers.name)) if known else None
        if not self._ask_model:
            return self.stored(NoModel(stage.model))
        model = Model(stage)
        if side == "queries":
            return self.stored(self._watch(Guarded(model, usable=_usable)), max_cost_per_day=stage.max_cost_per_day)
        source = BatchedSource(stage, self.known_notes, model)
        return self.stored(self._watch(source), max_cost_per_day=stage.max_cost_per_day, left=source.left)

    def stored(self, source: AnswerSource, **options: Any) -> StoredSource:
        """A source with the store of the state folder in front; options as StoredSource has them."""
        return StoredSource(source, self.store(), usable=_usable, shared=self.shared(), **options)

    def shared(self) -> AnswersIndex | None:
        """The answers that are kept in the cluster, None where they are not."""
        return AnswersIndex(self.cluster) if self.settings.store == "index" else None

    def store(self) -> AnswerStore:
        """The answers of the state folder."""
        if self._store is None:
            self._store = AnswerStore(self.settings.state / STORE)
        return self._store

    @property
    def terms(self) -> TermStore:
        """What people said of the words of each index; read at run time."""
        return self._terms

    async def ready(self, index: str) -> None:
        """Do what the first search would otherwise wait for: connect, look at the index, load the model's library."""
        await self.shape(index)
        if self._recorded["queries"] is None and self._ask_model and self.settings.llm.queries.model:
            await Model(self.settings.llm.queries).prepare()

    def known_notes(self) -> Notes | None:
        """The notes of batches, None where there never was one."""
        return self.notes() if (self.settings.state / NOTES).exists() else None

    def notes(self) -> Notes:
        """The notes of batches of the state folder."""
        if self._notes is None:
            self._notes = Notes(self.settings.state / NOTES)
        return self._notes

    def ledger(self) -> Ledger:
        """The ledger of the state folder."""
        if self._ledger is None:
            self._ledger = Ledger(self.settings.state / "ledger.sqlite")
        return self._ledger


def closed() -> ConfigurationError:
    """What to raise for a call after `close`."""
    return ConfigurationError("this Sira is closed; make a new one")


def require(value: object, kind: type, what: str) -> None:
    """Raise InputError where a caller without a type checker hands in something else."""
    if not isinstance(value, kind):
        raise InputError(f"{what} must be a {kind.__name__}, not {type(value).__name__}; hand one in")


def _usable(prompt: Prompt, answer: Answer) -> bool:
    return is_usable(answer.text, prompt.kind)


def coverage_kind(coverage: Coverage | None) -> CoverageKind:
    """The shape that clauses have on a target with this coverage; unknown counts as none."""
    if coverage is None or not coverage.enriched:
        return "none"
    return "full" if coverage.fully_enriched else "partial"
