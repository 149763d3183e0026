"""What a name stands for: concrete indices, their shards and how to reach each, text fields and analyzers, our own
fields.

Needs the privileges `read` and `view_index_metadata` on the indices, none on the cluster.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sira_es.cluster.connect import Cluster, expected, segment, together
from sira_es.cluster.routing import routing_values
from sira_es.dsl.compile import ENRICHED
from sira_es.errors import ClusterError, ClusterRefused, ConfigurationError, InputError, UnsupportedError

__all__ = [
    "ENRICHED",
    "SIRA",
    "WHOLE",
    "ConcreteIndex",
    "FieldInfo",
    "Target",
    "describe",
    "mapped_fields",
    "multi_fields",
    "text_fields_of",
]

SIRA = "sira"
WHOLE = -1
"""In place of the number of a shard: all of an index at once, where the cluster does not show its shards."""
TEXT_TYPES = frozenset({"text", "match_only_text", "annotated_text", "search_as_you_type"})
_SIRA_TYPES = {"source_hash": "keyword", "recipe": "keyword", "enriched_at": "date"}

_INSIDE = "is inside the nested objects of"
_NOT_OFFERED = frozenset({400, 404, 405, 410})

Kind = Literal["index", "alias", "data_stream", "several"]
Source = Literal["stored", "synthetic", "partial", "disabled"]


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """A text field with the analyzers that are in force; "default" is the index's own default analyzer."""

    name: str
    analyzer: str
    search_analyzer: str


@dataclass(frozen=True, slots=True)
class ConcreteIndex:
    """One index of a target.

    `shards` is the number of primary shards; `reached` those that the target's name searches (fewer behind an alias
    with routing), or WHOLE. `routing` holds one routing value for each shard, in no particular order; empty where no set of
    values reaches them all. `filter` is the query of the alias through which the target sees this index. `source`
    says how much of a document is kept: "partial" (`_source.includes` or `excludes`) and "disabled" do not survive an
    update. `blocked` names what keeps the index from being written or read, empty where nothing does. `most_hits` is the
    largest page of a search. `fields` are the asked text fields that this index has. `has_enriched` and `has_sira`: our
    fields are mapped, with the right types. `pattern`: the read field whose analyzers `enriched_terms` gets, where that
    is the only searched field. `multi_fields` are the names of those that have the values of the field above them.
    `keeps_unmapped`: a key that is not mapped stays in a document without being searchable.
    """

    name: str
    shards: int
    reached: tuple[int, ...]
    routing: tuple[str, ...] = ()
    partition_size: int = 1
    filter: Mapping[str, Any] | None = field(default=None, hash=False)
    source: Source = "stored"
    blocked: str = ""
    most_hits: int = 10_000
    fields: tuple[FieldInfo, ...] = ()
    has_enriched: bool = False
    has_sira: bool = False
    pattern: FieldInfo | None = None
    multi_fields: frozenset[str] = field(default=frozenset(), repr=False)
    keeps_unmapped: bool = False

    def field(self, name: str) -> FieldInfo | None:
        return next((f for f in self.fields if f.name == name), None)


@dataclass(frozen=True, slots=True)
class Target:
    """A name as a search sees it. `kind` "several" is a list or a wildcard."""

    name: str
    kind: Kind
    indices: tuple[ConcreteIndex, ...]

    @property
    def fields(self) -> tuple[FieldInfo, ...]:
        """The asked text fields, each as the first index that has it knows it."""
        found = {f.name: f for index in reversed(self.indices) for f in index.fields}
        order = dict.fromkeys(f.name for index in self.indices for f in index.fields)
        return tuple(found[name] for name in order)

    def field(self, name: str) -> FieldInfo | None:
        return next((f for f in self.fields if f.name == name), None)

    @property
    def pattern(self) -> FieldInfo | None:
        return next((i.pattern for i in self.indices if i.pattern), None)

    @property
    def filtered(self) -> bool:
        """The name does not reach every document of its indices: an alias with a filter or with routing."""
        return any(i.filter is not None or len(i.reached) < i.shards for i in self.indices)

    @property
    def single(self) -> ConcreteIndex | None:
        """The index where the name stands for exactly one, whole; whether it is its own name or a plain alias."""
        return self.indices[0] if len(self.indices) == 1 and self.kind != "data_stream" and not self.filtered else None

    @property
    def one_analyzer(self) -> bool:
        """All asked text fields have the same search analyzer, in all indices."""
        return len({f.search_analyzer for i in self.indices for f in i.fields}) <= 1

    @property
    def most_hits(self) -> int:
        """The largest page of a search over all indices."""
        return min((i.most_hits for i in self.indices), default=10_000)

    def source_of(self, fields: Sequence[str]) -> list[str]:
        """What to read of a `_source`: the values of these fields (of a multi-field, the field above it), and what is ours."""
        held = (f.rpartition(".")[0] if f in i.multi_fields else f for i in self.indices for f in fields)
        return [*dict.fromkeys(held), SIRA, ENRICHED]

    @property
    def has_enriched(self) -> bool:
        """Every index has our field for the terms."""
        return all(i.has_enriched for i in self.indices)


