"""Killed at random, throttled, restarted, written to by others: what a production index does to a long run."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from end_to_end.conftest import FAQ, Result, call_node, sources

ANSWERS = FAQ / "recorded" / "documents.jsonl.gz"
OURS = {"enriched_terms", "sira"}
CONCURRENCY = 4
KILLS = 20
DOCUMENTS = 2000

Cli = Callable[..., Result]
Config = Callable[..., Path]


@pytest.fixture
def collection(tmp_path: Path) -> tuple[Path, Path]:
    """2,000 documents, some texts among them equal, and their recorded answers."""
    with gzip.open(FAQ / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    with gzip.open(ANSWERS, "rt", encoding="utf-8") as lines:
        answers = {row["id"]: row["answer"] for row in map(json.loads, lines)}
    corpus, recorded = tmp_path / "corpus.jsonl", tmp_path / "answers.jsonl"
    with corpus.open("w", encoding="utf-8") as documents, recorded.open("w", encoding="utf-8") as said:
        for number in range(DOCUMENTS):
            row = rows[number % len(rows)]
            key = row.get("_id") or row["id"]
            copy = "" if number % len(rows) < 70 else f" Copy {number // len(rows)}."
            document = {"id": f"d{number}", "title": row.get("title", ""), "text": row["text"] + copy, "n": number / 7}
            documents.write(json.dumps(document) + "\n")
            said.write(json.dumps({"id": f"d{number}", "answer": answers[key]}) + "\n")
    return corpus, recorded


@pytest.fixture
def model_process(collection: tuple[Path, Path]) -> Iterator[str]:
    """The recorded answers behind an OpenAI-compatible server of its own process, 50 ms an answer."""
    corpus, answers = collection
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.model_server", "--answers", str(answers), "--corpus", str(corpus),
         "--latency", "0.05"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.terminate()
    process.communicate(timeout=10)


def _served(api_base: str) -> int:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{api_base}/calls", timeout=30) as answer:
        return int(json.load(answer)["calls"])


def _others(source: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in source.items() if key not in OURS}


@pytest.mark.slow
def test_twenty_kills_over_two_thousand_documents_lose_nothing_and_pay_no_answer_twice(
    cli: Cli, write_config: Config, index_name: str, node_url: str, collection: tuple[Path, Path], model_process: str
) -> None:
    """elastic/elasticsearch-py#389, elasticsearch-dump#227, #624, #775, #1027: a killed job cannot resume."""
    cli("index", "--index", index_name, "--documents", collection[0], "--url", node_url, "-q")
    first = sources(node_url, index_name)
    stage = {"model": "openai/recorded", "api_base": model_process, "api_key": "none", "concurrency": CONCURRENCY}
    config = write_config(index_name, llm={"documents": stage})
    command = [sys.executable, "-m", "sira_es", "enrich", "--index", index_name, "-c", str(config), "--json"]
    chance = random.Random(7)
    for _ in range(KILLS):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        before = _served(model_process)
        give_up = time.monotonic() + 90
        while _served(model_process) == before and process.poll() is None and time.monotonic() < give_up:
            time.sleep(0.05)
        time.sleep(chance.uniform(0.0, 2.0))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    done = cli("enrich", "--index", index_name, "-c", config, "--json", "-q")
    assert (done.code, done.json["pending"], done.json["enriched"]) == (0, 0, DOCUMENTS)
    call_node(node_url, "POST", f"/{index_name}/_refresh")
    last = sources(node_url, index_name)
    assert all("enriched_terms" in source for source in last.values())
    assert {key: _others(source) for key, source in last.items()} == first
    distinct = len({(s["title"], s["text"]) for s in first.values()})
    assert distinct < DOCUMENTS
    assert distinct <= _served(model_process) <= distinct + KILLS * CONCURRENCY
    again = cli("enrich", "--index", index_name, "-c", config, "--json", "-q")
    assert again.json["calls"] == 0


@pytest.mark.slow
def test_documents_that_come_and_go_between_a_kill_and_the_next_run_are_neither_missed_nor_missing(
    cli: Cli, write_config: Config, index_name: str, node_url: str, collection: tuple[Path, Path], model_process: str
) -> None:
    """elasticsearch-dump#227: resumed by an offset, which means other documents after the index has changed."""
    cli("index", "--index", index_name, "--documents", collection[0], "--url", node_url, "-q")
    stage = {"model": "openai/recorded", "api_base": model_process, "api_key": "none", "concurrency": CONCURRENCY}
    config = write_config(index_name, llm={"documents": stage})
    command = [sys.executable, "-m", "sira_es", "enrich", "--index", index_name, "-c", str(config), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while _served(model_process) < DOCUMENTS // 4 and process.poll() is None:
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    for number in range(0, 60, 2):
        call_node(node_url, "DELETE", f"/{index_name}/_doc/d{number}")
        call_node(node_url, "PUT", f"/{index_name}/_doc/new{number}", {"title": "new", "text": f"new text {number}"})
    call_node(node_url, "POST", f"/{index_name}/_refresh")
    done = cli("enrich", "--index", index_name, "-c", config, "--json", "-q")
    assert (done.code, done.json["pending"], done.json["documents"]) == (0, 0, DOCUMENTS)
    assert done.json["enriched"] == DOCUMENTS
