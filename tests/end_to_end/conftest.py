"""For tests through the command line: a configuration for the node, and the FAQ collection of the examples."""

from __future__ import annotations

import json
import secrets
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from sira_es.cli import run
from sira_es.resources import data_file

FAQ = data_file("examples", "stackfaq")


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run one command in this process."""

    def call(*arguments: object) -> Result:
        capsys.readouterr()
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture
def write_config(tmp_path: Path, node_url: str) -> Callable[..., Path]:
    """Write a sira-es.yml for an index of title and text; keywords replace whole parts of it."""

    def write(index: str, **parts: Any) -> Path:
        file = tmp_path / "sira-es.yml"
        content = {
            "cluster": {"url": node_url},
            "state": str(tmp_path / "state"),
            "indices": {index: {"text_fields": ["title", "text"], "language": "en"}},
            **parts,
        }
        file.write_text(yaml.safe_dump(content), encoding="utf-8")
        return file

    return write


def call_node(node_url: str, method: str, path: str, body: object = None) -> Any:
    """One request to the node, without any client."""
    request = urllib.request.Request(
        f"{node_url}{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
        return json.loads(answer.read() or b"null")


@pytest.fixture(scope="module")
def faq_index(node_url: str) -> Iterator[str]:
    """The FAQ, loaded once a module and not enriched."""
    name = f"test-faq-{secrets.token_hex(4)}"
    assert run(["index", "--index", name, "--documents", str(FAQ / "corpus.jsonl.gz"), "--url", node_url, "-q"]) == 0
    yield name
    call_node(node_url, "DELETE", f"/{name}")


def sources(node_url: str, index: str) -> dict[str, Any]:
    """Every `_source` of a small index, by id."""
    found = call_node(node_url, "POST", f"/{index}/_search", {"size": 10_000, "query": {"match_all": {}}})
    return {hit["_id"]: hit["_source"] for hit in found["hits"]["hits"]}
