"""What `enrich` and `status` say adds up, names what failed, and forgets nothing that was paid."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from end_to_end.conftest import Result, call_node
from end_to_end.test_enrich_options import load
from sira_es.enrich.page import FAILURES_IN_A_ROW
from tests.model_server import Fault, ModelServer

Cli = Callable[..., Result]
Config = Callable[..., Path]
AT_A_TIME = 4


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(default='{"terms": ["noise"]}') as server:
        yield server


@pytest.fixture
def stage(model: ModelServer) -> dict[str, object]:
    return {"model": "openai/gpt-4.1-mini", "api_base": model.api_base, "api_key": "k", "concurrency": AT_A_TIME}


@pytest.fixture
def config(write_config: Config, index_name: str, stage: dict[str, object]) -> Path:
    return write_config(index_name, llm={"documents": stage})


@pytest.fixture
def at(config: Path, index_name: str) -> tuple[object, ...]:
    return "--index", index_name, "-c", config


# A model that answers nonsense


@pytest.mark.parametrize(("said", "reason"), [("I am a teapot", "unusable answer"), (None, "empty answer")])
def test_model_that_answers_nothing_usable_is_not_paid_for_every_document(
    cli: Cli, at: tuple[object, ...], index_name: str, node_url: str, model: ModelServer, said: str | None, reason: str
) -> None:
    load(node_url, index_name, 90)
    model.always(Fault.says(said))
    result = cli("enrich", *at, "-q")
    assert result.code == 1
    assert "the model fails for every document" in result.err
    failed = cli("status", *at, "--json").json["failed"]
    assert set(failed) == {reason}
    assert FAILURES_IN_A_ROW <= failed[reason] < FAILURES_IN_A_ROW + AT_A_TIME


def test_nonsense_after_usable_answers_fails_single_documents(
    cli: Cli, at: tuple[object, ...], index_name: str, node_url: str, model: ModelServer
) -> None:
    load(node_url, index_name, 10)
    assert cli("enrich", *at, "-q").code == 0
    for i in range(FAILURES_IN_A_ROW + 10):
        call_node(node_url, "PUT", f"/{index_name}/_doc/n{i}", {"title": "new", "text": f"text {i}"})
    model.always(Fault.says("I am a teapot"))
    result = cli("enrich", *at, "--json", "-q")
    assert (result.code, result.json["failed"]) == (3, {"unusable answer": FAILURES_IN_A_ROW + 10})


def test_wrong_key_fails_the_run_and_no_document(
    cli: Cli, at: tuple[object, ...], index_name: str, node_url: str, model: ModelServer
) -> None:
    load(node_url, index_name, 90)
    model.always(Fault.status(401))
    result = cli("enrich", *at, "-q")
    assert result.code == 1
    assert "the model fails for every document" in result.err
    status = cli("status", *at, "--json").json
    assert (status["failed"], status["pending"]) == ({}, 90)


# What is said of a run


def test_options_that_a_way_does_not_heed_are_refused(cli: Cli, at: tuple[object, ...]) -> None:
    for options in (("--undo", "--max-docs", "3"), ("--undo", "--max-time", "1"), ("--rejudge", "--max-cost", "1"),
                    ("--undo", "--slice", "1/2"), ("--template", "--query", "{}")):  # fmt: skip
        result = cli("enrich", *at, *options)
        assert result.code == 2
        assert f"{options[1]} has no effect with {options[0]}" in result.err


@pytest.mark.parametrize("command", [("enrich", "--max-cost"), ("enrich", "--max-time"), ("warm", "--max-cost")])
def test_limit_that_is_no_number_is_refused(cli: Cli, at: tuple[object, ...], command: tuple[str, str]) -> None:
    name, limit = command
    queries = ("--queries", "queries.txt") if name == "warm" else ()
    result = cli(name, *at, *queries, limit, "nan")
    assert (result.code, result.out) == (2, "")
    assert f"Invalid value for '{limit}': nan is not a number" in result.err


def test_limit_does_not_hide_what_failed(
    cli: Cli, at: tuple[object, ...], index_name: str, node_url: str, model: ModelServer
) -> None:
    load(node_url, index_name, 20)
    model.next(Fault.filtered(), Fault.filtered())
    result = cli("enrich", *at, "--max-docs", "6")
    assert result.code == 4
    assert "2 documents failed (2 refused)" in result.err.splitlines()[-1]


def test_rejudging_without_stored_answers_says_so(
    cli: Cli, at: tuple[object, ...], index_name: str, node_url: str, tmp_path: Path
) -> None:
    load(node_url, index_name, 4)
    cli("enrich", *at, "-q")
    for file in (tmp_path / "state").glob("answers.sqlite*"):
        file.unlink()
    result = cli("enrich", *at, "--rejudge")
    assert result.code == 3
    assert result.err.splitlines()[-1] == ("sira-es: 4 documents failed (4 not stored): they keep the terms they have")


def test_exit_code_3_says_why(
    cli: Cli, at: tuple[object, ...], index_name: str, node_url: str, model: ModelServer
) -> None:
    load(node_url, index_name, 10)
    model.next(Fault.filtered(), Fault.filtered())
    result = cli("enrich", *at)
    assert result.code == 3
    assert "2 documents failed (2 refused)" in result.err.splitlines()[-1]


# Counts


def test_counts_add_up_and_nothing_without_text_stays_pending(
    cli: Cli, at: tuple[object, ...], index_name: str, node_url: str
) -> None:
    load(node_url, index_name, 10)
    for key, source in {"empty": {"title": "", "text": " "}, "none": {"price": 1}}.items():
        call_node(node_url, "PUT", f"/{index_name}/_doc/{key}?refresh=true", source)
    run = cli("enrich", *at, "--json", "-q").json
    for report in (run, cli("status", *at, "--json").json):
        parts = {name: report[name] for name in ("enriched", "stale", "pending", "without_text")}
        assert parts == {"enriched": 10, "stale": 0, "pending": 0, "without_text": 1}
        assert report["skipped"] == {"no text": 1}
        assert report["documents"] == sum(parts.values()) + 1


def test_counts_add_up_where_nested_text_is_read_beside_the_searched(
    cli: Cli, write_config: Config, index_name: str, node_url: str, stage: dict[str, object]
) -> None:
    comments = {"type": "nested", "properties": {"text": {"type": "text"}}}
    call_node(
        node_url, "PUT", f"/{index_name}", {"mappings": {"properties": {"title": {"type": "text"}, "c": comments}}}
    )
    for i in range(12):
        source = {"title": f"fan {i}"} if i < 6 else {"c": [{"text": f"it is loud {i}"}]}
        call_node(node_url, "PUT", f"/{index_name}/_doc/{i}?refresh=true", source)
    call_node(node_url, "PUT", f"/{index_name}/_doc/none?refresh=true", {"price": 1})
    fields = {"text_fields": ["title"], "read_fields": ["c.text"], "language": "en"}
    config = write_config(index_name, llm={"documents": stage}, indices={index_name: fields})
    at = ("--index", index_name, "-c", config)
    plan = cli("enrich", *at, "--dry-run", "--json").json
    assert (plan["documents"], plan["pending"], plan["enriched"]) == (13, 13, 0)
    some = cli("enrich", *at, "--max-docs", "6", "--json", "-q").json
    for report in (some, cli("status", *at, "--json").json):
        assert report["enriched"] + report["pending"] + sum(report["skipped"].values()) == report["documents"] == 13
        assert (report["without_text"], report["stale"]) == (0, 0)
    assert cli("enrich", *at, "--dry-run", "--json").json["pending"] >= some["pending"] > 0
    for _ in range(2):
        whole = cli("enrich", *at, "--json", "-q").json
        assert (whole["enriched"], whole["pending"], whole["skipped"]) == (12, 0, {"no text": 1})


def test_another_recipe_is_seen_by_status_as_by_the_dry_run(
    cli: Cli, at: tuple[object, ...], write_config: Config, index_name: str, node_url: str, stage: dict[str, object]
) -> None:
    load(node_url, index_name, 10)
    cli("enrich", *at, "-q")
    write_config(index_name, llm={"documents": {**stage, "model": "openai/gpt-4.1"}})
    plan, status = cli("enrich", *at, "--dry-run", "--json").json, cli("status", *at, "--json").json
    for told in (plan, status):
        assert (told["enriched"], told["stale"], told["pending"]) == (0, 10, 0)
    part = cli("enrich", *at, "--slice", "1/2", "--json", "-q")
    assert part.code == 0
    assert part.json["enriched"] + part.json["stale"] == 10


def test_terms_a_document_are_unknown_where_another_state_folder_made_them(
    cli: Cli, at: tuple[object, ...], write_config: Config, index_name: str, node_url: str, stage: dict[str, object],
    tmp_path: Path,
) -> None:  # fmt: skip
    load(node_url, index_name, 5)
    cli("enrich", *at, "-q")
    assert cli("status", *at, "--json").json["terms_per_document"] == 1.0
    write_config(index_name, llm={"documents": stage}, state=str(tmp_path / "other"))
    assert cli("status", *at, "--json").json["terms_per_document"] is None
    assert "(- terms a document)" in cli("status", *at).out
    write_config(index_name, llm={"documents": stage})
    assert cli("enrich", *at, "--json", "-q").json["terms_per_document"] is None
    cli("enrich", *at, "--undo", "-q")
    assert cli("status", *at, "--json").json["terms_per_document"] is None


def test_undo_forgets_failures_and_is_visible_at_once(
    cli: Cli, at: tuple[object, ...], index_name: str, node_url: str, model: ModelServer
) -> None:
    load(node_url, index_name, 10)
    call_node(node_url, "PUT", f"/{index_name}/_settings", {"index": {"refresh_interval": "-1"}})
    model.next(Fault.filtered())
    assert cli("enrich", *at, "-q").code == 3
    assert cli("enrich", *at, "--undo", "--json", "-q").json["removed"] == 9
    found = call_node(node_url, "POST", f"/{index_name}/_count", {"query": {"exists": {"field": "sira.source_hash"}}})
    assert found["count"] == 0
    assert cli("status", *at, "--json").json["failed"] == {}


def test_undo_tells_how_far_it_is(
    cli: Cli, at: tuple[object, ...], index_name: str, node_url: str, model: ModelServer
) -> None:
    load(node_url, index_name, 10)
    assert cli("enrich", *at, "-q").code == 0
    told = [json.loads(line) for line in cli("enrich", *at, "--undo", "--json").err.splitlines()]
    assert (told[-1]["done"], told[-1]["total"]) == (10, 10)
    assert cli("enrich", *at, "--undo", "-q").err == ""


def test_dry_run_with_recorded_answers_calls_no_model_and_tells_which_lack(
    cli: Cli, at: tuple[object, ...], index_name: str, node_url: str, tmp_path: Path
) -> None:
    load(node_url, index_name, 10)
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps({"id": str(i), "answer": '{"terms": ["x"]}'}) + "\n" for i in range(7)))
    plan = cli("enrich", *at, "--recorded", answers, "--dry-run", "--json").json
    assert (plan["calls"], plan["tokens"], plan["cost"], plan["recorded"]) == (0, 0, 0.0, {"found": 7, "missing": 3})
    told = cli("enrich", *at, "--recorded", answers, "--dry-run").out
    assert "0 calls" in told
    assert "7 answers found in the file, 3 missing" in told


def test_dry_run_of_an_index_without_source_says_so(cli: Cli, at: tuple[object, ...], index_name: str, node_url: str) -> None:  # fmt: skip
    text = {"properties": {"title": {"type": "text"}, "text": {"type": "text"}}, "_source": {"enabled": False}}
    call_node(node_url, "PUT", f"/{index_name}", {"mappings": text})
    call_node(node_url, "PUT", f"/{index_name}/_doc/1?refresh=true", {"title": "fan", "text": "loud"})
    result = cli("enrich", *at, "--dry-run")
    assert result.code == 1
    assert "_source is disabled" in result.err


# What was paid


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_what_an_interrupted_run_paid_is_in_the_status(
    cli: Cli, at: tuple[object, ...], index_name: str, node_url: str, model: ModelServer, how: signal.Signals
) -> None:
    load(node_url, index_name, 30)
    model.next(*[None] * 8, *[Fault.hang()] * 30)
    process = subprocess.Popen(
        [sys.executable, "-m", "sira_es", "enrich", *map(str, at)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    give_up = time.monotonic() + 60
    while len(model.calls) < 8 + AT_A_TIME and time.monotonic() < give_up:
        time.sleep(0.05)
    process.send_signal(how)
    process.wait()
    spent = cli("status", *at, "--json").json
    assert spent["calls"] == 8
    assert spent["cost"] > 0 < spent["tokens"]
    assert cli("enrich", *at, "--dry-run", "--json").json["calls"] == 30 - 8
