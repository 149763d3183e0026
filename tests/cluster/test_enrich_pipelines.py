"""The ingest pipeline, run by a real node: it computes our hash, drops terms of changed documents, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from cluster.documents import make_index, sources
from sira_es.cluster.connect import Cluster
from sira_es.cluster.pipelines import install_pipeline, pipeline_body, pipeline_name, remove_pipeline
from sira_es.cluster.target import Target, describe
from sira_es.enrich.text import source_hash, text_values
from sira_es.errors import ClusterRefused, UnsupportedError

pytestmark = pytest.mark.anyio

FIELDS = ["title", "body", "author.name", "title.english"]
ODD: list[Mapping[str, Any]] = [
    {"title": "plain", "body": "text"},
    {"title": "Größe 漢字 😀 \u0000 \u2028", "body": "tab\there"},
    {"title": ["one", "two", ["three"]], "body": None},
    {"title": "numbers", "body": [1, "x", True, None, 2.5]},
    {"author": [{"name": "A"}, {"name": ["B", "C"]}, {"other": "D"}], "title": "t"},
    {"author.name": "dotted", "author": {"name": "nested"}},
    {"author": "not an object", "body": ""},
    {"body": "x" * 200_000},
    {"other": "no text at all"},
    {"title": {"english": "an object where a text is expected"}},
]


def _enriched(source: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    sira = {"source_hash": source_hash(text_values(source, FIELDS)), "recipe": "r"}
    return {**source, "enriched_terms": ["added"], "sira": sira, **changes}


async def _simulate(cluster: Cluster, *documents: Mapping[str, Any]) -> list[dict[str, Any]]:
    docs = [{"_index": "i", "_id": "1", "_source": source} for source in documents]
    body = {"pipeline": pipeline_body(FIELDS), "docs": docs}
    answer = await cluster.request("POST", "/_ingest/pipeline/_simulate", body=body)
    return [item["doc"]["_source"] for item in answer["docs"]]


async def test_document_whose_text_is_the_hashed_one_stays_as_it_is(cluster: Cluster) -> None:
    enriched = [_enriched(source) for source in ODD]
    assert await _simulate(cluster, *enriched) == enriched


async def test_document_with_another_text_loses_both_fields_and_nothing_else(cluster: Cluster) -> None:
    changed = [{**_enriched(source), "body": "something new"} for source in ODD]
    assert await _simulate(cluster, *changed) == [{**source, "body": "something new"} for source in ODD]


async def test_change_of_any_other_field_keeps_the_terms(cluster: Cluster) -> None:
    source = _enriched({"title": "t", "body": "b"}, price=5)
    assert await _simulate(cluster, source) == [source]


@pytest.mark.parametrize(
    "source",
    [
        {"title": "t"},
        {"title": "t", "sira": "a field of somebody else's"},
        {"title": "t", "sira": {"source_hash": ["x"]}, "enriched_terms": ["y"]},
        {"title": "t", "sira": {"source_hash": "x"}, "enriched_terms": ["y"]},
        {"title": "t", "enriched_terms": ["by a loader of one's own"]},
    ],
    ids=["not enriched", "foreign sira", "odd hash", "hash without recipe", "terms without hash"],
)
async def test_document_that_is_not_ours_is_not_touched(cluster: Cluster, source: Mapping[str, Any]) -> None:
    assert await _simulate(cluster, source) == [source]


@pytest.fixture
async def target(cluster: Cluster, index_name: str) -> AsyncIterator[Target]:
    """An index with one enriched document; its pipelines are removed after the test."""
    mappings = {"properties": {"title": {"type": "text"}, "body": {"type": "text"}}}
    await make_index(cluster, index_name, mappings=mappings)
    described = await describe(cluster, index_name, ["title", "body"])
    yield described
    await remove_pipeline(cluster, described)


async def _put_document(cluster: Cluster, index: str, source: Mapping[str, Any], **params: Any) -> dict[str, Any]:
    await cluster.request("PUT", f"/{index}/_doc/1", params={"refresh": True, **params}, body=source)
    return (await sources(cluster, index))["1"]


def _of_two_fields(source: Mapping[str, Any]) -> dict[str, Any]:
    digest = source_hash(text_values(source, ["title", "body"]))
    return {**source, "enriched_terms": ["added"], "sira": {"source_hash": digest, "recipe": "r"}}


async def _final(cluster: Cluster, index: str) -> Any:
    settings = await cluster.request("GET", f"/{index}/_settings", params={"flat_settings": True})
    return settings[index]["settings"].get("index.final_pipeline")


async def test_installed_pipeline_runs_on_full_writes_and_single_updates_but_not_on_bulk_updates(
    cluster: Cluster, target: Target
) -> None:
    """elastic/elasticsearch#36219, #105804: pipelines do not run on bulk partial updates, on others they do."""
    await install_pipeline(cluster, target, ["title", "body"])
    source = _of_two_fields({"title": "t", "body": "b"})
    assert await _put_document(cluster, target.name, source) == source
    changed = await _put_document(cluster, target.name, {**source, "body": "new"})
    assert changed == {"title": "t", "body": "new"}

    await _put_document(cluster, target.name, source)
    await cluster.request("POST", f"/{target.name}/_update/1", body={"doc": {"body": "new"}})
    assert (await sources(cluster, target.name))["1"] == {"title": "t", "body": "new"}

    await _put_document(cluster, target.name, source)
    lines = [{"update": {"_index": target.name, "_id": "1"}}, {"doc": {"body": "new"}}]
    await cluster.request("POST", "/_bulk", lines=lines)
    assert (await sources(cluster, target.name))["1"]["enriched_terms"] == ["added"]


