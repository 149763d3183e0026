"""Runs over queries: which queries count, what the figures are; other tools compute the same from the files."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ir_measures
import pytest

from sira_es.errors import ClusterUnreachable, InputError
from sira_es.evaluate import Evaluation, Judgments, Queries, Search, evaluate, parse_measures, write_runs

pytestmark = pytest.mark.anyio


def queries(*ids: str) -> Queries:
    return Queries(Path("queries.jsonl"), {query: f"text of {query}" for query in ids})


def judgments(grades: Mapping[str, Mapping[str, int]]) -> Judgments:
    return Judgments(Path("qrels.tsv"), grades)


def searching(rankings: Mapping[str, Sequence[str]]) -> Search:
    async def search(query_id: str, text: str) -> list[tuple[str, float]]:
        assert text == f"text of {query_id}"
        return [(doc, 1.0) for doc in rankings.get(query_id, ())]

    return search


async def evaluated(
    grades: Mapping[str, Mapping[str, int]], runs: Mapping[str, Mapping[str, Sequence[str]]], **options: Any
) -> Evaluation:
    searches = {name: searching(run) for name, run in runs.items()}
    return await evaluate(queries(*grades), judgments(grades), searches, **options)


def warnings(evaluation: Evaluation) -> dict[str, tuple[str, int, str]]:
    return {finding.what: (finding.source, finding.count, finding.first) for finding in evaluation.findings}


async def test_ndcg_of_a_ranking_worked_out_by_hand() -> None:
    grades = {"q": {"a": 3, "b": 2, "c": 0, "d": 1}}
    found = await evaluated(grades, {"baseline": {"q": ["b", "x", "a", "c"]}})
    gained = 2 / math.log2(2) + 3 / math.log2(4)
    ideal = 3 / math.log2(2) + 2 / math.log2(3) + 1 / math.log2(4)
    assert found.figures["baseline"]["nDCG@10"] == pytest.approx(gained / ideal)
    assert found.figures["baseline"]["R@10"] == pytest.approx(2 / 3)
    assert found.figures["baseline"]["Judged@10"] == pytest.approx(3 / 4)


async def test_equal_scores_keep_the_order_of_the_search() -> None:
    found = await evaluated({"q": {"z": 1}}, {"baseline": {"q": ["z", "a", "b"]}}, measures=["RR"])
    assert found.figures["baseline"]["RR"] == 1.0


async def test_a_query_that_finds_nothing_counts_zero() -> None:
    found = await evaluated({"q1": {"a": 1}, "q2": {"a": 1}}, {"baseline": {"q1": ["a"]}, "empty": {}})
    assert found.figures["baseline"]["nDCG@10"] == 0.5
    assert set(found.figures["empty"].values()) == {0.0}


async def test_a_query_without_a_relevant_document_counts_zero_and_is_noted() -> None:
    found = await evaluated({"q1": {"a": 1}, "q2": {"a": 0}}, {"baseline": {"q1": ["a"], "q2": ["a"]}})
    assert found.figures["baseline"]["nDCG@10"] == 0.5
    assert warnings(found) == {"queries without a relevant document, 0 in every run": ("qrels.tsv", 1, "'q2'")}


async def test_queries_and_judgments_that_do_not_match_are_left_out_and_noted() -> None:
    grades = {"q1": {"a": 1}, "q8": {"a": 1, "b": 1}, "q9": {"a": 1}}
    found = await evaluate(queries("q0", "q1"), judgments(grades), {"baseline": searching({"q1": ["a"]})})
    assert found.to_json()["queries"] == 1
    assert found.figures["baseline"]["nDCG@10"] == 1.0
    assert warnings(found) == {
        "queries without a judgment, left out": ("queries.jsonl", 1, "'q0'"),
        "judgments of unknown queries, left out": ("qrels.tsv", 3, "query 'q8', document 'a'"),
    }


async def test_judged_documents_that_the_index_lacks_are_noted_and_count_as_not_found() -> None:
    grades = {"q": {"a": 1, "gone": 1}}
    found = await evaluated(grades, {"baseline": {"q": ["a"]}}, known_documents={"a"})
    assert found.figures["baseline"]["R@10"] == 0.5
    assert warnings(found) == {
        "judged documents that the index lacks, counted as not found": ("qrels.tsv", 1, "'gone'")
    }


async def test_without_a_judged_query_there_is_no_evaluation() -> None:
    with pytest.raises(InputError, match=r"no query of queries\.jsonl is judged in qrels\.tsv.*'1' and 'q1'"):
        await evaluate(queries("1"), judgments({"q1": {"a": 1}}), {"baseline": searching({})})


async def test_an_id_that_a_search_returns_twice_counts_once_and_is_noted() -> None:
    found = await evaluated({"q": {"a": 1, "b": 1}}, {"baseline": {"q": ["a", "a", "b"]}}, measures=["P@2"])
    assert found.figures["baseline"]["P@2"] == 1.0
    assert warnings(found) == {
        "hits whose id stood higher up already, left out": ("run baseline", 1, "query 'q', document 'a'")
    }


async def test_at_most_eight_searches_run_at_a_time() -> None:
    running, most = 0, 0

    async def search(query_id: str, text: str) -> list[tuple[str, float]]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return []

    names = [f"q{i}" for i in range(30)]
    await evaluate(
        queries(*names),
        judgments({name: {"a": 1} for name in names}),
        {"baseline": search, "other": search},
    )
    assert most == 8


async def test_a_search_that_fails_ends_the_evaluation_with_its_own_error() -> None:
    async def search(query_id: str, text: str) -> list[tuple[str, float]]:
        raise ClusterUnreachable("no answer")

    with pytest.raises(ClusterUnreachable, match=r"^no answer$"):
        await evaluate(queries("q1", "q2"), judgments({"q1": {"a": 1}, "q2": {"a": 1}}), {"baseline": search})


async def test_the_json_document_has_the_promised_shape() -> None:
    grades = {"q1": {"a": 1}, "q2": {"a": 1}, "q3": {"b": 1}}
    runs = {
        "baseline": {"q1": ["x", "a"], "q2": ["a"], "q3": ["x", "b"]},
        "expanded": {"q1": ["a"], "q2": ["x", "y", "a"], "q3": ["b"]},
    }
    found = await evaluated(grades, runs, measures=["NDCG@10"], settings={"index": "faq"})
    document = json.loads(json.dumps(found.to_json()))
    assert document["queries"] == 3
    assert document["runs"]["baseline"] == pytest.approx({"nDCG@10": (1 + 2 / math.log2(3)) / 3, "Judged@10": 2 / 3})
    compared = document["compare"]["expanded"]["nDCG@10"]
    assert {"relative", "p", "test", "better", "worse", "worse_by_0.1", "ci"} <= set(compared)
    assert (compared["test"], compared["better"], compared["worse"]) == ("paired t", 2, 1)
    assert compared["worse_by_0.1"] == pytest.approx(1 / 3)
    assert set(document["compare"]) == {"expanded"}
    assert document["settings"] == {
        "baseline": "baseline", "measures": ["nDCG@10", "Judged@10"], "seed": 20260701, "depth": 100, "index": "faq",
    }  # fmt: skip
    assert document["findings"] == []


async def test_worst_and_best_queries_are_those_that_lost_and_gained_most() -> None:
    grades = {name: {"a": 1} for name in ("up", "down", "same", "far down")}
    runs = {
        "baseline": {"up": ["x", "a"], "down": ["a"], "same": ["a"], "far down": ["a"]},
        "expanded": {"up": ["a"], "down": ["x", "a"], "same": ["a"], "far down": ["x", "y", "a"]},
    }
    found = await evaluated(grades, runs)
    assert [change.query_id for change in found.worst("expanded")] == ["far down", "down"]
    assert [(change.query_id, change.text) for change in found.best("expanded")] == [("up", "text of up")]
    assert found.worst("expanded", 1)[0].difference == pytest.approx(-0.5)


async def test_condensed_figures_leave_unjudged_documents_out() -> None:
    runs = {"baseline": {"q": ["x", "a"]}, "expanded": {"q": ["b", "a"]}}
    found = await evaluated({"q": {"a": 1, "b": 0}}, runs, measures=["RR"])
    assert found.figures == {"baseline": {"RR": 0.5, "Judged@10": 0.5}, "expanded": {"RR": 0.5, "Judged@10": 1.0}}
    condensed = found.to_json()["condensed"]
    assert condensed["runs"] == {"baseline": {"RR": 1.0, "Judged@10": 1.0}, "expanded": {"RR": 0.5, "Judged@10": 1.0}}
    assert condensed["compare"]["expanded"]["RR"]["relative"] == -0.5


async def test_condensed_figures_mean_nothing_where_only_relevant_documents_are_judged() -> None:
    found = await evaluated({"q": {"a": 1}}, {"baseline": {"q": ["x", "a"]}})
    assert found.condensed is None
    assert "condensed" not in found.to_json()


async def test_other_tools_compute_the_same_figures_from_the_exported_files(tmp_path: Path) -> None:
    draw = random.Random(7)
    docs = [f"d{i}" for i in range(60)]
    grades = {f"q{i}": {doc: draw.randint(0, 3) for doc in draw.sample(docs, 12)} for i in range(25)}
    runs = {
        name: {query: draw.sample(docs, draw.randint(0, 50)) for query in grades} for name in ("baseline", "expanded")
    }
    names = ["nDCG@10", "R@10", "R@100", "RR", "P@5", "AP", "nDCG", "Judged@10"]
    found = await evaluated(grades, runs, measures=names)
    files = write_runs(found, tmp_path)
    assert [file.name for file in files] == ["baseline.run", "expanded.run", "judgments.qrels"]
    measures = [ir_measures.parse_measure(name) for name in names]
    for name in runs:
        expected = ir_measures.calc(
            measures,
            list(ir_measures.read_trec_qrels(str(tmp_path / "judgments.qrels"))),
            list(ir_measures.read_trec_run(str(tmp_path / f"{name}.run"))),
        )
        assert found.figures[name] == pytest.approx(
            {str(m): value for m, value in expected.aggregated.items()}, abs=1e-12
        )
        for metric in expected.per_query:
            assert found.values[name][str(metric.measure)][metric.query_id] == metric.value


async def test_run_files_are_in_trec_format_with_strictly_decreasing_scores(tmp_path: Path) -> None:
    write_runs(await evaluated({"q": {"a": 1}}, {"baseline": {"q": ["b", "a"]}}), tmp_path / "new")
    assert (tmp_path / "new" / "baseline.run").read_text() == "q Q0 b 1 -1 baseline\nq Q0 a 2 -2 baseline\n"
    assert (tmp_path / "new" / "judgments.qrels").read_text() == "q 0 a 1\n"


async def test_an_id_that_trec_files_cannot_hold_is_refused_and_nothing_written(tmp_path: Path) -> None:
    found = await evaluated({"red shoes": {"a": 1}}, {"baseline": {"red shoes": ["a"]}})
    with pytest.raises(InputError, match=r"baseline\.run cannot be written: 'red shoes' has white space"):
        write_runs(found, tmp_path / "new")
    assert not (tmp_path / "new").exists()


async def test_rankings_are_cut_at_the_depth_that_the_measures_need() -> None:
    many = [f"d{i}" for i in range(400)]
    for names, depth in ((["nDCG@10"], 100), (["nDCG@10", "R@250"], 250)):
        found = await evaluated({"q": {"d0": 1}}, {"baseline": {"q": many}}, measures=names)
        assert len(found.runs["baseline"]["q"]) == depth == found.settings["depth"]


@pytest.mark.parametrize("name", ["foo@3", "nDCG@", "", "P@5 RR", "ERR@10", "alpha_nDCG@10", "R"])
def test_a_measure_that_cannot_be_computed_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="is not known; use names of ir-measures"):
        parse_measures([name])


def test_measures_get_their_canonical_names_once_and_the_judged_share_comes_along() -> None:
    assert parse_measures(["NDCG@10", "nDCG@10", "Recall@5"]) == ("nDCG@10", "R@5", "Judged@10")
