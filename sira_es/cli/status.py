"""`sira-es status`: how much of an index is enriched, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping

import click

from sira_es.cli.common import Options, common_options, dollars, print_json, run_async
from sira_es.enrich.report import EnrichReport


@click.command()
@click.option("--index", required=True, help="Index, alias or data stream.")
@click.option("--failed", is_flag=True, help="List the failed documents, one a line: index, id, reason.")
@click.option("--noted", is_flag=True, help="List what was skipped, read in part, or gives orders to models, and why.")
@common_options
def status(options: Options, index: str, failed: bool, noted: bool) -> None:
    """Say how many documents are enriched, pending, stale or failed, and what was spent.

    Stale are those made by another model, prompt or chunk_tokens; documents whose text changed are found by the next run.

    Example: sira-es status --index docs
    """
    report, failures, notes = run_async(_status(options, index))
    if options.json:
        listed = {"failures": failures} if failed else {}
        print_json({**report.to_json(), **listed, **({"notes": notes} if noted else {})})
    elif failed or noted:
        for line in (failures if failed else []) + (notes if noted else []):
            click.echo("\t".join(line))
    else:
        show(report)


Documents = list[tuple[str, str, str]]


async def _status(options: Options, index: str) -> tuple[EnrichReport, Documents, Documents]:
    from sira_es.sira import AsyncSira

    async with AsyncSira(options.settings()) as sira:
        return await sira.status(index), await sira.failures(index), await sira.noted(index)


def show(report: EnrichReport) -> None:
    """Print a report for people."""
    click.echo(f"documents  {report.documents}")
    terms = "-" if report.terms_per_document is None else f"{report.terms_per_document:.1f}"
    click.echo(f"enriched   {report.enriched}  ({terms} terms a document)")
    click.echo(f"pending    {report.pending}")
    click.echo(f"stale      {report.stale}")
    click.echo(f"failed     {_counted(report.failed)}")
    if report.without_text:
        click.echo(f"no text    {report.without_text}")
    for name, counts in (("skipped", report.skipped), ("noted", report.noted)):
        if counts:
            click.echo(f"{name:<10} {_counted(counts)}")
    if report.held:
        words = ", ".join(f"{word} ({share:.0%})" for word, share in report.held.items())
        click.echo(f"held back  {words}: in the terms of too many documents; 'terms allow' lets a word through")
    click.echo(
        f"spent      {report.calls} calls, {report.tokens} tokens, {dollars(report.cost, report.calls)}, {report.seconds:.0f} s"
    )

    impact = report.impact
    if impact.bytes is not None:
        before = "" if impact.bytes_before is None else f", {impact.bytes_before / 1e6:.1f} MB before"
        click.echo(f"index      {impact.bytes / 1e6:.1f} MB a copy{before}")
    if impact.plain is not None and impact.enriched is not None:
        click.echo(
            f"searches   95 % within {1000 * impact.enriched:.0f} ms, {1000 * impact.plain:.0f} ms without the terms"
        )


def _counted(counts: Mapping[str, int]) -> str:
    reasons = ", ".join(f"{n} {reason}" for reason, n in counts.items())
    return f"{sum(counts.values())}{f'  ({reasons})' if reasons else ''}"
