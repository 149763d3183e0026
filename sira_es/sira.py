"""The facade: everything that the command line, the proxy and a program do goes through `AsyncSira` or its blocking twin."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from sira_es.cluster.checks import Check, check_cluster, check_index, problem_of
from sira_es.cluster.connect import expected, segment
from sira_es.cluster.look import look_at
from sira_es.cluster.schema import create_index, install_template, made_by
from sira_es.cluster.target import ENRICHED, Target
from sira_es.cluster.write import index_documents, merge
from sira_es.doctor import check_model
from sira_es.documents import Documents
from sira_es.dsl.compile import Mode, compile_search, fill, original_query
from sira_es.dsl.fields import Fields, fields_of
from sira_es.dsl.locate import Passed, locate
from sira_es.dsl.rewrite import encoded, rewrite_dict
from sira_es.errors import ClusterError, ConfigurationError, InputError, SiraError
from sira_es.expand import (
    Contribution,
    Expanded,
    Expander,
    Warmed,
    WhyNot,
    contributions,
    warm,
    why_not,
)
from sira_es.foundation import TARGET_SECONDS, Sides, closed, require
from sira_es.llm.answer import collection_description
from sira_es.llm.model import Model
from sira_es.llm.prompts import collection_prompt
from sira_es.llm.recorded import RecordedAnswers
from sira_es.settings import Settings, load_settings

__all__ = ["AsyncSira", "Hit", "SearchResult", "Sides", "Sira"]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Hit:
    """One hit of a search."""

    id: str
    index: str
    score: float | None
    source: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Hits in order, the number of documents that match, the expansion and the request that was sent."""

    hits: tuple[Hit, ...]
    total: int
    took: int
    expansion: Expanded | None
    request: Mapping[str, Any]


