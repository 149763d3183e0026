"""Answers replayed from a file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from sira_es.errors import InputError, ModelError
from sira_es.llm.prompts import document_prompt, query_prompt
from sira_es.llm.recorded import RecordedAnswers

pytestmark = pytest.mark.anyio


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


async def test_an_answer_is_found_by_id(tmp_path: Path) -> None:
    recorded = RecordedAnswers.from_file(
        write(tmp_path / "a.jsonl", {"id": "d1", "answer": "one"}, {"id": "d2", "answer": "two"})
    )
    answer = await recorded.ask(document_prompt("d2", "whatever"))
    assert (answer.text, answer.source, answer.model, answer.cost) == ("two", "recorded", "recorded", None)
    assert recorded.name == "recorded"
    assert len(recorded) == 2


@pytest.mark.parametrize(
    "text", ["Où est le CAFÉ", "où  est\tle café", "ou\u0300 est le cafe\u0301", " OÙ EST LE CAFÉ \n"]
)
async def test_a_query_is_found_by_its_text_whatever_its_form(text: str) -> None:
    recorded = RecordedAnswers({"Où est le café": "answer"})
    assert (await recorded.ask(query_prompt("", text))).text == "answer"


async def test_the_id_goes_before_the_text() -> None:
    recorded = RecordedAnswers({"q1": "by id", "laptop": "by text"})
    assert (await recorded.ask(query_prompt("q1", "laptop"))).text == "by id"
    assert (await recorded.ask(query_prompt("q9", "laptop"))).text == "by text"


async def test_what_was_not_recorded_is_a_model_error(tmp_path: Path) -> None:
    recorded = RecordedAnswers.from_file(write(tmp_path / "a.jsonl", {"id": "d1", "answer": "one"}))
    with pytest.raises(ModelError, match=r"document 'd2'.*a\.jsonl") as caught:
        await recorded.ask(document_prompt("d2", "text"))
    assert caught.value.reason == "not recorded"


async def test_gzip_is_known_by_its_ending(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"id": "d1", "answer": "one"}\n'))
    assert (await RecordedAnswers.from_file(path).ask(document_prompt("d1", ""))).text == "one"


async def test_blank_lines_a_byte_order_mark_and_numbers_for_ids_do_no_harm(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '\ufeff{"id": 1, "answer": "one"}', "", '{"_id": "2", "answer": "two"}', "  ")
    recorded = RecordedAnswers.from_file(path)
    assert (await recorded.ask(document_prompt("1", ""))).text == "one"
    assert (await recorded.ask(document_prompt("2", ""))).text == "two"


GOOD = {"id": "d1", "answer": "one"}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"id": "d2", "answer"', "line 2 is not JSON"),
        ("[1]", "line 2 is not an object"),
        ('{"answer": "x"}', "line 2 has no 'id'"),
        ('{"id": null, "answer": "x"}', "line 2 has no 'id'"),
        ('{"id": true, "answer": "x"}', "line 2 has no 'id'"),
        ('{"id": "d2"}', "line 2.*'answer' is not a text"),
        ('{"id": "d2", "answer": {"terms": []}}', "line 2.*'answer' is not a text"),
        (GOOD, "line 2.*'d1' stands in line 1 already"),
    ],
)
async def test_a_bad_line_is_named(tmp_path: Path, line: object, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        RecordedAnswers.from_file(write(tmp_path / "a.jsonl", GOOD, line))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["missing.jsonl", "missing.jsonl.gz", "folder"])
async def test_a_file_that_cannot_be_read_is_an_input_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=f"{name}: (No such file|Is a directory)"):
        RecordedAnswers.from_file(tmp_path / name)


@pytest.mark.parametrize("content", [b"plain", gzip.compress(b'{"id": "d1", "answer": "one"}\n' * 50)[:-20]])
async def test_a_broken_gzip_file_is_an_input_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.gz: not a whole gzip file"):
        RecordedAnswers.from_file(path)
