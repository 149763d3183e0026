"""The options of `enrich`, `status` and `pipeline`, through the command line, on a real node."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from end_to_end.conftest import FAQ, Result, call_node, sources
from tests.model_server import Fault, ModelServer

Cli = Callable[..., Result]
Config = Callable[..., Path]
ANSWERS = FAQ / "recorded" / "documents.jsonl.gz"


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    answers = {"terms": ["strike out text", "cross out", "GFM", "md formatting", "line through", "readme", "syntax"]}
    with ModelServer(default=json.dumps(answers)) as server:
        yield server


@pytest.fixture
def config(write_config: Config, index_name: str, model: ModelServer) -> Path:
    model.heal()
    model.forget()
    stage = {"model": "openai/gpt-4.1-mini", "api_base": model.api_base, "api_key": "k", "concurrency": 4}
    return write_config(index_name, llm={"documents": stage})


def load(node_url: str, index: str, count: int) -> None:
    lines = "".join(
        json.dumps(line) + "\n"
        for i in range(count)
        for line in ({"index": {"_id": str(i)}}, {"title": f"fan {i}", "text": f"it is loud {'and hot ' * (i % 40)}"})
    )
    import urllib.request

    request = urllib.request.Request(
        f"{node_url}/{index}/_bulk?refresh=true", data=lines.encode(), headers={"content-type": "application/x-ndjson"}
    )
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60).close()


def test_run_goes_on_where_nobody_reads_its_progress(config: Path, index_name: str, node_url: str) -> None:
    load(node_url, index_name, 900)
    command = [sys.executable, "-m", "sira_es", "enrich", "--index", index_name, "-c", str(config), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stderr.close()
        report = json.loads(run.stdout.read())
    assert (run.returncode, report["enriched"]) == (0, 900)


def test_dry_run_tells_the_bill_within_fifteen_percent(cli: Cli, config: Path, index_name: str, node_url: str) -> None:
    """Elastic's ES|QL COMPLETION stops at 100 rows, and Solr's page warns: costs that nobody foresaw."""
    load(node_url, index_name, 150)
    plan = cli("enrich", "--index", index_name, "-c", config, "--dry-run", "--json").json
    bill = cli("enrich", "--index", index_name, "-c", config, "--json", "-q").json
    assert plan["calls"] == bill["calls"] == 150
    assert plan["cost"] == pytest.approx(bill["cost"], rel=0.15)
    assert plan["tokens"] == pytest.approx(bill["tokens"], rel=0.15)
    again = cli("enrich", "--index", index_name, "-c", config, "--dry-run", "--json").json
    assert (again["calls"], again["cost"]) == (0, 0)


def test_dry_run_counts_stored_answers_as_paid(cli: Cli, config: Path, index_name: str, node_url: str) -> None:
    load(node_url, index_name, 30)
    cli("enrich", "--index", index_name, "-c", config, "-q")
    cli("enrich", "--index", index_name, "-c", config, "--undo", "-q")
    plan = cli("enrich", "--index", index_name, "-c", config, "--dry-run", "--json").json
    assert (plan["pending"], plan["calls"]) == (30, 0)


def test_growth_of_the_index_is_told_before_and_holds_after(
    cli: Cli, write_config: Config, index_name: str, node_url: str
) -> None:
    """terrierteam/pyterrier_doc2query#7, doc2query--: expansion bloats the index and slows queries."""
    cli("index", "--index", index_name, "--documents", FAQ / "corpus.jsonl.gz", "--url", node_url, "-q")
    config = write_config(index_name)

    def size(index: str) -> int:
        """Of the live documents alone: updated copies are kept for a while, a fresh index has none."""
        settings = call_node(node_url, "GET", f"/{index_name}")[index_name]
        analysis = {"number_of_shards": 1, "number_of_replicas": 0}
        call_node(node_url, "PUT", f"/{index}", {"mappings": settings["mappings"], "settings": analysis})
        copy = {"source": {"index": index_name}, "dest": {"index": index}}
        call_node(node_url, "POST", "/_reindex?refresh=true", copy)
        call_node(node_url, "POST", f"/{index}/_forcemerge?max_num_segments=1")
        call_node(node_url, "POST", f"/{index}/_refresh")
        (copies,) = call_node(node_url, "GET", f"/{index}/_segments")["indices"][index]["shards"].values()
        return sum(int(segment["size_in_bytes"]) for segment in copies[0]["segments"].values())

    before = size(f"{index_name}-before")
    plan = cli("enrich", "--index", index_name, "-c", config, "--recorded", ANSWERS, "--dry-run", "--json").json
    cli("enrich", "--index", index_name, "-c", config, "--recorded", ANSWERS, "-q")
    call_node(node_url, "POST", f"/{index_name}/_refresh")
    grown = size(f"{index_name}-after") - before
    assert 0.5 * plan["growth"]["bytes"] <= grown <= 1.5 * plan["growth"]["bytes"], f"{grown} bytes of {before}"