class AsyncSira(Documents):
    """Better search on an existing cluster. Use as an async context manager, or call `close`.

    Takes the settings, and files of recorded answers (`query_answers`, `document_answers`) where no model is to be called.

    Every method raises ConfigurationError for an index that is not configured and after `close`, InputError for what
    cannot be used, UnsupportedError for what engine or index cannot do, and ClusterError. Where one raises ModelError it
    says so; elsewhere the result tells what a model did wrong.
    """

    # Queries

    async def expand(
        self, text: str, index: str, *, query_id: str = "", exact: bool = False, deadline: float | None = None
    ) -> Expanded:
        """Every word that the model proposes for a query, with its statistics, verdict and boost.

        `query_id` finds its recorded answer. `exact` counts instead of reading term vectors. `deadline`: how many seconds
        this may take, None as configured (`llm.queries.deadline`), `math.inf` waits, 0 takes what the store knows. A late
        answer fills the store.
        """
        require(text, str, "text")
        wait = self._wait(deadline)
        settings, target = self.settings.index(index), await self.target(index)
        found = await (await self._queries()).expand(
            text,
            target,
            settings,
            query_id=query_id,
            exact=exact,
            restricted=self._restricted,
            deadline=None if wait == math.inf else wait,
            human=self._terms.human(index),
        )
        if wait == math.inf and found.skipped is None and found.expansion.documents is None:
            await (await self.cluster()).request("GET", f"/{segment(index)}/_count")  # what refuses to count says why
        return found

    async def expand_all(
        self, texts: Sequence[str], index: str, *, target: Target | None = None, deadline: float | None = None
    ) -> list[Expanded]:
        """Several queries with one look-up of all their words, otherwise as `expand`; `target`: where it is known."""
        wait = self._wait(deadline)
        return await (await self._queries()).expand_all(
            [("", text) for text in texts],
            target or await self.target(index),
            self.settings.index(index),
            restricted=self._restricted,
            deadline=None if wait == math.inf else wait,
            human=self._terms.human(index),
        )

    def _wait(self, deadline: float | None) -> float:
        if deadline is None:
            return self.settings.llm.queries.deadline
        if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not deadline >= 0:
            raise InputError(f"deadline {deadline!r} is not a number of seconds of at least 0")
        return deadline

    async def _queries(self) -> Expander:
        if self._expander is None:
            self._expander = Expander(await self.frequencies(), self.answers("queries"))
        return self._expander

    @property
    def _restricted(self) -> bool:
        """Whether the credentials may not see every document: as configured, else those of a caller who signed in."""
        configured = self.settings.cluster.document_security
        return self._signed_in if configured is None else configured

    async def warm(
        self,
        index: str,
        texts: Sequence[str],
        *,
        concurrency: int | None = None,
        max_cost: float | None = None,
        on_progress: Callable[[Warmed], None] = lambda _: None,
    ) -> Warmed:
        """Have the answers to these queries in the store, so that serving them calls no model.

        At most `concurrency` calls at a time (None: as configured); none once `max_cost` US dollars are spent. Recorded
        answers are stored as those of the configured model. Raises ConfigurationError where there is neither.
        """
        settings = self.settings.index(index)
        source, stage = self.answers("queries"), self.settings.llm.queries
        if isinstance(source, RecordedAnswers):
            source.name = stage.model or source.name
            source = self.stored(source)
        elif stage.model is None:
            raise ConfigurationError("no model for queries; set llm.queries.model, or use --recorded FILE")
        expander = Expander(await self.frequencies(), source)
        target = await self.target(index)
        return await warm(
            lambda text: expander.fetch(text, target, settings),
            texts,
            concurrency=concurrency or stage.concurrency,
            max_cost=max_cost,
            on_progress=on_progress,
        )

    async def compile(
        self,
        text: str,
        index: str,
        *,
        mode: Mode | None = None,
        sides: Sides = "both",
        query_id: str = "",
        body: Mapping[str, Any] | None = None,
        deadline: float | None = None,
    ) -> tuple[dict[str, Any], Expanded | None]:
        """The one request for a text, as the body of a `_search`, and the expansion in it.

        `mode` None: as configured. `body` is the caller's own search around the text; else the configured baseline, else
        the plain query. `query_id` and `deadline` as in `expand`.
        """
        require(text, str, "text")
        settings = self.settings.index(index)
        shape = await self.shape(index, sides)
        if body is None and settings.search.baseline is not None:
            body = fill(settings.search.baseline, text)
        if sides == "baseline":
            return dict(body) if body is not None else {"query": original_query(text, shape)}, None
        expanded = await self.expand(text, index, query_id=query_id, deadline=deadline)
        expansion = expanded.expansion if sides != "documents" else expanded.expansion.limited_to(0, 0)
        if expanded.bare:
            shape = replace(shape, coverage="none")
        return compile_search(text, expansion, shape, mode=mode or settings.search.mode, body=body), expanded

    async def search(
        self,
        text: str,
        index: str,
        *,
        mode: Mode | None = None,
        size: int = 10,
        sides: Sides = "both",
        query_id: str = "",
        source: bool | Sequence[str] = True,
        body: Mapping[str, Any] | None = None,
        deadline: float | None = None,
    ) -> SearchResult:
        """Search with one request: `size` hits, with the whole `_source`, none of it (False) or some fields of it.

        `sides="baseline"` sends the plain query; all else as in `compile`.
        """
        request, expanded = await self.compile(
            text, index, mode=mode, sides=sides, query_id=query_id, body=body, deadline=deadline
        )
        request = {**request, "size": size, "_source": source if isinstance(source, bool) else list(source)}
        answer = await (await self.cluster()).request(
            "POST", f"/{segment(index)}/_search", params=self._same_copies(text), body=request
        )
        return _result(answer, expanded, request)

    def _same_copies(self, text: str) -> dict[str, str]:
        """Ask the same copies of the shards for the same text: copies differ in their deleted documents, and so in scores."""
        if self.settings.cluster.aws and self.settings.cluster.aws.service == "aoss":
            return {}
        return {"preference": f"sira-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"}

    async def query_fields(self, index: str) -> Fields:
        """What queries can name in an index: text only where it is text in all indices that the name stands for."""
        self._require_open()
        cached = self._query_fields.get(index)
        if cached is not None and time.monotonic() - cached[0] < TARGET_SECONDS:
            return cached[1]
        found = list((await (await self.cluster()).request("GET", f"/{segment(index)}")).values())
        if not found:
            raise InputError(f"no index matches '{index}'; create one, or correct the name")
        with expected(f"the mapping of '{index}'"):
            each = [fields_of(i["mappings"], i.get("settings")) for i in found]
        fields = functools.reduce(Fields.common, each)
        self._query_fields[index] = (time.monotonic(), fields)
        return fields

    async def rewrite(self, body: Mapping[str, Any], index: str, *, mode: Mode = "rerank") -> dict[str, Any]:
        """Somebody else's search body with better text clauses; as it was where nothing in it may be expanded."""
        require(body, Mapping, "body")
        located = locate(encoded(body), await self.query_fields(index), mode=mode)
        if isinstance(located, Passed):
            return dict(body)
        expanded = {text: await self.expand(text, index) for text in located.texts}
        expansions = {text: found.expansion for text, found in expanded.items() if not found.bare}
        return rewrite_dict(body, located, expansions, await self.shape(index))

    async def contributions(self, index: str, result: SearchResult) -> dict[tuple[str, str], list[Contribution]]:
        """What each clause added to the score of each hit, by (index, id). Raises ClusterError."""
        hits = [(h.index, h.id) for h in result.hits]
        return await contributions(await self.cluster(), index, result.request, hits)

    async def why_not(self, index: str, result: SearchResult, doc_id: str) -> WhyNot:
        """What kept a document out of the hits of a search, or at its place in them. Raises ClusterError."""
        last = result.hits[-1].score if result.hits else None
        return await why_not(await self.cluster(), index, result.request, doc_id, last)

    # Indices

    async def load(
        self,
        index: str,
        documents: Iterable[tuple[str, Mapping[str, Any]]],
        *,
        analyzer: str = "english",
        shards: int = 1,
        made_by: str = "sira-es index",
    ) -> tuple[int, dict[str, int]]:
        """Load documents, as (id, source), into a new index; returns how many, and how many were refused by reason.

        `title` and `text` are analysed by `analyzer`; `shards` are primary ones; `made_by` is noted in the mapping. Raises
        InputError where the index exists.
        """
        cluster = await self.cluster()
        await create_index(cluster, index, analyzer=analyzer, shards=shards, made_by=made_by)
        loaded = await index_documents(cluster, index, documents)
        return loaded.documents, dict(Counter(outcome.reason for outcome in loaded.failed))

    async def merge(self, index: str) -> None:
        """Merge an index to one segment without deleted documents, before figures are made on it."""
        await merge(await self.cluster(), index)

    async def install_template(self, index: str) -> str:
        """Keep our two fields as a component template for the index templates of `index`; returns its name."""
        target = await self.target(index)
        return await install_template(await self.cluster(), target, self.settings.index(index).main)

    async def made_by(self, index: str) -> str | None:
        """What made an index, as its mapping notes: empty where it does not say, None where there is no such index."""
        return await made_by(await self.cluster(), index)

    async def look_at(self, index: str, *, describe: bool = False) -> dict[str, Any]:
        """What `init` writes down: text fields, analyzers, language, and a description of the collection.

        `describe` has the configured model draft the description. Raises ModelError.
        """
        cluster = await self.cluster()
        look = await look_at(cluster, index)
        description = ""
        if describe:
            stage = self.settings.llm.documents if self.settings.llm.documents.model else self.settings.llm.queries
            model = Model(stage)
            try:
                description = collection_description((await model.ask(collection_prompt(look.sample))).text)
            finally:
                await model.close()
        return {
            "url": self.settings.cluster.url[0],
            "index": index,
            "text_fields": [ENRICHED] if look.nested else [f.name for f in look.fields],
            "read_fields": [f.name for f in look.fields] if look.nested else [],
            "analyzers": {f.name: f.search_analyzer for f in look.fields},
            "left_out": list(look.left_out),
            "language": look.language,
            "description": description,
        }

    async def doctor(self, index: str | None = None, *, live: bool = False) -> list[Check]:
        """Each thing that must hold, with its remedy; problems are in the list, not raised."""
        self._require_open()
        checks: list[Check] = []
        try:
            cluster = await self.cluster()
            checks += await check_cluster(cluster)
            if index is not None and index in self.settings.indices:
                own = self.settings.index(index)
                fields = self._text_fields(index)
                checks += await check_index(cluster, index, fields, read=own.read, pattern=own.pattern)
        except SiraError as error:
            checks.append(problem_of("cluster", error, "correct cluster.url or the credentials"))
        try:
            if index is not None:
                self.settings.index(index)
        except ConfigurationError as error:
            checks.append(problem_of("index", error, "correct --index"))
        for side in ("documents", "queries"):
            checks += await check_model(side, getattr(self.settings.llm, side), live)
        return checks


