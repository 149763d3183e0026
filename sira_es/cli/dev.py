"""`sira-es dev`: real nodes on this machine."""

from __future__ import annotations

import dataclasses

import click

from sira_es import devnode
from sira_es.cli.common import print_json, say, table

__all__ = ["dev"]

_engine = click.option(
    "--engine",
    type=click.Choice(list(devnode.ENGINES)),
    help="os: OpenSearch, es: Elasticsearch; the digit is the major version.",
)
_json = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")


@click.group()
def dev() -> None:
    """Real nodes on this machine, for trying out and testing: no Docker, no cluster of your own.

    They listen on loopback only, without TLS and users. A JDK and Maven must be installed; distributions and data live
    in the user's cache folder, or in SIRA_ES_DEV_HOME.
    """


@dev.command()
@_engine
@click.option("--port", type=click.IntRange(0, 65435), help="HTTP port instead of the engine's own; 0: any free one.")
@_json
def up(engine: str | None, port: int | None, as_json: bool) -> None:
    r"""Start a node and print its URL, or print the URL of the one that runs. OpenSearch 2 unless told otherwise.

    \b
    Example: sira-es dev up --engine es8
    """
    node = devnode.up(engine or "os2", port, say)
    if as_json:
        print_json({"engine": node.engine, "url": node.url, "version": node.version, "pid": node.pid})
    else:
        click.echo(node.url)


@dev.command()
@_engine
@click.option("--purge", is_flag=True, help="Delete the data, logs and settings as well.")
def down(engine: str | None, purge: bool) -> None:
    r"""End the nodes of one engine, or of all; their data stays.

    \b
    Example: sira-es dev down
    """
    ended = 0
    for node in devnode.status():
        if engine in (None, node.engine):
            ran = devnode.down(node.engine, purge, instance=node.instance)
            ended += ran
            if ran:
                say(f"{node.instance} ended")
    if not ended:
        say("nothing was running")


@dev.command()
@_engine
@_json
def status(engine: str | None, as_json: bool) -> None:
    r"""Show what runs, and where.

    \b
    Example: sira-es dev status --json
    """
    nodes = [node for node in devnode.status() if engine in (None, node.engine)]
    if as_json:
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
