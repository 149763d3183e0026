"""Requests for document frequencies, and what their answers say: pure functions.

Term vectors of an artificial document tell what one shard knows of each of its tokens, deleted documents included.
Counts are searches of size 0: exact, and as the caller sees the documents.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from sira_es.cluster.analysis import RawWord, split, tokens_of
from sira_es.cluster.target import ENRICHED

__all__ = [
    "Asked",
    "Field",
    "Figures",
    "analysis_items",
    "analysis_of",
    "counts_in",
    "coverage_queries",
    "field_sums",
    "figures_of",
    "scaled",
    "search_lines",
    "statistics_items",
    "told_by_vectors",
    "word_query",
]

# What reading an answer of another form raises. Such an answer tells nothing, as an error tells nothing.
_UNEXPECTED = (AttributeError, KeyError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Field:
    """A text field. `parent` is what holds its value in a document: itself, or the field that it is a sub-field of."""

    name: str
    parent: str
    analyzer: str
    search_analyzer: str


@dataclass(frozen=True)
class Asked:
    """What is asked about: fields of a concrete `index`, and `routing` values, one for each of its shards.

    `main` separates words; `fields` are those df is about; `enriched` is None where the index does not map it; `dated`
    marks a part of a data stream, where a document must have a time.
    """

    index: str
    routing: tuple[str, ...]
    main: Field
    fields: tuple[Field, ...]
    enriched: Field | None
    dated: bool = False

    @cached_property
    def all_fields(self) -> tuple[Field, ...]:
        return (*self.fields, *([self.enriched] if self.enriched else []))

    @cached_property
    def carrier(self) -> Field:
        """The field in whose name texts are analysed: one that no object and no other field holds, if there is one."""
        return next((f for f in (self.main, *self.all_fields) if "." not in f.name), self.main)

    @cached_property
    def analyzers(self) -> tuple[str, ...]:
        """The search analyzers, that of the main field first, each once."""
        return tuple(dict.fromkeys([self.main.search_analyzer, *(f.search_analyzer for f in self.all_fields)]))


class Figures(NamedTuple):
    """What is known of a word: numbers of documents with it in a text field and in enriched_terms, None: not known.

    `doc_count` is the largest number of documents that any text field has, deleted ones included; None for counts,
    which include none. `exact` is False where df is the largest of several fields' figures and may be more.
    """

    df: int | None
    enriched_df: int | None
    exact: bool = True
    doc_count: int | None = None


@dataclass(frozen=True, slots=True)
class FieldSum:
    """One field over all shards: documents that have it, and documents with each token; deleted ones included."""

    doc_count: int
    tokens: Mapping[str, int]


def analysis_items(asked: Asked, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Items of a `_mtermvectors` that separate each text: one for each text and analyzer, in this order.

    A text has an artificial document of its own. In an array its offsets would have to be told from those of the texts
    before it, and these drift: values without tokens at the beginning, or cut by a `limit` filter, count for less.
    """
    carrier = asked.carrier
    return [
        {
            **_item(asked, [carrier], text, asked.routing[i % len(asked.routing)]),
            **({"per_field_analyzer": {carrier.name: analyzer}} if analyzer != carrier.analyzer else {}),
            "field_statistics": False,
        }
        for i, text in enumerate(texts)
        for analyzer in asked.analyzers
    ]


