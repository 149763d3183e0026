"""`sira-es pipeline`: has the cluster itself drop terms from documents whose text changes."""

from __future__ import annotations

import click

from sira_es.cli.common import Options, common_options, print_json, run_async


@click.group()
def pipeline() -> None:
    """Install or remove the ingest pipeline that drops `enriched_terms` from a document when its text changes."""


@pipeline.command()
@click.option("--index", required=True, help="Index, alias or data stream.")
@common_options
def install(options: Options, index: str) -> None:
    """Set it as the final pipeline of an index; one that is there goes on running before it, unchanged. Run again, it upgrades.

    Example: sira-es pipeline install --index docs
    """
    finals = run_async(_change(options, index, install=True))
    if options.json:
        print_json({"index": index, "final_pipelines": finals})
        return
    for name, final in finals.items():
        options.say(f"{name}: index.final_pipeline is {final}")
    options.say(
        "bulk updates of single fields run no pipeline: 'sira-es enrich' finds those, at once with --follow; "
        "for indices made later put index.final_pipeline into their template"
    )


@pipeline.command()
@click.option("--index", required=True, help="Index, alias or data stream.")
@common_options
def remove(options: Options, index: str) -> None:
    """Take it off again: the index gets back the final pipeline that it had.

    Example: sira-es pipeline remove --index docs
    """
    finals = run_async(_change(options, index, install=False))
    if options.json:
        print_json({"index": index, "final_pipelines": finals})
        return
    for name, final in finals.items():
        options.say(f"{name}: index.final_pipeline is {final}")


async def _change(options: Options, index: str, *, install: bool) -> dict[str, str]:
    from sira_es.sira import AsyncSira

    async with AsyncSira(options.settings()) as sira:
        return await (sira.install_pipeline(index) if install else sira.remove_pipeline(index))