async def test_existing_final_pipeline_goes_on_running_unchanged_and_is_back_after_removal(
    cluster: Cluster, target: Target
) -> None:
    """OpenSearch#16663, elastic/elasticsearch#104941: a customer's own final pipeline must not be lost."""
    theirs = f"{target.name}-theirs"
    body = {"processors": [{"set": {"field": "counted", "value": 1}}]}
    await cluster.request("PUT", f"/_ingest/pipeline/{theirs}", body=body)
    try:
        await cluster.request("PUT", f"/{target.name}/_settings", body={"index.final_pipeline": theirs})
        for _ in range(2):  # a second time it upgrades, and wraps nothing twice
            await install_pipeline(cluster, target, ["title", "body"])
        stale = {**_of_two_fields({"title": "t", "body": "b"}), "body": "new"}
        assert await _put_document(cluster, target.name, stale) == {"title": "t", "body": "new", "counted": 1}
        assert await cluster.request("GET", f"/_ingest/pipeline/{theirs}") == {theirs: body}
        await remove_pipeline(cluster, target)
        assert await _final(cluster, target.name) == theirs
        assert await _put_document(cluster, target.name, stale) == {**stale, "counted": 1}
    finally:
        await cluster.request("PUT", f"/{target.name}/_settings", body={"index.final_pipeline": None})
        await cluster.request("DELETE", f"/_ingest/pipeline/{theirs}")


async def test_removal_leaves_no_pipeline_and_no_setting(cluster: Cluster, target: Target) -> None:
    await install_pipeline(cluster, target, ["title", "body"])
    await remove_pipeline(cluster, target)
    await remove_pipeline(cluster, target)
    assert await _final(cluster, target.name) is None
    with pytest.raises(ClusterRefused) as refused:
        await cluster.request("GET", f"/_ingest/pipeline/{pipeline_name(target)}")
    assert refused.value.status == 404


async def _alias(cluster: Cluster, name: str, index: str, *, instead_of: str = "") -> Target:
    actions = [{"add": {"index": index, "alias": name}}]
    actions += [{"remove": {"index": instead_of, "alias": name}}] if instead_of else []
    await cluster.request("POST", "/_aliases", body={"actions": actions})
    return await describe(cluster, name, ["title", "body"])


async def test_pipeline_of_an_index_that_the_alias_has_left_stays_until_it_is_removed_there(
    cluster: Cluster, target: Target
) -> None:
    fields, other, alias = ["title", "body"], f"{target.name}-next", f"{target.name}-alias"
    source = {"title": "t", "body": "b"}
    through = await _alias(cluster, alias, target.name)
    await install_pipeline(cluster, through, fields)
    await make_index(cluster, other, mappings={"properties": {"title": {"type": "text"}, "body": {"type": "text"}}})
    try:
        through = await _alias(cluster, alias, other, instead_of=target.name)
        await install_pipeline(cluster, through, fields)
        with pytest.raises(UnsupportedError, match=f"still used by index '{target.name}' and stays"):
            await remove_pipeline(cluster, through)
        assert await _put_document(cluster, target.name, source) == source
        assert await _put_document(cluster, other, source) == source
        await remove_pipeline(cluster, target)
        assert await _final(cluster, target.name) is None
        await remove_pipeline(cluster, through)
        assert await _pipelines_of(cluster, target.name) == []
    finally:
        await cluster.request("DELETE", f"/{other}")