def statistics_items(asked: Asked, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Items of a `_mtermvectors` with the figures of all tokens of the texts: one a shard."""
    differing = {f.name: f.search_analyzer for f in asked.all_fields if f.search_analyzer != f.analyzer}
    return [
        {
            **_item(asked, asked.all_fields, list(texts), routing),
            **({"per_field_analyzer": differing} if differing else {}),
            "term_statistics": True,
            "positions": False,
            "offsets": False,
        }
        for routing in asked.routing
    ]


def analysis_of(asked: Asked, text: str, items: Sequence[Any]) -> tuple[RawWord, ...] | None:
    """The words of a text from its items of the answer; None where the cluster did not analyse it."""
    if len(items) != len(asked.analyzers):
        return None
    try:
        main, *others = [tokens_of(next(iter(i["term_vectors"].values()), {"terms": {}})) for i in items]
    except _UNEXPECTED:
        return None
    return split(text, main, others)


def field_sums(asked: Asked, items: Sequence[Any], words: Collection[RawWord]) -> dict[str, FieldSum] | None:
    """The figures of each field, summed over the shards' items; None where one of them failed or lacks a field.

    An absent `doc_freq` is 0 on that shard. A field is rightly absent where its analyzer leaves nothing of the texts.
    """
    if len(items) != len(asked.routing):
        return None
    spoken = {f.name for f in asked.all_fields if any(_tokens(asked, f, w) for w in words)}
    try:
        vectors = [item["term_vectors"] for item in items]
        if any(name not in v for name in spoken for v in vectors):
            return None
        return {f.name: _sum([v[f.name] for v in vectors if f.name in v]) for f in asked.all_fields}
    except _UNEXPECTED:
        return None


def _sum(vectors: Sequence[Mapping[str, Any]]) -> FieldSum:
    tokens: dict[str, int] = {}
    for vector in vectors:
        for token, entry in vector["terms"].items():
            tokens[token] = tokens.get(token, 0) + int(entry.get("doc_freq", 0))
    return FieldSum(sum(int(v["field_statistics"]["doc_count"]) for v in vectors), tokens)


def told_by_vectors(asked: Asked, word: RawWord) -> bool:
    """Whether term vectors can tell the figures of a word: it is at most one token in each field."""
    return all((t := _tokens(asked, f, word)) is not None and len(t) <= 1 for f in asked.all_fields)


def figures_of(asked: Asked, word: RawWord, sums: Mapping[str, FieldSum]) -> Figures | None:
    """The figures of a word; None where term vectors cannot tell them, so that it has to be counted."""
    if not told_by_vectors(asked, word):
        return None
    found = []
    for field in asked.all_fields:
        count = [sums[field.name].tokens.get(t) for t in _tokens(asked, field, word) or ()] or [0]
        if count[0] is None:
            return None
        found.append(count[0])
    enriched = found.pop() if asked.enriched else 0
    largest = max(found)
    return Figures(largest, enriched, largest == sum(found), max(sums[f.name].doc_count for f in asked.fields))


def scaled(figures: Figures, documents: int | None) -> Figures:
    """The figures among `documents` documents: deleted ones, where the fields count more than there are, taken out.

    A word that had documents keeps one at least: rounding must not make it absent.
    """
    df, enriched, exact = figures.df, figures.enriched_df, figures.exact
    if documents is None or df is None:
        return figures
    if figures.doc_count is not None and figures.doc_count > documents:
        share = documents / figures.doc_count
        exact = exact and df == 0
        df = max(round(df * share), min(df, 1))
        enriched = None if enriched is None else max(round(enriched * share), min(enriched, 1))
    return Figures(min(df, documents), None if enriched is None else min(enriched, documents), exact, None)


def word_query(word: RawWord, fields: Sequence[str]) -> dict[str, Any]:
    """The documents with a word in any of the fields: a phrase where the analyzer makes several tokens of it.

    Of a compound, all parts in one field.
    """
    if word.parts:
        return {"multi_match": {"query": " ".join(word.parts), "fields": list(fields), "operator": "and"}}
    how = {"type": "phrase"} if len(word.tokens) > 1 else {"operator": "and"}
    return {"multi_match": {"query": word.text, "fields": list(fields), **how}}


def coverage_queries(fields: Sequence[str]) -> list[dict[str, Any]]:
    """All documents, those that have a text field, those that are enriched.

    Where `enriched_terms` is the only searched field, any document may have text: that which is only read.
    """
    having: list[dict[str, Any]]
    having = [{"match_all": {}} if name == ENRICHED else {"exists": {"field": name}} for name in fields]
    return [
        {"match_all": {}},
        {"bool": {"should": having, "minimum_should_match": 1}},
        {"exists": {"field": "sira.source_hash"}},
    ]


def search_lines(queries: Iterable[Mapping[str, Any]]) -> list[Any]:
    """The lines of an `_msearch` that counts the documents of each query."""
    return [line for q in queries for line in ({}, {"size": 0, "track_total_hits": True, "query": q})]


def counts_in(answer: Any, number: int) -> list[int | None]:
    """The counts in the answer of an `_msearch` of so many queries; None where a shard or the whole item failed."""
    responses = answer.get("responses") if isinstance(answer, Mapping) else None
    if not isinstance(responses, list) or len(responses) != number:
        return [None] * number
    return [_count_in(r) for r in responses]


def _count_in(response: Any) -> int | None:
    try:
        if response.get("error") or response.get("timed_out") or response["_shards"]["failed"]:
            return None
        return int(response["hits"]["total"]["value"])
    except _UNEXPECTED:
        return None


def _item(asked: Asked, fields: Sequence[Field], value: str | list[str], routing: str) -> dict[str, Any]:
    document: dict[str, Any] = {f.parent: value for f in fields}
    if asked.dated:
        document["@timestamp"] = "2000-01-01T00:00:00Z"
    return {"routing": routing, "doc": document, "fields": [f.name for f in fields], "payloads": False}


def _tokens(asked: Asked, field: Field, word: RawWord) -> tuple[str, ...] | None:
    """What a field's search analyzer makes of a word; None where it cannot be told."""
    place = asked.analyzers.index(field.search_analyzer)
    if place == 0:
        return word.tokens
    return word.others[place - 1] if len(word.others) >= place else None
