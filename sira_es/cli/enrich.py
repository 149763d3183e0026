"""`sira-es enrich`: adds search vocabulary to documents, or says what it would cost, or takes it away again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import orjson

from sira_es.cli.common import Limit, Options, common_options, dollars, print_json, recorded_option, run_async, say
from sira_es.cli.status import show
from sira_es.enrich.report import EnrichReport, Limits, Progress
from sira_es.errors import InputError, SiraError


@click.command()
@click.option("--index", required=True, help="Index, alias or data stream.")
@click.option("--dry-run", is_flag=True, help="Say what it would take; nothing is written, no model is called.")
@click.option(
    "--batch", is_flag=True, help="Ask in batches: answered within a day, at half the price with most providers."
)
@click.option("--follow", is_flag=True, help="Stay, and enrich what is new or changed; Ctrl-C ends it.")
@click.option("--rejudge", is_flag=True, help="Judge enriched documents again from stored answers; no model is called.")
@click.option("--undo", is_flag=True, help="Remove what was added.")
@click.option("--template", is_flag=True, help="Install a component template with the two fields, for new indices.")
@click.option("--max-cost", type=Limit(), help="Stop at this many US dollars.")
@click.option("--max-docs", type=click.IntRange(min=0), help="Stop after this many documents.")
@click.option("--max-time", type=Limit(), help="Stop after this many seconds.")
@click.option("--query", help="Only documents that match this query, as JSON.")
@click.option("--slice", "part", help="Only this part of the documents, such as 3/16: the third of sixteen.")
@click.option("--concurrency", type=click.IntRange(min=1), help="Calls to the model at a time [as configured].")
@click.option("--rpm", type=click.IntRange(min=1), help="Requests a minute to the model [as configured].")
@click.option("--tpm", type=click.IntRange(min=1), help="Tokens a minute to the model [as configured].")
@recorded_option
@common_options
def enrich(options: Options, index: str, recorded: Path | None, **given: Any) -> int:
    """Add `enriched_terms` to the documents of an index. Goes on where an earlier run stopped.

    Finds what is new, made by another model, prompt or chunk_tokens, or changed since; documents with fields of their
    own named `sira` or `enriched_terms` are left alone.

    Example: sira-es enrich --index docs --max-cost 20
    """
    ways = [way for way in ("dry_run", "follow", "rejudge", "undo", "template") if given[way]]
    if len(ways) > 1:
        raise click.UsageError(f"{' and '.join('--' + way.replace('_', '-') for way in ways)} cannot be used together")
    if given["batch"]:
        _refuse_batch(ways, {**given, "recorded": recorded})
    for way in ways:
        _refuse_unheeded(way, {**given, "recorded": recorded})
    query = _query(given["query"])
    if given["undo"]:
        return _undo(options, index, query)
    if given["template"]:
        name = run_async(_template(options, index))
        options.say(f"installed component template {name}; name it under composed_of in the index template of {index}")
        return 0
    if given["dry_run"]:
        plan = run_async(_plan(options, index, query, recorded, given))
        print_json(plan) if options.json else _show_plan(plan)
        return 0
    report = run_async(_enrich(options, index, query, recorded, given))
    if options.json:
        print_json(report.to_json())
    else:
        show(report)
    return _ended(options, report, rejudged=given["rejudge"])


_LIMITS = ("max_cost", "max_docs", "max_time")
_PACE = ("concurrency", "rpm", "tpm")
_UNHEEDED = {
    "dry_run": (*_LIMITS, "part"),
    "follow": (),
    "rejudge": (*_LIMITS, *_PACE),
    "undo": (*_LIMITS, *_PACE, "part", "recorded"),
    "template": (*_LIMITS, *_PACE, "part", "recorded", "query"),
}


def _refuse_unheeded(way: str, given: Mapping[str, Any]) -> None:
    """An option that does nothing would have its user believe in a limit that is not kept."""
    for name in _UNHEEDED[way]:
        if given[name] is not None:
            option = "slice" if name == "part" else name.replace("_", "-")
            raise click.UsageError(f"--{option} has no effect with --{way.replace('_', '-')}; leave it out")


def _refuse_batch(ways: Sequence[str], given: Mapping[str, Any]) -> None:
    refused = [f"--{way}" for way in ways if way != "dry_run"]
    refused += [f"--{name}" for name in ("recorded", *_PACE) if given[name] is not None]
    if refused:
        raise click.UsageError(f"--batch has no effect with {refused[0]}; leave one of them out")


def _ended(options: Options, report: EnrichReport, *, rejudged: bool) -> int:
    if rejudged and report.failed:
        options.say(f"sira-es: {report.reasons}: they keep the terms they have")
        return 3
    listed = f"{report.reasons}; 'sira-es status --failed' lists what failed, the next run tries again"
    if report.stopped:
        failed = f"; {listed}" if report.reasons else "; the same command goes on"
        options.say(f"sira-es: stopped at the limit of {report.stopped}{failed}")
        return 4
    if report.reasons:
        options.say(f"sira-es: {listed}")
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


def _part(text: str | None) -> tuple[int, int]:
    """`3/16` as (2, 16): parts are counted from 1 by people, from 0 by engines."""
    if text is None:
        return 0, 1
    which, _, of = text.partition("/")
    if not (which.isdecimal() and of.isdecimal() and 1 <= int(which) <= int(of) <= 1024):
        raise InputError(f"--slice {text} must be a part and their number, such as 3/16, from 1/16 to 16/16")
    return int(which) - 1, int(of)


async def _enrich(
    options: Options, index: str, query: dict[str, Any] | None, recorded: Path | None, given: Mapping[str, Any]
) -> EnrichReport:
    from sira_es.sira import AsyncSira

    part = _part(given["part"])
    if given["follow"] and part[1] > 1:
        raise InputError("--follow works on all documents; leave --slice out")
    limits = Limits(given["max_cost"], given["max_docs"], given["max_time"])

    def notice(line: str) -> None:
        options.say(f"sira-es: {line}")

    async with AsyncSira(_settings(options, given), document_answers=recorded) as sira:
        with progress_bar(options) as report:
            if given["rejudge"]:
                return await sira.rejudge(index, query=query, part=part, on_progress=report)
            if given["follow"]:
                return await sira.follow(
                    index, limits=limits, query=query, on_progress=report, on_trouble=_trouble, on_notice=notice
                )
            return await sira.enrich(
                index,
                limits=limits,
                query=query,
                part=part,
                batch=given["batch"],
                on_progress=report,
                on_notice=notice,
            )


def _trouble(error: SiraError) -> None:
    say(f"sira-es: {' '.join(str(error).split())}; trying again")


async def _template(options: Options, index: str) -> str:
    from sira_es.sira import AsyncSira

    async with AsyncSira(options.settings()) as sira:
        return await sira.install_template(index)


async def _plan(
    options: Options, index: str, query: dict[str, Any] | None, recorded: Path | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    from sira_es.sira import AsyncSira

    async with AsyncSira(_settings(options, given), document_answers=recorded) as sira:
        return await sira.plan(index, query=query, batch=given["batch"])


def _settings(options: Options, given: Mapping[str, Any]) -> Any:
    return options.settings(**{f"llm.documents.{name}": given[name] for name in ("rpm", "tpm", "concurrency")})


def _show_plan(plan: dict[str, Any]) -> None:
    cost = "unknown price" if plan["cost"] is None else f"${plan['cost']:.2f}"
    click.echo(
        f"documents   {plan['documents']}: {plan['pending']} pending, {plan['stale']} stale, {plan['enriched']} enriched"
    )
    click.echo(f"to ask      {plan['calls']} calls, about {plan['tokens']} tokens, {cost}")
    if plan["out"]:
        click.echo(f"out         {plan['out']} questions are out in batches; 'sira-es enrich --batch' collects them")
    if recorded := plan.get("recorded"):
        click.echo(f"recorded    {recorded['found']} answers found in the file, {recorded['missing']} missing")
    limits = (
        f"about {plan['seconds']:.0f} s at the configured limits" if plan["seconds"] is not None else "up to 24 hours"
    )
    click.echo(f"time        {limits}")
    growth = plan["growth"]
    share = "" if growth["share"] is None else f", {growth['share']:.0%} of the index"
    click.echo(f"growth      about {growth['bytes'] / 1e6:.1f} MB a copy{share}")
    for warning in plan["warnings"]:
        click.echo(f"warning     {warning}")
    click.echo("nothing was written, no model was called")


def _undo(options: Options, index: str, query: dict[str, Any] | None) -> int:
    async def undo() -> int:
        from sira_es.sira import AsyncSira

        async with AsyncSira(options.settings()) as sira:
            with progress_bar(options, "removing") as report:
                return await sira.undo(index, query=query, on_progress=report)

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

    def __init__(self, options: Options, what: str = "enriching") -> None:
        self._options = options
        self._what = what
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
            TextColumn(self._what),
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
    left = f", {p.seconds_left:.0f} s left" if p.seconds_left else ""
    failed = ", ".join(f"{n} {reason}" for reason, n in p.failed.items())
    spent = f", {dollars(p.cost, p.calls)}" if p.calls else ""
    return f"{p.rate:.1f}/s{spent}{left}{f', failed: {failed}' if failed else ''}"


def _event(p: Progress) -> None:
    event = {
        "done": p.done,
        "total": max(p.total, p.done),
        "enriched": p.enriched,
        "failed": dict(p.failed),
        "skipped": dict(p.skipped),
        "stale": p.stale,
        "held_back": list(p.held),
        "calls": p.calls,
        "tokens": p.tokens,
        "cost": round(p.cost, 6),
        "per_second": round(p.rate, 2),
        "seconds_left": round(p.seconds_left),
    }
    say(orjson.dumps(event).decode())
