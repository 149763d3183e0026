"""What must hold of a cluster and an index before vocabulary is added to it, each as one line with its remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sira_es.cluster.connect import Cluster, segment
from sira_es.cluster.engine import clause_limit
from sira_es.cluster.target import ENRICHED, SIRA, Target, describe
from sira_es.errors import ClusterRefused, ClusterUnreachable, SiraError, UnsupportedError

__all__ = ["Check", "check_cluster", "check_index", "preflight"]

OUR_FIELDS = 5  # enriched_terms, sira and its three
ENRICHER = ("read", "index", "view_index_metadata", "indices:admin/mapping/put")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold. `status` problem: the product cannot work; warning: it can, with the drawback told."""

    name: str
    status: Literal["ok", "warning", "problem"]
    detail: str
    remedy: str = ""


async def check_cluster(cluster: Cluster) -> list[Check]:
    """The engine, its version and its clause limit."""
    engine = Check("engine", "ok", f"{cluster.engine} at {cluster.url}")
    if cluster.engine.version is None:
        engine = Check(
            "engine",
            "warning",
            f"{cluster.engine} at {cluster.url}",
            "grant cluster 'monitor', so that what this version can do is used",
        )
    limit = await clause_limit(cluster)
    return [engine, Check("clauses", "ok", f"{limit.count} a {'query' if limit.whole_tree else 'bool'}")]


async def preflight(cluster: Cluster, name: str, fields: Sequence[str]) -> None:
    """Raise UnsupportedError for the first thing that would make an enrichment fail, before it costs anything."""
    for check in await check_index(cluster, name, fields):
        if check.status == "problem" or (check.name == "privileges" and check.status == "warning"):
            raise UnsupportedError(f"'{name}' cannot be enriched: {check.detail}; {check.remedy}")


async def check_index(cluster: Cluster, name: str, fields: Sequence[str]) -> list[Check]:
    """Whether an index, alias or data stream can be searched and enriched. Raises ClusterUnreachable."""
    try:
        target = await describe(cluster, name, fields)
    except ClusterUnreachable:
        raise
    except SiraError as error:
        return [Check("index", "problem", str(error), "correct --index or text_fields")]
    mappings = await cluster.request("GET", f"/{segment(name)}/_mapping")
    settings = await cluster.request("GET", f"/{segment(name)}/_settings", params={"flat_settings": True})
    checks = [Check("index", "ok", f"{name}: {target.kind} of {len(target.indices)}"), _analyzers(target)]
    for index in target.indices:
        prefix = f"{index.name}: " if len(target.indices) > 1 else ""
        checks += [
            Check(c.name, c.status, prefix + c.detail, c.remedy)
            for c in (
                _source(index.source),
                _writable(index.blocked),
                _fields(
                    index.has_enriched and index.has_sira,
                    mappings[index.name]["mappings"],
                    settings[index.name]["settings"],
                ),
                _pipelines(settings[index.name]["settings"]),
            )
        ]
    return [*checks, *(await _privileges(cluster, name))]


def _analyzers(target: Target) -> Check:
    detail = ", ".join(f"{f.name} ({f.search_analyzer})" for f in target.fields)
    if target.one_analyzer:
        return Check("text fields", "ok", detail)
    return Check(
        "text fields",
        "warning",
        f"{detail} analyse differently",
        "the plain query is best_fields instead of cross_fields",
    )


def _source(source: str) -> Check:
    if source in {"disabled", "partial"}:
        what = "disabled" if source == "disabled" else "pruned (_source.includes or excludes)"
        return Check(
            "_source",
            "problem",
            f"_source is {what}: an update would lose fields",
            "reindex with the whole _source; searching works",
        )
    if source == "synthetic":
        return Check(
            "_source",
            "warning",
            "_source is synthetic",
            "arrays come back sorted and without duplicates after an update",
        )
    return Check("_source", "ok", "stored whole")


def _writable(blocked: str) -> Check:
    if blocked:
        return Check(
            "writable", "problem", f"{blocked} is set", f"set {blocked} to false while enriching; searching works"
        )
    return Check("writable", "ok", "no write block")


def _fields(ours: bool, mapping: Mapping[str, Any], settings: Mapping[str, str]) -> Check:
    if ours:
        return Check("mapping", "ok", f"{ENRICHED} and {SIRA} are there")
    taken = [f for f in (ENRICHED, SIRA) if f in mapping.get("properties", {})]
    if taken:
        return Check(
            "mapping",
            "problem",
            f"'{taken[0]}' is mapped already, and not by sira-es",
            "rename that field; its values would be mixed up with ours",
        )
    limit = int(settings.get("index.mapping.total_fields.limit", 1000))
    used = sum(1 for _ in _walk(mapping))
    if used + OUR_FIELDS > limit:
        return Check(
            "mapping",
            "problem",
            f"{used} of {limit} fields are used, {OUR_FIELDS} more are needed",
            "raise index.mapping.total_fields.limit",
        )
    return Check("mapping", "ok", f"{used} of {limit} fields used, room for {OUR_FIELDS} more")


def _walk(mapping: Mapping[str, Any]) -> Iterator[str]:
    for part in ("properties", "fields"):
        for name, inner in mapping.get(part, {}).items():
            yield name
            yield from _walk(inner)


def _pipelines(settings: Mapping[str, str]) -> Check:
    names = [
        f"{kind} {settings[f'index.{kind}']}"
        for kind in ("default_pipeline", "final_pipeline")
        if settings.get(f"index.{kind}", "_none") != "_none"
    ]
    return Check("pipelines", "ok", f"{', '.join(names)}: not run by our bulk updates" if names else "none")


async def _privileges(cluster: Cluster, name: str) -> list[Check]:
    """Asked of Elasticsearch's security; other engines have no such question, and the first refusal will tell."""
    asked = {"index": [{"names": name.split(","), "privileges": list(ENRICHER)}]}
    try:
        answer = await cluster.request("POST", "/_security/user/_has_privileges", body=asked)
        granted = answer["index"]
    except (ClusterRefused, KeyError, TypeError):
        return [Check("privileges", "ok", "not asked: this engine has security off, or no such question")]
    missing = sorted({p for index in granted.values() for p, has in index.items() if not has})
    if "read" in missing:
        return [Check("privileges", "problem", "missing: read", "grant read and view_index_metadata to search")]
    if missing:
        return [
            Check(
                "privileges",
                "warning",
                f"missing to enrich: {', '.join(missing)}",
                "grant them to the role that runs enrich; searching works",
            )
        ]
    return [Check("privileges", "ok", f"{', '.join(ENRICHER)}")]
