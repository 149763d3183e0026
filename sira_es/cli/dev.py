"""`sira-es dev`: real nodes on this machine."""

from __future__ import annotations

import dataclasses

import click

from sira_es import devnode
from sira_es.cli.common import Options, output_options, print_json, table

__all__ = ["dev"]

_engine = click.option(
    "--engine",
    type=click.Choice(list(devnode.ENGINES)),
    help="os: OpenSearch, es: Elasticsearch; the digit is the major version.",
)


@click.group()
def dev() -> None:
    """Real nodes on this machine, for trying out and testing: no Docker, no cluster of your own.

    They listen on loopback only, without TLS and users. A JDK and Maven must be installed; distributions and data live
    in the user's cache folder, or in SIRA_ES_DEV_HOME.
    """


@dev.command()
@_engine
@click.option("--port", type=click.IntRange(0, 65435), help="HTTP port instead of the engine's own; 0: any free one.")
@output_options
def up(options: Options, engine: str | None, port: int | None) -> None:
    """Start a node, or find it running, and print its URL.

    OpenSearch 2 unless told otherwise. The first start of an engine fetches it with Maven.

    Example: sira-es dev up --engine es8
    """
    node = devnode.up(engine or "os2", port, options.say)
    if options.json:
        print_json({"engine": node.engine, "url": node.url, "version": node.version, "pid": node.pid})
    else:
        click.echo(node.url)


@dev.command()
@_engine
@click.option("--purge", is_flag=True, help="Delete the data, logs and settings as well.")
@output_options
def down(options: Options, engine: str | None, purge: bool) -> None:
    """End the nodes of one engine, or of all; their data stays.

    Example: sira-es dev down
    """
    ended = [
        node.instance
        for node in devnode.status()
        if engine in (None, node.engine) and devnode.down(node.engine, purge, instance=node.instance)
    ]
    if options.json:
        print_json({"ended": ended})
    else:
        options.say(f"{', '.join(ended)} ended" if ended else "nothing was running")


@dev.command()
@_engine
@output_options
def status(options: Options, engine: str | None) -> None:
    """Show what runs, and where.

    Example: sira-es dev status --json
    """
    nodes = [node for node in devnode.status() if engine in (None, node.engine)]
    if options.json:
        print_json([dataclasses.asdict(node) for node in nodes])
        return
    rows = [
        [
            node.instance,
            node.state,
            devnode.ENGINES[node.engine].family,
            node.version,
            node.url or "-",
            str(node.pid or "-"),
        ]
        for node in nodes
    ]
    table(rows, ["node", "state", "product", "version", "url", "pid"])
