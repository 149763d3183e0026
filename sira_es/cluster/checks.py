"""What must hold of a cluster and an index before vocabulary is added to it, each as one line with its remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sira_es.cluster.connect import Cluster, cause_of, expected, segment
from sira_es.cluster.engine import clause_limit
from sira_es.cluster.privileges import ENRICHER, SEARCHER, missing_privilege
from sira_es.cluster.target import ENRICHED, SIRA, Target, describe, mapped_fields
from sira_es.errors import ClusterRefused, ClusterUnreachable, SiraError, UnsupportedError

__all__ = ["Check", "check_cluster", "check_index", "preflight", "problem_of"]

OUR_FIELDS = 5  # enriched_terms, sira and its three
_HIGH_WATERMARK = 0.9  # of a disk: above it the cluster moves shards away, above 0.95 it makes indices read-only
_SAMPLE = 10
_NEEDED = frozenset({"privileges", "updates", "texts"})  # to enrich; searching works without
_NO_ID = "sira-es asks whether it may update"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold. `status` problem: the product cannot work; warning: it can, with the drawback told."""

    name: str
    status: Literal["ok", "warning", "problem"]
    detail: str
    remedy: str = ""


def problem_of(name: str, error: SiraError, remedy: str) -> Check:
    """An error as a check; its remedy is that of its message, else the one that is given."""
    detail, _, own = str(error).partition("; ")
    return Check(name, "problem", detail, own or remedy)


async def check_cluster(cluster: Cluster) -> list[Check]:
    """The engine, its version and its clause limit."""
    what = f"{cluster.engine} at {cluster.url}"
    if cluster.engine.version is None:
        remedy = "grant cluster 'monitor', so that what this version can do is used"
        engine = Check("engine", "warning", what, remedy)
    elif not cluster.engine.can_point_in_time:
        remedy = "upgrade it to enrich: a complete scan needs points in time; searching works"
        engine = Check("engine", "warning", what, remedy)
    else:
        engine = Check("engine", "ok", what)
    limit = await clause_limit(cluster)
    clauses = f"{limit.count} a {'query' if limit.whole_tree else 'bool'}"
    return [
        engine,
        Check("clauses", "ok", clauses if limit.known else f"{clauses}: the smallest there is, as it may not be read"),
    ]


async def preflight(
    cluster: Cluster, name: str, fields: Sequence[str], *, read: Sequence[str] = (), pattern: str = ""
) -> None:
    """Raise UnsupportedError for the first thing that would make an enrichment fail, before it costs anything."""
    for check in await check_index(cluster, name, fields, read=read, pattern=pattern):
        if check.status == "problem" or (check.name in _NEEDED and check.status == "warning"):
            raise UnsupportedError(f"'{name}' cannot be enriched: {check.detail}; {check.remedy}")


async def check_index(
    cluster: Cluster, name: str, fields: Sequence[str], *, read: Sequence[str] = (), pattern: str = ""
) -> list[Check]:
    """Whether an index, alias or data stream can be searched and enriched; `pattern` as in `describe`.

    `read` are the fields that a model reads, where they are not `fields`. Raises ClusterUnreachable.
    """
    try:
        target = await describe(cluster, name, fields, pattern=pattern)
    except ClusterUnreachable:
        raise
    except SiraError as error:
        return [
            problem_of("index", error, "correct --index or text_fields"),
            *(await _privileges(cluster, name)),
        ]
    mappings = await cluster.request("GET", f"/{segment(name)}/_mapping")
    settings = await cluster.request("GET", f"/{segment(name)}/_settings", params={"flat_settings": True})
    checks = [Check("index", "ok", f"{name}: {target.kind} of {len(target.indices)}"), _analyzers(target)]
    with expected(f"the mapping of '{name}'"):
        for index in target.indices:
            prefix = f"{index.name}: " if len(target.indices) > 1 else ""
            mapping, own = mappings[index.name]["mappings"], settings[index.name]["settings"]
            checks += [
                replace(check, detail=prefix + check.detail)
                for check in (
                    _source(index.source),
                    _writable(index.blocked, own),
                    _fields(index.has_enriched and index.has_sira, mapping, own),
                    _pipelines(own),
                    *_inference(mapping),
                )
            ]
        checks += await _copies(cluster, target, mappings, read or fields)
        checks += _rollover(target, settings)
    checks += await _disk(cluster, name)
    privileges = await _privileges(cluster, name)
    may = all(c.status == "ok" for c in [*privileges, *(c for c in checks if c.name == "writable")])
    return [*checks, *privileges, *(await _updates(cluster, target) if may else [])]


