"""Changes found by a date of the documents, where the cluster does not tell up to where everything is seen."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cluster.documents import fill, make_index, sources
from cluster.enriching import Bench, answer, fetched, recorded
from cluster.wire import Wire
from sira_es.cluster.connect import Cluster
from sira_es.errors import UnsupportedError
from sira_es.settings import IndexSettings, load_settings
from sira_es.sira import AsyncSira

pytestmark = pytest.mark.anyio
MAPPING = {"properties": {"body": {"type": "text"}, "changed": {"type": "date"}, "price": {"type": "integer"}}}
DATED = IndexSettings(text_fields=["body"], updated_field="changed")
LONG_AGO, EARLIER, NOW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z", "2026-02-01T00:05:00Z"


@pytest.fixture
async def bench(wired: Cluster, wire: Wire, index_name: str, tmp_path: Path) -> Bench:
    """Twenty enriched documents of a cluster that refuses to tell its checkpoints (no privilege `monitor`)."""
    wire.on("/.*/_stats.*", status=403, body={"error": {"type": "security_exception", "reason": "planted"}})
    await make_index(wired, index_name, mappings=MAPPING, shards=2)
    documents = {str(i): {"body": f"fan {i}", "changed": EARLIER if i == 0 else LONG_AGO} for i in range(20)}
    await fill(wired, index_name, documents)
    bench = Bench(wired, index_name, tmp_path, DATED)
    report = await run(bench)
    assert (report.enriched, report.failed) == (20, {})
    wire.seen.clear()
    return bench


async def run(bench: Bench, settings: IndexSettings = DATED) -> Any:
    answers = {str(i): answer("noise") for i in range(30)}
    return await (await bench.job(recorded(answers), settings=settings)).run()


async def test_a_pass_reads_what_has_a_later_date_alone(bench: Bench, wire: Wire) -> None:
    await fill(bench.cluster, bench.index, {"20": {"body": "new", "changed": NOW}})
    lines = [{"update": {"_index": bench.index, "_id": "7"}}, {"doc": {"body": "changed", "changed": NOW}}]
    await bench.cluster.request("POST", "/_bulk", lines=lines)
    before = (await sources(bench.cluster, bench.index))["7"]["sira"]["source_hash"]
    wire.seen.clear()
    report = await run(bench)
    assert sorted(fetched(wire)) == ["0", "20", "7"]  # 0 has the latest date of the pass before
    assert (report.enriched, report.done) == (21, 2)
    assert (await sources(bench.cluster, bench.index))["7"]["sira"]["source_hash"] != before


async def test_a_change_that_became_visible_late_is_found_all_the_same(bench: Bench, wire: Wire) -> None:
    late = "2026-01-31T23:59:30Z"  # half a minute before the latest date that the first pass saw
    lines = [{"update": {"_index": bench.index, "_id": "7"}}, {"doc": {"body": "changed", "changed": late}}]
    await bench.cluster.request("POST", "/_bulk", lines=lines)
    assert (await run(bench)).done == 1


async def test_documents_without_the_date_are_read_by_every_pass(bench: Bench, wire: Wire) -> None:
    lines = [{"index": {"_index": bench.index, "_id": "21"}}, {"body": "undated"}]
    await bench.cluster.request("POST", "/_bulk", lines=lines)
    await run(bench)
    lines = [{"update": {"_index": bench.index, "_id": "21"}}, {"doc": {"body": "undated and changed"}}]
    await bench.cluster.request("POST", "/_bulk", lines=lines)
    assert (await run(bench)).done == 1


async def test_a_date_in_the_future_hides_no_later_change(bench: Bench, wire: Wire) -> None:
    await fill(bench.cluster, bench.index, {"22": {"body": "planted", "changed": "2199-01-01T00:00:00Z"}})
    await run(bench)
    now = datetime.now(UTC).isoformat()
    lines = [{"update": {"_index": bench.index, "_id": "3"}}, {"doc": {"body": "changed", "changed": now}}]
    await bench.cluster.request("POST", "/_bulk", lines=lines)
    assert (await run(bench)).done == 1


async def test_a_failed_change_is_tried_again_though_its_date_is_past(bench: Bench) -> None:
    changes: list[Any] = []
    for key, date in (("7", "2026-03-01T00:00:00Z"), ("8", "2026-03-02T00:00:00Z")):
        changes += [{"update": {"_index": bench.index, "_id": key}}, {"doc": {"body": f"again {key}", "changed": date}}]
    await bench.cluster.request("POST", "/_bulk", lines=changes)
    first = await (await bench.job(recorded({"8": answer("noise")}))).run()
    assert first.failed == {"not recorded": 1}
    assert (await run(bench)).done == 1


async def test_without_the_setting_every_document_is_read(bench: Bench, wire: Wire) -> None:
    await run(bench, IndexSettings(text_fields=["body"]))
    assert len(fetched(wire)) == 20


async def test_where_checkpoints_are_told_they_count(
    wired: Cluster, wire: Wire, index_name: str, tmp_path: Path
) -> None:
    await make_index(wired, index_name, mappings=MAPPING)
    await fill(wired, index_name, {str(i): {"body": f"fan {i}", "changed": LONG_AGO} for i in range(5)})
    bench = Bench(wired, index_name, tmp_path, DATED)
    await run(bench)
    lines = [{"update": {"_index": index_name, "_id": "2"}}, {"doc": {"body": "changed, and the date is as it was"}}]
    await wired.request("POST", "/_bulk", lines=lines)
    assert (await run(bench)).done == 1


@pytest.mark.parametrize(("field", "what"), [("price", "integer"), ("nowhere", "not mapped")])
async def test_a_field_that_is_no_date_is_refused(bench: Bench, field: str, what: str) -> None:
    with pytest.raises(UnsupportedError, match=f"updated_field '{field}' .* is {what}; name a date"):
        await run(bench, IndexSettings(text_fields=["body"], updated_field=field))


async def test_a_follower_finds_a_change_without_reading_everything_again(
    bench: Bench, wire: Wire, tmp_path: Path
) -> None:
    file = tmp_path / "sira-es.yml"
    file.write_text(f"indices: {{{bench.index}: {{text_fields: [body], updated_field: changed}}}}")
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps({"id": str(i), "answer": answer("noise")}) + "\n" for i in range(30)))
    options = {"cluster.url": wire.url, "state": str(tmp_path)}
    async with AsyncSira(load_settings(file, **options), document_answers=answers) as sira:
        following = asyncio.create_task(sira.follow(bench.index, pause=0.2))
        before = (await sources(bench.cluster, bench.index))["7"]["sira"]["source_hash"]
        changed = {"doc": {"body": "changed", "changed": datetime.now(UTC).isoformat()}}
        await bench.cluster.request("POST", f"/{bench.index}/_update/7", params={"refresh": True}, body=changed)
        give_up = time.monotonic() + 30
        while (await sources(bench.cluster, bench.index))["7"]["sira"]["source_hash"] == before:
            assert time.monotonic() < give_up
            await asyncio.sleep(0.1)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert set(fetched(wire)) <= {"0", "7"}
