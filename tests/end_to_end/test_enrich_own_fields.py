"""Documents that have a field named like one of ours are their owner's: never written, never undone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from end_to_end.conftest import Result, call_node, sources
from sira_es.errors import InputError
from sira_es.sira import Sira
from tests.model_server import ModelServer

Cli = Callable[..., Result]
Config = Callable[..., Path]
TEXT = {"properties": {"title": {"type": "text"}, "text": {"type": "text"}}}
OWN: dict[str, dict[str, Any]] = {
    "both": {"title": "a", "text": "b", "sira": {"secret": 42}, "enriched_terms": "own"},
    "object": {"title": "a", "text": "c", "sira": {"secret": 42}},
    "half": {"title": "a", "text": "d", "sira": {"source_hash": "mine"}},
    "value": {"title": "a", "text": "e", "sira": "mine"},
    "terms": {"title": "a", "text": "f", "enriched_terms": ["own"]},
    "dotted": {"title": "a", "text": "g", "sira.source_hash": "mine"},
}


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(default='{"terms": ["noise"]}') as server:
        yield server


@pytest.fixture
def config(write_config: Config, index_name: str, model: ModelServer) -> Path:
    stage = {"model": "openai/gpt-4.1-mini", "api_base": model.api_base, "api_key": "k"}
    return write_config(index_name, llm={"documents": stage})


@pytest.fixture
def held(index_name: str, node_url: str) -> dict[str, Any]:
    """Documents with fields of their own, unmapped, and one without."""
    settings = {"mappings": {"dynamic": False, **TEXT}, "settings": {"number_of_replicas": 0}}
    call_node(node_url, "PUT", f"/{index_name}", settings)
    documents = {**OWN, "plain": {"title": "a", "text": "h"}}
    for key, source in documents.items():
        call_node(node_url, "PUT", f"/{index_name}/_doc/{key}?refresh=true", source)
    return documents


def test_unmapped_fields_of_their_own_survive_a_run_and_its_undoing(
    cli: Cli, config: Path, index_name: str, node_url: str, held: dict[str, Any], model: ModelServer
) -> None:
    at = ("--index", index_name, "-c", config)
    report = cli("enrich", *at, "--json", "-q")
    assert (report.code, report.json["enriched"], report.json["pending"]) == (0, 1, 0)
    assert report.json["skipped"] == {
        "has a field of its own named enriched_terms": 1,
        "has a field of its own named sira": 5,
    }
    assert len(model.calls) == 1
    after = sources(node_url, index_name)
    assert after.pop("plain")["enriched_terms"] == ["noise"]
    assert after == OWN
    noted = cli("status", *at, "--noted").out.splitlines()
    assert {line.split("\t")[1] for line in noted} == set(OWN)
    cli("enrich", *at, "--rejudge", "-q")
    assert cli("enrich", *at, "--undo", "--json").json["removed"] == 1
    after = sources(node_url, index_name)
    assert {key: after[key] for key in OWN} == OWN


def test_undo_of_a_mapped_field_that_is_not_ours_leaves_it(
    cli: Cli, config: Path, index_name: str, node_url: str, held: dict[str, Any]
) -> None:
    """Once our fields are mapped, a document with a `sira.source_hash` of its own looks as if it were enriched."""
    cli("enrich", "--index", index_name, "-c", config, "-q")
    call_node(node_url, "PUT", f"/{index_name}/_doc/half?refresh=true", OWN["half"])
    hashed = call_node(node_url, "POST", f"/{index_name}/_count", {"query": {"exists": {"field": "sira.source_hash"}}})
    assert hashed["count"] == 2
    cli("enrich", "--index", index_name, "-c", config, "-q")
    cli("enrich", "--index", index_name, "-c", config, "--undo", "-q")
    after = sources(node_url, index_name)
    assert {key: after[key] for key in OWN} == OWN


def test_collection_lines_with_such_keys_keep_them(
    cli: Cli, config: Path, index_name: str, node_url: str, tmp_path: Path
) -> None:
    line = {"id": "1", "title": "a", "text": "b", "sira": {"secret": 42}, "enriched_terms": "own"}
    file = tmp_path / "one.jsonl"
    file.write_text(json.dumps(line) + "\n", encoding="utf-8")
    cli("index", "--index", index_name, "--documents", file, "--url", node_url, "-q")
    first = sources(node_url, index_name)
    assert cli("enrich", "--index", index_name, "-c", config, "-q").code == 0
    assert sources(node_url, index_name) == first
    cli("enrich", "--index", index_name, "-c", config, "--undo", "-q")
    assert sources(node_url, index_name) == first


def test_ingest_step_takes_the_terms_of_a_text_that_is_gone(
    config: Path, index_name: str, held: dict[str, Any]
) -> None:
    ours = {"sira": {"source_hash": "h", "recipe": "r"}, "enriched_terms": ["old"]}
    with Sira.from_config(config) as sira:
        assert sira.enrich_documents([{"_id": "1", "text": "", **ours}], index=index_name) == [{"_id": "1", "text": ""}]


def test_ingest_step_leaves_such_documents_as_they_are(config: Path, index_name: str, held: dict[str, Any]) -> None:
    with Sira.from_config(config) as sira:
        assert sira.enrich_documents([OWN["both"]], index=index_name) == [OWN["both"]]


@pytest.mark.parametrize("documents", ["text", {"_id": "1", "text": "a"}, [["text", "a"]]])
def test_what_is_no_list_of_documents_is_refused(documents: Any, config: Path, index_name: str) -> None:
    with Sira.from_config(config) as sira, pytest.raises(InputError, match="each of the documents must be a Mapping"):
        sira.enrich_documents(documents, index=index_name)
