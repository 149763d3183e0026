"""Query logs: the most frequent queries, from plain lines or from a table with counts."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from sira_es.errors import InputError
from sira_es.evaluate.querylog import read_log


def test_plain_lines_are_counted_whatever_their_case_and_white_space(tmp_path: Path) -> None:
    file = tmp_path / "searches.txt"
    file.write_text("usb fan\nlamp\nUSB  Fan\n\n")
    log = read_log(file)
    assert log.texts == {"log-1": "usb fan", "log-2": "lamp"}
    assert [f.what for f in log.findings] == ["rows without a query, skipped"]


def test_a_table_tells_counts(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("query,count\nlamp,3\nfan,10.0\nlamp,9\n")
    assert list(read_log(file).texts.values()) == ["lamp", "fan"]


def test_json_lines_with_texts_count_once_each(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"text": "a"}\n{"text": "b"}\n{"text": "b"}\n'))
    assert list(read_log(file).texts.values()) == ["b", "a"]


def test_only_the_most_frequent_are_taken_and_the_rest_is_noted(tmp_path: Path) -> None:
    file = tmp_path / "searches.txt"
    file.write_text("a\nb\nb\nc\nc\nc\n")
    log = read_log(file, top=2)
    assert log.texts == {"log-1": "c", "log-2": "b"}
    assert log.findings[-1].first == "'a'"


def test_every_query_left_out_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "searches.txt"
    file.write_text("a\nb\nc\nd\ne\n")
    assert read_log(file, top=2).findings[-1].count == 3


def test_lines_of_json_are_no_plain_lines_whatever_else_the_name_has(tmp_path: Path) -> None:
    file = tmp_path / "searches.txt.jsonl"
    file.write_text('{"text": "fan"}\n')
    assert read_log(file).texts == {"log-1": "fan"}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("log.txt", " \n\n", "the file is empty"),
        ("log.csv", "query,count\nfan,many\n", "line 2: count 'many' is not a whole number"),
        ("log.csv", "word,count\nfan,1\n", "no query"),
        ("log.jsonl", '{"text": "fan", "count": 2.5}\n', "line 1: count 2.5 is not a whole number"),
        ("log.jsonl", '{"text": 5}\n', "line 1: the query is no text"),
    ],
)
def test_an_unusable_log_is_refused(tmp_path: Path, name: str, content: str, message: str) -> None:
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(InputError, match=message):
        read_log(file)


def test_ids_that_the_file_has_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "queries.jsonl"
    file.write_text('{"_id": "17", "text": "lamp"}\n{"_id": "18", "text": "fan"}\n{"_id": "19", "text": "Fan"}\n')
    assert read_log(file).texts == {"18": "fan", "17": "lamp"}
