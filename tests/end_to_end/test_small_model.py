"""The whole room with a real language model on this machine: its words are poor, but they are a model's own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sira_es.errors import ModelError
from sira_es.llm.answer import document_proposals, is_usable, query_proposals
from sira_es.llm.model import Model, Prompt
from sira_es.llm.prompts import document_prompt, query_prompt
from sira_es.llm.store import AnswerStore, StoredSource
from sira_es.settings import LlmStage

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
TITLES = [
    "How do I delete my Facebook account?",
    "Heat transfer of a thin wing in supersonic flow",
    "Strikethrough with GitHub Markdown",
    "Why does my laptop get so hot?",
    "Merge cells in Google Sheets",
]
EXAMPLES = {
    "How to bake bread at home": ["baking", "dough", "oven", "recipe"],
    "Reset the password of your e-mail account": ["login", "forgotten", "credentials", "sign in"],
}


def few_shot(title: str) -> Prompt:
    """What a model of this size can be asked: our own prompts are over its head."""
    messages = [
        {"role": "system", "content": "List search words for a title that do not occur in it. Answer with JSON only."}
    ]
    for example, terms in EXAMPLES.items():
        messages += [
            {"role": "user", "content": example},
            {"role": "assistant", "content": json.dumps({"terms": terms})},
        ]
    messages.append({"role": "user", "content": title})
    return Prompt("document", "few_shot", tuple(messages), "", title)


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


@pytest.fixture
def source(api_base: str, tmp_path: Path) -> Iterator[StoredSource]:
    store = AnswerStore(tmp_path / "answers.sqlite")
    model = Model(LlmStage(model="openai/smollm2", api_base=api_base, timeout=120, concurrency=1))
    yield StoredSource(model, store, usable=lambda prompt, answer: is_usable(answer.text, prompt.kind))
    store.close()


async def test_a_real_model_proposes_words_and_usable_answers_are_asked_for_once(source: StoredSource) -> None:
    prompts = [few_shot(title) for title in TITLES]
    answers = [await source.ask(prompt) for prompt in prompts]
    usable = [n for n, answer in enumerate(answers) if is_usable(answer.text, "document")]
    words = [p.phrase for n in usable for p in document_proposals(answers[n].text) if any(map(str.isalpha, p.phrase))]
    assert len(words) >= 3, answers
    assert all(answer.source == "model" and answer.completion_tokens > 5 for answer in answers)
    known = source.known(prompts)
    assert [n for n, answer in enumerate(known) if answer] == usable
    again = await source.ask(prompts[usable[0]])
    assert (again.source, again.text) == ("store", answers[usable[0]].text)
    await source.close()


async def test_whatever_a_small_model_makes_of_the_real_prompts_is_proposals_or_a_model_error(
    source: StoredSource,
) -> None:
    document = document_prompt("", {"title": [TITLES[0]], "text": ["Click Submit."]}, "answers to frequent questions")
    query = query_prompt("", "cross out text on github", "answers to frequent questions")
    for prompt, read in ((document, document_proposals), (query, query_proposals)):
        answer = await source.ask(prompt)
        assert answer.prompt_tokens > 200
        with contextlib.suppress(ModelError):
            assert all(p.phrase for p in read(answer.text))
    await source.close()
