"""`sira-es doctor`: each thing that must hold, ok, warning or problem, with its remedy."""

from __future__ import annotations

import click

from sira_es.cli.common import Options, common_options, print_json, run_async
from sira_es.cluster.checks import Check


@click.command()
@click.option("--index", help="Index, alias or data stream.")
@click.option("--live", is_flag=True, help="Also make one call to each configured model.")
@common_options
def doctor(options: Options, index: str | None, live: bool) -> int:
    """Check cluster, index and models. Exit code 1 where there is a problem.

    Example: sira-es doctor --index docs --live
    """
    checks = run_async(_doctor(options, index, live))
    if options.json:
        print_json([{"name": c.name, "status": c.status, "detail": c.detail, "remedy": c.remedy} for c in checks])
    else:
        for c in checks:
            click.echo(f"{c.status:8} {c.name:12} {c.detail}{f' -> {c.remedy}' if c.remedy else ''}")
    return int(any(c.status == "problem" for c in checks))


async def _doctor(options: Options, index: str | None, live: bool) -> list[Check]:
    from sira_es.sira import AsyncSira

    async with AsyncSira(options.settings()) as sira:
        return await sira.doctor(index, live=live)
