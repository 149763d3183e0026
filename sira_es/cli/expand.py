"""`sira-es expand`: every proposed word with its statistics, verdict and boost."""

from __future__ import annotations

import math
from pathlib import Path

import click

from sira_es.cli.common import Options, common_options, print_json, recorded_option, run_async, table
from sira_es.expand import Expanded


@click.command()
@click.argument("text")
@click.option("--index", required=True, help="Index, alias or data stream.")
@click.option("--exact", is_flag=True, help="Count documents instead of reading term vectors.")
@recorded_option
@common_options
def expand(options: Options, text: str, index: str, exact: bool, recorded: Path | None) -> int:
    """Show every word that the model proposes for TEXT, and what the index says of it.

    A query that is not to be expanded (an identifier, quoted text, operators) is told with its reason.

    Example: sira-es expand "why does my laptop overheat" --index docs
    """
    expanded = run_async(_expand(options, text, index, exact, recorded))
    if options.json:
        print_json(expanded.to_json())
    else:
        show(expanded)
    if expanded.why_not:
        options.say(f"sira-es: {expanded.why_not}")
    return int(bool(expanded.problem))


async def _expand(options: Options, text: str, index: str, exact: bool, recorded: Path | None) -> Expanded:
    from sira_es.sira import AsyncSira

    async with AsyncSira(options.settings(), query_answers=recorded) as sira:
        return await sira.expand(text, index, exact=exact, deadline=math.inf)


def show(expanded: Expanded) -> None:
    """Print an expansion as a table."""
    rows = [
        [
            t.word,
            f"{t.confidence:.2f}",
            "?" if t.df is None else f"{'' if t.exact else '~'}{t.df}",
            "" if t.margin is None else f"{t.margin:.2f}",
            t.verdict.value + (" (lifted)" if t.lifted else ""),
            f"{t.boost:.4f}" if t.boost else "",
            ", ".join(t.phrases),
        ]
        for t in expanded.terms
    ]
    table(rows, ["word", "p", "df", "margin", "verdict", "boost", "from"])
    for phrase in expanded.expansion.phrases:
        if phrase.reason:
            click.echo(f"left out: {phrase.phrase!r}: {phrase.verdict}, {phrase.reason}")
