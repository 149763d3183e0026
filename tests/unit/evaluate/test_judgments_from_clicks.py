"""Grades from clicks: a document is judged by how much oftener it is clicked than its positions explain."""

from __future__ import annotations

from pathlib import Path

import pytest

from sira_es.errors import InputError
from sira_es.evaluate import Queries, select
from sira_es.evaluate.clicks import read_clicks

HEADER = "query,id,position,impressions,clicks\n"


def written(folder: Path, rows: str) -> Path:
    file = folder / "clicks.csv"
    file.write_text(HEADER + rows, encoding="utf-8")
    return file


def test_a_document_below_that_is_clicked_as_often_as_one_on_top_gets_a_higher_grade(tmp_path: Path) -> None:
    # position 1: 40 of 200 (.2); position 5: 22 of 1000 (.022)
    file = written(
        tmp_path, "fan,top,1,100,20\nfan,low,5,100,20\nlamp,other,1,100,20\nlamp,rest,5,900,2\n"
    )  # fmt: skip
    queries, judgments = read_clicks(file)
    assert queries.texts == {"clicks-1": "fan", "clicks-2": "lamp"}
    # top: 21 / 21 = 1 -> 2; low: 21 / 3.2 -> 3; rest: 3 / 20.8 -> 0
    assert judgments.grades == {"clicks-1": {"top": 2, "low": 3}, "clicks-2": {"other": 2, "rest": 0}}


def test_rows_of_several_positions_add_up(tmp_path: Path) -> None:
    # rates: .5 and .1; expected of a: 10 * .5 + 10 * .1 = 6, clicked 9: 10 / 7 -> 2
    file = written(tmp_path, "q,a,1,10,5\nq,a,2,10,4\nq,b,1,10,5\nq,c,2,30,0\n")
    assert read_clicks(file)[1].grades["clicks-1"]["a"] == 2


def test_queries_are_known_by_id_or_by_text_whatever_their_case(tmp_path: Path) -> None:
    file = written(tmp_path, "17,a,1,50,10\nnoisy  FAN,b,1,50,10\nunheard of,c,1,50,10\n")
    queries = Queries(Path("queries.jsonl"), {"17": "lamp", "18": "Noisy fan"})
    same, judgments = read_clicks(file, queries)
    assert same is queries
    assert {query: set(grades) for query, grades in judgments.grades.items()} == {
        "17": {"a"}, "18": {"b"}, "unheard of": {"c"},
    }  # fmt: skip
    _, _, findings = select(queries, judgments)
    assert [f.what for f in findings] == ["judgments of unknown queries, left out"]


def test_pairs_that_were_hardly_shown_are_not_judged_and_counted(tmp_path: Path) -> None:
    file = written(tmp_path, "q,a,1,50,10\nq,b,2,9,9\nq,c,3,1,0\n")
    _, judgments = read_clicks(file)
    assert set(judgments.grades["clicks-1"]) == {"a"}
    assert [(f.what, f.count) for f in judgments.findings] == [("pairs shown less than 10 times, not judged", 2)]


def test_more_clicks_than_impressions_are_noted(tmp_path: Path) -> None:
    file = written(tmp_path, "q,a,1,50,60\n")
    assert [f.what for f in read_clicks(file)[1].findings] == [
        "rows with more clicks than impressions, clicks counted as that many"
    ]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("", "the file holds no row"),
        ("q,a,0,50,1\n", "line 2: position 0; the first is 1"),
        ("q,a,first,50,1\n", "line 2: position 'first' is not a whole number"),
        ("q,a,1,-5,1\n", "line 2: impressions '-5' is not a whole number"),
        ("q,a,1,50,nan\n", "line 2: clicks 'nan' is not a whole number"),
        (" ,a,1,50,1\n", "line 2: the query is empty"),
        ("q,,1,50,1\n", "line 2: the id is empty"),
        ("q,a,1,3,1\n", "no document was shown 10 times"),
    ],
)
def test_an_unusable_file_of_clicks_is_refused_by_file_and_line(tmp_path: Path, rows: str, message: str) -> None:
    with pytest.raises(InputError, match=r"clicks\.csv") as refused:
        read_clicks(written(tmp_path, rows))
    assert message in str(refused.value)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    file = tmp_path / "clicks.csv"
    file.write_text("query,id,impressions,clicks\nq,a,10,1\n")
    with pytest.raises(InputError, match="no position"):
        read_clicks(file)
