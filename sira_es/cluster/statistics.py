"""Document frequencies of words and phrases on a live target: by term vectors where they are right, else by counts.

At most two requests for the texts of a query, one where the number of documents is known, none for what was asked a
moment ago.
"""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sira_es.cluster.analysis import RawWord, plain_words, sendable
from sira_es.cluster.cache import Cache, SingleFlight
from sira_es.cluster.connect import Cluster, segment
from sira_es.cluster.figures import (
    Asked,
    Field,
    Figures,
    analysis_items,
    analysis_of,
    counts_in,
    coverage_queries,
    field_sums,
    figures_of,
    scaled,
    search_lines,
    statistics_items,
    told_by_vectors,
    word_query,
)
from sira_es.cluster.target import ENRICHED, FieldInfo, Target
from sira_es.errors import ClusterError, ClusterUnreachable
from sira_es.vocabulary.model import Analysis, Statistics, Word

__all__ = ["Coverage", "DocumentFrequencies"]

_SEARCHES = 500  # in one _msearch
_FILTER = (
    "responses.hits.total.value,responses._shards.failed,responses.timed_out,responses.error.type,responses.status"
)
_FULL = 0.98

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many documents a caller sees in a target, how many with a text field, how many enriched; None: unknown."""

    documents: int | None
    with_text: int | None
    enriched: int | None

    @property
    def fully_enriched(self) -> bool:
        """At least 98 % of the documents that have a text field are enriched."""
        if not self.enriched or self.with_text is None:
            return False
        return self.enriched >= _FULL * self.with_text


_UNKNOWN = Coverage(None, None, None)
_NO_FIGURES = Figures(None, None, exact=False)


@dataclass(frozen=True, slots=True)
class _Scope:
    """A target and its fields as an identity sees them (`place`), with how words are separated and looked up (`key`).

    `vectors`: term vectors are right here.
    """

    target: Target
    fields: tuple[str, ...]
    main: str
    vectors: bool
    place: str
    key: str

    @property
    def enriched(self) -> bool:
        return any(i.has_enriched for i in self.target.indices)


@dataclass(slots=True, eq=False)
class _Known:
    """A word of a scope with its latest figures, told at `at` (-inf: not at all, or not all of them)."""

    raw: RawWord
    at: float = -math.inf
    figures: Figures = _NO_FIGURES
    _word: Word | None = None
    _documents: int | None = None

    def tell(self, figures: Figures) -> None:
        self.figures, self._word = figures, None
        self.at = -math.inf if figures.df is None or figures.enriched_df is None else time.monotonic()

    def among(self, documents: int | None) -> Word:
        """The word with its figures among so many documents."""
        if self._word is None or self._documents != documents:
            df, enriched_df, exact, _ = scaled(self.figures, documents)
            self._word = Word(self.raw.text, self.raw.tokens, df, enriched_df, exact, self.raw.parts)
            self._documents = documents
        return self._word


@dataclass(slots=True)
class _Found:
    """What a look-up has found so far: the words of each text. Figures from before `since` are too old."""

    since: float
    words: dict[str, tuple[_Known, ...]] = field(default_factory=dict)
    coverage: Coverage = _UNKNOWN

    def missing(self) -> list[_Known]:
        """The words whose figures are to be asked for."""
        return list(dict.fromkeys([w for ws in self.words.values() for w in ws if w.at <= self.since]))

    def analysis(self, text: str, sent: str) -> Analysis:
        documents = self.coverage.documents
        return Analysis(text, tuple([w.among(documents) for w in self.words[sent]]))

    def source(self, scope: _Scope) -> str:
        figures = [w.figures for ws in self.words.values() for w in ws]
        if figures and all(f.df is None for f in figures):
            return "none"
        by_vectors = any(f.doc_count is not None for f in figures) if figures else scope.vectors
        return "term_vectors" if by_vectors else "counts"


class DocumentFrequencies:
    """Looks up how many documents have a word. `ttl` is in seconds, `size` the number of words and texts that are kept.

    All methods raise ClusterUnreachable; what the cluster refuses, or does not answer as it should, is unknown (None).
    """

    def __init__(self, cluster: Cluster, *, ttl: float = 60.0, size: int = 50_000) -> None:
        self._cluster = cluster
        self._ttl = ttl
        self._texts: Cache[tuple[_Known, ...]] = Cache(size, ttl)
        self._words: Cache[_Known] = Cache(size, ttl)
        self._coverages: Cache[Coverage] = Cache(size, ttl)
        self._parents: Cache[frozenset[str]] = Cache(size, float("inf"))  # a field does not become an object
        self._flight = SingleFlight()

    def as_caller(self, headers: Mapping[str, str]) -> DocumentFrequencies:
        """The same look-ups under somebody else's credentials. What is kept is shared, each identity's figures apart.

        Raises UnsupportedError as Cluster.as_caller does.
        """
        other = copy.copy(self)
        other._cluster = self._cluster.as_caller(headers)
        return other

    async def look_up(
        self,
        target: Target,
        texts: Sequence[str],
        *,
        fields: Sequence[str],
        main_field: str,
        exact: bool = False,
        restricted: bool = False,
    ) -> Statistics:
        """The words of each text, as the main field's search analyzer separates them, with their document frequencies.

        `restricted`: these credentials may not see every document. `exact`: count each word. Otherwise term vectors
        tell the figures of one whole concrete index, and counts those of any other target.
        """
        scope = self._scope(target, fields, main_field, vectors=not exact and not restricted)
        sent = tuple(sendable(text) for text in texts)
        found = await self._flight.run((scope.key, sent), lambda: self._look_up(scope, sent))
        analyses = tuple(found.analysis(text, clean) for text, clean in zip(texts, sent, strict=True))
        return Statistics(found.coverage.documents, analyses, found.source(scope))

    async def coverage(self, target: Target, fields: Sequence[str]) -> Coverage:
        """How much of the target is enriched, as these credentials see it."""
        scope = self._scope(target, fields, "", vectors=False)
        if known := self._coverages.get(scope.place):
            return known
        return await self._flight.run((scope.place, "coverage"), lambda: self._count(scope, (), None))

    def forget(self) -> None:
        """Ask again for everything: documents were written."""
        for cache in (self._texts, self._words, self._coverages):
            cache.clear()

    async def close(self) -> None:
        """End the look-ups that are under way."""
        await self._flight.close()

    def _scope(self, target: Target, fields: Sequence[str], main: str, *, vectors: bool) -> _Scope:
        one = target.single
        whole = one is not None and len(one.routing) == one.shards and all(one.field(f) for f in (main, *fields))
        names = [i.name for i in target.indices]
        place = repr((self._cluster.identity, target.name, target.kind, names, list(fields)))
        vectors = vectors and whole
        return _Scope(target, tuple(fields), main, vectors, place, repr((place, main, vectors)))

    async def _look_up(self, scope: _Scope, sent: Sequence[str]) -> _Found:
        found = _Found(time.monotonic() - self._ttl)
        known = self._texts.get_many([(scope.key, text) for text in sent])
        found.words = {text: words for (_, text), words in known.items()}
        found.words |= {text: () for text in sent if not text.strip()}
        unread = [t for t in dict.fromkeys(sent) if t not in found.words]
        missing = found.missing()
        if unread or missing:
            await self._read(scope, found, unread)
            for text in unread:
                if text not in found.words:
                    found.words[text] = self._known(scope, plain_words(text))
            missing = found.missing()
        coverage = self._coverages.get(scope.place)
        if missing or coverage is None:
            coverage = await self._count(scope, missing, coverage)
        found.coverage = coverage
        return found

    def _known(self, scope: _Scope, words: Iterable[RawWord]) -> tuple[_Known, ...]:
        """These words with what is known of them: one object a word, which all texts share."""
        result = []
        for raw in words:
            known = self._words.get((scope.key, raw))
            if known is None:
                known = _Known(raw)
                self._words.put((scope.key, raw), known)
            result.append(known)
        return tuple(result)

    async def _read(self, scope: _Scope, found: _Found, unread: Sequence[str]) -> None:
        """One request that separates the unread texts, with the figures of words where term vectors are right."""
        asked = await self._asked(scope)
        if asked is None:
            return
        missing = {w for w in found.missing() if told_by_vectors(asked, w.raw)}
        stale = [t for t, ws in found.words.items() if not missing.isdisjoint(ws)]
        asking = [*unread, *stale] if scope.vectors else []
        items = analysis_items(asked, unread) + (statistics_items(asked, asking) if asking else [])
        if not items:
            return
        answer = await self._ask("POST", f"/{segment(asked.index)}/_mtermvectors", body={"docs": items})
        docs = answer.get("docs") if isinstance(answer, Mapping) else None
        if not isinstance(docs, list) or len(docs) != len(items):
            return
        width = len(asked.analyzers)
        for i, text in enumerate(unread):
            words = analysis_of(asked, text, docs[i * width : (i + 1) * width])
            if words is not None:
                found.words[text] = self._known(scope, words)
                self._texts.put((scope.key, text), found.words[text])
        new = {w for t in asking for w in found.words.get(t, ())}
        sums = field_sums(asked, docs[width * len(unread) :], [w.raw for w in new])
        for word in new if sums else ():
            if figures := figures_of(asked, word.raw, sums or {}):
                word.tell(figures)

    async def _count(self, scope: _Scope, words: Sequence[_Known], coverage: Coverage | None) -> Coverage:
        """One request that counts the documents with each word, and with it the coverage where that is not known."""
        lists = [scope.fields, (ENRICHED,)] if scope.enriched else [scope.fields]
        queries = [] if coverage else coverage_queries(scope.fields)
        queries += [word_query(word.raw, fields) for word in words for fields in lists]
        counts: list[int | None] = []
        for start in range(0, len(queries), _SEARCHES):
            part = queries[start : start + _SEARCHES]
            path = f"/{segment(scope.target.name)}/_msearch"
            answer = await self._ask("POST", path, params={"filter_path": _FILTER}, lines=search_lines(part))
            counts += counts_in(answer, len(part))
        if coverage is None:
            coverage = Coverage(*counts[:3])
            del counts[:3]
            if None not in (coverage.documents, coverage.with_text, coverage.enriched):
                self._coverages.put(scope.place, coverage)
        for i, word in enumerate(words):
            df, enriched = counts[i * len(lists)], counts[i * len(lists) + 1] if scope.enriched else 0
            word.tell(Figures(df, enriched, exact=df is not None))
        return coverage

    async def _asked(self, scope: _Scope) -> Asked | None:
        """How the words of the scope are looked up in one index; None where no index has the main field as text."""
        index = next((i for i in scope.target.indices if i.field(scope.main)), None)
        main, *others = [index.field(f) for f in (scope.main, *scope.fields)] if index else [None]
        if index is None or main is None:
            return None
        looked_up = [f for f in others if f] if scope.vectors else []
        written = [f.name for f in (main, *looked_up)] if scope.vectors or not index.has_enriched else []
        leaves = await self._leaves(index.name, [n.rpartition(".")[0] for n in written if "." in n])

        def described(info: FieldInfo) -> Field:
            above = info.name.rpartition(".")[0]
            return Field(info.name, above if above in leaves else info.name, info.analyzer, info.search_analyzer)

        beside = index.has_enriched and ENRICHED not in scope.fields
        enriched = Field(ENRICHED, ENRICHED, main.analyzer, main.search_analyzer) if beside else None
        dated = scope.target.kind == "data_stream" or index.name.startswith(".ds-")
        fields = tuple(described(f) for f in looked_up)
        return Asked(index.name, index.routing or ("0",), described(main), fields, enriched, dated)

    async def _leaves(self, index: str, names: Sequence[str]) -> frozenset[str]:
        """Those of the names that are fields, not objects: a sub-field is written in the name of the field above it."""
        if not names:
            return frozenset()
        key = (index, *names)
        leaves = self._parents.get(key)
        if leaves is None:
            answer = await self._ask("GET", f"/{segment(index)}/_mapping/field/{','.join(map(segment, names))}")
            try:
                leaves = frozenset(answer[index]["mappings"])
            except (KeyError, TypeError):
                return frozenset()
            self._parents.put(key, leaves)
        return leaves

    async def _ask(self, method: str, path: str, **content: Any) -> Any:
        """The answer, or None where the cluster refuses: a search goes on without figures."""
        try:
            return await self._cluster.request(method, path, **content)
        except ClusterUnreachable:
            raise
        except ClusterError as error:
            log.warning("no document frequencies: %s", error)
            return None
