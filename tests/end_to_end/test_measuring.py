"""Figures through the command line on a real node: side by side, without judgments, from clicks; tuning; bad input."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ir_measures
import pytest
import yaml

from end_to_end.conftest import FAQ, Result, call_node
from sira_es.cli import run

QUERY_ANSWERS = FAQ / "recorded" / "queries.jsonl.gz"
GUARD = 0.2
"""What the default must gain over BM25 on these 60 queries; it gains 25 %."""

Cli = Callable[..., Result]


def lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="module")
def faq(node_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The FAQ enriched from recorded answers, and the configuration for it; with 60 of its queries in sixty.jsonl."""
    folder = tmp_path_factory.mktemp("faq")
    index, config = f"test-measure-{secrets.token_hex(4)}", folder / "sira-es.yml"
    settings = {"cluster": {"url": node_url}, "state": str(folder / "state")}
    settings["indices"] = {index: {"text_fields": ["title", "text"], "language": "en"}}
    config.write_text(yaml.safe_dump(settings))
    every_fifth = lines(FAQ / "queries.jsonl.gz")[::5]
    (folder / "sixty.jsonl").write_text("".join(json.dumps(q) + "\n" for q in every_fifth))
    common = ("--index", index, "-c", str(config), "-q")
    assert run(["index", *common, "--documents", str(FAQ / "corpus.jsonl.gz")]) == 0
    assert run(["enrich", *common, "--recorded", str(FAQ / "recorded" / "documents.jsonl.gz")]) == 0
    call_node(node_url, "POST", f"/{index}/_forcemerge?max_num_segments=1")
    call_node(node_url, "POST", f"/{index}/_refresh")
    yield index, folder
    call_node(node_url, "DELETE", f"/{index}")


@pytest.fixture(scope="module")
def usual(faq: tuple[str, Path]) -> tuple[dict[str, Any], Path]:
    """The figures of one evaluation with everything in it, and the folder of its report.html and runs/."""
    index, folder = faq
    arguments = ["eval", "--index", index, "-c", folder / "sira-es.yml", "--queries", folder / "sixty.jsonl"]
    arguments += ["--qrels", FAQ / "qrels.tsv", "--recorded", QUERY_ANSWERS, "--ablate", "--json", "-q"]
    arguments += ["--report", folder / "report.html", "--runs", folder / "runs"]
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(out):
        assert run([str(a) for a in arguments]) == 0
    out.seek(0)
    return json.load(out), folder


@pytest.fixture
def measured(cli: Cli, faq: tuple[str, Path]) -> Callable[..., Result]:
    """Run eval or tune on the FAQ with recorded answers, and on the 60 queries unless others are named."""
    index, folder = faq

    def call(command: str, *arguments: object) -> Result:
        given = list(arguments)
        if "--queries" not in given and "--clicks" not in given:
            given += ["--queries", folder / "sixty.jsonl"]
        if not {"--qrels", "--clicks", "--no-judgments"} & set(given):
            given += ["--qrels", FAQ / "qrels.tsv"]
        if "--recorded" not in given:
            given += ["--recorded", QUERY_ANSWERS]
        return cli(command, "--index", index, "-c", folder / "sira-es.yml", *given)

    return call


def test_guard_sixty_queries_of_the_faq_gain_far_more_than_the_stated_bound(usual: tuple[dict[str, Any], Path]) -> None:
    figures, _ = usual
    gain = figures["compare"]["expanded"]["nDCG@10"]
    assert figures["queries"] == 60
    assert gain["relative"] >= GUARD
    assert gain["p"] < 0.001
    assert gain["worse_by_0.1"] <= 0.05


def test_ablations_stand_side_by_side_and_the_whole_method_beats_each_side(usual: tuple[dict[str, Any], Path]) -> None:
    figures, _ = usual
    values = {run: of_run["nDCG@10"] for run, of_run in figures["runs"].items()}
    assert list(values) == [
        "baseline", "documents", "queries", "no-df-filter", "fixed-weight", "uniform-confidence", "words-only",
        "no-lift", "expanded",
    ]  # fmt: skip
    assert values["baseline"] < values["documents"] < values["expanded"]
    assert values["baseline"] < values["queries"] < values["expanded"]


def test_the_words_behind_the_worst_and_best_queries_are_named(usual: tuple[dict[str, Any], Path]) -> None:
    figures, _ = usual
    assert figures["best"][0]["after"] - figures["best"][0]["before"] > 0.5
    assert any(query["because_of"] for query in figures["best"])
    for query in [*figures["worst"], *figures["best"]]:
        change = query["after"] - query["before"]
        assert all(cause["change"] * change > 0 for cause in query["because_of"])


