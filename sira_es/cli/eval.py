"""`sira-es eval`: figures of the plain and the expanded search, from queries and judgments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import click

from sira_es.cli.common import Options, common_options, print_json, recorded_option, run_async, table
from sira_es.dsl.compile import Mode
from sira_es.errors import InputError
from sira_es.evaluate import (
    DEFAULT_MEASURES,
    Evaluation,
    Search,
    depth_of,
    evaluate,
    parse_measures,
    read_judgments,
    read_queries,
    render_report,
    write_runs,
)
from sira_es.sira import AsyncSira, Sides

RUNS: dict[str, Sides] = {"baseline": "baseline", "documents": "documents", "queries": "queries", "expanded": "both"}


@click.command(name="eval")
@click.option("--index", required=True, help="Index, alias or data stream.")
@click.option(
    "--queries",
    required=True,
    type=click.Path(path_type=Path),
    help="Queries: JSON lines, TSV or CSV with id and text.",
)
@click.option(
    "--qrels", required=True, type=click.Path(path_type=Path), help="Judgments: TREC qrels, or TSV/CSV with a header."
)
@click.option(
    "--measures", default=" ".join(DEFAULT_MEASURES), show_default=True, help="Names as ir-measures has them."
)
@click.option(
    "--mode", type=click.Choice(["recall", "rerank", "rescore"]), help="Shape of the request [as configured]."
)
@click.option("--ablate", is_flag=True, help="Also with the words of documents alone, and of queries alone.")
@click.option("--report", type=click.Path(path_type=Path), help="Write one HTML page.")
@click.option(
    "--runs",
    "runs_folder",
    type=click.Path(path_type=Path),
    help="Write TREC run files and judgments into this folder.",
)
@recorded_option
@common_options
def eval_(
    options: Options,
    index: str,
    queries: Path,
    qrels: Path,
    measures: str,
    mode: str | None,
    ablate: bool,
    report: Path | None,
    runs_folder: Path | None,
    recorded: Path | None,
) -> None:
    """Compare the plain and the expanded search on your judgments.

    Example: sira-es eval --index docs --queries queries.jsonl --qrels qrels.tsv --report report.html
    """
    names = parse_measures(measures.split())
    sides = RUNS if ablate else {"baseline": RUNS["baseline"], "expanded": RUNS["expanded"]}

    async def work() -> tuple[Evaluation, dict[str, list[dict[str, Any]]]]:
        async with AsyncSira(options.settings(), query_answers=recorded) as sira:
            return await assess_index(
                sira,
                index,
                queries,
                qrels,
                sides=sides,
                measures=names,
                mode=cast("Mode | None", mode),
                say=options.say,
            )

    evaluation, terms = run_async(work())
    for finding in evaluation.findings:
        options.say(f"sira-es: {finding}")
    if runs_folder is not None:
        write_runs(evaluation, runs_folder)
    if report is not None:
        page = render_report(evaluation, terms)
        try:
            report.write_text(page, encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot write {report}: {error.strerror}; choose another --report") from None
    if options.json:
        print_json(evaluation.to_json())
    else:
        show(evaluation)


async def assess_index(
    sira: AsyncSira,
    index: str,
    queries: Path,
    qrels: Path,
    *,
    sides: Mapping[str, Sides],
    measures: Sequence[str] = DEFAULT_MEASURES,
    mode: Mode | None = None,
    more: Mapping[str, Search] | None = None,
    say: Any = lambda _: None,
) -> tuple[Evaluation, dict[str, list[dict[str, Any]]]]:
    """Evaluate the named runs on an index; also returns each query's terms as `expand --json` has them."""
    depth = depth_of(parse_measures(measures))
    terms: dict[str, list[dict[str, Any]]] = {}
    problems: dict[str, int] = {}

    def searching(name: str, sides: Sides) -> Search:
        async def search(query_id: str, text: str) -> list[tuple[str, float]]:
            result = await sira.search(text, index, mode=mode, size=depth, sides=sides, query_id=query_id, source=False)
            if name == "expanded" and result.expansion is not None:
                terms[query_id] = result.expansion.to_json()["terms"]
                if result.expansion.problem:
                    problems[result.expansion.problem] = problems.get(result.expansion.problem, 0) + 1
            return [(hit.id, hit.score or 0.0) for hit in result.hits]

        return search

    searches = {name: searching(name, s) for name, s in sides.items()}
    settings = sira.settings.index(index)
    evaluation = await evaluate(
        read_queries(queries),
        read_judgments(qrels),
        {**searches, **(more or {})},
        measures=measures,
        settings={"index": index, "mode": mode or settings.search.mode, **settings.expansion.model_dump()},
    )
    for problem, count in list(problems.items())[:3]:
        say(f"sira-es: {count} queries were not expanded: {problem}")
    return evaluation, terms


def show(evaluation: Evaluation) -> None:
    """Print the figures for people."""
    head = ["run", *evaluation.measures, "gain", "p", "worse by > 0.1", "better"]
    first = evaluation.measures[0]
    rows = []
    for run, figures in evaluation.figures.items():
        row = [run, *(f"{figures[m]:.4f}" for m in evaluation.measures)]
        if run == evaluation.baseline:
            rows.append([*row, "", "", "", ""])
            continue
        c = evaluation.comparisons[run][first]
        gain = "" if c.relative is None else f"{c.relative:+.1%}"
        p = "" if c.p is None else f"{c.p:.1g}"
        rows.append([*row, gain, p, f"{c.worse_by_0_1:.1%}", f"{c.better / len(evaluation.queries):.0%}"])
    table(rows, head)
    click.echo(f"{len(evaluation.queries)} queries; gain, p and shares are of {first}")
