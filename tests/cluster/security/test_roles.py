"""Each command works with exactly the role that is documented for it, and says which privilege is missing.

No plugin and no privilege on the cluster is needed: services that load no plugins, and teams that are given their own
indices only, can use it. [querqy-opensearch#81: no plugin on a managed service; querqy-elasticsearch#216, #59]
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.security.collection import ADDED, DOCUMENTS, QUERY, Files, write
from cluster.security.conftest import Secured
from end_to_end.conftest import Result
from sira_es.resources import data_file

pytestmark = pytest.mark.slow

Cli = Callable[..., Result]
Config = Callable[..., Path]

ROLE_OF = {
    "search": "search", "expand": "search", "compile": "search", "status": "search", "doctor": "search", "eval": "search",
    "init": "search", "enrich": "enrich", "undo": "enrich", "index": "load",
}  # fmt: skip


def role(name: str, index: str, without: str = "") -> dict[str, Any]:
    text = (data_file("roles", f"elasticsearch-{name}.json")).read_text("utf-8")
    content: dict[str, Any] = json.loads(text)
    (part,) = content["indices"]
    part["names"] = [f"{index}*"]
    part["privileges"] = [p for p in part["privileges"] if p != without]
    return content


def privileges(name: str) -> list[str]:
    return list(role(name, "any")["indices"][0]["privileges"])


UNUSED = {("undo", "indices:admin/mapping/put")}  # what undo leaves in place is not mapped again
CASES = [(c, p) for c, name in ROLE_OF.items() for p in privileges(name) if (c, p) not in UNUSED]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return write(tmp_path)


@pytest.fixture
def docs(secured: Secured, index_name: str) -> str:
    """An index of the collection, not enriched, made by an administrator."""
    mappings = {"properties": {name: {"type": "text", "analyzer": "english"} for name in ("title", "text")}}
    secured.call("PUT", f"/{index_name}", {"settings": {"number_of_replicas": 0}, "mappings": mappings})
    lines = [part for key, d in DOCUMENTS.items() for part in ({"index": {"_index": index_name, "_id": key}}, d)]
    secured.call("POST", "/_bulk?refresh=true", lines=lines)
    return index_name


@pytest.fixture
def user(secured: Secured) -> Iterator[Callable[[dict[str, Any]], str]]:
    made: list[str] = []

    def make(body: dict[str, Any]) -> str:
        name = f"u-{secrets.token_hex(4)}"
        made.append(name)
        secured.role(name, body)
        return secured.user(name, name)

    yield make
    for name in made:
        secured.call("DELETE", f"/_security/user/{name}")
        secured.call("DELETE", f"/_security/role/{name}")


def arguments(command: str, index: str, config: Path, files: Files) -> list[Any]:
    at = ["--index", index, "-c", config]
    recorded = ["--recorded", files.query_answers]
    return {
        "search": ["search", QUERY, *at, *recorded, "--json"],
        "expand": ["expand", QUERY, *at, *recorded, "--json"],
        "compile": ["compile", QUERY, *at, *recorded],
        "status": ["status", *at, "--json"],
        "doctor": ["doctor", *at, "--json"],
        "eval": ["eval", *at, "--queries", files.queries, "--qrels", files.qrels, *recorded, "--json"],
        "init": ["init", *at, "--output", config.with_name("written.yml")],
        "enrich": ["enrich", *at, "--recorded", files.answers, "--json", "-q"],
        "undo": ["enrich", *at, "--undo", "-q"],
        "index": ["index", "--index", f"{index}-new", "-c", config, "--documents", files.documents, "-q"],
    }[command]


def prepare(command: str, cli: Cli, write_config: Config, docs: str, files: Files) -> None:
    if command == "undo":
        config = write_config(docs, basic_auth="admin:planted-Pa55-word")
        assert cli(*arguments("enrich", docs, config, files)).code == 0


@pytest.mark.parametrize("command", ROLE_OF)
def test_a_command_works_with_exactly_its_role(
    command: str, cli: Cli, write_config: Config, secured: Secured, docs: str, files: Files, user: Any
) -> None:
    prepare(command, cli, write_config, docs, files)
    granted = role(ROLE_OF[command], docs, without=next((p for c, p in UNUSED if c == command), ""))
    config = write_config(docs, basic_auth=user(granted))
    result = cli(*arguments(command, docs, config, files))
    assert result.code == 0, result.err
    if command == "search":
        assert result.json["hits"][0]["_id"] == "0"
    if command == "expand":
        assert {t["df"] for t in result.json["terms"] if t["word"] in {"dust", "fan"}} == {1}
    if command == "enrich":
        assert (result.json["enriched"], result.json["pending"]) == (len(DOCUMENTS), 0)
        assert secured.call("GET", f"/{docs}/_doc/0")["_source"]["enriched_terms"] == ADDED
    if command == "undo":
        assert not secured.call("GET", f"/{docs}/_doc/0")["_source"].get("sira")
    if command == "index":
        assert secured.call("POST", f"/{docs}-new/_search", {"size": 0})["hits"]["total"]["value"] == len(DOCUMENTS)


@pytest.mark.parametrize(("command", "missing"), CASES)
def test_a_command_names_the_privilege_that_is_missing(
    command: str, missing: str, cli: Cli, write_config: Config, docs: str, files: Files, user: Any
) -> None:
    prepare(command, cli, write_config, docs, files)
    config = write_config(docs, basic_auth=user(role(ROLE_OF[command], docs, without=missing)))
    result = cli(*arguments(command, docs, config, files))
    said = result.out if command == "doctor" else result.err
    assert result.code == 1, said
    assert re.search(rf"(privilege '|missing[^;]*: (\S+, )*){re.escape(missing)}\b", said), said
    if command != "doctor":
        assert said.count("\n") == 1
