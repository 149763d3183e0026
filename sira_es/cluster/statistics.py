"""Document frequencies of words and phrases on a live target: term vectors where they are right, counts everywhere else.

At most two requests for any list of texts, one where the number of documents is known, none for what was asked a moment ago.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from sira_es.cluster.target import ENRICHED, ConcreteIndex, Target
from sira_es.errors import ClusterError, ClusterUnreachable
from sira_es.vocabulary.model import Analysis, Statistics, Word

__all__ = ["Coverage", "DocumentFrequencies"]

_SEARCHES = 500  # in one _msearch
_FILTER = "responses.hits.total.value,responses._shards.failed,responses.timed_out,responses.error.type,responses.status"
_FULL = 0.98

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many documents a target has for a caller, how many with a text field, and how many enriched; None: unknown."""

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


@dataclass(frozen=True, slots=True)
class _Scope:
    """A target, its fields and whose eyes see it. `vectors`: term vectors are right here. `key` names all of it in caches."""

    target: Target
    fields: tuple[str, ...]
    main: str
    vectors: bool
    key: str

    @property
    def index(self) -> ConcreteIndex | None:
        """The index whose analyzers separate words: the first that has the main field."""
        return next((i for i in self.target.indices if i.field(self.main)), None)

    @property
    def enriched(self) -> bool:
        return any(i.has_enriched for i in self.target.indices)


class DocumentFrequencies:
    """Looks up how many documents have a word. `ttl` is in seconds, `size` the number of words and texts that are kept.

    All methods raise ClusterUnreachable; what the cluster refuses, or does not answer as it should, is unknown (None).
    """

    def __init__(self, cluster: Cluster, *, ttl: float = 60.0, size: int = 50_000) -> None:
        self._cluster = cluster
        self._texts: Cache[tuple[RawWord, ...]] = Cache(size, ttl)
        self._figures: Cache[Figures] = Cache(size, ttl)
        self._coverages: Cache[Coverage] = Cache(size, ttl)
        self._parents: Cache[frozenset[str]] = Cache(size, ttl)
        self._flight = SingleFlight()

    def as_caller(self, headers: Mapping[str, str]) -> DocumentFrequencies:
        """The same look-ups with somebody else's credentials. What is kept is shared, each identity's figures apart."""
        other = object.__new__(DocumentFrequencies)
        other.__dict__.update(self.__dict__, _cluster=self._cluster.as_caller(headers))
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

        `restricted`: these credentials may not see every document. `exact`: count each word. Otherwise term vectors tell the
        figures of a whole concrete index, and counts those of any other target.
        """
        scope = self._scope(target, fields, main_field, vectors=not exact and not restricted)
        sent = tuple(sendable(text) for text in texts)
        words, figures, coverage = await self._flight.run((scope.key, sent), lambda: self._look_up(scope, sent))

        def word(raw: RawWord) -> Word:
            known = scaled(figures.get(raw, Figures(None, None)), coverage.documents)
            return Word(raw.text, raw.tokens, known.df, known.enriched_df, known.exact)

        analyses = tuple(
            Analysis(text, tuple(word(raw) for raw in words[clean])) for text, clean in zip(texts, sent, strict=True)
        )
        return Statistics(coverage.documents, analyses, _source(scope, figures, any(words.values())))

    async def coverage(self, target: Target, fields: Sequence[str]) -> Coverage:
        """How much of the target is enriched, as these credentials see it."""
        scope = self._scope(target, fields, "", vectors=False)
        known = self._coverages.get(self._place(scope))
        if known:
            return known
        _, found = await self._flight.run((scope.key, "coverage"), lambda: self._count(scope, (), _UNKNOWN))
        return found

    async def close(self) -> None:
        """End the look-ups that are under way."""
        await self._flight.close()

    def _scope(self, target: Target, fields: Sequence[str], main: str, *, vectors: bool) -> _Scope:
        single = target.single
        whole = single is not None and len(single.routing) == single.shards
        vectors = vectors and whole and bool(single) and all(single.field(f) for f in (main, *fields))
        indices = [i.name for i in target.indices]
        key = repr((self._cluster.identity, target.name, target.kind, indices, list(fields), main, vectors))
        return _Scope(target, tuple(fields), main, vectors, key)

    def _place(self, scope: _Scope) -> tuple[str, ...]:
        return (self._cluster.identity, scope.target.name, *(i.name for i in scope.target.indices), *scope.fields)