def test_a_run_file_gives_any_other_tool_the_same_figures(usual: tuple[dict[str, Any], Path]) -> None:
    figures, folder = usual
    qrels = list(ir_measures.read_trec_qrels(str(folder / "runs" / "judgments.qrels")))
    names = ("nDCG@10", "R@10", "R@100")
    for name in figures["runs"]:
        rows = list(ir_measures.read_trec_run(str(folder / "runs" / f"{name}.run")))
        found = ir_measures.calc_aggregate([ir_measures.parse_measure(m) for m in names], qrels, rows)
        assert {str(m): v for m, v in found.items()} == pytest.approx(
            {m: figures["runs"][name][m] for m in names}, abs=1e-12
        )


def test_the_report_has_figures_terms_causes_and_the_budget_curve(usual: tuple[dict[str, Any], Path]) -> None:
    figures, folder = usual
    page = (folder / "report.html").read_text(encoding="utf-8")
    curve = dict(figures["budget_curve"])
    assert curve[1.2] == pytest.approx(figures["runs"]["expanded"]["nDCG@10"])
    assert curve[0.0] < curve[1.2]
    for expected in (
        "nDCG@10 by expansion budget",
        "and the words that did it",
        "absent",
        "kept",
        "Noted in the input",
    ):
        assert expected in page
    assert "http" not in page.replace("http-equiv", "")