async def test_index_that_is_known_by_two_names_gets_one_pipeline_and_its_own_back(
    cluster: Cluster, target: Target
) -> None:
    theirs, fields = f"theirs-{target.name}", ["title", "body"]
    await cluster.request("PUT", f"/_ingest/pipeline/{theirs}", body={"processors": []})
    try:
        await cluster.request("PUT", f"/{target.name}/_settings", body={"index.final_pipeline": theirs})
        through = await _alias(cluster, f"{target.name}-alias", target.name)
        for one in (target, through):
            await install_pipeline(cluster, one, fields)
        await remove_pipeline(cluster, target)
        assert await _final(cluster, target.name) == theirs
        await remove_pipeline(cluster, through)
        assert await _pipelines_of(cluster, target.name) == [theirs]
    finally:
        await cluster.request("PUT", f"/{target.name}/_settings", body={"index.final_pipeline": None})
        await cluster.request("DELETE", f"/_ingest/pipeline/{theirs}")


async def test_pipelines_go_where_the_customer_put_another_in_their_place(cluster: Cluster, target: Target) -> None:
    theirs = [f"theirs-{target.name}", f"theirs-too-{target.name}"]
    for name in theirs:
        await cluster.request("PUT", f"/_ingest/pipeline/{name}", body={"processors": []})
    try:
        await cluster.request("PUT", f"/{target.name}/_settings", body={"index.final_pipeline": theirs[0]})
        await install_pipeline(cluster, target, ["title", "body"])
        await cluster.request("PUT", f"/{target.name}/_settings", body={"index.final_pipeline": theirs[1]})
        assert await remove_pipeline(cluster, target) == {target.name: theirs[1]}
        assert await _pipelines_of(cluster, target.name) == theirs
    finally:
        await cluster.request("PUT", f"/{target.name}/_settings", body={"index.final_pipeline": None})
        for name in theirs:
            await cluster.request("DELETE", f"/_ingest/pipeline/{name}")


async def test_pipeline_that_a_customers_one_calls_is_not_deleted(cluster: Cluster, target: Target) -> None:
    wrapper, ours = f"theirs-{target.name}", pipeline_name(target)
    await install_pipeline(cluster, target, ["title", "body"])
    await cluster.request("PUT", f"/_ingest/pipeline/{wrapper}", body={"processors": [{"pipeline": {"name": ours}}]})
    try:
        await cluster.request("PUT", f"/{target.name}/_settings", body={"index.final_pipeline": wrapper})
        with pytest.raises(UnsupportedError, match=f"still used by pipeline '{wrapper}'"):
            await remove_pipeline(cluster, target)
        source = {"title": "t", "body": "b"}
        assert await _put_document(cluster, target.name, source) == source
    finally:
        await cluster.request("PUT", f"/{target.name}/_settings", body={"index.final_pipeline": None})
        await cluster.request("DELETE", f"/_ingest/pipeline/{wrapper}")


async def test_pipeline_that_a_template_names_is_not_deleted(cluster: Cluster, target: Target) -> None:
    await install_pipeline(cluster, target, ["title", "body"])
    settings = {"index.final_pipeline": pipeline_name(target)}
    template = {"index_patterns": [f"{target.name}-*"], "template": {"settings": settings}}
    await cluster.request("PUT", f"/_index_template/{target.name}", body=template)
    try:
        with pytest.raises(UnsupportedError, match="still used by template"):
            await remove_pipeline(cluster, target)
    finally:
        await cluster.request("DELETE", f"/_index_template/{target.name}")


async def _pipelines_of(cluster: Cluster, name: str) -> list[str]:
    try:
        return sorted(p for p in await cluster.request("GET", "/_ingest/pipeline") if name in p)
    except ClusterRefused:  # 404 of OpenSearch, where there is none at all
        return []


async def test_pipeline_called_from_a_default_pipeline_does_the_same(cluster: Cluster, target: Target) -> None:
    name = f"{target.name}-called"
    await cluster.request("PUT", f"/_ingest/pipeline/{name}", body=pipeline_body(["title", "body"]))
    try:
        await cluster.request("PUT", f"/{target.name}/_settings", body={"index.default_pipeline": name})
        stale = {**_of_two_fields({"title": "t", "body": "b"}), "body": "new"}
        assert await _put_document(cluster, target.name, stale) == {"title": "t", "body": "new"}
        assert await _put_document(cluster, target.name, stale, pipeline="_none") == stale
    finally:
        await cluster.request("PUT", f"/{target.name}/_settings", body={"index.default_pipeline": None})
        await cluster.request("DELETE", f"/_ingest/pipeline/{name}")