def _result(answer: Any, expanded: Expanded | None, request: Mapping[str, Any]) -> SearchResult:
    try:
        found = answer["hits"]
        total = found.get("total") or 0
        hits = tuple(
            Hit(str(h["_id"]), str(h["_index"]), h.get("_score"), h.get("_source") or {}) for h in found["hits"]
        )
        count = int(total["value"] if isinstance(total, Mapping) else total)
        return SearchResult(hits, count, int(answer.get("took", 0)), expanded, request)
    except (KeyError, TypeError, ValueError) as error:
        raise ClusterError(
            f"the cluster's answer to a search is not a search answer ({error}); is this URL the cluster?"
        ) from None


def _blocking(
    method: Callable[Concatenate[AsyncSira, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Sira, P], R]:
    @functools.wraps(method)
    def call(self: Sira, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.run(method(self.asynchronous, *args, **kwargs))

    return call


class Sira:
    """The blocking twin of AsyncSira: its methods below, run on an event loop in a background thread; `asynchronous` has all."""

    def __init__(self, settings: Settings, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sira-es", daemon=True)
        self._thread.start()
        self.asynchronous = AsyncSira(settings, **options)

    @classmethod
    def from_config(cls, path: Path | str | None = None, **options: Any) -> Self:
        """Read `sira-es.yml`; `options` override its keys by dotted name. Raises ConfigurationError."""
        return cls(load_settings(path, **options))

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Wait for a coroutine on the background loop; Ctrl-C cancels it. Raises ConfigurationError after `close`."""
        if self._loop.is_closed():
            coroutine.close()
            raise closed()
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()  # nothing where it has ended

    def close(self) -> None:
        """Give back connections, files and the thread; what is still under way is cancelled."""
        if not self._loop.is_closed():
            self.run(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            if not task.cancelling():  # else it is cleaning up
                task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.asynchronous.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    search = _blocking(AsyncSira.search)
    expand = _blocking(AsyncSira.expand)
    compile = _blocking(AsyncSira.compile)
    rewrite = _blocking(AsyncSira.rewrite)
    contributions = _blocking(AsyncSira.contributions)
    why_not = _blocking(AsyncSira.why_not)
    warm = _blocking(AsyncSira.warm)
    ready = _blocking(AsyncSira.ready)
    enrich = _blocking(AsyncSira.enrich)
    enrich_documents = _blocking(AsyncSira.enrich_documents)
    plan = _blocking(AsyncSira.plan)
    status = _blocking(AsyncSira.status)
    failures = _blocking(AsyncSira.failures)
    install_pipeline = _blocking(AsyncSira.install_pipeline)
    remove_pipeline = _blocking(AsyncSira.remove_pipeline)
    noted = _blocking(AsyncSira.noted)
    rejudge = _blocking(AsyncSira.rejudge)
    follow = _blocking(AsyncSira.follow)
    undo = _blocking(AsyncSira.undo)
    load = _blocking(AsyncSira.load)
    install_template = _blocking(AsyncSira.install_template)
    look_at = _blocking(AsyncSira.look_at)
    doctor = _blocking(AsyncSira.doctor)
