"""The test server itself, where other tests lean on it: which answer it gives, and that it runs in its own process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from sira_es.llm.model import Model
from sira_es.llm.prompts import document_prompt, query_prompt
from sira_es.settings import LlmStage
from tests.model_server import ModelServer, join_answers

ROOT = Path(__file__).parents[3]


def test_the_exact_text_goes_before_the_longest_one_within_and_that_before_the_default() -> None:
    server = ModelServer({"apple": "short", "apple pie": "long", "pie with apple pie": "exact"}, default="none")
    assert server.look_up("Pie  with apple pie") == "exact"
    assert server.look_up("one apple pie, please") == "long"
    assert server.look_up("an Apple") == "short"
    assert server.look_up("pear") == "none"
    server._loop.close()


def test_equal_texts_with_different_titles_keep_their_answers() -> None:
    rows = [{"_id": "a", "title": "One", "text": "same"}, {"_id": "b", "title": "Two", "text": "same"}]
    joined = join_answers([{"id": "a", "answer": "A"}, {"id": "b", "answer": "B"}], rows)
    server = ModelServer(joined)
    for title, answer in (("One", "A"), ("Two", "B")):
        prompt = document_prompt("", {"title": [title], "text": ["same"]})
        assert server.look_up(prompt.messages[-1]["content"]) == answer
    server._loop.close()


def test_it_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    answers, corpus = tmp_path / "answers.jsonl", tmp_path / "corpus.jsonl"
    answers.write_text(json.dumps({"id": "q1", "answer": '{"terms": ["notebook"]}'}))
    corpus.write_text(json.dumps({"_id": "q1", "text": "laptop bag"}))
    command = [sys.executable, "-m", "tests.model_server", "--answers", str(answers), "--corpus", str(corpus)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        stage = LlmStage(model="openai/small", api_base=process.stdout.readline().strip())
        answer = asyncio.run(Model(stage).ask(query_prompt("", "laptop bag")))
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(10) == 0
    assert answer.text == '{"terms": ["notebook"]}'
