"""Indices that have text in nested objects alone: read there, and found by what is added at the root."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.documents import fill, make_index, sources, undone
from cluster.searching import ENGLISH
from sira_es.cli.init import render
from sira_es.cluster.connect import Cluster
from sira_es.errors import ConfigurationError
from sira_es.settings import Settings, load_settings
from sira_es.sira import AsyncSira
from tests.model_server import ModelServer

pytestmark = pytest.mark.anyio

PARTS = {"properties": {"comments": {"type": "nested", "properties": {"text": ENGLISH, "by": {"type": "keyword"}}}}}
DOCUMENTS = {
    "hot": {"comments": [{"text": "The laptop gets hot", "by": "a"}, {"text": "on my knees", "by": "b"}]},
    "vpn": {"comments": [{"text": "The connection drops every hour"}]},
    "fan": {"comments": {"text": "The fan is loud"}},
    "bare": {"comments": []},
}
TERMS = {"laptop": ["overheating machine"], "connection": ["tunnel"], "fan is": ["noisy cooler"]}
EXPANSION = json.dumps({"concepts": [{"words": "warm", "need": 0.9, "same": [["overheating", 0.9], ["unheard", 0.8]]}]})
NESTED_QUERY = {"nested": {"path": "comments", "query": {"match": {"comments.text": "hot laptop"}}}}


@pytest.fixture
def model() -> Iterator[ModelServer]:
    answers = {word: json.dumps({"terms": terms}) for word, terms in TERMS.items()}
    with ModelServer(answers, default=EXPANSION) as server:
        yield server


@pytest.fixture
async def sira(
    cluster: Cluster, node_url: str, index_name: str, tmp_path: Path, model: ModelServer
) -> AsyncIterator[AsyncSira]:
    await make_index(cluster, index_name, shards=2, mappings=PARTS)
    await fill(cluster, index_name, DOCUMENTS)
    async with opened(node_url, index_name, tmp_path, model) as made:
        yield made


def opened(url: str, index: str, state: Path, model: ModelServer, read: str = "comments.text") -> AsyncSira:
    stage = {"model": "openai/recorded", "api_base": model.api_base, "api_key": "none"}
    indices = {index: {"text_fields": ["enriched_terms"], "read_fields": [read], "language": "en"}}
    llm = {"documents": stage, "queries": stage}
    return AsyncSira(Settings(cluster={"url": url}, llm=llm, state=state, indices=indices))  # type: ignore[arg-type]


async def found(sira: AsyncSira, index: str, text: str, **how: Any) -> list[str]:
    return [h.id for h in (await sira.search(text, index, deadline=math.inf, **how)).hits]


async def test_nested_text_is_read_and_found_by_the_terms_at_the_root_until_they_are_undone(
    sira: AsyncSira, cluster: Cluster, index_name: str
) -> None:
    """elastic/elasticsearch#10840, #19193, #10753: a multi_match over nested text finds nothing."""
    before = await cluster.request("GET", f"/{index_name}/_mapping")
    assert await found(sira, index_name, "tunnel") == []
    assert await cluster.request("GET", f"/{index_name}/_mapping") == before

    report = await sira.enrich(index_name)
    assert report.enriched == 3
    mapping = (await cluster.request("GET", f"/{index_name}/_mapping"))[index_name]["mappings"]["properties"]
    assert mapping["enriched_terms"]["analyzer"] == "english"
    assert (await sources(cluster, index_name))["hot"]["enriched_terms"] == TERMS["laptop"]
    assert await found(sira, index_name, "tunnels", sides="documents") == ["vpn"]
    assert await found(sira, index_name, "what is too warm") == ["hot"]
    assert await found(sira, index_name, "what is too warm", sides="baseline") == []

    await sira.undo(index_name)
    assert await undone(cluster, index_name) == DOCUMENTS
    assert await found(sira, index_name, "tunnels", sides="documents") == []


async def test_no_clause_names_the_one_field_twice_and_there_is_no_reach(sira: AsyncSira, index_name: str) -> None:
    await sira.enrich(index_name)
    request, _ = await sira.compile("what is too warm", index_name, deadline=math.inf)
    original, *added = request["query"]["bool"]["should"]
    assert [c["multi_match"]["query"] for c in added] == ["overheating"]
    assert [c["multi_match"]["fields"] for c in [original, *added]] == [["enriched_terms"], ["enriched_terms"]]