def test_an_application_s_own_search_can_be_the_baseline(
    measured: Callable[..., Result], usual: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    own = tmp_path / "own.json"
    own.write_text(json.dumps({"query": {"match": {"title": "{{query}}"}}}))
    figures = measured("eval", "--baseline", own, "--json").json
    assert figures["runs"]["baseline"]["nDCG@10"] != usual[0]["runs"]["baseline"]["nDCG@10"]
    assert figures["compare"]["expanded"]["nDCG@10"]["relative"] > 0.1


def test_measures_and_test_are_those_asked_for(measured: Callable[..., Result]) -> None:
    figures = measured("eval", "--measures", "RR P@5 NDCG@3", "--test", "randomization", "--json").json
    assert list(figures["runs"]["baseline"]) == ["RR", "P@5", "nDCG@3", "Judged@10"]
    assert figures["compare"]["expanded"]["RR"]["test"] == "randomization"


def test_a_query_log_is_compared_without_judgments(measured: Callable[..., Result], tmp_path: Path) -> None:
    log = tmp_path / "searches.txt"
    texts = [q["text"] for q in lines(FAQ / "queries.jsonl.gz")[:20]]
    log.write_text("\n".join([*texts, *texts[:5]]) + "\n")
    answers = tmp_path / "answers.jsonl"
    by_id = {row["id"]: row["answer"] for row in lines(QUERY_ANSWERS)}
    asked = {q["text"]: by_id[q["_id"] if "_id" in q else q["id"]] for q in lines(FAQ / "queries.jsonl.gz")[:20]}
    answers.write_text("".join(json.dumps({"id": text, "answer": answer}) + "\n" for text, answer in asked.items()))
    found = measured("eval", "--no-judgments", "--queries", log, "--recorded", answers, "--top", 10, "--json").json
    compared = found["compare"]["expanded"]
    assert found["queries"] == 10
    assert 0 < compared["RBO@10"] < 1
    assert 0 < compared["Jaccard@10"] < 1
    assert compared["changed_top_3"] > 0
    assert compared["rescued"] == compared["zero_results_before"] == 0
    assert compared["most_changed"][0]["RBO@10"] <= compared["most_changed"][-1]["RBO@10"]


def test_a_query_that_found_nothing_is_rescued(measured: Callable[..., Result], tmp_path: Path) -> None:
    log, answers = tmp_path / "searches.txt", tmp_path / "answers.jsonl"
    log.write_text("xyzzyq\n")
    answers.write_text(json.dumps({"id": "xyzzyq", "answer": '{"terms": [["gmail", 0.9]]}'}) + "\n")
    found = measured("eval", "--no-judgments", "--queries", log, "--recorded", answers, "--json").json
    assert found["compare"]["expanded"]["zero_results_before"] == 1
    assert found["compare"]["expanded"]["rescued"] in {0, 1}


def test_clicks_take_the_place_of_judgments(measured: Callable[..., Result], tmp_path: Path) -> None:
    clicks = tmp_path / "clicks.csv"
    rows = ["query,id,position,impressions,clicks"]
    by_id = {q.get("_id", q.get("id")): q["text"] for q in lines(FAQ / "queries.jsonl.gz")}
    with (FAQ / "qrels.tsv").open() as file:
        judged = [line.split() for line in file if not line.lower().startswith("query")]
    for query, *_, grade in judged[:300]:
        document = next(row for row in judged if row[0] == query)[-2]
        rows.append(f'"{by_id[query]}",{document},1,100,{60 if grade != "0" else 1}')
    rows += [f'"{text}",nowhere,1,100,0' for text in list(by_id.values())[:5]]
    clicks.write_text("\n".join(rows) + "\n")
    result = measured("eval", "--clicks", clicks, "--queries", FAQ / "queries.jsonl.gz", "--json")
    assert result.code == 0, result.err
    assert result.json["runs"]["expanded"]["nDCG@10"] > result.json["runs"]["baseline"]["nDCG@10"]
    assert "judged documents that the index lacks" in result.err


def test_what_does_not_match_is_counted_and_named(measured: Callable[..., Result], tmp_path: Path) -> None:
    qrels = tmp_path / "qrels.tsv"
    text = (FAQ / "qrels.tsv").read_text()
    first = lines(FAQ / "queries.jsonl.gz")[0]
    known = first.get("_id", first.get("id"))
    more = f"nobody\tt1a1\t1\n{known}\tno-such-document\t1\n{known}\tno-such-document\t1\n"
    qrels.write_bytes(b"\xef\xbb\xbf" + (text + more).replace("\n", "\r\n").encode())
    result = measured("eval", "--qrels", qrels, "--json")
    told = {f["what"]: f["count"] for f in result.json["findings"]}
    assert told["judged documents that the index lacks, counted as not found"] == 1
    assert told["judgments of a pair judged before with the same grade"] == 1
    assert told["byte order mark, skipped"] == 1
    assert told["lines with Windows line ends, read as plain ones"] == text.count("\n") + 3
    assert "judgments of unknown queries, left out" in told
    assert "no-such-document" in result.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--qrels", "{empty}"], 2, "the file is empty"),
        (["--qrels", "{grades}"], 2, "grade 'good' is not a whole number"),
        (["--qrels", "{strangers}"], 2, "no query of"),
        (["--qrels", "{empty}", "--clicks", "{empty}"], 2, "give judgments as --qrels or as --clicks"),
        (["--measures", "nDGC@10"], 2, "measure 'nDGC@10' is not known"),
        (["--baseline", "{empty}"], 2, "is not JSON"),
        (["--baseline", "{no_place}"], 2, "{{query}}"),
        (["--no-judgments", "--ablate"], 2, "--no-judgments takes --queries"),
    ],
)
def test_bad_input_ends_with_one_line_that_names_it(
    measured: Callable[..., Result], tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    files = {
        "empty": "",
        "grades": "query\tdocument\tgrade\nq1\td1\tgood\n",
        "strangers": "query\tid\tgrade\nx\ty\t1\n",
    }
    files["no_place"] = '{"query": {"match_all": {}}}'
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    given = [str(tmp_path / a[1:-1]) if a[:1] == "{" else a for a in arguments]
    result = measured("eval", *given)
    assert (result.code, len(result.err.strip().splitlines())) == (code, 1), result.err
    assert message in result.err


def test_tuning_prints_a_block_that_the_configuration_takes(
    measured: Callable[..., Result], faq: tuple[str, Path], tmp_path: Path
) -> None:
    result = measured("tune", "-q")
    assert result.code == 0, result.err
    assert result.out.startswith("# sira-es tune: 60 judged queries")
    assert "on queries held out" in result.out
    part = yaml.safe_load(result.out)["indices"][faq[0]]
    config = yaml.safe_load((faq[1] / "sira-es.yml").read_text())
    config["indices"][faq[0]] |= part
    (tmp_path / "tuned.yml").write_text(yaml.safe_dump(config))
    checked = run(
        ["compile", "fan", "--index", faq[0], "-c", str(tmp_path / "tuned.yml"), "--recorded", str(QUERY_ANSWERS)]
    )
    assert checked == 0


def test_tuning_refuses_few_judged_queries(
    measured: Callable[..., Result], faq: tuple[str, Path], tmp_path: Path
) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("".join((faq[1] / "sixty.jsonl").read_text().splitlines(keepends=True)[:49]))
    result = measured("tune", "--queries", few)
    assert result.code == 2
    assert "49 queries have a relevant document" in result.err