def _analyzers(target: Target) -> Check:
    detail = ", ".join(f"{f.name} ({f.search_analyzer})" for f in target.fields)
    if target.pattern:
        like = f"{target.pattern.name} ({target.pattern.search_analyzer})"
        detail = f"{ENRICHED} alone, analysed as {like}, which is read"
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
        return Check("_source", "ok", "synthetic: an update keeps every value as the index shows it")
    return Check("_source", "ok", "stored whole")


def _writable(blocked: str, settings: Mapping[str, str]) -> Check:
    if settings.get("index.store.type") == "snapshot":
        remedy = "restore it from its snapshot as an index of its own; searching works"
        return Check("writable", "problem", "it is a searchable snapshot, which cannot be changed", remedy)
    if blocked == "index.blocks.read_only_allow_delete":
        remedy = "free some disk space, then set it to null; searching works"
        return Check("writable", "problem", f"{blocked} is set: a disk is nearly full", remedy)
    if blocked:
        also = "" if blocked == "index.blocks.read" else "; searching works"
        return Check("writable", "problem", f"{blocked} is set", f"set {blocked} to false while enriching{also}")
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
    used = sum(1 for _ in mapped_fields(mapping.get("properties", {})))
    if used + OUR_FIELDS > limit:
        return Check(
            "mapping",
            "problem",
            f"{used} of {limit} fields are used, {OUR_FIELDS} more are needed",
            "raise index.mapping.total_fields.limit",
        )
    return Check("mapping", "ok", f"{used} of {limit} fields used, room for {OUR_FIELDS} more")


def _pipelines(settings: Mapping[str, str]) -> Check:
    names = [
        f"{kind} {settings[f'index.{kind}']}"
        for kind in ("default_pipeline", "final_pipeline")
        if settings.get(f"index.{kind}", "_none") != "_none"
    ]
    return Check("pipelines", "ok", f"{', '.join(names)}: not run by our bulk updates" if names else "none")


def _inference(mapping: Mapping[str, Any]) -> list[Check]:
    """Fields that ask an inference endpoint about a document whenever it is updated."""
    names = [name for name, inner in mapping.get("properties", {}).items() if inner.get("type") == "semantic_text"]
    if not names:
        return []
    detail = f"semantic_text in {', '.join(names)}: every update may ask its inference endpoint again"
    return [Check("inference", "warning", detail, "expect one more inference call a document, or enrich a copy")]


async def _copies(cluster: Cluster, target: Target, mappings: Mapping[str, Any], read: Sequence[str]) -> list[Check]:
    """Fields that the engine fills from others: where no document holds their text itself, no model could read it."""
    copied: dict[str, list[str]] = {}
    for index in target.indices:
        for name, inner, _ in mapped_fields(mappings[index.name]["mappings"].get("properties", {})):
            into = inner.get("copy_to") or []
            for field in [into] if isinstance(into, str) else into:
                copied.setdefault(field, []).append(name)
    held = [name for name in target.source_of(read) if name not in {SIRA, ENRICHED}]
    if not held or not all(name in copied for name in held):
        return []
    body = {"size": _SAMPLE, "_source": held, "query": {"bool": {"should": [{"exists": {"field": f}} for f in held]}}}
    try:
        answer = await cluster.request("POST", f"/{segment(target.name)}/_search", body=body)
    except ClusterRefused:
        return []
    hits = answer["hits"]["hits"]
    if not hits or any(hit.get("_source") for hit in hits):
        return []
    sources = ", ".join(dict.fromkeys(source for name in held for source in copied[name]))
    detail = f"{', '.join(held)}: filled by copy_to, documents do not hold it"
    return [Check("texts", "warning", detail, f"set read_fields to [{sources}] to enrich; searching works")]


def _rollover(target: Target, settings: Mapping[str, Any]) -> list[Check]:
    """Indices that others will follow, which our fields are not in."""
    policies = ("index.lifecycle.name", "index.plugins.index_state_management.rollover_alias")
    rolled = [n for n, s in settings.items() if any(p in s["settings"] for p in policies)]
    if target.kind != "data_stream" and not rolled:
        return []
    what = (
        f"{target.name} is a data stream" if target.kind == "data_stream" else f"{rolled[0]} follows a lifecycle policy"
    )
    remedy = (
        f"run 'sira-es enrich --index {target.name} --template' once, and name that component in the index template"
    )
    return [
        Check(
            "rollover",
            "ok",
            f"{what}: every run adds our fields to new indices; to have them there from the start, {remedy}",
        )
    ]


