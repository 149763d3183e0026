"""The ingest pipelines of ingest_pipelines/, set on the indices of a target, and taken off again.

Ours is the final pipeline of an index, so that it sees the document as it will be stored, whatever ran before. An index
that has a final pipeline keeps it untouched: the index gets one that calls it, and then ours.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sira_es.cluster.connect import Cluster, expected, segment
from sira_es.cluster.target import Target
from sira_es.errors import ClusterRefused, UnsupportedError
from sira_es.resources import filled

__all__ = ["install_pipeline", "pipeline_body", "pipeline_name", "remove_pipeline"]

_SETTING = "index.final_pipeline"
_NONE = "_none"
_MADE = "Made by sira-es"
_AFTER = "-after-"
_PIPELINE = "pipeline"
_CHAIN = 2  # the customer's pipeline, then ours


def pipeline_name(target: Target) -> str:
    """The name of our pipeline for a target."""
    return "sira-es-" + re.sub("[*,]", "_", target.name)


def pipeline_body(fields: Sequence[str]) -> dict[str, Any]:
    """The pipeline that drops `enriched_terms` and `sira` from documents whose text fields no longer match the hash."""
    body: dict[str, Any] = filled("ingest_pipelines", "drop_stale_terms.json", fields=[f.split(".") for f in fields])
    return body


async def install_pipeline(cluster: Cluster, target: Target, fields: Sequence[str]) -> dict[str, str]:
    """Set our pipeline on every index of the target; the final pipeline of each, by index. Run again, it upgrades.

    Raises ClusterRefused where that is not allowed, UnsupportedError for a cluster that runs no scripts.
    """
    ours = pipeline_name(target)
    try:
        await _put(cluster, ours, pipeline_body(fields))
    except ClusterRefused as error:
        if error.status == 400:
            raise UnsupportedError(
                f"{cluster.engine} takes no pipeline with a script: {error.reason}; 'sira-es enrich --follow' finds changes too"
            ) from None
        raise
    finals, replaced = {}, set()
    for index, current in (await _finals(cluster, target)).items():
        made, existing = await _behind(cluster, current)
        wanted = f"{ours}{_AFTER}{existing}" if existing else ours
        if existing:
            await _put(cluster, wanted, filled("ingest_pipelines", "after_existing.json", existing=existing, ours=ours))
        if wanted != current:
            await _set_final(cluster, index, wanted)
            replaced |= made
        finals[index] = wanted
    await _delete_unused(cluster, replaced - {ours, *finals.values()})
    return finals


async def remove_pipeline(cluster: Cluster, target: Target) -> dict[str, str]:
    """Give every index of the target back the final pipeline it had, and delete ours; the final pipelines, by index.

    Raises UnsupportedError, when that is done, where one of ours is still in use elsewhere: it stays, or writes would fail.
    """
    ours = pipeline_name(target)
    finals, unused = {}, {ours}
    for index, current in (await _finals(cluster, target)).items():
        made, existing = await _behind(cluster, current)
        if made:
            await _set_final(cluster, index, existing or None)
        finals[index] = existing or _NONE
        unused |= made
    if left := await _delete_unused(cluster, unused):
        name, users = next(iter(left.items()))
        raise UnsupportedError(
            f"the pipeline '{name}' is still used by {', '.join(users)} and stays, or writes there would fail; "
            "take it out there (of an index: 'pipeline remove --index' with its own name), then run this again"
        )
    return finals


async def _behind(cluster: Cluster, final: str) -> tuple[set[str], str]:
    """Which pipelines of ours a final pipeline consists of, for whatever target, and the customer's that runs with them."""
    if final == _NONE:
        return set(), ""
    body = await _pipeline(cluster, final)
    if not str(body.get("description", "")).startswith(_MADE):
        return set(), final
    with expected(f"the pipeline '{final}'"):
        called = [p["pipeline"]["name"] for p in body["processors"] if "pipeline" in p]
    if len(called) != _CHAIN:
        return {final}, ""
    made, existing = await _behind(cluster, called[0])
    return made | {final, called[1]}, existing


async def _delete_unused(cluster: Cluster, names: Collection[str]) -> dict[str, list[str]]:
    """Delete pipelines that nothing names any more; those that are named stay, each with where."""
    left = {}
    places = await _places(cluster) if names else {}
    chains = {  # of ours: each is called by nothing but what named it, and may have been replaced there
        place
        for (kind, place), named in places.items()
        if kind == _PIPELINE and named & set(names) and any(text.startswith(_MADE) for text in named)
    }
    # One that calls another goes first.
    for name in sorted(chains.union(names), key=lambda name: (_AFTER not in name, name)):
        own = (_PIPELINE, name)
        if users := [f"{where[0]} '{where[1]}'" for where, named in places.items() if name in named and where != own]:
            left[name] = users
            continue
        try:
            await cluster.request("DELETE", f"/_ingest/pipeline/{segment(name)}")
        except ClusterRefused as error:
            if error.status == 400:  # Elasticsearch, of a pipeline that an index or template names
                left[name] = ["an index or a template"]
                continue
            if error.status != 404:
                raise
        places.pop(own, None)
    return left


async def _places(cluster: Cluster) -> dict[tuple[str, str], set[str]]:
    """What may name a pipeline, by kind and name, with all the texts in it, as far as it may be looked at."""
    everywhere: dict[str, str | int | bool] = {"flat_settings": True, "expand_wildcards": "all"}
    found: dict[tuple[str, str], set[str]] = {}
    for kind, path, params in (
        ("index", f"/_all/_settings/{_SETTING},index.default_pipeline", everywhere),
        (_PIPELINE, "/_ingest/pipeline", {}),
        ("template", "/_index_template", {}),
        ("template", "/_component_template", {}),
        ("template", "/_template", {}),
    ):
        try:
            answer = await cluster.request("GET", path, params=params)
        except ClusterRefused:
            continue
        for place, said in _placed(answer):
            found.setdefault((kind, place), set()).update(_texts(said))
    return found


def _placed(answer: Any) -> Iterator[tuple[str, Any]]:
    """Names and contents of an answer: an object by name, or a list of objects with a name under one key."""
    for key, value in answer.items() if isinstance(answer, Mapping) else ():
        if isinstance(value, list):
            yield from ((str(v.get("name", "")), v) for v in value if isinstance(v, Mapping))
        else:
            yield str(key), value


def _texts(value: Any) -> Iterator[str]:
    """All texts in a JSON value, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(inner)


async def _finals(cluster: Cluster, target: Target) -> dict[str, str]:
    settings = await cluster.request(
        "GET", f"/{segment(target.name)}/_settings/{_SETTING}", params={"flat_settings": True}
    )
    with expected(f"the settings of '{target.name}'"):
        return {i.name: settings.get(i.name, {}).get("settings", {}).get(_SETTING, _NONE) for i in target.indices}


async def _pipeline(cluster: Cluster, name: str) -> Mapping[str, Any]:
    """The body of a pipeline; empty where there is none."""
    try:
        found = await cluster.request("GET", f"/_ingest/pipeline/{segment(name)}")
    except ClusterRefused as error:
        if error.status == 404:
            return {}
        raise
    with expected(f"the pipeline '{name}'"):
        body: Mapping[str, Any] = found[name]
        return body


async def _put(cluster: Cluster, name: str, body: Mapping[str, Any]) -> None:
    await cluster.request("PUT", f"/_ingest/pipeline/{segment(name)}", body=body)


async def _set_final(cluster: Cluster, index: str, name: str | None) -> None:
    await cluster.request("PUT", f"/{segment(index)}/_settings", body={_SETTING: name})
