"""Documents and queries from files: what is accepted, what is noted, what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from sira_es.errors import InputError
from sira_es.evaluate import Finding, read_documents, read_queries


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


def noted(findings: tuple[Finding, ...]) -> dict[str, tuple[int, str]]:
    return {finding.what: (finding.count, finding.first) for finding in findings}


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
@pytest.mark.parametrize("key", ["_id", "id"])
def test_documents_come_as_id_and_everything_else(tmp_path: Path, name: str, key: str) -> None:
    path = write(
        tmp_path, name, f'{{"{key}": "a", "title": "T", "text": "x", "year": 7}}\n{{"{key}": "b", "text": "y"}}\n'
    )
    documents = read_documents(path)
    assert list(documents) == [("a", {"title": "T", "text": "x", "year": 7}), ("b", {"text": "y"})]
    assert documents.count == 2
    assert documents.findings == ()


def test_documents_can_be_iterated_again(tmp_path: Path) -> None:
    documents = read_documents(write(tmp_path, "d.jsonl", '{"id": "a", "text": "x"}\n'))
    assert list(documents) == list(documents)


def test_where_a_document_has_both_keys_id_stays_a_field(tmp_path: Path) -> None:
    documents = read_documents(write(tmp_path, "d.jsonl", '{"id": "sku", "_id": "a", "text": "x"}\n'))
    assert list(documents) == [("a", {"id": "sku", "text": "x"})]


def test_csv_fields_may_hold_commas_quotes_and_line_ends(tmp_path: Path) -> None:
    documents = read_documents(write(tmp_path, "d.csv", 'id,text\na,"one, ""two""\nthree"\nb,four\n'))
    assert list(documents) == [("a", {"text": 'one, "two"\nthree'}), ("b", {"text": "four"})]


def test_tsv_holds_quotation_marks_as_they_are(tmp_path: Path) -> None:
    queries = read_queries(write(tmp_path, "q.tsv", 'query-id\ttext\n1\t"exact phrase" search\n'))
    assert queries.texts == {"1": '"exact phrase" search'}


def test_semicolons_separate_columns_where_the_header_has_no_comma(tmp_path: Path) -> None:
    assert read_queries(write(tmp_path, "q.csv", "id;text\na;red, green\n")).texts == {"a": "red, green"}


def test_a_repeated_document_id_is_counted_and_the_first_named(tmp_path: Path) -> None:
    lines = '{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}\n{"id": "a", "text": "z"}\n'
    documents = read_documents(write(tmp_path, "d.jsonl", lines))
    assert noted(documents.findings) == {"documents whose id stood before, the last one stands": (2, "line 2, 'a'")}
    assert dict(documents) == {"a": {"text": "z"}}


def test_documents_without_text_are_kept_and_noted(tmp_path: Path) -> None:
    documents = read_documents(write(tmp_path, "d.jsonl", '{"id": "a", "title": "", "text": " "}\n'))
    assert documents.count == 1
    assert noted(documents.findings) == {"documents without any text": (1, "line 1, 'a'")}


def test_numbers_as_ids_are_read_as_text_and_noted(tmp_path: Path) -> None:
    queries = read_queries(write(tmp_path, "q.jsonl", '{"id": 7, "text": "x"}\n{"id": "8", "text": "y"}\n'))
    assert queries.texts == {"7": "x", "8": "y"}
    assert noted(queries.findings) == {"ids that are numbers, read as text": (1, "line 1, 7")}


def test_byte_order_mark_and_windows_line_ends_are_read_and_noted(tmp_path: Path) -> None:
    queries = read_queries(write(tmp_path, "q.csv", b"\xef\xbb\xbfid,text\r\na,one\r\nb,two\r\n"))
    assert queries.texts == {"a": "one", "b": "two"}
    assert noted(queries.findings) == {
        "byte order mark, skipped": (1, "line 1"),
        "lines with Windows line ends, read as plain ones": (3, "line 1"),
    }


@pytest.mark.parametrize(
    ("name", "rows"), [("q.jsonl", '{"id": "a", "text": "x"}\n\n'), ("q.tsv", "id\ttext\na\tx\n\n")]
)
def test_blank_lines_are_skipped_and_noted(tmp_path: Path, name: str, rows: str) -> None:
    queries = read_queries(write(tmp_path, name, rows))
    assert queries.texts == {"a": "x"}
    assert list(noted(queries.findings)) == ["blank lines, skipped"]


def test_a_query_that_stands_twice_counts_once_and_is_noted(tmp_path: Path) -> None:
    queries = read_queries(write(tmp_path, "q.jsonl", '{"id": "a", "text": "x"}\n' * 2))
    assert queries.texts == {"a": "x"}
    assert noted(queries.findings) == {"queries that stood before, counted once": (1, "line 2, 'a'")}


def test_a_finding_prints_as_one_line(tmp_path: Path) -> None:
    path = write(tmp_path, "q.jsonl", '{"id": 7, "text": "x"}\n')
    assert str(read_queries(path).findings[0]) == f"{path}: ids that are numbers, read as text: 1 (first: line 1, 7)"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("d.jsonl", "", "the file is empty"),
        ("d.jsonl.gz", "\n \n", "the file is empty"),
        ("d.csv", "id,text\n", "the file holds no document"),
        ("d.jsonl", '[{"id": "a"}]', "begins with `[`; write one JSON object a line instead of one array"),
        ("d.jsonl", '{"id": "a"}\n{"id": \n', "line 2: not JSON: "),
        ("d.jsonl", '{"id": "a"}\n7\n', "line 2: not a JSON object"),
        ("d.jsonl", '{"id": "a"}\n{"text": "x"}\n', "line 2: no id; name it one of _id, id (found: text)"),
        ("d.jsonl", '{"id": null}\n', "line 1: the id is null; it must be a text"),
        ("d.jsonl", '{"id": true}\n', "line 1: the id is true; it must be a text"),
        ("d.jsonl", '{"id": 1.5}\n', "line 1: the id is 1.5; it must be a text"),
        ("d.jsonl", '{"id": " "}\n', "line 1: the id is empty"),
        ("d.jsonl", '{"id": "' + "ä" * 257 + '"}\n', "line 1: the id is longer than 512 bytes"),
        ("d.csv", "id,text\na,x\nb,x,y\n", "line 3: 3 columns, but the header names 2"),
        ("d.csv", "id,text,text\na,x,y\n", "line 1: two columns have the same name: id, text, text"),
        ("d.csv", 'id,text\na,"x"y\n', "line 2: "),
        ("d.jsonl", b'{"id": "a"}\n{"id": "\xe4"}\n', "line 2: not UTF-8 text (byte 9); save it as UTF-8"),
        ("d.jsonl", '{"id": "a"}\n'.encode("utf-16"), "the text is UTF-16; save it as UTF-8"),
    ],
)
def test_an_unusable_file_of_documents_is_refused_by_file_and_line(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    path = write(tmp_path, name, content)
    with pytest.raises(InputError) as refused:
        read_documents(path)
    assert message in str(refused.value)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"id": "a"}\n', "line 1: no text; name it one of text, query (found: id)"),
        ('{"id": "a", "text": "  "}\n', "line 1: query 'a' has no text"),
        ('{"id": "a", "text": 7}\n', "line 1: query 'a' has no text"),
        ('{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}\n', "line 2: query id 'a' stood before with another text"),
        ("a\tx\nb\ty\n", "line 2: no id; name it one of _id, id, query_id, qid (found: a, x)"),
    ],
)
def test_an_unusable_file_of_queries_is_refused_by_file_and_line(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(InputError, match="^" + str(tmp_path)) as refused:
        read_queries(write(tmp_path, "q.jsonl", content))
    assert message in str(refused.value)


def test_a_damaged_gzip_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "d.jsonl.gz", '{"id": "a", "text": "x"}\n' * 100)
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(InputError, match="not a whole gzip file"):
        read_documents(path)


def test_a_file_that_is_not_gzip_in_spite_of_its_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl.gz"
    path.write_text('{"id": "a"}\n')
    with pytest.raises(InputError, match="not a whole gzip file"):
        read_documents(path)


@pytest.mark.parametrize("name", ["absent.jsonl", "."])
def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot be read: "):
        read_queries(tmp_path / name)
