"""`sira-es index`: a collection in JSON lines becomes a new index."""

from __future__ import annotations

from pathlib import Path

import click

from sira_es.cli.common import Options, common_options, print_json, run_async
from sira_es.evaluate.collections import Documents, read_documents


@click.command()
@click.option("--index", required=True, help="Name of the new index.")
@click.option(
    "--documents", required=True, type=click.Path(path_type=Path), help="JSON lines (.gz) with id, title, text."
)
@click.option("--analyzer", default="english", show_default=True, help="Analyzer of title and text.")
@click.option("--shards", type=click.IntRange(1, 1024), default=1, show_default=True, help="Primary shards.")
@common_options
def index(options: Options, index: str, documents: Path, analyzer: str, shards: int) -> int:
    """Load a collection into a new index, so that figures can be made from a bare file. An index that exists is not touched.

    Example: sira-es index --index faq --documents corpus.jsonl.gz
    """
    read = read_documents(documents)
    for finding in read.findings:
        options.say(f"sira-es: {finding}")
    loaded, failed = run_async(_index(options, index, read, analyzer, shards))
    if options.json:
        print_json({"index": index, "documents": loaded, "failed": failed})
    else:
        options.say(f"{loaded} documents in {index}")
    for reason, count in failed.items():
        options.say(f"sira-es: {count} documents were refused: {reason}")
    return 3 if failed else 0


async def _index(
    options: Options, name: str, documents: Documents, analyzer: str, shards: int
) -> tuple[int, dict[str, int]]:
    from sira_es.sira import AsyncSira

    async with AsyncSira(options.settings()) as sira:
        return await sira.load(name, documents, analyzer=analyzer, shards=shards)
