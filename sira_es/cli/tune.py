"""`sira-es tune`: the numbers of the method chosen on judgments, with figures from queries held out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from sira_es.cli.common import Options, common_options, flow, print_json, recorded_option, run_async
from sira_es.cli.eval import tell_problems
from sira_es.cli.measuring import judged, measuring_options, template_of
from sira_es.evaluate import depth_of
from sira_es.evaluate.bench import Bench
from sira_es.evaluate.on_tuning import configuration_of, tune_index
from sira_es.evaluate.tuning import LEAST_QUERIES, Tuned
from sira_es.sira import AsyncSira

_TELL_EVERY = 20


@click.command()
@click.option("--index", required=True, help="Index, alias or data stream.")
@measuring_options
@click.option("--measure", default="nDCG@10", show_default=True, help="What is to be high, by its name in ir-measures.")
@recorded_option
@common_options
def tune(
    options: Options,
    index: str,
    queries: Path | None,
    qrels: Path | None,
    clicks: Path | None,
    template: Path | None,
    measure: str,
    recorded: Path | None,
) -> None:
    """Choose budget, caps, weight and mode on your judgments, and print the block for the configuration.

    The figure beside it comes from queries that took no part in choosing. Answers are those recorded or stored: no model
    is called. The default is kept unless something is significantly better.

    Example: sira-es tune --index docs --queries queries.jsonl --qrels qrels.tsv
    """
    body = template_of(template)
    texts, judgments = judged(queries, qrels, clicks)

    def told(done: int) -> None:
        if done % _TELL_EVERY == 0:
            options.say(f"{done} settings measured")

    async def work() -> tuple[Tuned, dict[str, Any]]:
        async with AsyncSira(options.settings(), query_answers=recorded, ask_model=False) as sira:
            bench = Bench(sira, index, size=depth_of([measure]), template=body)
            found, findings = await tune_index(bench, texts, judgments, measure=measure, progress=told)
            for finding in findings:
                options.say(f"sira-es: {finding}")
            await tell_problems(options, bench)
            return found, configuration_of(bench, found.choice)

    found, configuration = run_async(work())
    if options.json:
        print_json({**_figures(found, measure), "changed": found.changed, "configuration": configuration})
    else:
        click.echo(block(found, configuration, index, measure))


def _figures(found: Tuned, measure: str) -> dict[str, Any]:
    return {
        "measure": measure,
        "queries": found.queries,
        "least_queries": LEAST_QUERIES,
        "default": found.default_mean,
        "held_out": found.held_out_mean,
        "held_out_compare": found.held_out.to_json(),
        "optimistic_compare": found.optimistic.to_json(),
        "folds": [dict(choice) for choice in found.folds],
        "tried": found.tried,
    }


def block(found: Tuned, configuration: Mapping[str, Mapping[str, Any]], index: str, measure: str) -> str:
    """The part of sira-es.yml for a choice, with its figures as comments."""
    held, same = found.held_out, found.optimistic
    p = "" if held.p is None else f", p {held.p:.2g}"
    lines = [
        f"# sira-es tune: {found.queries} judged queries, {found.tried} settings measured, {measure}",
        f"#   default {found.default_mean:.4f}; tuned, on queries held out, {found.held_out_mean:.4f}"
        f" ({_percent(held.relative)}{p})",
    ]
    if found.changed:
        lines += [
            f"#   on the very queries that these numbers were chosen on: {_percent(same.relative)} (too good to be true)",
            f"#   changed: {', '.join(f'{name} {value}' for name, value in found.changed.items())}",
        ]
    else:
        lines += ["#   nothing was significantly better on queries held out: this is the default"]
    lines += ["indices:", f"  {flow(index)}:"]
    for part, values in configuration.items():
        lines.append(f"    {part}: {{{', '.join(f'{name}: {value}' for name, value in values.items())}}}")
    return "\n".join(lines)


def _percent(value: float | None) -> str:
    return "no relative figure" if value is None else f"{value:+.1%}"
