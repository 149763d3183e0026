"""Our two fields added to a live index, and new indices for bare collections; the JSON stands in `mappings/`."""

from __future__ import annotations

import re
from typing import Any

from sira_es.cluster.connect import Cluster, expected, segment
from sira_es.cluster.target import ENRICHED, SIRA, ConcreteIndex, FieldInfo, Target
from sira_es.errors import ClusterRefused, ConfigurationError, InputError
from sira_es.resources import filled

__all__ = ["create_index", "ensure_fields", "install_template", "made_by"]


async def ensure_fields(cluster: Cluster, target: Target, main_field: str) -> tuple[str, ...]:
    """Map `enriched_terms`, with the analyzers of the main text field, and `sira` in every index of the target.

    Where `enriched_terms` is the only searched field it gets those of the target's `pattern`.

    Returns the names of the indices that were changed: none when run again. Raises ConfigurationError where one of the
    two names is taken by another kind of field, ClusterRefused where the index takes no more fields.
    """
    changed = []
    for index in target.indices:
        main = index.pattern or target.pattern or index.field(main_field) or target.field(main_field)
        if main is None:
            raise ConfigurationError(f"main field '{main_field}' is not a text field of '{target.name}'")
        if await _ensure(cluster, index, main):
            changed.append(index.name)
    return tuple(changed)


async def install_template(cluster: Cluster, target: Target, main_field: str) -> str:
    """Keep our fields as a component template, for the index templates that make new indices of the target.

    Returns its name. Raises ConfigurationError where the main field is not there, ClusterRefused.
    """
    main = target.pattern or target.field(main_field)
    if main is None:
        raise ConfigurationError(f"main field '{main_field}' is not a text field of '{target.name}'")
    name = f"sira-es-{re.sub(r'[^a-z0-9._-]+', '-', target.name.lower()).strip('-')}"
    wanted = filled("mappings", "enriched_terms.json", analyzer=main.analyzer, search_analyzer=main.search_analyzer)
    await cluster.request("PUT", f"/_component_template/{name}", body={"template": {"mappings": wanted}})
    return name


async def create_index(
    cluster: Cluster, name: str, *, analyzer: str = "english", shards: int = 1, made_by: str = "sira-es"
) -> None:
    """Make an index for documents with `title` and `text`; other keys are kept, not indexed. `made_by` is noted in it.

    Raises InputError where the name is taken or not valid, ConfigurationError for an analyzer that the cluster lacks.
    """
    body = filled("mappings", "collection.json", analyzer=analyzer, shards=str(shards), made_by=made_by)
    try:
        await cluster.request("PUT", f"/{segment(name)}", body=body)
    except ClusterRefused as error:
        if error.error_type == "resource_already_exists_exception" or "already exists" in error.reason:
            raise InputError(
                f"'{name}' exists already and is left alone; choose another name for the new index"
            ) from None
        if error.error_type == "invalid_index_name_exception":
            raise InputError(f"'{name}' cannot be the name of an index: {error.reason}") from None
        if "analyzer" in error.reason and analyzer in error.reason:
            raise ConfigurationError(
                f"this cluster has no analyzer '{analyzer}'; 'standard' is there everywhere"
            ) from None
        raise


async def made_by(cluster: Cluster, name: str) -> str | None:
    """What `create_index` noted in an index: empty where nothing is noted, None where there is no such index."""
    try:
        answer = await cluster.request("GET", f"/{segment(name)}/_mapping")
    except ClusterRefused as error:
        if error.status == 404:
            return None
        raise
    with expected(f"the mapping of '{name}'"):
        notes = [index["mappings"].get("_meta", {}).get("made_by", "") for index in answer.values()]
    return notes[0] if notes else None


async def _ensure(cluster: Cluster, index: ConcreteIndex, main: FieldInfo) -> bool:
    wanted = filled("mappings", "enriched_terms.json", analyzer=main.analyzer, search_analyzer=main.search_analyzer)
    missing = await _missing(cluster, index.name, wanted["properties"])
    if not missing:
        return False
    try:
        await cluster.request("PUT", f"/{segment(index.name)}/_mapping", body={"properties": missing})
    except ClusterRefused as error:
        if hint := _remedy(index, error):
            raise ClusterRefused(
                f"'{index.name}' takes no new fields: {error.reason}; {hint}",
                status=error.status,
                error_type=error.error_type,
                reason=error.reason,
            ) from None
        raise
    return True


def _remedy(index: ConcreteIndex, error: ClusterRefused) -> str:
    if "Limit of total fields" in error.reason:
        return "raise index.mapping.total_fields.limit by 5"
    if error.error_type == "cluster_block_exception":
        return f"lift {index.blocked or 'the block'} first"
    return ""


async def _missing(cluster: Cluster, index: str, wanted: dict[str, Any]) -> dict[str, Any]:
    """Which of our fields `index` lacks; a field that is right is not sent again, that could clear what else it has."""
    asked = ",".join((ENRICHED, *(f"{SIRA}.{name}" for name in wanted[SIRA]["properties"]), SIRA))
    place = f"/{segment(index)}/_mapping"
    fields = await cluster.request("GET", f"{place}/field/{asked}", params={"include_defaults": True})
    whole = await cluster.request("GET", place)
    missing: dict[str, Any] = {}
    with expected(f"the mapping of '{index}'"):
        found: dict[str, dict[str, Any]] = {
            name: next(iter(f["mapping"].values()), {})
            for name, f in fields.get(index, {"mappings": {}})["mappings"].items()
        }
        properties = whole[index]["mappings"].get("properties", {})
        if ENRICHED not in properties:
            missing[ENRICHED] = wanted[ENRICHED]
        else:
            _check_enriched(index, found.get(ENRICHED, {}), wanted[ENRICHED])
        ours = wanted[SIRA]["properties"]
        if (
            "properties" not in properties.get(SIRA, {"properties": {}})
            or properties.get(SIRA, {}).get("enabled") is False
        ):
            raise ConfigurationError(
                f"'{index}' has a field '{SIRA}' of its own; sira-es needs that name: reindex without it"
            )
        for name, mapping in ours.items():
            there = found.get(f"{SIRA}.{name}", mapping).get("type")
            if there != mapping["type"]:
                problem = f"'{SIRA}.{name}' of '{index}' is mapped as {there}, not {mapping['type']}"
                raise ConfigurationError(f"{problem}; reindex without it")
        if lacking := {name: mapping for name, mapping in ours.items() if f"{SIRA}.{name}" not in found}:
            missing[SIRA] = {"properties": lacking}
    return missing


def _check_enriched(index: str, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    if found.get("type") != "text":
        kind = found.get("type") or "object"
        raise ConfigurationError(f"'{ENRICHED}' of '{index}' is mapped as {kind}, not text; reindex without it")
    for key in ("analyzer", "search_analyzer"):
        there = found.get(key) or found.get("analyzer") or "default"
        if there != wanted[key]:
            problem = f"'{ENRICHED}' of '{index}' has the {key} '{there}', the main field '{wanted[key]}'"
            raise ConfigurationError(f"{problem}; set main_field to a field with the former, or reindex")
    if found.get("norms") is False:
        raise ConfigurationError(f"'{ENRICHED}' of '{index}' has no norms, which its weight needs; reindex without it")
