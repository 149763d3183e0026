"""What would make an enrichment fail is found before a model is paid, and told with its remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from end_to_end.conftest import Result, call_node, sources
from tests.model_server import ModelServer

Cli = Callable[..., Result]
Config = Callable[..., Path]
TEXT = {"properties": {"title": {"type": "text"}, "text": {"type": "text"}}}


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(default='{"terms": ["noise"]}') as server:
        yield server


@pytest.fixture
def enrich(cli: Cli, write_config: Config, model: ModelServer) -> Callable[..., Result]:
    def call(index: str, *options: object, **parts: Any) -> Result:
        stage = {"model": "openai/gpt-4.1-mini", "api_base": model.api_base, "api_key": "k"}
        config = write_config(index, llm={"documents": stage}, **parts)
        return cli("enrich", "--index", index, "-c", config, "--json", "-q", *options)

    return call


def make(node_url: str, index: str, mappings: dict[str, Any], **settings: Any) -> None:
    call_node(node_url, "PUT", f"/{index}", {"mappings": mappings, "settings": {"number_of_replicas": 0, **settings}})
    call_node(node_url, "PUT", f"/{index}/_doc/1?refresh=true", {"title": "fan", "text": "loud"})


@pytest.mark.parametrize(
    ("mappings", "settings", "told"),
    [
        ({**TEXT, "_source": {"excludes": ["secret"]}}, {}, "_source is pruned"),
        ({**TEXT, "_source": {"enabled": False}}, {}, "_source is disabled"),
        (TEXT, {"index.mapping.total_fields.limit": 4}, "raise index.mapping.total_fields.limit"),
        ({"properties": {**TEXT["properties"], "enriched_terms": {"type": "keyword"}}}, {}, "enriched_terms"),
    ],
    ids=["pruned _source", "no _source", "field limit", "name taken"],
)
def test_index_that_cannot_be_enriched_is_refused_with_its_remedy_and_costs_no_call(
    enrich: Callable[..., Result], index_name: str, node_url: str, model: ModelServer, mappings: Any, settings: Any, told: str
) -> None:  # fmt: skip
    """elastic/elasticsearch#133203 (pruned fields are discarded), #89911, elasticsearch-py#552 (field limit)."""
    make(node_url, index_name, mappings, **settings)
    before = call_node(node_url, "GET", f"/{index_name}/_mapping")
    result = enrich(index_name)
    assert result.code != 0
    assert told in result.err
    assert model.calls == []
    assert call_node(node_url, "GET", f"/{index_name}/_mapping") == before


COPIED = {"properties": {"headline": {"type": "text", "copy_to": ["title", "text"]}, **TEXT["properties"]}}


def test_text_that_only_the_engine_copies_is_refused_with_the_fields_to_read(
    enrich: Callable[..., Result], index_name: str, node_url: str, model: ModelServer
) -> None:
    call_node(node_url, "PUT", f"/{index_name}", {"mappings": COPIED, "settings": {"number_of_replicas": 0}})
    call_node(node_url, "PUT", f"/{index_name}/_doc/1?refresh=true", {"headline": "fan is loud"})
    refused = enrich(index_name)
    assert refused.code == 1
    assert "copy_to" in refused.err
    assert "set read_fields to [headline]" in refused.err
    assert model.calls == []
    fields = {index_name: {"text_fields": ["title", "text"], "read_fields": ["headline"]}}
    assert enrich(index_name, indices=fields).code == 0
    assert sources(node_url, index_name)["1"]["enriched_terms"] == ["noise"]


def test_field_that_is_copied_into_and_has_a_text_of_its_own_is_read(
    enrich: Callable[..., Result], index_name: str, node_url: str
) -> None:
    make(node_url, index_name, COPIED)
    assert enrich(index_name).code == 0


def test_write_block_is_found_before_the_first_call(
    enrich: Callable[..., Result], index_name: str, node_url: str, model: ModelServer
) -> None:
    make(node_url, index_name, TEXT)
    call_node(node_url, "PUT", f"/{index_name}/_settings", {"index.blocks.write": True})
    result = enrich(index_name)
    assert "index.blocks.write" in result.err
    assert model.calls == []


def test_strict_mapping_gets_our_two_fields_and_the_document_its_terms(
    enrich: Callable[..., Result], index_name: str, node_url: str
) -> None:
    """elastic/elasticsearch#89911, elasticsearch-py#552: a strict mapping refuses fields that it does not know."""
    make(node_url, index_name, {"dynamic": "strict", **TEXT})
    assert enrich(index_name).code == 0
    assert sources(node_url, index_name)["1"]["enriched_terms"] == ["noise"]


def test_data_stream_is_enriched_in_its_backing_indices(
    enrich: Callable[..., Result], index_name: str, node_url: str
) -> None:
    """elastic/elasticsearch PR #87263, elastic/kibana#131295: a data stream accepts only create."""
    call_node(node_url, "GET", f"/_data_stream/{index_name}*")
    template = {"index_patterns": [index_name], "data_stream": {}, "template": {"mappings": TEXT}}
    call_node(node_url, "PUT", f"/_index_template/{index_name}", template)
    try:
        for day in (1, 2):
            document = {"@timestamp": f"2026-01-0{day}T00:00:00Z", "title": "fan", "text": f"loud {day}"}
            call_node(node_url, "POST", f"/{index_name}/_doc?refresh=true", document)
            call_node(node_url, "POST", f"/{index_name}/_rollover")
        result = enrich(index_name)
        assert (result.code, result.json["enriched"], result.json["pending"]) == (0, 2, 0)
        assert all(s["enriched_terms"] == ["noise"] for s in sources(node_url, index_name).values())
    finally:
        call_node(node_url, "DELETE", f"/_data_stream/{index_name}")
        call_node(node_url, "DELETE", f"/_index_template/{index_name}")


def test_copied_fields_are_told_in_the_dry_run(
    enrich: Callable[..., Result], index_name: str, node_url: str, model: ModelServer
) -> None:
    """elastic/elasticsearch PR #108880, #110350, #132485: an update runs what hangs on other fields again."""
    copied = {"properties": {**TEXT["properties"], "all": {"type": "text"}}}
    copied["properties"]["title"] = {"type": "text", "copy_to": "all"}
    make(node_url, index_name, copied)
    (warning,) = enrich(index_name, "--dry-run").json["warnings"]
    assert warning.startswith("title: copied to other fields")
    assert model.calls == []
