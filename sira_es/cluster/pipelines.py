"""The ingest pipelines of ingest_pipelines/, set on the indices of a target, and taken off again.

Ours is the final pipeline of an index, so that it sees the document as it will be stored, whatever ran before. An index
that has a final pipeline keeps it untouched: the index gets one that calls it, and then ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sira_es.cluster.connect import Cluster, expected, segment
from sira_es.cluster.target import Target
from sira_es.errors import ClusterRefused, UnsupportedError
from sira_es.resources import filled

__all__ = ["install_pipeline", "pipeline_body", "pipeline_name", "remove_pipeline"]

_SETTING = "index.final_pipeline"
_NONE = "_none"


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
    finals = {}
    for index, current in (await _finals(cluster, target)).items():
        wanted = ours
        if current != _NONE and await _is_ours(cluster, current, ours):
            wanted = current
        elif current != _NONE:
            wanted = f"{ours}-after-{current}"
            await _put(cluster, wanted, filled("ingest_pipelines", "after_existing.json", existing=current, ours=ours))
        if wanted != current:
            await _set_final(cluster, index, wanted)
        finals[index] = wanted
    return finals


async def remove_pipeline(cluster: Cluster, target: Target) -> dict[str, str]:
    """Give every index of the target back the final pipeline it had, and delete ours; the final pipelines, by index."""
    ours = pipeline_name(target)
    finals, unused = {}, {ours}
    for index, current in (await _finals(cluster, target)).items():
        finals[index] = current
        if current == _NONE or not await _is_ours(cluster, current, ours):
            continue
        existing = "" if current == ours else await _called_before(cluster, current, ours)
        await _set_final(cluster, index, existing or None)
        finals[index] = existing or _NONE
        unused.add(current)
    for name in sorted(unused, reverse=True):
        try:
            await cluster.request("DELETE", f"/_ingest/pipeline/{segment(name)}")
        except ClusterRefused as error:
            if error.status != 404:
                raise
    return finals


async def _finals(cluster: Cluster, target: Target) -> dict[str, str]:
    settings = await cluster.request(
        "GET", f"/{segment(target.name)}/_settings/{_SETTING}", params={"flat_settings": True}
    )
    with expected(f"the settings of '{target.name}'"):
        return {i.name: settings.get(i.name, {}).get("settings", {}).get(_SETTING, _NONE) for i in target.indices}


async def _is_ours(cluster: Cluster, name: str, ours: str) -> bool:
    return name == ours or bool(await _called_before(cluster, name, ours))


async def _called_before(cluster: Cluster, name: str, ours: str) -> str:
    """The customer's pipeline that `name`, one of ours, calls first; empty where it is none of ours, or is gone."""
    try:
        found = await cluster.request("GET", f"/_ingest/pipeline/{segment(name)}")
    except ClusterRefused as error:
        if error.status == 404:
            return ""
        raise
    with expected(f"the pipeline '{name}'"):
        called = [p.get("pipeline", {}).get("name", "") for p in found[name]["processors"]]
    return str(called[0]) if len(called) == 2 and called[1] == ours else ""


async def _put(cluster: Cluster, name: str, body: Mapping[str, Any]) -> None:
    await cluster.request("PUT", f"/_ingest/pipeline/{segment(name)}", body=body)


async def _set_final(cluster: Cluster, index: str, name: str | None) -> None:
    await cluster.request("PUT", f"/{segment(index)}/_settings", body={_SETTING: name})
