"""`sira-es enrich --batch`: what it would cost, and a run that is killed, interrupted and gone on with."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from end_to_end.conftest import Result, sources
from sira_es.llm.model import Model
from sira_es.settings import LlmStage
from tests.model_server import ModelServer

Cli = Callable[..., Result]
Config = Callable[..., Path]
Start = Callable[[], "subprocess.Popen[str]"]
COUNT = 30


@pytest.fixture(autouse=True)
def _built() -> None:
    # What litellm builds at its first answer it builds with a warning, which it silences only where it is imported.
    asyncio.run(Model(LlmStage(model="openai/test")).prepare())


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(default=json.dumps({"terms": ["noise"]})) as running:
        yield running


@pytest.fixture
def config(cli: Cli, write_config: Config, index_name: str, node_url: str, tmp_path: Path, server: ModelServer) -> Path:
    """A configuration for an index of thirty documents."""
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"id": str(i), "title": "", "text": f"fan {i}"}) + "\n" for i in range(COUNT)))
    assert cli("index", "--index", index_name, "--documents", corpus, "--url", node_url, "-q").code == 0
    stage = {"model": "openai/gpt-4.1-mini", "api_base": server.api_base, "api_key": "none"}
    return write_config(index_name, llm={"documents": stage})


@pytest.fixture
def start(config: Path, index_name: str) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Start the command in a process of its own, which takes Ctrl-C even where the tests run in the background."""
    started: list[subprocess.Popen[str]] = []
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from sira_es.cli import main; main()"
    )
    arguments = ["enrich", "--index", index_name, "--batch", "-c", str(config), "--json"]

    def call() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", program, *arguments]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield call
    for process in started:
        process.kill()
        process.communicate()


def test_dry_run_tells_half_the_price_for_a_batch(cli: Cli, config: Path, index_name: str) -> None:
    one_by_one = cli("enrich", "--index", index_name, "--dry-run", "--json", "-c", config).json
    batch = cli("enrich", "--index", index_name, "--dry-run", "--batch", "--json", "-c", config).json
    assert batch["cost"] == pytest.approx(one_by_one["cost"] / 2)
    assert (batch["calls"], batch["seconds"]) == (COUNT, None)
    assert "up to 24 hours" in cli("enrich", "--index", index_name, "--dry-run", "--batch", "-c", config).out


def test_where_no_price_of_batches_is_known_the_dry_run_says_so(
    cli: Cli, write_config: Config, index_name: str, config: Path, server: ModelServer
) -> None:
    stage = {"model": "openai/gpt-3.5-turbo-16k", "api_base": server.api_base, "api_key": "none"}
    other = write_config(index_name, llm={"documents": stage})
    plan = cli("enrich", "--index", index_name, "--dry-run", "--batch", "--json", "-c", other).json
    assert plan["cost"] > 0
    assert any("no price of batches" in warning for warning in plan["warnings"])


def test_killed_between_submission_and_note_it_finds_its_batch_and_pays_once(
    cli: Cli, config: Path, index_name: str, node_url: str, server: ModelServer, start: Start
) -> None:
    """elasticsearch-py#389: what was paid before a kill must not be paid again."""
    process: list[subprocess.Popen[str]] = []

    def kill() -> str:
        os.kill(process[0].pid, signal.SIGKILL)
        process[0].wait(30)
        return "drop"

    server.batches.after_creation = kill
    process.append(start())
    process[0].communicate(timeout=120)
    server.batches.after_creation = lambda: ""
    _let_a_minute_pass(config)
    result = cli("enrich", "--index", index_name, "--batch", "--json", "-c", config)
    assert result.code == 0, result.err
    assert result.json["enriched"] == COUNT
    assert (len(server.batches.made), len(server.batches.paid), server.calls) == (1, COUNT, [])
    assert all(source["enriched_terms"] == ["noise"] for source in sources(node_url, index_name).values())


def _let_a_minute_pass(config: Path) -> None:
    with closing(sqlite3.connect(config.parent / "state" / "batches.sqlite")) as notes, notes:
        notes.execute("UPDATE batches SET created = created - 60")


def test_ctrl_c_ends_a_submission_that_the_provider_does_not_answer_and_its_batch_is_found(
    cli: Cli, config: Path, index_name: str, server: ModelServer, start: Start
) -> None:
    made = threading.Event()

    def hold() -> str:
        made.set()
        time.sleep(15)
        return ""

    server.batches.after_creation = hold
    process = start()
    assert made.wait(120)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert time.monotonic() - begun < 10
    assert (process.returncode, said.splitlines()[-1].split(";")[0]) == (130, "sira-es: interrupted")
    assert not list((config.parent / "state").glob("*.jsonl"))
    server.batches.after_creation = lambda: ""
    _let_a_minute_pass(config)
    result = cli("enrich", "--index", index_name, "--batch", "--json", "-c", config)
    assert (result.json["enriched"], len(server.batches.made), len(server.batches.paid)) == (COUNT, 1, COUNT)


def test_interrupted_while_waiting_it_says_how_to_go_on_and_a_run_without_batches_leaves_it_alone(
    cli: Cli, config: Path, index_name: str, server: ModelServer, start: Start
) -> None:
    server.batches.polls = None
    process = start()
    give_up = time.monotonic() + 120
    while not server.batches.asked_about and time.monotonic() < give_up:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "never awaited" not in said
    assert said.splitlines()[-1] == "sira-es: interrupted; the same command goes on where it stopped"

    ordinary = cli("enrich", "--index", index_name, "--json", "-c", config)
    assert "batches with 30 questions are out" in ordinary.err
    plan = cli("enrich", "--index", index_name, "--dry-run", "--batch", "--json", "-c", config).json
    assert (plan["calls"], plan["cost"], plan["out"]) == (0, 0.0, COUNT)
    told = cli("enrich", "--index", index_name, "--dry-run", "--batch", "-c", config).out
    assert f"{COUNT} questions are out in batches" in told
    assert (ordinary.code, ordinary.json["pending"], server.calls) == (0, COUNT, [])

    stopped = cli("enrich", "--index", index_name, "--batch", "--max-time", "1", "--json", "-c", config)
    assert (stopped.code, stopped.json["stopped"]) == (4, "time")
    server.batches.polls = 0
    result = cli("enrich", "--index", index_name, "--batch", "--json", "-c", config)
    assert (result.code, result.json["enriched"]) == (0, COUNT)
    assert (len(server.batches.paid), result.json["calls"], server.calls) == (COUNT, COUNT, [])
    spent = cli("status", "--index", index_name, "--json", "-c", config).json
    assert (spent["calls"], spent["cost"]) == (COUNT, pytest.approx(result.json["cost"]))


@pytest.mark.parametrize("other", ["--follow", "--rejudge", "--undo", "--recorded", "--rpm", "--tpm", "--concurrency"])
def test_batches_go_with_ordinary_runs_alone(cli: Cli, config: Path, index_name: str, other: str) -> None:
    values = {"--recorded": "answers.jsonl", "--rpm": "5", "--tpm": "5", "--concurrency": "5"}
    given = [other, values[other]] if other in values else [other]
    result = cli("enrich", "--index", index_name, "--batch", *given, "-c", config)
    assert result.code == 2
    assert f"--batch has no effect with {other}" in result.err
