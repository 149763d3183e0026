"""Every document exactly once, or an error: on a real node, with faults on the wire."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from cluster.documents import fill, ids, make_index, read_all
from cluster.wire import Forward, Reply, Seen, Wire
from sira_es.cluster import scan as scanning
from sira_es.cluster.connect import Cluster
from sira_es.cluster.scan import reread, scan
from sira_es.cluster.target import Target, describe
from sira_es.errors import ClusterError, ClusterRefused, ClusterUnreachable

pytestmark = pytest.mark.anyio
PIT = "/_search/point_in_time|/_pit"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "_PAUSE", 0.01)


async def filled_index(cluster: Cluster, name: str, documents: int, shards: int = 1) -> Target:
    await make_index(cluster, name, shards=shards)
    await fill(cluster, name, documents)
    return await describe(cluster, name, ["body"])


def numbers(count: int) -> list[str]:
    return sorted(map(str, range(count)))


@pytest.mark.parametrize("shards", [1, 3, 5])
async def test_5000_documents_come_exactly_once_whatever_the_page_size(
    cluster: Cluster, index_name: str, shards: int
) -> None:
    """OpenSearch skips documents in sorts that are not unique over the shards of a point in time."""
    target = await filled_index(cluster, index_name, 5000, shards)
    expected = numbers(5000)
    for page_size in (7, 100, 1000):
        pages = [page async for page in scan(cluster, target, page_size=page_size)]
        assert ids([hit for page in pages for hit in page]) == expected
        assert max(map(len, pages)) <= page_size


async def test_pages_grow_while_the_next_one_is_asked_for_soon(cluster: Cluster, index_name: str) -> None:
    target = await filled_index(cluster, index_name, 1500)
    pages = [len(page) async for page in scan(cluster, target, page_size=300)]
    assert pages == [200, 250, 300, 300, 300, 150]


async def test_pages_are_small_where_they_are_worked_on_for_long(
    cluster: Cluster, index_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "_SOON", 0.3)
    target = await filled_index(cluster, index_name, 1200)
    sizes = []
    async for page in scan(cluster, target, page_size=300):
        sizes.append(len(page))
        await asyncio.sleep(0.5 if len(sizes) == 2 else 0)
    assert sizes == [200, 250, 200, 250, 300]


async def test_documents_after_very_long_ones_fill_a_page_again(
    cluster: Cluster, index_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "_MOST_CHARACTERS", 10_000)
    await make_index(cluster, index_name)
    texts = {str(i): {"body": "x " * (5000 if i < 10 else 5)} for i in range(400)}
    await fill(cluster, index_name, texts)
    pages = [page async for page in scan(cluster, await describe(cluster, index_name, ["body"]), page_size=10)]
    assert [len(page) for page in pages] == [10, 1, *[10] * 38, 9]


async def test_pages_of_long_documents_are_smaller(
    cluster: Cluster, index_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "_MOST_CHARACTERS", 10_000)
    await make_index(cluster, index_name)
    texts = {str(i): {"body": ["x " * 500, "y " * 500]} for i in range(40)}
    await fill(cluster, index_name, texts)
    target = await describe(cluster, index_name, ["body"])
    pages = [page async for page in scan(cluster, target, page_size=10)]
    assert [len(page) for page in pages] == [10, *[5] * 6]
    assert ids([hit for page in pages for hit in page]) == numbers(40)


async def test_all_indices_of_a_name_are_read(cluster: Cluster, index_name: str) -> None:
    await filled_index(cluster, f"{index_name}-a", 20, shards=2)
    await filled_index(cluster, f"{index_name}-b", 30)
    hits = await read_all(cluster, await describe(cluster, f"{index_name}-*", ["body"]), page_size=7)
    assert sorted((hit.index, hit.id) for hit in hits) == sorted(
        (f"{index_name}-{x}", str(i)) for x, count in (("a", 20), ("b", 30)) for i in range(count)
    )


async def test_an_empty_index_yields_no_page(cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name, shards=2)
    assert [page async for page in scan(cluster, await describe(cluster, index_name, ["body"]))] == []


async def test_the_filter_of_an_alias_holds(cluster: Cluster, index_name: str) -> None:
    await filled_index(cluster, index_name, 50, shards=3)
    alias = {"index": index_name, "alias": f"{index_name}-alias", "filter": {"match": {"body": "7"}}}
    await cluster.request("POST", "/_aliases", body={"actions": [{"add": alias}]})
    target = await describe(cluster, f"{index_name}-alias", ["body"])
    assert ids(await read_all(cluster, target)) == ["7"]
    assert await read_all(cluster, target, query={"match": {"body": "8"}}) == []


async def test_an_alias_with_routing_reads_what_it_searches(cluster: Cluster, index_name: str) -> None:
    await filled_index(cluster, index_name, 60, shards=3)
    alias = {"index": index_name, "alias": f"{index_name}-alias", "routing": "5"}
    await cluster.request("POST", "/_aliases", body={"actions": [{"add": alias}]})
    searched = await cluster.request("POST", f"/{index_name}-alias/_search", body={"size": 100})
    hits = await read_all(cluster, await describe(cluster, f"{index_name}-alias", ["body"]), page_size=7)
    assert ids(hits) == sorted(hit["_id"] for hit in searched["hits"]["hits"])
    assert 0 < len(hits) < 60


async def test_a_query_selects_and_source_names_what_comes_along(cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name)
    await fill(cluster, index_name, {"a": {"body": "red", "n": 1}, "b": {"body": "blue", "n": 2}}, routing="r")
    target = await describe(cluster, index_name, ["body"])
    (hit,) = await read_all(cluster, target, query={"match": {"body": "blue"}}, source=["n"])
    assert (hit.index, hit.id, hit.routing, hit.source) == (index_name, "b", "r", {"n": 2})
    (bare,) = await read_all(cluster, target, query={"match": {"body": "red"}}, source=False)
    assert bare.source == {}


async def test_a_hit_names_the_version_that_was_read(cluster: Cluster, index_name: str) -> None:
    target = await filled_index(cluster, index_name, 3)
    for hit in await read_all(cluster, target):
        there = await cluster.request("GET", f"/{index_name}/_doc/{hit.id}")
        assert (hit.seq_no, hit.primary_term) == (there["_seq_no"], there["_primary_term"])


# Interruptions


async def test_a_lost_view_is_opened_again_and_no_document_is_missed(
    cluster: Cluster, wired: Cluster, wire: Wire, index_name: str
) -> None:
    """[elastic/elasticsearch-py#456: a scan that fails after an hour; taraslayshchuk/es2csv#10: partial data]"""
    target = await filled_index(cluster, index_name, 60)
    seen: list[str] = []
    async for page in scan(wired, target, page_size=20):
        if not seen:
            view = wire.requests("/_search")[-1].json["pit"]["id"]
            body = {"pit_id": [view]} if cluster.engine.family == "opensearch" else {"id": view}
            await cluster.request("DELETE", f"/{cluster.engine.point_in_time_path}", body=body)
        seen += ids(page)
    assert sorted(seen) == numbers(60)
    assert wire.count(f"/{index_name}/.*", "POST") == 2


async def test_a_page_that_is_too_much_for_the_cluster_is_asked_for_in_smaller_ones(
    wired: Cluster, wire: Wire, index_name: str
) -> None:
    target = await filled_index(wired, index_name, 60)

    async def breaks(seen: Seen, forward: Forward) -> Reply:
        if seen.json["size"] > 10:
            return Reply.of(429, {"error": {"type": "circuit_breaking_exception", "reason": "planted"}})
        return await forward(seen)

    wire.on("/_search", handler=breaks)
    assert ids(await read_all(wired, target, page_size=20)) == numbers(60)


async def test_documents_that_change_while_a_view_is_lost_are_read_again(
    cluster: Cluster, wired: Cluster, wire: Wire, index_name: str
) -> None:
    target = await filled_index(cluster, index_name, 40)
    seen: list[tuple[str, str]] = []
    async for page in scan(wired, target, page_size=20):
        if not seen:
            await fill(cluster, index_name, {"0": {"body": "changed"}, "39": {"body": "changed"}, "new": {"body": "x"}})
            wire.on("/_search", status=404, body={"error": {"type": "search_context_missing_exception"}}, times=1)
        seen += [(hit.id, str(hit.source["body"])) for hit in page]
    assert {key for key, _ in seen} == {*numbers(40), "new"}
    assert ("0", "changed") in seen
    assert [body for key, body in seen if key == "39"] == ["changed"]


@pytest.mark.parametrize("status", [429, 503])
async def test_a_cluster_that_is_busy_for_a_while_is_waited_for(
    wired: Cluster, wire: Wire, index_name: str, status: int
) -> None:
    target = await filled_index(wired, index_name, 30)
    wire.on("/_search", status=status, body={"error": {"type": "busy", "reason": "later"}}, times=7)
    assert ids(await read_all(wired, target, page_size=10)) == numbers(30)


async def test_connections_that_break_are_made_again(wired: Cluster, wire: Wire, index_name: str) -> None:
    target = await filled_index(wired, index_name, 30)
    wire.on("/_search", drop="after", times=4)
    assert ids(await read_all(wired, target, page_size=10)) == numbers(30)


async def test_a_cluster_that_stays_away_is_an_error(wired: Cluster, wire: Wire, index_name: str) -> None:
    target = await filled_index(wired, index_name, 30)
    async with aclosing(scan(wired, target, page_size=10)) as pages:
        assert len(await anext(pages)) == 10
        wire.on(".*", drop="before")
        with pytest.raises(ClusterUnreachable):
            await anext(pages)


def one_failed(answer: Any) -> None:
    answer["_shards"] |= {"successful": 0, "failed": 1}
    answer["hits"]["hits"] = []


def timed_out(answer: Any) -> None:
    answer["timed_out"] = True
    answer["hits"]["hits"] = answer["hits"]["hits"][:1]


@pytest.mark.parametrize("fault", [one_failed, timed_out])
async def test_a_shard_that_did_not_answer_in_full_is_never_fewer_documents(
    wired: Cluster, wire: Wire, index_name: str, fault: Any
) -> None:
    target = await filled_index(wired, index_name, 30)
    wire.on("/_search", edit=fault, times=2)
    assert ids(await read_all(wired, target, page_size=10)) == numbers(30)
    wire.on("/_search", edit=fault)
    with pytest.raises(ClusterRefused, match="did not answer in full"):
        await read_all(wired, target, page_size=10)


async def test_an_early_end_is_noticed(wired: Cluster, wire: Wire, index_name: str) -> None:
    target = await filled_index(wired, index_name, 30)

    async def emptied(seen: Seen, forward: Forward) -> Reply:
        reply = await forward(seen)
        if "search_after" not in seen.json:
            return reply
        answer = reply.json
        answer["hits"]["hits"] = []
        return Reply.of(200, answer)

    wire.on("/_search", handler=emptied)
    with pytest.raises(ClusterError, match="20 documents were not returned"):
        await read_all(wired, target, page_size=10)


async def test_partial_results_are_asked_not_to_come(wired: Cluster, wire: Wire, index_name: str) -> None:
    await read_all(wired, await filled_index(wired, index_name, 3))
    assert {seen.query["allow_partial_search_results"] for seen in wire.requests("/_search")} == {"false"}


async def test_an_index_deleted_meanwhile_is_an_error(wired: Cluster, index_name: str) -> None:
    target = await filled_index(wired, index_name, 30)
    async with aclosing(scan(wired, target, page_size=10)) as pages:
        await anext(pages)
        await wired.request("DELETE", f"/{index_name}")
        with pytest.raises(ClusterRefused) as caught:
            await anext(pages)
    assert caught.value.error_type == "index_not_found_exception"


async def test_a_query_that_the_cluster_refuses_is_refused_at_once(wired: Cluster, wire: Wire, index_name: str) -> None:
    target = await filled_index(wired, index_name, 3)
    wire.clear()
    with pytest.raises(ClusterRefused, match="unknown query"):
        await read_all(wired, target, query={"no_such_query": {}})
    assert wire.count("/_search") == 1


# Views are given back


async def test_no_view_is_left_open_at_the_end(wired: Cluster, wire: Wire, index_name: str) -> None:
    await read_all(wired, await filled_index(wired, index_name, 30, shards=3), page_size=10)
    assert wire.count(PIT, "DELETE") == 3
    assert all(seen.reply and seen.reply.status == 200 for seen in wire.requests(PIT, "DELETE"))


async def test_no_view_is_left_open_when_the_reader_stops_early(wired: Cluster, wire: Wire, index_name: str) -> None:
    target = await filled_index(wired, index_name, 30, shards=3)
    async with aclosing(scan(wired, target, page_size=5)) as pages:
        await anext(pages)
    assert wire.count(PIT, "DELETE") == 1


async def test_no_view_is_left_open_when_the_task_is_cancelled(wired: Cluster, wire: Wire, index_name: str) -> None:
    target = await filled_index(wired, index_name, 30)
    late = asyncio.Event()

    async def stall(seen: Seen, forward: Forward) -> Reply:
        if "search_after" in seen.json:
            late.set()
            await asyncio.sleep(1)
        return await forward(seen)

    wire.on("/_search", handler=stall)
    reading = asyncio.ensure_future(read_all(wired, target, page_size=10))
    await late.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    for _ in range(50):
        if wire.requests(PIT, "DELETE") and wire.requests(PIT, "DELETE")[0].reply:
            break
        await asyncio.sleep(0.05)
    (closing,) = wire.requests(PIT, "DELETE")
    assert closing.reply
    assert closing.reply.status == 200


# Single documents again


async def test_documents_are_read_again_as_they_are_now(cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name, shards=3)
    await fill(cluster, index_name, {"a": {"body": "old", "n": 1}, "b": {"body": "old", "n": 1}}, routing="r")
    await fill(cluster, index_name, {"c": {"body": "old", "n": 1}})
    hits = await read_all(cluster, await describe(cluster, index_name, ["body"]))
    await fill(cluster, index_name, {"a": {"body": "new", "n": 2}}, routing="r")
    await cluster.request("DELETE", f"/{index_name}/_doc/c")
    again = await reread(cluster, hits, source=["body"])
    assert {h.id: n and (n.id, n.routing, n.source) for h, n in zip(hits, again, strict=True)} == {
        "a": ("a", "r", {"body": "new"}),
        "b": ("b", "r", {"body": "old"}),
        "c": None,
    }
    changed = {h.id for h, n in zip(hits, again, strict=True) if n and n.seq_no != h.seq_no}
    assert changed == {"a"}
