"""Judgments from TREC qrels and from tables: what is accepted, what is noted, what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from sira_es.errors import InputError
from sira_es.evaluate import Finding, read_judgments


def write(folder: Path, content: str | bytes, name: str = "qrels.txt") -> Path:
    path = folder / name
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


def noted(findings: tuple[Finding, ...]) -> dict[str, tuple[int, str]]:
    return {finding.what: (finding.count, finding.first) for finding in findings}


@pytest.mark.parametrize(
    "content",
    [
        "q1 0 d1 2\nq1 0 d2 0\nq2 0 d1 1\n",
        "q1\t0\td1\t2\nq1\t0\td2\t0\nq2\t0\td1\t1\n",
        "  q1  Q0 d1  2.0\nq1 0 d2 0\nq2 0 d1 1",
        "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq2\td1\t1\n",
        "Rating,DocID,Query ID\n2,d1,q1\n0,d2,q1\n1,d1,q2\n",
        "query;id;grade\nq1;d1;2\nq1;d2;0\nq2;d1;1\n",
        '{"query_id": "q1", "doc_id": "d1", "relevance": 2}\n'
        '{"query_id": "q1", "doc_id": "d2", "relevance": 0}\n'
        '{"query_id": "q2", "doc_id": "d1", "relevance": 1}\n',
    ],
)
@pytest.mark.parametrize("name", ["qrels.txt", "qrels.gz"])
def test_every_form_of_judgments_gives_the_same_grades(tmp_path: Path, content: str, name: str) -> None:
    judgments = read_judgments(write(tmp_path, content, name))
    assert judgments.grades == {"q1": {"d1": 2, "d2": 0}, "q2": {"d1": 1}}
    assert judgments.findings == ()


def test_ids_with_spaces_are_whole_in_tab_separated_qrels(tmp_path: Path) -> None:
    assert read_judgments(write(tmp_path, "red shoes\t0\td 1\t1\n")).grades == {"red shoes": {"d 1": 1}}


def test_negative_grades_count_as_not_relevant_and_are_noted(tmp_path: Path) -> None:
    judgments = read_judgments(write(tmp_path, "q 0 a 1\nq 0 b -1\nq 0 c -2\n"))
    assert judgments.grades == {"q": {"a": 1, "b": 0, "c": 0}}
    assert noted(judgments.findings) == {"grades below 0, counted as 0": (2, "line 2, -1")}


def test_pairs_judged_twice_are_noted_apart_by_whether_the_grades_agree(tmp_path: Path) -> None:
    judgments = read_judgments(write(tmp_path, "q 0 a 1\nq 0 a 1\nq 0 a 2\n"))
    assert judgments.grades == {"q": {"a": 2}}
    assert noted(judgments.findings) == {
        "judgments of a pair judged before with the same grade": (1, "line 2, 'q' 'a'"),
        "judgments of a pair judged before with another grade, the last one stands": (1, "line 3, 'q' 'a'"),
    }


def test_byte_order_mark_windows_line_ends_and_blank_lines_are_noted(tmp_path: Path) -> None:
    judgments = read_judgments(write(tmp_path, b"\xef\xbb\xbfq 0 a 1\r\n\r\nq 0 b 0\r\n"))
    assert judgments.grades == {"q": {"a": 1, "b": 0}}
    assert noted(judgments.findings) == {
        "byte order mark, skipped": (1, "line 1"),
        "lines with Windows line ends, read as plain ones": (3, "line 1"),
        "blank lines, skipped": (1, "line 2"),
    }


def test_numbers_as_ids_are_noted(tmp_path: Path) -> None:
    judgments = read_judgments(write(tmp_path, '{"query_id": 1, "doc_id": 2, "grade": 1}\n'))
    assert judgments.grades == {"1": {"2": 1}}
    assert noted(judgments.findings) == {"ids that are numbers, read as text": (2, "line 1, 1")}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", ": the file is empty"),
        ("query-id\tcorpus-id\tscore\n", ": the file holds no judgment"),
        ("query,doc,grade\nq,a,1\nq,b,good\nq,c,bad\n", ", line 3: grade 'good' is not a whole number (2 such lines)"),
        ("q 0 a 1\nq 0 b 0.5\n", ", line 2: grade '0.5' is not a whole number;"),
        ("q 0 a 1\nq 0 b nan\n", ", line 2: grade 'nan' is not a whole number;"),
        ('{"query_id": "q", "doc_id": "a", "grade": true}\n', ", line 1: grade True is not a whole number;"),
        ("q 0 a 1\nq 0 b\n", ", line 2: 3 fields; TREC qrels have 4: query 0 document grade"),
        ("query,doc\nq,a\n", ", line 2: no grade; name it one of score, grade, rating"),
        ("topic\tgrade\nq\t1\n", ", line 2: no document id; name it one of corpus_id, document_id"),
        ("doc,grade\na,1\n", ", line 2: no query id; name it one of query_id, qid, query, topic (found: doc, grade)"),
        ("q1,a,1\nq1,b,0\n", ", line 2: no query id; "),
        ("query,doc,grade\n ,a,1\n", ", line 2: the id is empty"),
        ("query,doc,grade\nq,,1\n", ", line 2: the id is empty"),
    ],
)
def test_unusable_judgments_are_refused_by_file_and_line(tmp_path: Path, content: str, message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(InputError) as refused:
        read_judgments(path)
    assert str(refused.value).startswith(f"{path}{message}")
    assert "\n" not in str(refused.value)
