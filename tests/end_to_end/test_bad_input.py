"""What goes wrong is said in one line, with the right exit code, and nothing is half-written."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from end_to_end.conftest import FAQ, Result, call_node, sources
from tests.model_server import Fault, ModelServer

Cli = Callable[..., Result]
Config = Callable[..., Path]

ANSWERS = FAQ / "recorded" / "documents.jsonl.gz"
THREE = [{"id": str(i), "title": f"fan {i}", "text": "it makes noise"} for i in range(3)]


def one_line(result: Result, code: int, *parts: str) -> None:
    """The last line on stderr is the error; nothing looks like a traceback."""
    assert result.code == code, result.err
    assert "Traceback" not in result.err
    last = result.err.strip().splitlines()[-1]
    assert last.startswith("sira-es: ")
    for part in parts:
        assert part in last


@pytest.fixture
def three(cli: Cli, index_name: str, node_url: str, tmp_path: Path) -> str:
    """An index of three documents."""
    file = tmp_path / "three.jsonl"
    file.write_text("".join(json.dumps(d) + "\n" for d in THREE))
    assert cli("index", "--index", index_name, "--documents", file, "--url", node_url, "-q").code == 0
    return index_name


def test_unreachable_cluster(cli: Cli, write_config: Config) -> None:
    config = write_config("docs", cluster={"url": "http://127.0.0.1:9"})
    one_line(cli("search", "x", "--index", "docs", "-c", config), 1, "http://127.0.0.1:9", "refused")


def test_host_that_does_not_exist(cli: Cli, write_config: Config) -> None:
    config = write_config("docs", cluster={"url": "http://nowhere.invalid:9200"})
    one_line(cli("status", "--index", "docs", "-c", config), 1, "nowhere.invalid")


def test_address_that_is_no_cluster(cli: Cli, write_config: Config) -> None:
    with ModelServer() as server:
        config = write_config("docs", cluster={"url": server.api_base})
        one_line(cli("search", "x", "--index", "docs", "-c", config), 1, "cluster.url")


@pytest.mark.parametrize("command", [("search", "x"), ("status",), ("init", "--output", "/absent/new.yml")])
def test_address_with_a_wrong_path(cli: Cli, write_config: Config, node_url: str, command: tuple[str, ...]) -> None:
    config = write_config("docs", cluster={"url": f"{node_url}/nothing/here"})
    one_line(cli(*command, "--index", "docs", "-c", config), 1, "check cluster.url")


def test_doctor_shows_the_other_checks_beside_an_index_without_configuration(
    cli: Cli, write_config: Config, three: str
) -> None:
    result = cli("doctor", "--index", "other", "-c", write_config(three), "--json")
    checks = {c["name"]: c for c in result.json}
    assert result.code == 1
    assert {"engine", "llm documents", "llm queries"} <= checks.keys()
    assert (checks["index"]["status"], checks["index"]["detail"]) == (
        "problem",
        "no index 'other' in the configuration",
    )
    assert checks["index"]["remedy"] == "run 'sira-es init --index other' first"


def test_doctor_tells_one_remedy_for_a_cluster_that_is_down(cli: Cli, write_config: Config) -> None:
    config = write_config("docs", cluster={"url": "http://127.0.0.1:9"})
    checks = cli("doctor", "--index", "docs", "-c", config, "--json").json
    assert [c["name"] for c in checks] == ["cluster", "llm documents", "llm queries"]
    assert checks[0]["detail"] == "http://127.0.0.1:9: connection refused"
    assert checks[0]["remedy"] == "check that the cluster runs there, and cluster.url"


def test_documents_of_one_id_count_once_and_are_named(cli: Cli, index_name: str, node_url: str, tmp_path: Path) -> None:
    file = tmp_path / "twice.jsonl"
    file.write_text('{"id": "a", "text": "one"}\n{"id": "a", "text": "two"}\n')
    result = cli("index", "--index", index_name, "--documents", file, "--url", node_url)
    assert result.code == 0
    assert f"1 documents in {index_name}" in result.err
    assert "whose id stood before, the last one stands: 1 (first: line 2, 'a')" in result.err


def test_a_query_of_stop_words_is_told_and_no_model_is_asked(cli: Cli, write_config: Config, three: str) -> None:
    with ModelServer() as server:
        stage = {"model": "openai/x", "api_base": server.api_base, "api_key": "none"}
        config = write_config(three, llm={"queries": stage})
        result = cli("search", "the of and", "--index", three, "-c", config)
        assert (result.code, server.calls) == (0, [])
    assert "not expanded: the index's analyzer leaves no word of it" in result.err


def test_a_longer_query_of_stop_words_is_told_after_the_answer(cli: Cli, write_config: Config, three: str) -> None:
    with ModelServer(default='{"terms": ["fan"]}') as server:
        stage = {"model": "openai/x", "api_base": server.api_base, "api_key": "none"}
        config = write_config(three, llm={"queries": stage})
        result = cli("search", "there will be these", "--index", three, "-c", config)
    assert result.code == 0
    assert "not expanded: the index's analyzer leaves no word of it" in result.err


def test_init_names_what_it_leaves_out_and_proposes_no_multi_field(
    cli: Cli, index_name: str, node_url: str, tmp_path: Path
) -> None:
    text = {"type": "text", "fields": {"std": {"type": "text", "analyzer": "standard"}}}
    names = ("code", "title", "body")
    call_node(node_url, "PUT", f"/{index_name}", {"mappings": {"properties": dict.fromkeys(names, text)}})
    document = {"code": "x1", "title": "loud fan", "body": "it makes noise when it is hot"}
    call_node(node_url, "PUT", f"/{index_name}/_doc/1?refresh=true", document)
    output = tmp_path / "new.yml"
    assert cli("init", "--index", index_name, "--url", node_url, "--output", output).code == 0
    written = output.read_text()
    assert "text_fields: [title, body]" in written
    assert "# text fields left out, as they hold fewer words: code\n" in written
    assert "# for the prompts" in written
    assert ".std" not in written
    assert cli("doctor", "--index", index_name, "-c", output).code == 0


def test_init_finds_text_that_only_a_multi_field_analyses(
    cli: Cli, index_name: str, node_url: str, tmp_path: Path
) -> None:
    title = {"type": "keyword", "fields": {"english": {"type": "text", "analyzer": "english"}}}
    mappings = {"properties": {"title": title, "code": {"type": "text"}}}
    call_node(node_url, "PUT", f"/{index_name}", {"mappings": mappings})
    call_node(node_url, "PUT", f"/{index_name}/_doc/1?refresh=true", {"code": "x1", "title": "loud fan"})
    output = tmp_path / "new.yml"
    assert cli("init", "--index", index_name, "--url", node_url, "--output", output).code == 0
    assert "text_fields: [title.english]" in output.read_text()


def test_missing_index_names_the_nearest(cli: Cli, write_config: Config, three: str) -> None:
    config = write_config(three + "x")
    one_line(cli("search", "x", "--index", three + "x", "-c", config), 2, three)


def test_index_without_configuration(cli: Cli, write_config: Config, three: str) -> None:
    one_line(cli("search", "x", "--index", "other", "-c", write_config(three)), 2, "sira-es init --index other")


def test_field_that_is_not_text(cli: Cli, write_config: Config, three: str) -> None:
    config = write_config(three, indices={three: {"text_fields": ["title", "body"]}})
    one_line(cli("search", "x", "--index", three, "-c", config), 2, "'body'", "text, title")


def test_index_without_a_text_field(cli: Cli, index_name: str, node_url: str, tmp_path: Path) -> None:
    call_node(node_url, "PUT", f"/{index_name}", {"mappings": {"properties": {"n": {"type": "integer"}}}})
    output = tmp_path / "new.yml"
    one_line(cli("init", "--index", index_name, "--url", node_url, "--output", output), 1, "no text field")
    assert not output.exists()


def test_alias_of_one_index_is_searched_and_enriched(cli: Cli, write_config: Config, three: str, node_url: str) -> None:
    call_node(node_url, "PUT", f"/{three}/_alias/{three}-alias")
    config = write_config(f"{three}-alias")
    with ModelServer(default='{"terms": ["cooler"]}') as server:
        config = write_config(
            f"{three}-alias",
            llm={"documents": {"model": "openai/x", "api_base": server.api_base, "api_key": "none"}},
        )
        done = cli("enrich", "--index", f"{three}-alias", "-c", config, "--json", "-q")
    assert (done.code, done.json["enriched"]) == (0, 3)
    assert cli("search", "cooler", "--index", f"{three}-alias", "-c", config, "--json").json["total"] == 3


def test_closed_index(cli: Cli, write_config: Config, three: str, node_url: str) -> None:
    call_node(node_url, "POST", f"/{three}/_close")
    one_line(cli("search", "x", "--index", three, "-c", write_config(three)), 2, "closed", "_open")


def test_read_only_index_is_refused_before_any_call(cli: Cli, write_config: Config, three: str, node_url: str) -> None:
    call_node(node_url, "PUT", f"/{three}/_settings", {"index.blocks.write": True})
    with ModelServer() as server:
        config = write_config(three, llm={"documents": {"model": "openai/x", "api_base": server.api_base}})
        one_line(cli("enrich", "--index", three, "-c", config, "-q"), 1, "index.blocks.write")
        assert server.calls == []


def test_model_that_is_down_fails_enrich_and_writes_nothing(
    cli: Cli, write_config: Config, three: str, node_url: str
) -> None:
    before = sources(node_url, three)
    stage = {"model": "openai/x", "api_base": "http://127.0.0.1:9/v1", "api_key": "none"}
    result = cli("enrich", "--index", three, "-c", write_config(three, llm={"documents": stage}), "-q", "--json")
    assert result.code == 3
    assert result.json["failed"] == {"unreachable": 3}
    call_node(node_url, "POST", f"/{three}/_refresh")
    assert sources(node_url, three) == before


def test_model_that_is_down_leaves_a_search_with_the_plain_hits(cli: Cli, write_config: Config, three: str) -> None:
    stage = {"model": "openai/x", "api_base": "http://127.0.0.1:9/v1", "api_key": "none"}
    result = cli("search", "fan", "--index", three, "-c", write_config(three, llm={"queries": stage}), "--json")
    assert (result.code, result.json["total"]) == (0, 3)
    assert "not expanded" in result.err


def test_wrong_key_stops_a_long_run_early(cli: Cli, write_config: Config, index_name: str, node_url: str) -> None:
    cli("index", "--index", index_name, "--documents", FAQ / "corpus.jsonl.gz", "--url", node_url, "-q")
    with ModelServer(api_key="right") as server:
        stage = {"model": "openai/x", "api_base": server.api_base, "api_key": "sk-planted-secret"}
        config = write_config(index_name, llm={"documents": stage})
        result = cli("enrich", "--index", index_name, "-c", config, "-q")
        one_line(result, 1, "key")
        assert "planted-secret" not in result.err + result.out
        assert len(server.calls) < 60


@pytest.mark.parametrize("nonsense", ["", "I cannot help with that.", "null", "<html>"])
def test_nonsense_answers_fail_those_documents_and_change_nothing(
    cli: Cli, write_config: Config, three: str, node_url: str, nonsense: str
) -> None:
    before = sources(node_url, three)
    with ModelServer() as server:
        server.always(Fault.says(nonsense))
        stage = {"model": "openai/x", "api_base": server.api_base, "api_key": "none"}
        result = cli("enrich", "--index", three, "-c", write_config(three, llm={"documents": stage}), "-q", "--json")
    assert result.code == 3
    assert sum(result.json["failed"].values()) == 3
    call_node(node_url, "POST", f"/{three}/_refresh")
    assert sources(node_url, three) == before


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("indices: {docs: {text_field: [a]}}", "text_fields"),
        ("clustr: {url: x}", "did you mean 'cluster'"),
        ("cluster: [", "not valid YAML"),
        ("- a", "must hold keys"),
        ("indices: {docs: {text_fields: [title], expansion: {max_df: 2}}}", "indices.docs.expansion.max_df"),
        ("cluster: {api_key: '${SIRA_NO_SUCH_VARIABLE}'}", "SIRA_NO_SUCH_VARIABLE"),
    ],
)
def test_configuration_that_cannot_be_used(cli: Cli, tmp_path: Path, content: str, part: str) -> None:
    file = tmp_path / "bad.yml"
    file.write_text(content)
    one_line(cli("status", "--index", "docs", "-c", file), 2, "bad.yml", part)


def test_missing_configuration_file(cli: Cli, tmp_path: Path) -> None:
    one_line(cli("status", "--index", "docs", "-c", tmp_path / "none.yml"), 2, "none.yml")


def test_documents_with_a_broken_line_leave_no_half_index(
    cli: Cli, index_name: str, node_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_text('{"id": "1", "text": "fine"}\n{"id": "2", "text": \n')
    one_line(cli("index", "--index", index_name, "--documents", file, "--url", node_url), 2, "line 2")
    assert call_node(node_url, "GET", f"/_cat/indices/{index_name}*?format=json") == []


def test_index_that_exists_is_not_touched(cli: Cli, three: str, node_url: str, tmp_path: Path) -> None:
    before = sources(node_url, three)
    one_line(
        cli("index", "--index", three, "--documents", FAQ / "corpus.jsonl.gz", "--url", node_url), 2, "exists already"
    )
    assert sources(node_url, three) == before


def test_demo_refuses_an_index_that_it_did_not_make(
    cli: Cli, index_name: str, node_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sira_es.cli.demo.INDEX", index_name)
    call_node(node_url, "PUT", f"/{index_name}", {"mappings": {"properties": {"title": {"type": "text"}}}})
    one_line(cli("demo", "--url", node_url, "-q"), 1, "not made by the demo")


def test_interrupt_during_enrich_ends_with_130_and_the_next_run_finishes(
    cli: Cli, write_config: Config, index_name: str, node_url: str
) -> None:
    cli("index", "--index", index_name, "--documents", FAQ / "corpus.jsonl.gz", "--url", node_url, "-q")
    with ModelServer(default='{"terms": ["planted term"]}', latency=0.05) as server:
        stage = {"model": "openai/x", "api_base": server.api_base, "api_key": "none"}
        config = write_config(index_name, llm={"documents": stage})
        command = [sys.executable, "-m", "sira_es", "enrich", "--index", index_name, "-c", str(config)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        give_up = time.monotonic() + 60
        while len(server.calls) < 50 and time.monotonic() < give_up:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 130
        assert "goes on" in errors
        assert "Traceback" not in errors
        paid = len(server.calls)
        done = cli("enrich", "--index", index_name, "-c", config, "--json", "-q")
        assert (done.code, done.json["pending"]) == (0, 0)
        texts = len({(s.get("title"), s.get("text")) for s in sources(node_url, index_name).values()})
        assert len(server.calls) <= texts + 8
        assert paid < texts
