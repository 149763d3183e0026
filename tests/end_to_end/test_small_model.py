"""The whole room with a real language model on this machine: its words are poor, but they are a model's own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sira_es.llm.answer import document_proposals, is_usable, query_proposals
from sira_es.llm.model import Model
from sira_es.llm.prompts import document_prompt, query_prompt
from sira_es.llm.store import AnswerStore, StoredSource
from sira_es.settings import LlmStage

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
DOCUMENTS = {
    "t1a1": {"title": ["Strikethrough with GitHub Markdown"], "text": ["Use ~~tildes around the words~~."]},
    "t2a1": {
        "title": ["How do I delete my Facebook account?"],
        "text": [
            "Go to the help page, click Submit and follow the instructions. The account is deactivated for two weeks."
        ],
    },
    "t3a1": {"title": ["Merge cells in Google Sheets"], "text": ["Select the cells, then choose Format, Merge cells."]},
}


@pytest.fixture(scope="module")
def api_base() -> Iterator[str]:
    environment = Path(os.environ.get("SIRA_ES_SMALL_MODEL_ENV", ROOT / ".venv-small-model"))
    python = environment / "bin" / "python"
    if not python.exists():
        pytest.skip(
            f"no small model in {environment}: 'make small-model' installs one, SIRA_ES_SMALL_MODEL_ENV names another"
        )
    command = [python, ROOT / "tests" / "model_server" / "small.py"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin
        assert process.stdout
        address = process.stdout.readline().decode().strip()
        assert address, "the small model did not start; run tests/model_server/small.py by hand to see why"
        yield address
        process.stdin.close()


async def test_a_real_model_proposes_words_for_documents_and_queries_and_is_asked_once(
    api_base: str, tmp_path: Path
) -> None:
    store = AnswerStore(tmp_path / "answers.sqlite")
    model = Model(LlmStage(model="openai/smollm2", api_base=api_base, timeout=120, concurrency=1))
    source = StoredSource(model, store, usable=lambda prompt, answer: is_usable(answer.text, prompt.kind))
    prompts = [document_prompt(id, values, "answers to frequent questions") for id, values in DOCUMENTS.items()]
    prompts.append(query_prompt("", "how do I cross out text on github", "answers to frequent questions"))

    first = [await source.ask(prompt) for prompt in prompts]
    second = [await source.ask(prompt) for prompt in prompts]
    await source.close()
    store.close()

    for answer in first:
        assert answer.source == "model"
        assert answer.prompt_tokens > 200
        assert answer.completion_tokens > 5
    read = [document_proposals(answer.text) for answer in first[:-1]] + [query_proposals(first[-1].text)]
    assert any(read), "not one phrase in four answers"
    assert [answer.source for answer in second] == ["store"] * len(prompts)
    assert [answer.text for answer in second] == [answer.text for answer in first]
