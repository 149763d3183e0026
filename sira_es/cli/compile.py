"""`sira-es compile`: the one request for a text."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import click

from sira_es.cli.common import Options, common_options, print_json, recorded_option, run_async
from sira_es.dsl.compile import Mode
from sira_es.expand import Expanded


@click.command(name="compile")
@click.argument("text")
@click.option("--index", required=True, help="Index, alias or data stream.")
@click.option(
    "--mode", type=click.Choice(["recall", "rerank", "rescore"]), help="Shape of the request [as configured]."
)
@recorded_option
@common_options
def compile_(options: Options, text: str, index: str, mode: str | None, recorded: Path | None) -> None:
    """Print the one request for TEXT, as JSON that curl can send.

    Example: sira-es compile "vpn drops" --index docs | curl -s -H content-type:application/json -d @- $URL/docs/_search
    """
    request, expanded = run_async(_compile(options, text, index, cast("Mode | None", mode), recorded))
    if expanded is not None and expanded.why_not:
        options.say(f"sira-es: {expanded.why_not}")
    print_json(request)


async def _compile(
    options: Options, text: str, index: str, mode: Mode | None, recorded: Path | None
) -> tuple[dict[str, Any], Expanded | None]:
    from sira_es.sira import AsyncSira

    async with AsyncSira(options.settings(), query_answers=recorded) as sira:
        return await sira.compile(text, index, mode=mode, deadline=math.inf)