async def test_figures_by_term_vectors_are_those_of_counts(sira: AsyncSira, index_name: str) -> None:
    await sira.enrich(index_name)
    frequencies, target = await sira.frequencies(), await sira.target(index_name)
    texts, names = ["overheating", "unheard"], ["enriched_terms"]
    by_vectors, by_counts = [
        await frequencies.look_up(target, texts, fields=names, main_field=names[0], exact=exact)
        for exact in (False, True)
    ]
    assert (by_vectors.source, by_counts.source) == ("term_vectors", "counts")
    for statistics in (by_vectors, by_counts):
        assert statistics.documents == 4
        assert [w.df for a in statistics.analyses for w in a.words] == [1, 0]


@pytest.mark.parametrize("mode", ["rerank", "recall"])
async def test_a_nested_query_of_the_callers_passes_unchanged(sira: AsyncSira, index_name: str, mode: Any) -> None:
    await sira.enrich(index_name)
    body = {"query": NESTED_QUERY, "size": 3}
    assert await sira.rewrite(body, index_name, mode=mode) == body


async def test_what_has_no_terms_yet_is_pending_and_a_second_run_asks_nothing(
    sira: AsyncSira, index_name: str, model: ModelServer
) -> None:
    first = await sira.status(index_name)
    assert (first.documents, first.pending, first.enriched) == (4, 4, 0)
    await sira.enrich(index_name)
    calls = len(model.calls)
    again = await sira.enrich(index_name)
    assert (again.documents, again.pending, again.enriched) == (4, 0, 3)
    assert len(model.calls) == calls


async def test_the_pipeline_drops_terms_where_the_nested_text_changes_alone(
    sira: AsyncSira, cluster: Cluster, index_name: str
) -> None:
    await sira.enrich(index_name)
    await sira.install_pipeline(index_name)
    held = await sources(cluster, index_name)
    changed = {**held["vpn"], "comments": [{"text": "It is fine now"}]}
    await fill(cluster, index_name, {"hot": held["hot"], "vpn": changed})
    after = await sources(cluster, index_name)
    await sira.remove_pipeline(index_name)
    assert after["hot"] == held["hot"]
    assert after["vpn"] == {"comments": changed["comments"]}


async def test_doctor_and_preflight_take_it(sira: AsyncSira, index_name: str) -> None:
    checks = await sira.doctor(index_name)
    assert [c.detail for c in checks if c.status == "problem"] == []
    details = {c.name: c.detail for c in checks}
    assert details["text fields"] == "enriched_terms alone, analysed as comments.text (english), which is read"


async def test_a_component_template_has_the_analyzer_of_the_read_field(
    sira: AsyncSira, cluster: Cluster, index_name: str
) -> None:
    name = await sira.install_template(index_name)
    try:
        kept = (await cluster.request("GET", f"/_component_template/{name}"))["component_templates"][0]
    finally:
        await cluster.request("DELETE", f"/_component_template/{name}")
    mapping = kept["component_template"]["template"]["mappings"]["properties"]
    assert mapping["enriched_terms"]["analyzer"] == "english"


@pytest.mark.parametrize(
    ("read", "what"), [("comments.body", "does not exist"), ("comments.by", "is of type keyword, not text")]
)
async def test_a_read_field_that_cannot_give_the_analyzer_is_refused(
    sira: AsyncSira, node_url: str, index_name: str, tmp_path: Path, model: ModelServer, read: str, what: str
) -> None:
    async with opened(node_url, index_name, tmp_path, model, read) as other:
        with pytest.raises(ConfigurationError) as caught:
            await other.search("tunnel", index_name)
    assert str(caught.value) == (
        f"field '{read}' of '{index_name}' {what}; "
        "all its text is nested: set text_fields to [enriched_terms] and read_fields to [comments.text]"
    )


async def test_init_writes_such_a_configuration(sira: AsyncSira, index_name: str, tmp_path: Path) -> None:
    file = tmp_path / "sira-es.yml"
    file.write_text(render(await sira.look_at(index_name)), encoding="utf-8")
    written = load_settings(file).index(index_name)
    assert (written.text_fields, written.read_fields) == (["enriched_terms"], ["comments.text"])
    assert written.language == "en"