def test_the_report_of_a_run_tells_what_the_terms_cost_the_index(
    cli: Cli, write_config: Config, index_name: str, node_url: str
) -> None:
    """terrierteam/pyterrier_doc2query#7, doc2query--: growth of the index and time of searches belong to every run."""
    cli("index", "--index", index_name, "--documents", FAQ / "corpus.jsonl.gz", "--url", node_url, "-q")
    config = write_config(index_name)
    run = cli("enrich", "--index", index_name, "-c", config, "--recorded", ANSWERS, "-q", "--json").json
    grown = run["index_bytes"]["now"] - run["index_bytes"]["before"]
    assert 0.5 * 310 <= grown / run["enriched"] <= 2 * 310, "bytes a document, before segments are merged"
    assert run["search_p95_ms"]["plain"] > 0
    assert 0 < run["search_p95_ms"]["enriched"] < 1000
    again = cli("enrich", "--index", index_name, "-c", config, "--recorded", ANSWERS)
    assert "MB a copy" in again.out
    assert "ms without the terms" in again.out


def test_status_tells_the_bytes_and_times_no_searches(cli: Cli, config: Path, index_name: str, node_url: str) -> None:
    load(node_url, index_name, 3)
    found = cli("status", "--index", index_name, "-c", config, "--json").json
    assert found["search_p95_ms"] == {"plain": None, "enriched": None}
    assert found["index_bytes"]["now"] > 0


def test_slices_by_the_command_line_are_together_complete(
    cli: Cli, config: Path, index_name: str, node_url: str
) -> None:
    load(node_url, index_name, 30)
    for part in ("1/3", "2/3", "3/3"):
        assert cli("enrich", "--index", index_name, "-c", config, "--slice", part, "-q").code == 0
    assert cli("status", "--index", index_name, "-c", config, "--json").json["pending"] == 0


@pytest.mark.parametrize("part", ["0/3", "4/3", "3", "a/b", "1/0", "-1/3", "1/5000"])
def test_slice_that_is_none_is_explained(cli: Cli, config: Path, index_name: str, part: str) -> None:
    result = cli("enrich", "--index", index_name, "-c", config, f"--slice={part}")
    assert result.code == 2
    assert "such as 3/16" in result.err


def test_rejudge_after_a_changed_setting_calls_no_model(
    cli: Cli, config: Path, write_config: Config, index_name: str, node_url: str, model: ModelServer
) -> None:
    load(node_url, index_name, 20)
    cli("enrich", "--index", index_name, "-c", config, "-q")
    model.forget()
    assert cli("enrich", "--index", index_name, "-c", config, "--rejudge", "--json", "-q").code == 0
    assert model.calls == []


def test_failed_documents_end_with_exit_code_3_and_are_listed(
    cli: Cli, config: Path, index_name: str, node_url: str, model: ModelServer
) -> None:
    load(node_url, index_name, 10)
    model.next(Fault.filtered(), Fault.filtered())
    assert cli("enrich", "--index", index_name, "-c", config, "-q").code == 3
    listed = cli("status", "--index", index_name, "-c", config, "--failed").out.splitlines()
    assert [line.split("\t")[2] for line in listed] == ["refused", "refused"]
    assert cli("enrich", "--index", index_name, "-c", config, "-q").code == 0
    assert cli("status", "--index", index_name, "-c", config, "--failed").out == ""


def test_events_are_json_lines_where_there_is_no_terminal(
    cli: Cli, config: Path, index_name: str, node_url: str
) -> None:
    load(node_url, index_name, 10)
    events = [json.loads(line) for line in cli("enrich", "--index", index_name, "-c", config).err.splitlines()]
    assert events[-1]["done"] == events[-1]["total"] == 10
    assert {"failed", "cost", "calls", "per_second", "seconds_left", "held_back"} <= set(events[-1])


@pytest.mark.parametrize("ways", [("--undo", "--dry-run"), ("--follow", "--rejudge")])
def test_ways_that_exclude_each_other_are_wrong_use(
    cli: Cli, config: Path, index_name: str, ways: tuple[str, str]
) -> None:
    result = cli("enrich", "--index", index_name, "-c", config, *ways)
    assert result.code == 2
    assert "cannot be used together" in result.err


def test_pipeline_is_installed_and_removed(cli: Cli, config: Path, index_name: str, node_url: str) -> None:
    load(node_url, index_name, 3)
    cli("enrich", "--index", index_name, "-c", config, "-q")
    result = cli("pipeline", "install", "--index", index_name, "-c", config, "--json")
    if "No processor type exists" in result.err:
        pytest.skip(f"no such processor here: {result.err.strip()}")
    installed = result.json
    assert installed["final_pipelines"] == {index_name: f"sira-es-{index_name}"}
    source: dict[str, Any] = sources(node_url, index_name)["1"]
    call_node(node_url, "PUT", f"/{index_name}/_doc/1?refresh=true", {**source, "text": "quiet now"})
    call_node(node_url, "PUT", f"/{index_name}/_doc/2?refresh=true", {**sources(node_url, index_name)["2"], "n": 1})
    after = sources(node_url, index_name)
    assert after["1"] == {"title": "fan 1", "text": "quiet now"}
    assert "enriched_terms" in after["2"]
    removed = cli("pipeline", "remove", "--index", index_name, "-c", config, "--json").json
    assert removed["final_pipelines"] == {index_name: "_none"}
