"""An index that keeps no source, but makes it from the values of its fields: nothing is lost by an update."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.documents import fill, make_index, sources, undone
from cluster.enriching import Bench, answer, others, recorded
from sira_es.cluster.checks import preflight
from sira_es.cluster.connect import Cluster
from sira_es.settings import IndexSettings

pytestmark = pytest.mark.anyio

MAPPING: dict[str, Any] = {
    "body": {"type": "text", "store": True},
    "long": {"type": "text", "store": True},
    "tags": {"type": "keyword"},
    "count": {"type": "integer"},
    "share": {"type": "double"},
    "when": {"type": "date"},
    "place": {"type": "geo_point"},
    "ip": {"type": "ip"},
    "flag": {"type": "boolean"},
    "maker": {"properties": {"name": {"type": "keyword"}, "since": {"type": "integer"}}},
}
FULL: dict[str, Any] = {
    "body": "fan",
    "long": ["second", "first", "first"],
    "tags": ["z", "a", "a"],
    "count": [3, 1, 1],
    "share": 0.1,
    "when": "2026-01-01T00:00:00.123Z",
    "place": {"lat": 1.23456, "lon": 2.34567},
    "ip": "192.0.2.1",
    "flag": True,
    "maker": {"name": "x", "since": 1999},
}
ONLY_WHERE_SYNTHETIC: dict[str, Any] = {
    "parts": {"type": "nested", "properties": {"text": {"type": "text", "store": True}, "kind": {"type": "keyword"}}},
    "rest": {"type": "object", "enabled": False},
    "labels": {"type": "flattened"},
    "loose": {"type": "integer", "ignore_malformed": True},
    "unsearched": {"type": "keyword", "index": False, "doc_values": False},
    "vector": {"type": "dense_vector", "dims": 3, "similarity": "l2_norm"},
}
MORE: dict[str, Any] = {
    "parts": [{"text": "blade two", "kind": "b"}, {"text": "blade one", "kind": "a"}],
    "rest": {"any": ["thing", 1, {"deep": None}]},
    "labels": {"a": {"b": "c"}, "l": ["y", "x"]},
    "loose": "not a number",
    "unsearched": ["q", "p"],
    "vector": [0.1, 0.2, 0.3],
}


async def test_every_value_of_a_synthetic_source_is_the_same_after_a_run_and_after_its_undoing(
    cluster: Cluster, index_name: str, tmp_path: Path
) -> None:
    """elastic/elasticsearch#133203: updates where `_source` is not stored; here proven to lose nothing."""
    if cluster.engine.family == "opensearch":
        settings, mapping, full = {"index.derived_source.enabled": True}, MAPPING, FULL
    else:
        settings = {"index.mapping.source.mode": "synthetic"}  # type: ignore[dict-item]
        mapping, full = {**MAPPING, **ONLY_WHERE_SYNTHETIC}, {**FULL, **MORE}
    await make_index(cluster, index_name, settings=settings, mappings={"properties": mapping})
    await fill(cluster, index_name, {"full": full, "bare": {"body": "heat"}, "several": {"body": ["noise", "dust"]}})
    before = await sources(cluster, index_name)
    await preflight(cluster, index_name, ["body", "long"])
    bench = Bench(cluster, index_name, tmp_path, IndexSettings(text_fields=["body", "long"]))
    job = await bench.job(recorded(dict.fromkeys(before, answer("zephyr", "draught"))))
    report = await job.run()
    assert (report.enriched, report.failed) == (3, {})
    after = await sources(cluster, index_name)
    assert {key: others(source) for key, source in after.items()} == before
    assert all(set(source["enriched_terms"]) == {"zephyr", "draught"} for source in after.values())
    assert (await (await bench.job(recorded({}))).run()).done == 0, "what was written counts as enriched"
    await job.undo()
    left = await undone(cluster, index_name)
    assert {key: others(source) for key, source in left.items()} == before
    assert not any(source.get("enriched_terms") or source.get("sira") for source in left.values())
