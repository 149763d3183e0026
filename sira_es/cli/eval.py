"""`sira-es eval`: figures of the plain and the expanded search, from queries and judgments, or without any."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import click

from sira_es.cli.common import Options, common_options, print_json, recorded_option, run_async, table
from sira_es.cli.measuring import judged, measuring_options, template_of
from sira_es.dsl.compile import Mode
from sira_es.errors import InputError
from sira_es.evaluate import (
    DEFAULT_MEASURES,
    Evaluation,
    depth_of,
    parse_measures,
    render_report,
    write_runs,
)
from sira_es.evaluate.bench import Bench
from sira_es.evaluate.compare import Test
from sira_es.evaluate.evaluation import Explained
from sira_es.evaluate.on_index import assess_index, budget_curve, compare_index, explained
from sira_es.evaluate.overlap import Overlap, by_query
from sira_es.evaluate.querylog import read_log
from sira_es.evaluate.variants import ABLATIONS, BASELINE, EXPANDED
from sira_es.sira import AsyncSira

NAMED = 5
"""So many worst and best queries are explained."""
_TESTS: dict[str, Test] = {"t": "paired t", "randomization": "randomization"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """An evaluation with the words behind its worst and best queries, each query's terms, and the budget curve."""

    evaluation: Evaluation
    worst: list[Explained]
    best: list[Explained]
    terms: dict[str, list[dict[str, Any]]]
    curve: list[tuple[float, float]]
    budget: float

    def to_json(self) -> dict[str, Any]:
        """The document of `eval --json`."""
        return {
            **self.evaluation.to_json(),
            "worst": [found.to_json() for found in self.worst],
            "best": [found.to_json() for found in self.best],
            **({"budget_curve": [list(point) for point in self.curve]} if self.curve else {}),
        }


@click.command(name="eval")
@click.option("--index", required=True, help="Index, alias or data stream.")
@measuring_options
@click.option(
    "--measures", default=" ".join(DEFAULT_MEASURES), show_default=True, help="Names as ir-measures has them."
)
@click.option("--test", type=click.Choice(list(_TESTS)), default="t", show_default=True, help="What p belongs to.")
@click.option(
    "--mode", type=click.Choice(["recall", "rerank", "rescore"]), help="Shape of the request [as configured]."
)
@click.option("--ablate", is_flag=True, help="Also with parts of the method left out, one at a time.")
@click.option("--no-judgments", is_flag=True, help="How far the rankings are apart, for queries that nobody judged.")
@click.option("--top", type=click.IntRange(min=1), default=200, show_default=True, help="Queries of a log to compare.")
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
    queries: Path | None,
    qrels: Path | None,
    clicks: Path | None,
    template: Path | None,
    measures: str,
    test: Literal["t", "randomization"],
    mode: str | None,
    ablate: bool,
    no_judgments: bool,
    top: int,
    report: Path | None,
    runs_folder: Path | None,
    recorded: Path | None,
) -> None:
    """Compare the plain and the expanded search on your judgments.

    Example: sira-es eval --index docs --queries queries.jsonl --qrels qrels.tsv --report report.html
             sira-es eval --index docs --clicks clicks.csv --baseline our-search.json --ablate
             sira-es eval --index docs --queries searches.txt --no-judgments --top 500
    """
    body = template_of(template)
    if no_judgments:
        if qrels or clicks or report or runs_folder or ablate or queries is None:
            raise click.UsageError(
                "--no-judgments takes --queries, and neither judgments, --ablate, --report nor --runs"
            )
        _without_judgments(options, index, queries, top, cast("Mode | None", mode), body, recorded)
        return
    texts, judgments = judged(queries, qrels, clicks)
    names = parse_measures(measures.split())
    _check_output(report, runs_folder)

    async def work() -> Outcome:
        async with AsyncSira(options.settings(), query_answers=recorded) as sira:
            bench = Bench(sira, index, size=depth_of(names), mode=cast("Mode | None", mode), template=body)
            variants = (BASELINE, *(ABLATIONS if ablate else ()), EXPANDED)
            found = await assess_index(bench, texts, judgments, variants, measures=names, test=_TESTS[test])
            await tell_problems(options, bench)
            return await _outcome(bench, found, curve=report is not None)

    outcome = run_async(work())
    for finding in outcome.evaluation.findings:
        options.say(f"sira-es: {finding}")
    if runs_folder is not None:
        write_runs(outcome.evaluation, runs_folder)
    if report is not None:
        _write_report(report, outcome)
    if options.json:
        print_json(outcome.to_json())
        return
    show(outcome.evaluation)
    for title, queries_named in (("worst", outcome.worst), ("best", outcome.best)):
        _show_explained(title, queries_named)