async def describe(cluster: Cluster, name: str, text_fields: Sequence[str], *, pattern: str = "") -> Target:
    """Resolve `name` (index, alias, data stream, list or wildcard) and look its text fields up.

    `pattern` is for an index where only `enriched_terms` is searched, which need not be mapped yet: the text field,
    nested or not, whose analyzers it gets.

    Raises InputError for a name that stands for nothing or for a closed index, ConfigurationError for a field that is
    missing or not a text field, UnsupportedError for a text field inside nested objects, ClusterError otherwise.
    """
    kind = await _resolve(cluster, name)
    place = f"/{segment(name)}"
    asked = ",".join(segment(f) for f in (*text_fields, ENRICHED, *filter(None, [pattern])))
    try:
        shards, mappings, settings, analyzers = await together(
            _search_shards(cluster, name),
            cluster.request("GET", f"{place}/_mapping"),
            cluster.request("GET", f"{place}/_settings", params={"flat_settings": True}),
            cluster.request("GET", f"{place}/_mapping/field/{asked}", params={"include_defaults": True}),
        )
    except ClusterRefused:
        _refuse_closed(_closed_in(await cluster.request("GET", f"{place}/_settings", params={"flat_settings": True})))
        raise
    with expected(f"describing '{name}'"):
        _refuse_closed(_closed_in(settings))
        if shards["shards"] is not None and not all(shards["shards"]):
            raise ClusterError(f"a shard of '{name}' has no active copy; see GET /_cat/shards")
        _check_fields(name, mappings, text_fields, pattern)
        indices = [
            _index(
                index,
                shards,
                mappings[index]["mappings"],
                settings[index]["settings"],
                analyzers.get(index),
                text_fields,
                pattern,
            )
            for index in sorted(shards["indices"])
        ]
    return Target(name, kind, tuple(await together(*(_with_routing(cluster, index) for index in indices))))


async def _search_shards(cluster: Cluster, name: str) -> Mapping[str, Any]:
    """Indices with the filter of their alias, and shards; None for these where the cluster does not show them."""
    try:
        shown: dict[str, Any] = await cluster.request("GET", f"/{segment(name)}/_search_shards")
    except ClusterRefused as error:
        if error.status not in _NOT_OFFERED or error.error_type == "index_closed_exception":
            raise
    else:
        return shown
    aliases = await cluster.request("GET", f"/{segment(name)}/_alias")
    with expected(f"the aliases of '{name}'"):
        of_name = {index: found["aliases"].get(name, {}) for index, found in aliases.items()}
        routed = next((index for index, alias in of_name.items() if "search_routing" in alias), None)
        if routed is not None:
            raise UnsupportedError(f"alias '{name}' searches a part of '{routed}' by routing; name the index itself")
        return {"indices": of_name, "shards": None}


async def text_fields_of(cluster: Cluster, name: str, *, nested: bool = False) -> tuple[FieldInfo, ...]:
    """The text fields that a search of `name` can use, in the order of the mapping; none of ours, none in nested
    objects. `nested`: those in nested objects, instead.

    Raises InputError as `describe` does.
    """
    await _resolve(cluster, name)
    mappings = await cluster.request("GET", f"/{segment(name)}/_mapping")
    with expected(f"the mapping of '{name}'"):
        usable, inside = _usable(_candidates(mappings))
        names = inside if nested else usable
    if not names:
        return ()
    asked = ",".join(segment(f) for f in names)
    found = await cluster.request("GET", f"/{segment(name)}/_mapping/field/{asked}", params={"include_defaults": True})
    with expected(f"the analyzers of '{name}'"):
        infos = {f.name: f for index in found for f in _analyzers(found[index], names)}
    return tuple(infos[f] for f in names if f in infos)


