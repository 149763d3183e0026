"""What a name stands for, on a real node."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cluster.documents import fill, make_index
from cluster.wire import Wire
from sira_es.cluster.connect import Cluster
from sira_es.cluster.target import FieldInfo, describe, text_fields_of
from sira_es.errors import ClusterError, ConfigurationError, InputError, SiraError, UnsupportedError

pytestmark = pytest.mark.anyio


async def add_alias(cluster: Cluster, index: str, alias: str, **more: object) -> None:
    actions = [{"add": {"index": index, "alias": alias, **more}}]
    await cluster.request("POST", "/_aliases", body={"actions": actions})


async def shards_reached(cluster: Cluster, index: str, routing: str) -> set[int]:
    answer = await cluster.request("GET", f"/{index}/_search_shards", params={"routing": routing})
    return {group[0]["shard"] for group in answer["shards"]}


# Shards


@pytest.mark.parametrize("shards", [1, 3, 5])
async def test_each_shard_is_reached_by_one_routing_value(cluster: Cluster, index_name: str, shards: int) -> None:
    await make_index(cluster, index_name, shards=shards)
    (index,) = (await describe(cluster, index_name, ["body"])).indices
    assert index.shards == shards
    assert index.reached == tuple(range(shards))
    reached = [await shards_reached(cluster, index_name, value) for value in index.routing]
    assert sorted(shard for one in reached for shard in one) == list(range(shards))


async def test_split_and_shrunk_indices_are_reached_as_well(cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name, shards=4, settings={"index.blocks.write": True})
    for way, name, shards in (("_split", f"{index_name}-8", 8), ("_shrink", f"{index_name}-2", 2)):
        body = {"settings": {"index.number_of_shards": shards, "index.number_of_replicas": 0}}
        await cluster.request("PUT", f"/{index_name}/{way}/{name}", body=body)
        health = {"wait_for_status": "green", "timeout": "20s"}
        await cluster.request("GET", f"/_cluster/health/{name}", params=health)
        (index,) = (await describe(cluster, name, ["body"])).indices
        reached = [await shards_reached(cluster, name, value) for value in index.routing]
        assert sorted(shard for one in reached for shard in one) == list(range(shards))


async def test_own_routing_numbers_are_found_out_by_asking(cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name, shards=3, settings={"index.number_of_routing_shards": 9})
    (index,) = (await describe(cluster, index_name, ["body"])).indices
    reached = [await shards_reached(cluster, index_name, value) for value in index.routing]
    assert sorted(shard for one in reached for shard in one) == [0, 1, 2]


async def test_a_partitioned_index_has_no_routing_values(cluster: Cluster, index_name: str) -> None:
    mappings = {"_routing": {"required": True}, "properties": {"body": {"type": "text"}}}
    await make_index(cluster, index_name, shards=4, mappings=mappings, settings={"index.routing_partition_size": 2})
    (index,) = (await describe(cluster, index_name, ["body"])).indices
    assert (index.partition_size, index.routing) == (2, ())


# Kinds of names


async def test_an_index_is_a_target_of_its_own(cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name)
    target = await describe(cluster, index_name, ["body"])
    assert (target.kind, target.filtered) == ("index", False)
    assert target.single == target.indices[0]


async def test_a_plain_alias_of_one_index_counts_as_that_index(cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name)
    await add_alias(cluster, index_name, f"{index_name}-alias")
    target = await describe(cluster, f"{index_name}-alias", ["body"])
    assert target.kind == "alias"
    assert target.single is not None
    assert target.single.name == index_name


async def test_the_filter_of_an_alias_is_known(cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name)
    await add_alias(cluster, index_name, f"{index_name}-alias", filter={"match": {"body": "x"}})
    target = await describe(cluster, f"{index_name}-alias", ["body"])
    assert target.filtered
    assert target.single is None
    assert target.indices[0].filter is not None
    assert "match" in target.indices[0].filter


async def test_an_alias_with_routing_reaches_some_shards_only(cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name, shards=3)
    await add_alias(cluster, index_name, f"{index_name}-alias", routing="5")
    target = await describe(cluster, f"{index_name}-alias", ["body"])
    assert set(target.indices[0].reached) == await shards_reached(cluster, index_name, "5")
    assert target.filtered


async def test_several_indices_by_alias_list_and_wildcard(cluster: Cluster, index_name: str) -> None:
    names = (f"{index_name}-a", f"{index_name}-b")
    for name in names:
        await make_index(cluster, name)
        await add_alias(cluster, name, f"{index_name}-both")
    for expression, kind in (
        (f"{index_name}-both", "alias"),
        (",".join(names), "several"),
        (f"{index_name}-*", "several"),
    ):
        target = await describe(cluster, expression, ["body"])
        assert (target.kind, [i.name for i in target.indices]) == (kind, list(names))
        assert target.single is None


async def test_a_data_stream_is_its_backing_indices(cluster: Cluster, index_name: str) -> None:
    stream = f"{index_name}-stream"
    template = {
        "index_patterns": [stream],
        "data_stream": {},
        "template": {"mappings": {"properties": {"body": {"type": "text"}}}},
    }
    await cluster.request("GET", f"/_data_stream/{stream}*")
    await cluster.request("PUT", f"/_index_template/{stream}", body=template)
    await cluster.request("PUT", f"/_data_stream/{stream}")
    try:
        target = await describe(cluster, stream, ["body"])
        assert target.kind == "data_stream"
        assert target.single is None
        assert [i.name.startswith(".ds-") for i in target.indices] == [True]
    finally:
        await cluster.request("DELETE", f"/_data_stream/{stream}")
        await cluster.request("DELETE", f"/_index_template/{stream}")


# Fields


async def test_the_analyzers_in_force_are_told(cluster: Cluster, index_name: str) -> None:
    mappings = {
        "properties": {
            "plain": {"type": "text"},
            "own": {
                "type": "text",
                "analyzer": "whitespace",
                "fields": {"simple": {"type": "text", "analyzer": "simple"}},
            },
            "two": {"type": "text", "analyzer": "whitespace", "search_analyzer": "stop"},
        }
    }
    await make_index(cluster, index_name, mappings=mappings)
    target = await describe(cluster, index_name, ["two", "own.simple", "own", "plain"])
    assert target.fields == (
        FieldInfo("two", "whitespace", "stop"),
        FieldInfo("own.simple", "simple", "simple"),
        FieldInfo("own", "whitespace", "whitespace"),
        FieldInfo("plain", "default", "default"),
    )
    assert not target.one_analyzer
    assert (await describe(cluster, index_name, ["own"])).one_analyzer


async def test_a_field_may_be_missing_in_some_of_several_indices(cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, f"{index_name}-a")
    await make_index(cluster, f"{index_name}-b", mappings={"properties": {"other": {"type": "text"}}})
    target = await describe(cluster, f"{index_name}-*", ["body", "other"])
    assert [[f.name for f in i.fields] for i in target.indices] == [["body"], ["other"]]
    assert [f.name for f in target.fields] == ["body", "other"]


async def test_text_fields_are_listed_without_keywords_nested_ones_and_ours(cluster: Cluster, index_name: str) -> None:
    text = {"type": "text"}
    mappings = {
        "properties": {
            "title": {"type": "text", "analyzer": "simple", "fields": {"raw": {"type": "keyword"}}},
            "place": {"properties": {"city": text}},
            "parts": {"type": "nested", "properties": {"note": text}},
            "sku": {"type": "keyword"},
            "stored": {"type": "text", "index": False},
            "enriched_terms": text,
            "sira": {"properties": {"recipe": text}},
        }
    }
    await make_index(cluster, index_name, mappings=mappings)
    fields = await text_fields_of(cluster, index_name)
    assert {(f.name, f.analyzer) for f in fields} == {("title", "simple"), ("place.city", "default")}


async def test_an_index_without_text_fields_lists_none(cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name, mappings={"properties": {"sku": {"type": "keyword"}}})
    assert await text_fields_of(cluster, index_name) == ()


async def test_our_fields_count_where_they_have_the_right_types(cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, f"{index_name}-without")
    good = {
        "body": {"type": "text"},
        "enriched_terms": {"type": "text"},
        "sira": {
            "properties": {
                "source_hash": {"type": "keyword"},
                "recipe": {"type": "keyword"},
                "enriched_at": {"type": "date"},
            }
        },
    }
    await make_index(cluster, f"{index_name}-good", mappings={"properties": good})
    bad = {**good, "enriched_terms": {"type": "keyword"}, "sira": {"properties": {"recipe": {"type": "text"}}}}
    await make_index(cluster, f"{index_name}-bad", mappings={"properties": bad})
    found = {}
    for name in ("without", "good", "bad"):
        (index,) = (await describe(cluster, f"{index_name}-{name}", ["body"])).indices
        found[name] = (index.has_enriched, index.has_sira)
    assert found == {"without": (False, False), "good": (True, True), "bad": (False, False)}


# What would not survive an update, or cannot be written


@pytest.mark.parametrize(
    ("source", "kind"),
    [({"enabled": False}, "disabled"), ({"excludes": ["secret"]}, "partial"), ({"includes": ["body"]}, "partial")],
)
async def test_incomplete_sources_are_noticed(cluster: Cluster, index_name: str, source: object, kind: str) -> None:
    await make_index(cluster, index_name, mappings={"_source": source, "properties": {"body": {"type": "text"}}})
    assert (await describe(cluster, index_name, ["body"])).indices[0].source == kind


async def test_a_complete_source_and_no_block_is_the_usual_case(cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name)
    (index,) = (await describe(cluster, index_name, ["body"])).indices
    assert (index.source, index.blocked) == ("stored", "")


@pytest.mark.parametrize("block", ["write", "read_only", "read_only_allow_delete"])
async def test_blocks_are_noticed(cluster: Cluster, index_name: str, block: str) -> None:
    await make_index(cluster, index_name)
    await cluster.request("PUT", f"/{index_name}/_settings", body={f"index.blocks.{block}": True})
    try:
        assert (await describe(cluster, index_name, ["body"])).indices[0].blocked == f"index.blocks.{block}"
    finally:
        await cluster.request("PUT", f"/{index_name}/_settings", body={f"index.blocks.{block}": None})


# Names and fields that cannot be used: one line each


async def problem(cluster: Cluster, name: str, fields: Sequence[str], kind: type[SiraError]) -> str:
    with pytest.raises(kind) as caught:
        await describe(cluster, name, fields)
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_a_missing_index_names_the_nearest(cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name)
    text = await problem(cluster, index_name[:-1], ["body"], InputError)
    assert text.startswith(f"no index, alias or data stream '{index_name[:-1]}' at {cluster.url}; did you mean '")
    assert index_name in text


async def test_a_wildcard_that_matches_nothing_is_missing(cluster: Cluster, index_name: str) -> None:
    text = await problem(cluster, f"{index_name}*", ["body"], InputError)
    assert text.startswith(f"no index, alias or data stream '{index_name}*'")


@pytest.mark.parametrize("name", ["", " ", "_all", "_search"])
async def test_what_is_no_name_of_an_index_is_refused_unasked(wired: Cluster, wire: Wire, name: str) -> None:
    assert "is not the name of an index" in await problem(wired, name, ["body"], InputError)
    assert wire.seen == []


async def test_a_name_with_odd_characters_stays_one_name(cluster: Cluster, index_name: str) -> None:
    text = await problem(cluster, f"{index_name}/_search?q=x", ["body"], InputError)
    assert f"'{index_name}/_search?q=x'" in text


async def test_a_closed_index_says_how_to_open_it(cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name)
    await cluster.request("POST", f"/{index_name}/_close")
    text = await problem(cluster, index_name, ["body"], InputError)
    assert text == f"index '{index_name}' is closed; open it first: POST /{index_name}/_open"


async def test_an_alias_of_a_closed_index_is_an_error_too(cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name)
    await add_alias(cluster, index_name, f"{index_name}-alias")
    await cluster.request("POST", f"/{index_name}/_close")
    text = await problem(cluster, f"{index_name}-alias", ["body"], InputError)
    assert text == f"index '{index_name}' is closed; open it first: POST /{index_name}/_open"


async def test_an_alias_with_a_closed_index_among_open_ones_is_an_error_too(cluster: Cluster, index_name: str) -> None:
    for name in (f"{index_name}-open", f"{index_name}-closed"):
        await make_index(cluster, name)
        await add_alias(cluster, name, f"{index_name}-alias")
    await cluster.request("POST", f"/{index_name}-closed/_close")
    text = await problem(cluster, f"{index_name}-alias", ["body"], InputError)
    assert text == f"index '{index_name}-closed' is closed; open it first: POST /{index_name}-closed/_open"


async def test_a_missing_field_lists_the_text_fields(cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name)
    text = await problem(cluster, index_name, ["titel"], ConfigurationError)
    assert text == f"field 'titel' of '{index_name}' does not exist; text fields there: body"


async def test_a_field_that_is_not_text_says_what_it_is(cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name, mappings={"properties": {"sku": {"type": "keyword"}}})
    text = await problem(cluster, index_name, ["sku"], ConfigurationError)
    assert text == f"field 'sku' of '{index_name}' is of type keyword, not text; it has no text field"


async def test_a_nested_field_is_not_supported(cluster: Cluster, index_name: str) -> None:
    nested = {"type": "nested", "properties": {"note": {"type": "text"}}}
    await make_index(cluster, index_name, mappings={"properties": {"parts": nested}})
    text = await problem(cluster, index_name, ["parts.note"], UnsupportedError)
    assert "is inside the nested objects of 'parts'" in text
    assert "read_fields to [parts.note]" in text


async def test_an_answer_of_another_shape_is_an_error_of_ours(wired: Cluster, wire: Wire, index_name: str) -> None:
    await make_index(wired, index_name)
    wire.on(f"/{index_name}/_settings", edit=lambda answer: {"other": answer})
    text = await problem(wired, index_name, ["body"], ClusterError)
    assert text.startswith(f"describing '{index_name}': the cluster's answer has an unexpected form")


async def test_only_requests_about_the_index_itself_are_made(wired: Cluster, wire: Wire, index_name: str) -> None:
    """`read` and `view_index_metadata` are enough: nothing of `_cluster`, `_nodes`, `_cat`, `_analyze`."""
    await make_index(wired, index_name, shards=3)
    await fill(wired, index_name, 3)
    wire.clear()
    await describe(wired, index_name, ["body"])
    allowed = (
        "/_resolve/index/",
        f"/{index_name}/_search_shards",
        f"/{index_name}/_mapping",
        f"/{index_name}/_settings",
    )
    assert all(seen.path.startswith(allowed) for seen in wire.seen)
    assert {seen.method for seen in wire.seen} == {"GET"}
