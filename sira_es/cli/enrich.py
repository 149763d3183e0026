"""`sira-es enrich`: adds search vocabulary to documents, or says what it would cost, or takes it away again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import orjson

from sira_es.cli.common import Options, common_options, print_json, recorded_option, run_async
from sira_es.cli.status import show
from sira_es.enrich.job import EnrichReport, Limits, Progress
from sira_es.errors import InputError


@click.command()
@click.option("--index", required=True, help="Index, alias or data stream.")
@click.option("--dry-run", is_flag=True, help="Say what it would take; nothing is written, no model is called.")
@click.option("--undo", is_flag=True, help="Remove what was added.")
@click.option("--max-cost", type=click.FloatRange(min=0), help="Stop at this many US dollars.")
@click.option("--max-docs", type=click.IntRange(min=0), help="Stop after this many documents.")
@click.option("--max-time", type=click.FloatRange(min=0), help="Stop after this many seconds.")
@click.option("--query", help="Only documents that match this query, as JSON.")
@click.option("--concurrency", type=click.IntRange(min=1), help="Calls to the model at a time [as configured].")
@click.option("--rpm", type=click.IntRange(min=1), help="Requests a minute to the model [as configured].")
@click.option("--tpm", type=click.IntRange(min=1), help="Tokens a minute to the model [as configured].")
@recorded_option
@common_options
def enrich(options: Options, index: str, dry_run: bool, undo: bool, recorded: Path | None, **limits: Any) -> int:
    """Add `enriched_terms` to the documents of an index. Goes on where an earlier run stopped.

    Example: sira-es enrich --index docs --max-cost 20
    """
    query = _query(limits["query"])
    if undo and dry_run:
        raise click.UsageError("--undo and --dry-run cannot be used together")
    if undo:
        return _undo(options, index, query)
    if dry_run:
        plan = run_async(_plan(options, index, query, recorded, limits))
        print_json(plan) if options.json else _show_plan(plan)
        return 0
    report = run_async(_enrich(options, index, query, recorded, limits))
    if options.json:
        print_json(report.to_json())
    else:
        show(report)
    if report.stopped:
        options.say(f"sira-es: stopped at the limit of {report.stopped}; the same command goes on")
        return 4
    if report.failed or report.stale:
        options.say(
            "sira-es: some documents were not enriched; 'sira-es status --failed' lists them, the next run tries again"
        )
        return 3
    return 0


def _query(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        query = orjson.loads(text)
    except orjson.JSONDecodeError:
        query = None
    if not isinstance(query, dict):
        raise InputError('--query must be a query as JSON, such as \'{"term": {"site": "docs"}}\'')
    return query


async def _enrich(
    options: Options, index: str, query: dict[str, Any] | None, recorded: Path | None, limits: dict[str, Any]
) -> EnrichReport:
    from sira_es.sira import AsyncSira

    async with AsyncSira(_settings(options, limits), document_answers=recorded) as sira:
        with progress_bar(options) as report:
            return await sira.enrich(
                index,
                limits=Limits(limits["max_cost"], limits["max_docs"], limits["max_time"]),
                query=query,
                concurrency=limits["concurrency"],
                on_progress=report,
            )


async def _plan(
    options: Options, index: str, query: dict[str, Any] | None, recorded: Path | None, limits: dict[str, Any]
) -> dict[str, Any]:
    from sira_es.sira import AsyncSira

    async with AsyncSira(_settings(options, limits), document_answers=recorded) as sira:
        return await sira.plan(index, query=query, concurrency=limits["concurrency"])


def _settings(options: Options, limits: dict[str, Any]) -> Any:
    return options.settings(**{"llm.documents.rpm": limits["rpm"], "llm.documents.tpm": limits["tpm"]})


def _show_plan(plan: dict[str, Any]) -> None:
    cost = "unknown price" if plan["cost"] is None else f"${plan['cost']:.2f}"
    click.echo(
        f"documents   {plan['documents']}: {plan['pending']} pending, {plan['stale']} stale, {plan['enriched']} enriched"
    )
    click.echo(f"to ask      {plan['calls']} calls, about {plan['tokens']} tokens, {cost}")
    click.echo(f"time        about {plan['seconds']:.0f} s at the configured limits")
    click.echo("nothing was written, no model was called")


def _undo(options: Options, index: str, query: dict[str, Any] | None) -> int:
    async def undo() -> int:
        from sira_es.sira import AsyncSira

        async with AsyncSira(options.settings()) as sira:
            return await sira.undo(index, query=query)

    removed = run_async(undo())
    if options.json:
        print_json({"index": index, "removed": removed})
    else:
        options.say(
            f"removed from {removed} documents of {index}; the mapping keeps two unused fields, as engines cannot drop fields"
        )
    return 0


class progress_bar:  # noqa: N801  used like a function, as a context manager
    """Progress for a person at a terminal, JSON lines for a program, nothing with -q."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._bar: Any = None

    def __enter__(self) -> Callable[[Progress], None]:
        if self._options.quiet:
            return lambda _: None
        if not sys.stderr.isatty():
            return _event
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("enriching"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
        )
        self._bar.__enter__()
        task = self._bar.add_task("", total=None)

        def show_progress(p: Progress) -> None:
            self._bar.update(task, total=max(p.total, p.done), completed=p.done, description=_line(p))

        return show_progress

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.__exit__(*error)


def _line(p: Progress) -> str:
    rate = p.done / p.seconds if p.seconds else 0.0
    left = f", {(p.total - p.done) / rate:.0f} s left" if rate and p.total > p.done else ""
    failed = sum(p.failed.values())
    return f"{rate:.1f}/s, ${p.cost:.4f}{left}{f', {failed} failed' if failed else ''}"


def _event(p: Progress) -> None:
    rate = p.done / p.seconds if p.seconds else 0.0
    event = {
        "done": p.done,
        "total": max(p.total, p.done),
        "failed": dict(p.failed),
        "stale": p.stale,
        "tokens": p.tokens,
        "cost": round(p.cost, 6),
        "per_second": round(rate, 2),
        "seconds_left": round((p.total - p.done) / rate) if rate and p.total > p.done else 0,
    }
    click.echo(orjson.dumps(event).decode(), err=True)
