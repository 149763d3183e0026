"""Our fields on live indices, and new indices for bare collections, on a real node."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.documents import make_index
from cluster.wire import Wire
from sira_es.cluster.connect import Cluster
from sira_es.cluster.schema import create_index, ensure_fields, made_by
from sira_es.cluster.target import describe
from sira_es.errors import ClusterRefused, ConfigurationError, InputError

pytestmark = pytest.mark.anyio
SIRA = {
    "properties": {
        "source_hash": {"type": "keyword"},
        "recipe": {"type": "keyword"},
        "enriched_at": {"type": "date"},
    }
}


async def mapping_of(cluster: Cluster, index: str) -> dict[str, Any]:
    answer = await cluster.request("GET", f"/{index}/_mapping")
    properties: dict[str, Any] = answer[index]["mappings"]["properties"]
    return properties


async def ensure(cluster: Cluster, name: str, main_field: str = "body") -> tuple[str, ...]:
    return await ensure_fields(cluster, await describe(cluster, name, [main_field]), main_field)


async def test_the_fields_get_the_analyzers_of_the_main_field(cluster: Cluster, index_name: str) -> None:
    body = {"type": "text", "analyzer": "whitespace", "search_analyzer": "simple"}
    await make_index(cluster, index_name, mappings={"properties": {"body": body}})
    assert await ensure(cluster, index_name) == (index_name,)
    assert await mapping_of(cluster, index_name) == {"body": body, "enriched_terms": body, "sira": SIRA}


async def test_the_default_analyzer_of_the_index_is_taken_over(cluster: Cluster, index_name: str) -> None:
    analysis = {
        "analyzer": {"default": {"type": "standard"}, "default_search": {"type": "custom", "tokenizer": "standard"}}
    }
    await make_index(cluster, index_name, settings={"analysis": analysis})
    await ensure(cluster, index_name)
    target = await describe(cluster, index_name, ["body", "enriched_terms"])
    main, ours = target.fields
    assert (main.analyzer, main.search_analyzer) == (ours.analyzer, ours.search_analyzer)


async def test_nothing_is_sent_when_all_is_right_already(wired: Cluster, wire: Wire, index_name: str) -> None:
    await make_index(wired, index_name)
    await ensure(wired, index_name)
    wire.clear()
    assert await ensure(wired, index_name) == ()
    assert {seen.method for seen in wire.seen} == {"GET"}


async def test_only_what_is_missing_is_sent(wired: Cluster, wire: Wire, index_name: str) -> None:
    """Sending a field again would clear its `copy_to`."""
    ours = {"type": "text", "copy_to": ["all"]}
    mappings = {
        "properties": {
            "body": {"type": "text"},
            "all": {"type": "text"},
            "enriched_terms": ours,
            "sira": {"properties": {"recipe": {"type": "keyword"}}},
        }
    }
    await make_index(wired, index_name, mappings=mappings)
    await ensure(wired, index_name)
    (put,) = wire.requests(f"/{index_name}/_mapping", "PUT")
    rest = {"source_hash": {"type": "keyword"}, "enriched_at": {"type": "date"}}
    assert put.json == {"properties": {"sira": {"properties": rest}}}
    assert (await mapping_of(wired, index_name))["enriched_terms"] == ours


@pytest.mark.parametrize("dynamic", ["strict", False])
async def test_indices_that_take_no_unknown_fields_get_ours(cluster: Cluster, index_name: str, dynamic: object) -> None:
    await make_index(cluster, index_name, mappings={"dynamic": dynamic, "properties": {"body": {"type": "text"}}})
    await ensure(cluster, index_name)
    (index,) = (await describe(cluster, index_name, ["body"])).indices
    assert index.has_enriched
    assert index.has_sira


async def test_every_index_of_an_alias_gets_the_fields(cluster: Cluster, index_name: str) -> None:
    names = (f"{index_name}-a", f"{index_name}-b")
    for name in names:
        await make_index(cluster, name)
    await ensure(cluster, names[0])
    assert await ensure(cluster, f"{index_name}-*") == (names[1],)
    assert (await describe(cluster, f"{index_name}-*", ["body"])).has_enriched


@pytest.mark.parametrize(
    ("theirs", "problem"),
    [
        ({"enriched_terms": {"type": "keyword"}}, "'enriched_terms' of '{}' is mapped as keyword, not text"),
        ({"enriched_terms": {"properties": {"a": {"type": "text"}}}}, "'enriched_terms' of '{}' is mapped as object"),
        (
            {"enriched_terms": {"type": "text", "analyzer": "simple"}},
            "'enriched_terms' of '{}' has the analyzer 'simple', the main field 'default'",
        ),
        ({"enriched_terms": {"type": "text", "norms": False}}, "'enriched_terms' of '{}' has no norms"),
        ({"sira": {"type": "keyword"}}, "'{}' has a field 'sira' of its own"),
        (
            {"sira": {"properties": {"recipe": {"type": "text"}}}},
            "'sira.recipe' of '{}' is mapped as text, not keyword",
        ),
    ],
)
async def test_names_that_are_taken_are_refused_and_nothing_is_changed(
    cluster: Cluster, index_name: str, theirs: dict[str, Any], problem: str
) -> None:
    await make_index(cluster, index_name, mappings={"properties": {"body": {"type": "text"}, **theirs}})
    before = await mapping_of(cluster, index_name)
    with pytest.raises(ConfigurationError) as caught:
        await ensure(cluster, index_name)
    assert str(caught.value).startswith(problem.format(index_name))
    assert "reindex" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert await mapping_of(cluster, index_name) == before


async def test_an_index_with_as_many_fields_as_it_may_have_says_what_to_raise(
    cluster: Cluster, index_name: str
) -> None:
    """[elastic/elasticsearch#89911, elasticsearch-py#552]"""
    await make_index(cluster, index_name, settings={"index.mapping.total_fields.limit": 3})
    with pytest.raises(ClusterRefused) as caught:
        await ensure(cluster, index_name)
    assert "raise index.mapping.total_fields.limit by 5" in str(caught.value)
    await cluster.request("PUT", f"/{index_name}/_settings", body={"index.mapping.total_fields.limit": 3 + 5})
    assert await ensure(cluster, index_name) == (index_name,)


async def test_a_read_only_index_says_which_block_to_lift(cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name)
    await cluster.request("PUT", f"/{index_name}/_settings", body={"index.blocks.read_only": True})
    with pytest.raises(ClusterRefused, match=r"takes no new fields: .*; lift index.blocks.read_only first"):
        await ensure(cluster, index_name)
    await cluster.request("PUT", f"/{index_name}/_settings", body={"index.blocks.read_only": None})
    assert await ensure(cluster, index_name) == (index_name,)


# New indices


async def test_a_new_index_takes_any_document(cluster: Cluster, index_name: str) -> None:
    await create_index(cluster, index_name, analyzer="simple", shards=2)
    target = await describe(cluster, index_name, ["title", "text"])
    assert {f.analyzer for f in target.fields} == {"simple"}
    assert target.indices[0].shards == 2
    for i, extra in enumerate(({"n": 1}, {"n": "one"}, {"n": {"deep": []}})):
        answer = await cluster.request("PUT", f"/{index_name}/_doc/{i}", body={"title": "a", "text": "b", **extra})
        assert answer["result"] == "created"


async def test_an_index_that_exists_is_left_alone(cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name)
    before = await cluster.request("GET", f"/{index_name}")
    with pytest.raises(InputError, match=f"'{index_name}' exists already and is left alone"):
        await create_index(cluster, index_name, analyzer="simple")
    assert await cluster.request("GET", f"/{index_name}") == before


async def test_an_alias_of_that_name_is_left_alone(cluster: Cluster, index_name: str) -> None:
    await make_index(cluster, index_name)
    await cluster.request("PUT", f"/{index_name}/_alias/{index_name}-alias")
    with pytest.raises(InputError, match="exists already"):
        await create_index(cluster, f"{index_name}-alias", analyzer="simple")


async def test_a_name_that_cannot_be_one_says_why(cluster: Cluster) -> None:
    with pytest.raises(InputError, match=r"'Big Index' cannot be the name of an index: "):
        await create_index(cluster, "Big Index", analyzer="simple")


async def test_an_analyzer_that_the_cluster_lacks_is_named(cluster: Cluster, index_name: str) -> None:
    with pytest.raises(
        ConfigurationError, match="this cluster has no analyzer 'klingon'; 'standard' is there everywhere"
    ):
        await create_index(cluster, index_name, analyzer="klingon")


async def test_an_index_remembers_who_made_it(cluster: Cluster, index_name: str) -> None:
    assert await made_by(cluster, index_name) is None
    await create_index(cluster, index_name, analyzer="simple", made_by="a test")
    assert await made_by(cluster, index_name) == "a test"
    await make_index(cluster, f"{index_name}-other")
    assert await made_by(cluster, f"{index_name}-other") == ""