async def _disk(cluster: Cluster, name: str) -> list[Check]:
    """Room for the enrichment: every document is written anew, and the old copies go when segments are merged."""
    try:
        asked = {"filter_path": "nodes.*.fs.total,nodes.*.roles"}
        nodes = (await cluster.request("GET", "/_nodes/stats/fs", params=asked))["nodes"].values()
        kept = {"filter_path": "_all.total.store.size_in_bytes"}
        size = (await cluster.request("GET", f"/{segment(name)}/_stats/store", params=kept))["_all"]["total"]["store"]
        disks = [n["fs"]["total"] for n in nodes if any(role.startswith("data") for role in n["roles"])]
        free = sum(max(0.0, d["available_in_bytes"] - (1 - _HIGH_WATERMARK) * d["total_in_bytes"]) for d in disks)
        needed = size["size_in_bytes"]
    except (ClusterRefused, KeyError, TypeError):
        return [Check("disk", "ok", "not asked: it takes cluster 'monitor' and the index privilege 'monitor'")]
    detail = f"{_size(free)} free below the high watermark, enriching may take the index's {_size(needed)} once more"
    if free < needed:
        return [
            Check(
                "disk", "warning", detail, "free some disk space, or enrich in parts (--query) and merge between them"
            )
        ]
    return [Check("disk", "ok", detail)]


def _size(number: float) -> str:
    return f"{number / 2**30:.1f} GB" if number >= 2**30 else f"{number / 2**20:.1f} MB"


async def _privileges(cluster: Cluster, name: str) -> list[Check]:
    """Asked of Elasticsearch's security; other engines have no such question, there the first refusal tells."""
    asked = {"index": [{"names": name.split(","), "privileges": list(ENRICHER)}]}
    try:
        answer = await cluster.request("POST", "/_security/user/_has_privileges", body=asked)
        granted = answer["index"]
    except (ClusterRefused, KeyError, TypeError):
        return [Check("privileges", "ok", "not asked: this engine has security off, or no such question")]
    missing = sorted({p for index in granted.values() for p, has in index.items() if not has}, key=ENRICHER.index)
    searching = [p for p in missing if p in SEARCHER]
    if searching:
        return [
            Check("privileges", "problem", f"missing: {', '.join(missing)}", f"grant {', '.join(searching)} to search")
        ]
    if missing:
        remedy = "grant them to the role that runs enrich; searching works"
        return [Check("privileges", "warning", f"missing to enrich: {', '.join(missing)}", remedy)]
    return [Check("privileges", "ok", f"{', '.join(ENRICHER)}")]


async def _updates(cluster: Cluster, target: Target) -> list[Check]:
    """Try to update a document that does not exist, in every index: nothing is written, and a refusal tells why.

    A role with document- or field-level security may have every privilege and is refused all the same.
    """
    lines: list[Any] = []
    for index in target.indices:
        lines += [{"update": {"_index": index.name, "_id": _NO_ID, "routing": "0"}}, {"doc": {}}]
    try:
        answer = await cluster.request("POST", "/_bulk", lines=lines)
        results = [next(iter(item.values())) for item in answer["items"]]
        errors = [cause_of(result.get("error")) for result in results if result["status"] != 404]
    except (ClusterRefused, KeyError, TypeError, StopIteration) as error:
        refused = error if isinstance(error, ClusterRefused) else None
        errors = [(refused.error_type, refused.reason or str(refused))] if refused else []
    if not errors:
        return [Check("updates", "ok", "allowed")]
    kind, reason = errors[0]
    missing = missing_privilege(reason)
    if missing:
        return [Check("updates", "warning", f"missing to enrich: {missing}", "grant it to the role; searching works")]
    if kind == "security_exception":
        remedy = "enrich with a role without document- and field-level security; searching works"
        return [Check("updates", "warning", f"updates are refused ({reason})", remedy)]
    return [
        Check("updates", "warning", f"updates are refused ({kind}: {reason})", "remove the reason; searching works")
    ]
