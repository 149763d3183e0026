"""Bulk writes that lose nothing and touch nothing else: on a real node, with faults on the wire."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cluster.documents import fill, make_index, read_all, scripts_run, sources
from cluster.wire import Forward, Reply, Seen, Wire
from sira_es.cluster import write as writing
from sira_es.cluster.connect import Cluster
from sira_es.cluster.scan import Hit
from sira_es.cluster.schema import create_index, ensure_fields
from sira_es.cluster.target import describe
from sira_es.cluster.write import Change, Outcome, index_documents, refresh, update
from sira_es.errors import ClusterError, ClusterRefused, InputError

pytestmark = pytest.mark.anyio
OURS: Mapping[str, Any] = {"enriched_terms": ["red panda", "bear"], "sira": {"source_hash": "h", "recipe": "r"}}
ODD: Mapping[str, Any] = {
    "body": "text",
    "float": 1.0,
    "big": 12345678901234567890,
    "small": 1e-300,
    "null": None,
    "empty": {},
    "list": [1, [2, {"a": None}], []],
    "nested": {"sira": 1, "enriched_terms": 2},
    "dotted.key": {"x": "y"},
    "unicode": "ü \u0000 \U0001f600 \u2028",
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_PAUSE", 0.005)


async def documents(cluster: Cluster, name: str, content: Mapping[str, Any] | int = 3, **index: Any) -> list[Hit]:
    """An index with our fields mapped, and its documents as a scan reads them, by id."""
    await make_index(cluster, name, **index)
    await ensure_fields(cluster, await describe(cluster, name, ["body"]), "body")
    await fill(cluster, name, content)
    return await read_again(cluster, name)


async def read_again(cluster: Cluster, name: str) -> list[Hit]:
    await refresh(cluster, name)
    hits = await read_all(cluster, await describe(cluster, name, ["body"]), page_size=1000)
    return sorted(hits, key=lambda hit: (len(hit.id), hit.id))


def enriched(hits: Sequence[Hit]) -> list[Change]:
    return [Change(hit, OURS) for hit in hits]


def statuses(outcomes: Sequence[Outcome]) -> list[str]:
    return [outcome.status for outcome in outcomes]


# Our fields


async def test_our_fields_are_written_and_searchable_and_all_else_stays(cluster: Cluster, index_name: str) -> None:
    """[appbaseio/ai-scripts: whole-document upserts]"""
    hits = await documents(
        cluster, index_name, {"1": ODD}, mappings={"dynamic": False, "properties": {"body": {"type": "text"}}}
    )
    before = await sources(cluster, index_name)
    assert statuses(await update(cluster, enriched(hits))) == ["updated"]
    assert await sources(cluster, index_name) == {"1": {**before["1"], **OURS}}
    found = await cluster.request("GET", f"/{index_name}/_count", params={"q": "enriched_terms:panda"})
    assert found["count"] == 1


async def test_outcomes_stand_in_the_order_of_the_changes(cluster: Cluster, index_name: str) -> None:
    hits = await documents(cluster, index_name, 20, shards=3)
    order = [hits[i] for i in (7, 3, 19, 0, 11)]
    outcomes = await update(cluster, enriched(order))
    assert [(o.index, o.id, o.status) for o in outcomes] == [(index_name, hit.id, "updated") for hit in order]


async def test_writing_the_same_again_changes_nothing(cluster: Cluster, index_name: str) -> None:
    await update(cluster, enriched(await documents(cluster, index_name, 1)))
    (hit,) = await read_again(cluster, index_name)
    assert statuses(await update(cluster, enriched([hit]))) == ["noop"]
    assert await read_again(cluster, index_name) == [hit]


async def test_nothing_to_do_asks_nothing(wired: Cluster, wire: Wire) -> None:
    assert await update(wired, []) == []
    assert wire.seen == []


async def test_other_fields_than_ours_are_never_written(wired: Cluster, wire: Wire, index_name: str) -> None:
    (hit,) = await documents(wired, index_name, 1)
    wire.clear()
    with pytest.raises(ValueError, match="body"):
        await update(wired, [Change(hit, {"enriched_terms": [], "body": "x"})])
    assert wire.seen == []


async def test_a_document_that_changed_meanwhile_keeps_the_change(cluster: Cluster, index_name: str) -> None:
    """[opensearch-project/OpenSearch#7413, mozilla/sumo#718: lost updates]"""
    hits = await documents(cluster, index_name, 2)
    await fill(cluster, index_name, {"0": {"body": "newer", "price": 7}})
    outcomes = await update(cluster, enriched(hits))
    assert statuses(outcomes) == ["conflict", "updated"]
    assert (await sources(cluster, index_name))["0"] == {"body": "newer", "price": 7}
    assert "required seqNo" in outcomes[0].reason


async def test_a_document_that_is_gone_is_missing_and_not_made_again(cluster: Cluster, index_name: str) -> None:
    hits = await documents(cluster, index_name, 2)
    await cluster.request("DELETE", f"/{index_name}/_doc/0", params={"refresh": True})
    assert statuses(await update(cluster, enriched(hits))) == ["missing", "updated"]
    assert list(await sources(cluster, index_name)) == ["1"]


async def test_an_index_that_is_gone_is_not_made_again(cluster: Cluster, index_name: str) -> None:
    """A bulk update on an index that does not exist creates it, empty."""
    hits = await documents(cluster, f"{index_name}-gone", 2) + await documents(cluster, f"{index_name}-here", 1)
    await cluster.request("DELETE", f"/{index_name}-gone")
    outcomes = await update(cluster, enriched(hits))
    assert statuses(outcomes) == ["missing", "missing", "updated"]
    assert outcomes[0].reason == "the index is gone"
    with pytest.raises(ClusterRefused, match="no such index"):
        await cluster.request("GET", f"/{index_name}-gone")


async def test_an_index_made_anew_gets_no_fields_that_the_cluster_would_map_by_guess(
    cluster: Cluster, index_name: str
) -> None:
    hits = await documents(cluster, index_name, 2)
    await cluster.request("DELETE", f"/{index_name}")
    await make_index(cluster, index_name)
    await fill(cluster, index_name, 2)
    outcomes = await update(cluster, enriched(hits))
    assert statuses(outcomes) == ["conflict", "conflict"]
    assert "made anew" in outcomes[0].reason
    mapping = await cluster.request("GET", f"/{index_name}/_mapping")
    assert list(mapping[index_name]["mappings"]["properties"]) == ["body"]


async def test_a_document_with_routing_is_found(cluster: Cluster, index_name: str) -> None:
    mappings = {"_routing": {"required": True}, "properties": {"body": {"type": "text"}}}
    await make_index(cluster, index_name, shards=3, mappings=mappings)
    await ensure_fields(cluster, await describe(cluster, index_name, ["body"]), "body")
    for routing in ("a", "b", "c"):
        await fill(cluster, index_name, {f"of-{routing}": {"body": "x"}}, routing=routing)
    assert statuses(await update(cluster, enriched(await read_again(cluster, index_name)))) == ["updated"] * 3


async def test_a_refused_item_is_told_and_the_others_are_written(cluster: Cluster, index_name: str) -> None:
    hits = await documents(cluster, index_name, 3)
    changes = enriched(hits)
    changes[1] = Change(hits[1], {"sira": {"enriched_at": "no date"}})
    outcomes = await update(cluster, changes)
    assert statuses(outcomes) == ["updated", "failed", "updated"]
    assert "parsing_exception" in outcomes[1].reason
    assert "\n" not in outcomes[1].reason


async def test_a_full_disk_is_a_failure_and_not_waited_for(wired: Cluster, wire: Wire, index_name: str) -> None:
    """Flood stage answers 429 as a busy cluster does."""
    hits = await documents(wired, index_name, 2)
    block = "index.blocks.read_only_allow_delete"
    await wired.request("PUT", f"/{index_name}/_settings", body={block: True})
    outcomes = await update(wired, enriched(hits))
    assert statuses(outcomes) == ["failed", "failed"]
    assert outcomes[0].reason.startswith("cluster_block_exception: ")
    assert wire.count("/_bulk") == 1 + 1  # the first one filled the index
    await wired.request("PUT", f"/{index_name}/_settings", body={block: None})


async def test_pipelines_of_the_index_do_not_run(cluster: Cluster, index_name: str) -> None:
    """[elastic/elasticsearch#36219, #105804]"""
    try:
        body = {"processors": [{"set": {"field": "touched", "value": True}}]}
        await cluster.request("PUT", f"/_ingest/pipeline/{index_name}", body=body)
    except ClusterRefused as error:
        pytest.skip(f"no such processor on this node: {error.reason}")
    hits = await documents(cluster, index_name, 1)
    await cluster.request("PUT", f"/{index_name}/_settings", body={"index.final_pipeline": index_name})
    assert statuses(await update(cluster, enriched(hits))) == ["updated"]
    assert "touched" not in (await sources(cluster, index_name))["0"]
    await cluster.request("PUT", f"/{index_name}/_settings", body={"index.final_pipeline": "_none"})
    await cluster.request("DELETE", f"/_ingest/pipeline/{index_name}")


# A cluster that is busy, or away


def busy_items(share: int) -> Any:
    """Every `share`-th item is answered 429 and kept from the node, as a full queue would; each item once at most."""
    refused: set[str] = set()

    async def handler(seen: Seen, forward: Forward) -> Reply:
        lines = seen.body.splitlines(keepends=True)
        pairs = [(json.loads(lines[i]), lines[i] + lines[i + 1]) for i in range(0, len(lines), 2)]
        keys = [next(iter(action.values()))["_id"] for action, _ in pairs]
        now = {k for i, k in enumerate(keys) if i % share == 0 and k not in refused}
        refused.update(now)
        seen.body = b"".join(both for key, (_, both) in zip(keys, pairs, strict=True) if key not in now)
        done = iter((await forward(seen)).json["items"] if seen.body else [])
        error = {"type": "es_rejected_execution_exception", "reason": "queue is full"}
        return Reply.of(
            200, {"items": [{"update": {"status": 429, "error": error}} if k in now else next(done) for k in keys]}
        )

    return handler


async def test_items_refused_by_a_full_queue_are_sent_again_until_all_have_landed(
    wired: Cluster, wire: Wire, index_name: str
) -> None:
    """[elastic/elasticsearch#103665, opensearch-js#417; ml-commons#2438: failures inside a 200]"""
    hits = await documents(wired, index_name, 100)
    wire.clear()
    wire.on("/_bulk", handler=busy_items(3))
    outcomes = await update(wired, enriched(hits))
    assert Counter(statuses(outcomes)) == {"updated": 100}
    sizes = [len(seen.reply.json["items"]) for seen in wire.requests("/_bulk") if seen.reply]
    assert sizes[0] == 100
    assert max(sizes[1:]) <= 50
    assert all("enriched_terms" in source for source in (await sources(wired, index_name)).values())


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_request_refused_as_a_whole_is_sent_again_in_smaller_parts(
    wired: Cluster, wire: Wire, index_name: str, status: int
) -> None:
    hits = await documents(wired, index_name, 40)
    wire.clear()
    wire.on("/_bulk", status=status, body=b"", times=2)
    assert Counter(statuses(await update(wired, enriched(hits)))) == {"updated": 40}
    assert [len(seen.body.splitlines()) // 2 for seen in wire.requests("/_bulk")][:3] == [40, 20, 10]


async def test_a_request_that_is_too_large_is_cut(wired: Cluster, wire: Wire, index_name: str) -> None:
    hits = await documents(wired, index_name, 8)

    async def limit(seen: Seen, forward: Forward) -> Reply:
        return Reply.of(413, b"") if len(seen.body) > 700 else await forward(seen)

    wire.clear()
    wire.on("/_bulk", handler=limit)
    large = [Change(hits[0], {"enriched_terms": ["x" * 700]}), *enriched(hits[1:])]
    outcomes = await update(wired, large)
    assert statuses(outcomes) == ["failed"] + ["updated"] * 7
    assert "larger than the cluster takes" in outcomes[0].reason


async def test_a_lost_answer_leaves_every_document_written_or_in_conflict(
    wired: Cluster, wire: Wire, index_name: str
) -> None:
    hits = await documents(wired, index_name, 10)
    wire.clear()
    wire.on("/_bulk", drop="after", times=1)
    outcomes = await update(wired, enriched(hits))
    assert set(statuses(outcomes)) <= {"updated", "conflict"}
    assert all("enriched_terms" in source for source in (await sources(wired, index_name)).values())


async def test_what_the_cluster_never_takes_is_failed_and_what_it_took_is_not(
    wired: Cluster, wire: Wire, index_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_MOST_ITEMS", 10)
    hits = await documents(wired, index_name, 30)

    async def one_part(seen: Seen, forward: Forward) -> Reply:
        if wire.count("/_bulk") == 1:
            return await forward(seen)
        return Reply.of(503, {"error": {"type": "unavailable", "reason": "no master"}, "status": 503})

    wire.clear()
    wire.on("/_bulk", handler=one_part)
    outcomes = await update(wired, enriched(hits))
    assert statuses(outcomes) == ["updated"] * 10 + ["failed"] * 20
    assert outcomes[-1].reason == "unavailable: no master"


async def test_missing_privileges_are_an_error_at_once(wired: Cluster, wire: Wire, index_name: str) -> None:
    hits = await documents(wired, index_name, 3)
    wire.clear()
    wire.on("/_bulk", status=403, body={"error": {"type": "security_exception", "reason": "no"}, "status": 403})
    with pytest.raises(ClusterRefused, match="grant what is missing"):
        await update(wired, enriched(hits))
    assert wire.count("/_bulk") == 1


async def test_fewer_answers_than_items_are_an_error(wired: Cluster, wire: Wire, index_name: str) -> None:
    hits = await documents(wired, index_name, 3)
    wire.on("/_bulk", edit=lambda answer: {"items": answer["items"][:2]})
    with pytest.raises(ClusterError, match="2 answers for 3 items"):
        await update(wired, enriched(hits))


# Removing


async def test_removing_leaves_the_documents_exactly_as_they_were(cluster: Cluster, index_name: str) -> None:
    if not await scripts_run(cluster):
        pytest.skip("no scripts on this node")
    mappings = {"dynamic": False, "properties": {"body": {"type": "text"}}}
    hits = await documents(cluster, index_name, {"1": ODD, "2": {"body": "plain"}}, mappings=mappings)
    before = await sources(cluster, index_name)
    await update(cluster, enriched(hits))
    removed = await update(cluster, [Change(hit, None) for hit in await read_again(cluster, index_name)])
    assert removed == [Outcome(index_name, "1", "updated"), Outcome(index_name, "2", "updated")]
    after = await sources(cluster, index_name)
    assert after == before
    assert json.dumps(after) == json.dumps(before)


async def test_removing_where_there_is_nothing_of_ours_changes_nothing(cluster: Cluster, index_name: str) -> None:
    if not await scripts_run(cluster):
        pytest.skip("no scripts on this node")
    hits = await documents(cluster, index_name, 2)
    assert statuses(await update(cluster, [Change(hit, None) for hit in hits])) == ["noop", "noop"]
    assert await read_again(cluster, index_name) == hits


async def test_removing_is_conditional_too(cluster: Cluster, index_name: str) -> None:
    await update(cluster, enriched(await documents(cluster, index_name, 1)))
    hits = await read_again(cluster, index_name)
    await fill(cluster, index_name, {"0": {"body": "newer", "enriched_terms": "theirs"}})
    assert statuses(await update(cluster, [Change(hit, None) for hit in hits])) == ["conflict"]
    assert (await sources(cluster, index_name))["0"] == {"body": "newer", "enriched_terms": "theirs"}


async def test_without_scripts_our_fields_are_set_to_null_and_that_is_said(
    wired: Cluster, wire: Wire, index_name: str
) -> None:
    await update(wired, enriched(await documents(wired, index_name, 3)))
    hits = await read_again(wired, index_name)

    async def no_scripts(seen: Seen, forward: Forward) -> Reply:
        if b'"script"' not in seen.body:
            return await forward(seen)
        cause = {"type": "illegal_argument_exception", "reason": "script_lang not supported [painless]"}
        error = {"type": "illegal_argument_exception", "reason": "failed to execute script", "caused_by": cause}
        return Reply.of(200, {"items": [{"update": {"status": 400, "error": error}} for _ in seen.lines[::2]]})

    if await scripts_run(wired):
        wire.on("/_bulk", handler=no_scripts)
    outcomes = await update(wired, [Change(hit, None) for hit in hits])
    assert statuses(outcomes) == ["updated"] * 3
    assert outcomes[0].reason == "set to null: this cluster runs no scripts"
    assert (await sources(wired, index_name))["0"] == {
        "body": "document number 0",
        "enriched_terms": None,
        "sira": None,
    }
    pending = {"query": {"bool": {"must_not": {"exists": {"field": "sira.source_hash"}}}}}
    assert (await wired.request("POST", f"/{index_name}/_count", body=pending))["count"] == 3


# Loading


async def test_a_collection_is_indexed_and_searchable(cluster: Cluster, index_name: str) -> None:
    await create_index(cluster, index_name, analyzer="simple", shards=2)
    loaded = await index_documents(cluster, index_name, ((str(i), {"text": f"word{i % 7}"}) for i in range(1200)))
    assert (loaded.documents, loaded.failed) == (1200, ())
    assert (await cluster.request("GET", f"/{index_name}/_count"))["count"] == 1200


async def test_documents_may_come_one_after_the_other(cluster: Cluster, index_name: str) -> None:
    async def stream() -> Any:
        for i in range(3):
            yield str(i), {"text": "x"}

    await create_index(cluster, index_name, analyzer="simple")
    assert (await index_documents(cluster, index_name, stream())).documents == 3


async def test_documents_that_cannot_be_indexed_are_listed_and_the_others_are(
    cluster: Cluster, index_name: str
) -> None:
    await create_index(cluster, index_name, analyzer="simple")
    bad: list[tuple[str, dict[str, Any]]] = [
        ("object", {"text": {"a": 1}}),
        ("", {"text": "x"}),
        ("é" * 257, {"text": "x"}),
    ]
    good = [(str(i), {"text": "x"}) for i in range(5)]
    loaded = await index_documents(cluster, index_name, [good[0], *bad, *good[1:]])
    assert loaded.documents == 5
    reasons = {outcome.id: outcome.reason for outcome in loaded.failed}
    assert set(reasons) == {"object", "", "é" * 257}
    assert "parsing_exception" in reasons["object"]
    assert reasons[""] == reasons["é" * 257] == "its id must have 1 to 512 bytes"


async def test_loading_goes_on_through_busy_spells(wired: Cluster, wire: Wire, index_name: str) -> None:
    await create_index(wired, index_name, analyzer="simple")
    wire.on("/_bulk", status=429, body={"error": {"type": "rejected_execution_exception"}}, times=5)
    assert (await index_documents(wired, index_name, ((str(i), {"text": "x"}) for i in range(700)))).documents == 700
    assert len(await sources(wired, index_name)) == 700


async def test_an_index_that_is_not_there_is_not_made_by_loading(cluster: Cluster, index_name: str) -> None:
    with pytest.raises(InputError, match=f"no index '{index_name}'"):
        await index_documents(cluster, index_name, [("1", {"text": "x"})])
    with pytest.raises(ClusterRefused, match="no such index"):
        await cluster.request("GET", f"/{index_name}")


async def test_a_refresh_that_is_not_allowed_is_not_missed(wired: Cluster, wire: Wire, index_name: str) -> None:
    """[ankane/searchkick#1714: OpenSearch Serverless has no `_refresh`]"""
    await create_index(wired, index_name, analyzer="simple")
    wire.on(f"/{index_name}/_refresh", status=404, body=b"")
    assert (await index_documents(wired, index_name, [("1", {"text": "x"})])).documents == 1