def _check_output(report: Path | None, runs_folder: Path | None) -> None:
    """Raise InputError now for what could not be written after all the searches."""
    if report is not None:
        place = report if report.exists() else report.parent
        if report.is_dir() or not place.exists() or not os.access(place, os.W_OK):
            why = (
                "it is a folder" if report.is_dir() else f"{place} {'is read-only' if place.exists() else 'is missing'}"
            )
            raise InputError(f"cannot write {report}: {why}; choose another --report")
    if runs_folder is not None:
        try:
            runs_folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot write to {runs_folder}: {error.strerror}; choose another --runs") from None
        if not os.access(runs_folder, os.W_OK):
            raise InputError(f"cannot write to {runs_folder}: it is read-only; choose another --runs")


async def _outcome(bench: Bench, found: Evaluation, *, curve: bool) -> Outcome:
    return Outcome(
        evaluation=found,
        worst=await explained(bench, found, found.worst(EXPANDED.name, NAMED)),
        best=await explained(bench, found, found.best(EXPANDED.name, NAMED)),
        terms=await bench.terms(),
        curve=await budget_curve(bench, found) if curve else [],
        budget=bench.rules.budget,
    )


async def tell_problems(options: Options, bench: Bench) -> None:
    """Say why queries were not expanded, the three most frequent reasons."""
    for problem, count in (await bench.problems()).most_common(3):
        options.say(f"sira-es: {count} queries were not expanded: {problem}")


def _write_report(path: Path, outcome: Outcome) -> None:
    page = render_report(
        outcome.evaluation,
        outcome.terms,
        curve=outcome.curve,
        budget=outcome.budget,
        causes=[*outcome.worst, *outcome.best],
    )
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose another --report") from None


def _without_judgments(
    options: Options,
    index: str,
    queries: Path,
    top: int,
    mode: Mode | None,
    body: Mapping[str, Any] | None,
    recorded: Path | None,
) -> None:
    log = read_log(queries, top)

    async def work() -> Overlap:
        async with AsyncSira(options.settings(), query_answers=recorded) as sira:
            bench = Bench(sira, index, mode=mode, template=body)
            found = (await compare_index(bench, log))[EXPANDED.name]
            await tell_problems(options, bench)
            return found

    found = run_async(work())
    for finding in log.findings:
        options.say(f"sira-es: {finding}")
    figures = found.to_json()
    if options.json:
        compared = {EXPANDED.name: {**figures, "most_changed": by_query(found, log.texts)}}
        print_json({"queries": len(log.texts), "compare": compared})
        return
    table(
        [[name, f"{value:.3f}" if isinstance(value, float) else str(value)] for name, value in figures.items()],
        ["expanded beside baseline", f"{len(log.texts)} queries"],
    )
    click.echo("\nmost changed")
    for query in found.most_changed(NAMED):
        click.echo(f"  RBO {query.rbo:.2f}  {log.texts[query.query_id]}")


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
    _show_condensed(evaluation)


def _show_condensed(evaluation: Evaluation) -> None:
    if evaluation.condensed is None:
        return
    for run, compared in evaluation.condensed.comparisons.items():
        c = compared[evaluation.measures[0]]
        if run == EXPANDED.name and c.relative is not None:
            p = "" if c.p is None else f" (p {c.p:.1g})"
            click.echo(f"without the documents that nobody judged: {c.relative:+.1%}{p}")


def _show_explained(title: str, queries: Sequence[Explained]) -> None:
    if queries:
        click.echo(f"\n{title}")
    for found in queries:
        change = found.change
        click.echo(f"  {change.before:.2f} -> {change.after:.2f}  {change.text}")
        words = ", ".join(f"{cause.word} {cause.change:+.2f}" for cause in found.causes[:4])
        click.echo(f"                because of {words}" if words else "                no word alone did it")
