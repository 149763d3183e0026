"""`sira-es search`: hits, with the plain search beside them and each term's contribution on request."""

from __future__ import annotations

import math
from itertools import islice
from pathlib import Path
from typing import Any, cast

import click

from sira_es.cli.common import Options, common_options, print_json, recorded_option, run_async
from sira_es.cluster.target import ENRICHED, SIRA
from sira_es.dsl.compile import Mode
from sira_es.expand import Contribution, WhyNot
from sira_es.sira import AsyncSira, Hit, SearchResult

LINE = 100
Parts = dict[tuple[str, str], list[Contribution]]


@click.command()
@click.argument("text")
@click.option("--index", required=True, help="Index, alias or data stream.")
@click.option(
    "--mode", type=click.Choice(["recall", "rerank", "rescore"]), help="Shape of the request [as configured]."
)
@click.option("--size", type=click.IntRange(0, 10_000), default=10, show_default=True, help="How many hits.")
@click.option("--baseline", is_flag=True, help="Show the plain search beside it.")
@click.option("--explain", is_flag=True, help="Show what each term adds to a hit's score.")
@click.option("--why-not", "missed", metavar="ID", help="Show what keeps this document from the top.")
@recorded_option
@common_options
def search(
    options: Options,
    text: str,
    index: str,
    mode: str | None,
    size: int,
    baseline: bool,
    explain: bool,
    missed: str | None,
    recorded: Path | None,
) -> None:
    """Search for TEXT.

    Example: sira-es search "why does my laptop overheat" --index docs --baseline
    """
    result, plain, parts, why = run_async(
        _search(options, text, index, cast("Mode | None", mode), size, baseline, explain, missed, recorded)
    )
    if result.expansion is not None and result.expansion.why_not:
        options.say(f"sira-es: {result.expansion.why_not}")
    if options.json:
        document = to_json(result, parts)
        if why is not None:
            document["why_not"] = why.to_json()
        print_json({**document, "baseline": to_json(plain, {})} if plain is not None else document)
        return
    if plain is not None:
        _show("plain", plain, {})
    _show("expanded" if plain is not None else "", result, parts)
    if why is not None:
        _show_why_not(why)


async def _search(
    options: Options,
    text: str,
    index: str,
    mode: Mode | None,
    size: int,
    baseline: bool,
    explain: bool,
    missed: str | None,
    recorded: Path | None,
) -> tuple[SearchResult, SearchResult | None, Parts, WhyNot | None]:
    async with AsyncSira(options.settings(), query_answers=recorded) as sira:
        result = await sira.search(text, index, mode=mode, size=size, deadline=math.inf)
        plain = await sira.search(text, index, size=size, sides="baseline") if baseline else None
        parts = await sira.contributions(index, result) if explain else {}
        why = await sira.why_not(index, result, missed) if missed is not None else None
        return result, plain, parts, why


def to_json(result: SearchResult, parts: Parts) -> dict[str, Any]:
    """The document that `search --json` prints."""
    hits = [
        {
            "_id": h.id,
            "_index": h.index,
            "_score": h.score,
            "_source": h.source,
            **({"terms": parts[h.index, h.id]} if (h.index, h.id) in parts else {}),
        }
        for h in result.hits
    ]
    expansion = result.expansion.to_json() if result.expansion else None
    return {"total": result.total, "took": result.took, "hits": hits, "expansion": expansion}


def _show(title: str, result: SearchResult, parts: Parts) -> None:
    if title:
        click.echo(f"{title}:")
    for place, hit in enumerate(result.hits, 1):
        click.echo(f"{place:3d}. {hit.score if hit.score is not None else 0:8.3f}  {hit.id}  {headline(hit)}")
        for part in parts.get((hit.index, hit.id), []):
            click.echo(f"                 {part['score']:+8.3f}  {part['part']}")
    if result.expansion is not None:
        words = [f"{t.word} {t.boost:.2f}" for t in result.expansion.expansion.clauses]
        click.echo(f"     with: {', '.join(words) or 'no further words'}")
    click.echo(f"     {result.total} documents match")


def _show_why_not(why: WhyNot) -> None:
    click.echo(f"{why.id}: {why.reason}")
    for part, score in why.parts:
        click.echo(f"     {'-' if score is None else f'{score:+.3f}':>10}  {part}")


def headline(hit: Hit) -> str:
    """The first texts of a hit, short; ours left out."""
    texts = (v for k, v in hit.source.items() if isinstance(v, str) and v.strip() and k not in {ENRICHED, SIRA})
    line = " | ".join(" ".join(text.split()) for text in islice(texts, 2))
    return line if len(line) <= LINE else line[: LINE - 3] + "..."
