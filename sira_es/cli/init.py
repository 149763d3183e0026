"""`sira-es init`: looks at an index and writes a configuration for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sira_es.cli.common import Options, common_options, flow, print_json, run_async
from sira_es.errors import ConfigurationError
from sira_es.settings import DEFAULT_FILE

MOST_NAMED = 20


@click.command()
@click.option("--index", required=True, help="Index, alias or data stream.")
@click.option(
    "--output", type=click.Path(path_type=Path), default=DEFAULT_FILE, show_default=True, help="File to write."
)
@click.option("--describe", is_flag=True, help="Have the configured model draft the description from a sample.")
@common_options
def init(options: Options, index: str, output: Path, describe: bool) -> None:
    """Look at the mapping and a sample of an index and write sira-es.yml. A file that exists is not overwritten.

    Example: sira-es init --index docs --url https://es.example:9200
    """
    if output.exists():
        raise ConfigurationError(f"{output} exists; move it away, or name another file with --output")
    found = run_async(_look(options, index, describe))
    if options.json:
        print_json(found)
    text = render(found)
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigurationError(f"cannot write {output}: {error.strerror}; choose another --output") from None
    options.say(
        f"wrote {output}: text fields {', '.join(found['text_fields'])}; look it over, name a model, then 'sira-es doctor --index {index}'"
    )


async def _look(options: Options, index: str, describe: bool) -> dict[str, Any]:
    from sira_es.sira import AsyncSira

    async with AsyncSira(options.settings()) as sira:
        return await sira.look_at(index, describe=describe)


def render(found: dict[str, Any]) -> str:
    """The configuration file for what was found."""
    read = f"\n    read_fields: {flow(found['read_fields'])}" if found["read_fields"] else ""
    analyzers = ", ".join(f"{name}: {analyzer}" for name, analyzer in found["analyzers"].items())
    left = found["left_out"]
    more = f" and {len(left) - MOST_NAMED} more" if len(left) > MOST_NAMED else ""
    left_out = (
        f"\n    # text fields left out, as they hold fewer words: {', '.join(left[:MOST_NAMED])}{more}" if left else ""
    )
    return f"""cluster:
  url: {flow(found["url"])}
  # api_key: ${{ES_API_KEY}}      # or basic_auth, bearer; ca_certs for a private CA

# llm:                            # any name that litellm knows; api_base for a local or company model
#   documents: {{model: openai/gpt-4.1-mini, rpm: 500}}
#   queries: {{model: openai/gpt-4.1-mini, deadline: 2s}}

indices:
  {flow(found["index"])}:
    text_fields: {flow(found["text_fields"])}       # weights as in title^2; the last is the main field ({analyzers}){left_out}{read}
    # for the prompts, one line: what these documents are about, and who searches them
    description: {flow(found["description"])}
    language: {flow(found["language"])}
"""