async def _resolve(cluster: Cluster, name: str) -> Kind:
    if not name.strip() or name.startswith("_"):
        raise InputError(f"'{name}' is not the name of an index; give one, such as 'docs'")
    if ":" in name:
        raise UnsupportedError(
            f"'{name}' is on another cluster, whose statistics are not seen from here; name that cluster in cluster.url"
        )
    try:
        found = await cluster.request("GET", f"/_resolve/index/{segment(name)}")
    except ClusterRefused as error:
        if error.status == 404:
            raise await _missing(cluster, name) from None
        raise
    with expected(f"resolving '{name}'"):
        indices, aliases, streams = found["indices"], found["aliases"], found["data_streams"]
        if not indices and not aliases and not streams:
            raise await _missing(cluster, name)
        if "*" not in name:
            _refuse_closed(i["name"] for i in indices if "closed" in i["attributes"])
        if any(a["name"] == name and not a["indices"] for a in aliases):
            raise InputError(f"alias '{name}' stands for no index; add one to it")
        if any(i["name"] == name for i in indices):
            return "index"
        if any(a["name"] == name for a in aliases):
            return "alias"
        return "data_stream" if any(d["name"] == name for d in streams) else "several"


def _refuse_closed(names: Iterable[str]) -> None:
    """Raise InputError for the first closed index."""
    closed = next(iter(names), None)
    if closed is not None:
        raise InputError(f"index '{closed}' is closed; open it first: POST /{closed}/_open")


def _closed_in(settings: Mapping[str, Any]) -> Iterator[str]:
    """The closed ones of some indices. Whether a search of their alias leaves them out or fails depends on the engine."""
    return (name for name, own in settings.items() if _truth(own["settings"].get("index.verified_before_close")))


async def _missing(cluster: Cluster, name: str) -> InputError:
    known: list[str] = []
    try:
        found = await cluster.request("GET", "/_resolve/index/*")
        known = [e["name"] for part in ("indices", "aliases", "data_streams") for e in found[part]]
    except (ClusterRefused, KeyError, TypeError):
        pass
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        hint = f"did you mean {' or '.join(repr(n) for n in near)}?"
    elif known:
        hint = f"there are: {', '.join(sorted(known)[:8])}{', ...' if len(known) > 8 else ''}"
    else:
        hint = "these credentials see no index at all"
    return InputError(f"no index, alias or data stream '{name}' at {cluster.url}; {hint}")


def _index(
    name: str,
    shards: Mapping[str, Any],
    mapping: Mapping[str, Any],
    settings: Mapping[str, str],
    analyzers: Mapping[str, Any] | None,
    text_fields: Sequence[str],
    pattern: str,
) -> ConcreteIndex:
    copies = [group[0] for group in shards["shards"] or () if group and group[0]["index"] == name]
    reached = tuple(sorted(copy["shard"] for copy in copies)) if shards["shards"] is not None else (WHOLE,)
    found = {f.name: f for f in _analyzers(analyzers or {"mappings": {}}, (*text_fields, ENRICHED, pattern))}
    return ConcreteIndex(
        name=name,
        shards=1 if reached == (WHOLE,) else int(settings["index.number_of_shards"]),
        reached=reached,
        partition_size=int(settings.get("index.routing_partition_size", 1)),
        filter=shards["indices"][name].get("filter"),
        source=_source(mapping.get("_source", {}), settings),
        blocked=_block(settings),
        most_hits=int(settings.get("index.max_result_window", 10_000)),
        fields=tuple(found[f] for f in text_fields if f in found),
        has_enriched=ENRICHED in found,
        has_sira=_has_sira(mapping),
        pattern=found.get(pattern),
        multi_fields=frozenset(multi_fields(mapping)),
        keeps_unmapped=str(mapping.get("dynamic", "true")).lower() not in {"true", "strict"},
    )


async def _with_routing(cluster: Cluster, index: ConcreteIndex) -> ConcreteIndex:
    if index.partition_size > 1 or index.reached == (WHOLE,):
        return index
    return replace(index, routing=await routing_values(cluster, index.name, index.shards))


def _source(source: Mapping[str, Any], settings: Mapping[str, str]) -> Source:
    mode = source.get("mode") or settings.get("index.mapping.source.mode")
    if not _truth(source.get("enabled", True)) or mode == "disabled":
        return "disabled"
    if source.get("includes") or source.get("excludes"):
        return "partial"
    return "synthetic" if mode == "synthetic" or _truth(settings.get("index.derived_source.enabled")) else "stored"


