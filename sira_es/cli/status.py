"""`sira-es status`: how much of an index is enriched, and what it cost."""

from __future__ import annotations

import click

from sira_es.cli.common import Options, common_options, print_json, run_async
from sira_es.enrich.job import EnrichReport


@click.command()
@click.option("--index", required=True, help="Index, alias or data stream.")
@click.option("--failed", is_flag=True, help="List the failed documents, one a line: index, id, reason.")
@common_options
def status(options: Options, index: str, failed: bool) -> None:
    """Say how many documents are enriched, pending, stale or failed, and what was spent.

    Example: sira-es status --index docs
    """
    report, failures = run_async(_status(options, index))
    if options.json:
        print_json({**report.to_json(), **({"failures": [list(f) for f in failures]} if failed else {})})
        return
    if failed:
        for line in failures:
            click.echo("\t".join(line))
        return
    show(report)


async def _status(options: Options, index: str) -> tuple[EnrichReport, list[tuple[str, str, str]]]:
    from sira_es.sira import AsyncSira

    async with AsyncSira(options.settings()) as sira:
        return await sira.status(index), await sira.failures(index)


def show(report: EnrichReport) -> None:
    """Print a report for people."""
    failed = sum(report.failed.values())
    reasons = ", ".join(f"{n} {reason}" for reason, n in report.failed.items())
    click.echo(f"documents  {report.documents}")
    click.echo(f"enriched   {report.enriched}  ({report.terms_per_document:.1f} terms a document)")
    click.echo(f"pending    {report.pending}")
    click.echo(f"stale      {report.stale}")
    click.echo(f"failed     {failed}{f'  ({reasons})' if reasons else ''}")
    click.echo(f"spent      {report.calls} calls, {report.tokens} tokens, ${report.cost:.4f}, {report.seconds:.0f} s")