def _block(settings: Mapping[str, str]) -> str:
    names = ("read_only", "read_only_allow_delete", "write", "metadata", "read")
    return next((f"index.blocks.{n}" for n in names if _truth(settings.get(f"index.blocks.{n}"))), "")


def _truth(value: object) -> bool:
    return str(value).lower() == "true"


def _has_sira(mapping: Mapping[str, Any]) -> bool:
    top = mapping.get("properties", {})
    flat = {name: top.get(f"{SIRA}.{name}", {}) for name in _SIRA_TYPES}  # of an index with `subobjects` false
    properties = {**flat, **top.get(SIRA, {}).get("properties", {})}
    return {name: properties.get(name, {}).get("type") for name in _SIRA_TYPES} == _SIRA_TYPES


def _analyzers(answer: Mapping[str, Any], names: Sequence[str]) -> Iterator[FieldInfo]:
    """The text fields among `names` in an index's answer to `_mapping/field` with defaults."""
    found = answer["mappings"]
    for name in names:
        mapping: Mapping[str, Any] = next(iter(found[name]["mapping"].values()), {}) if name in found else {}
        if mapping.get("type") in TEXT_TYPES:
            analyzer = mapping.get("analyzer") or "default"
            yield FieldInfo(name, analyzer, mapping.get("search_analyzer") or analyzer)


def _candidates(mappings: Mapping[str, Any]) -> dict[str, str]:
    """Text fields of all indices, each with the reason why a search cannot use it as one of `text_fields`, or none."""
    found: dict[str, str] = {}
    for index in mappings.values():
        for name, mapping, nested in mapped_fields(index["mappings"].get("properties", {})):
            if mapping.get("type") in TEXT_TYPES:
                why = f"{_INSIDE} '{nested}'" if nested else ""
                why = why or ("is not indexed" if not _truth(mapping.get("index", True)) else "")
                found[name] = why and found.get(name, why)
    return found


def mapped_fields(
    properties: Mapping[str, Any], prefix: str = "", nested: str = ""
) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Every field below the `properties` of a mapping: its whole name, its mapping, the nested object it stands in."""
    for key, mapping in properties.items():
        name = prefix + key
        inside = name if mapping.get("type") == "nested" else nested
        yield name, mapping, inside
        yield from mapped_fields(mapping.get("properties", {}), f"{name}.", inside)
        yield from mapped_fields(mapping.get("fields", {}), f"{name}.", inside)


def multi_fields(mapping: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The names of the multi-fields in a mapping, such as `title.english`."""
    for key, inner in mapping.get("properties", {}).items():
        yield from (f"{prefix}{key}.{name}" for name in inner.get("fields", {}))
        yield from multi_fields(inner, f"{prefix}{key}.")


def _ours(name: str) -> bool:
    return name in {ENRICHED, SIRA} or name.startswith((f"{ENRICHED}.", f"{SIRA}."))


def _usable(candidates: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The candidates that a search can use, and those inside nested objects; none of ours."""
    usable = [f for f, why in candidates.items() if not why and not _ours(f)]
    return usable, [f for f, why in candidates.items() if why.startswith(_INSIDE) and not _ours(f)]


def _check_fields(name: str, mappings: Mapping[str, Any], text_fields: Sequence[str], pattern: str) -> None:
    candidates = _candidates(mappings)
    usable, inside = _usable(candidates)
    types: dict[str, set[str]] = defaultdict(set)
    for index in mappings.values():
        for field_name, mapping, _ in mapped_fields(index["mappings"].get("properties", {})):
            types[field_name].add(str(mapping.get("type") or "object"))
    listed = f"text fields there: {', '.join(usable[:12])}" if usable else "it has no text field"
    if inside and not usable:
        read = ", ".join(inside[:12])
        listed = f"all its text is nested: set text_fields to [{ENRICHED}] and read_fields to [{read}]"
    for wanted in [pattern] if pattern else text_fields:
        if candidates.get(wanted) and not pattern:
            raise UnsupportedError(f"text field '{wanted}' of '{name}' {candidates[wanted]}; {listed}")
        if wanted in candidates:
            continue
        what = f"is of type {'/'.join(sorted(types[wanted]))}, not text" if wanted in types else "does not exist"
        raise ConfigurationError(f"field '{wanted}' of '{name}' {what}; {listed}")
