"""`sira-es terms`: a person's word over the model's."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

import click

from sira_es.cli.common import Options, common_options, print_json, table
from sira_es.expand import TermStore, querqy_rules, solr_synonyms

_index = click.option("--index", required=True, help="Index, as the configuration names it.")
_remove = click.option("--remove", is_flag=True, help="Take it back.")
_words = click.argument("words", nargs=-1, required=True)


@click.group()
def terms() -> None:
    """Block, allow and pin words of an index. Running processes see a change with their next query.

    A word stands for itself in every phrase, a phrase for itself alone; case does not count. Documents that are enriched
    already keep their terms until 'sira-es enrich --rejudge'.
    """


@terms.command()
@_words
@_index
@_remove
@common_options
def block(options: Options, words: tuple[str, ...], index: str, remove: bool) -> None:
    """Never expand with these WORDS.

    Example: sira-es terms block casino "free spins" --index docs
    """
    _change(options, index, "block", words, remove)


@terms.command()
@_words
@_index
@_remove
@common_options
def allow(options: Options, words: tuple[str, ...], index: str, remove: bool) -> None:
    """Expand with these WORDS, be they common, weak, or in another script.

    Example: sira-es terms allow wlan --index docs
    """
    _change(options, index, "allow", words, remove)


@terms.command()
@_words
@_index
@click.option("--query", required=True, help="The query that the words are pinned to.")
@click.option(
    "--boost", type=float, default=0.5, show_default=True, help="Weight of each; the query's own words have 1."
)
@_remove
@common_options
def pin(options: Options, words: tuple[str, ...], index: str, query: str, boost: float, remove: bool) -> None:
    """Always expand one query with these WORDS, whatever the model says.

    Example: sira-es terms pin throttling fan --query "laptop hot" --boost 0.4 --index docs
    """
    _change(options, index, "pin", words, remove, query=query, boost=boost)


@terms.command(name="list")
@_index
@common_options
def list_(options: Options, index: str) -> None:
    """Show what is blocked, allowed and pinned.

    Example: sira-es terms list --index docs
    """
    rules = _store(options, index).rules(index)
    if options.json:
        print_json([{k: v for k, v in asdict(rule).items() if v not in {None, ""}} for rule in rules])
    else:
        rows = [[r.kind, r.word, r.query, "" if r.boost is None else f"{r.boost:g}"] for r in rules]
        table(rows, ["kind", "word", "query", "boost"])


@terms.command()
@_index
@click.option(
    "--format",
    "form",
    type=click.Choice(["solr", "querqy"]),
    default="solr",
    show_default=True,
    help="Solr synonyms (for synonym filters of Elasticsearch and OpenSearch, too), or common rules of Querqy.",
)
@common_options
def export(options: Options, index: str, form: str) -> None:
    """Print the pins as rules for other tools.

    Synonym rules hold no weights; use them in a synonym_graph filter at search time, and search with
    auto_generate_synonyms_phrase_query false, or the query's own words become a phrase.

    Example: sira-es terms export --index docs --format querqy > rules.txt
    """
    rules = _store(options, index).rules(index)
    click.echo(solr_synonyms(rules) if form == "solr" else querqy_rules(rules), nl=False)


def _store(options: Options, index: str) -> TermStore:
    settings = options.settings()
    settings.index(index)  # a name that the configuration does not know would never be read
    return TermStore(settings.state / "terms.sqlite")


def _change(
    options: Options,
    index: str,
    kind: Literal["block", "allow", "pin"],
    words: tuple[str, ...],
    remove: bool,
    *,
    query: str = "",
    boost: float | None = None,
) -> None:
    store = _store(options, index)
    if remove:
        options.say(f"{store.remove(index, kind, words, query=query)} taken back")
    else:
        store.add(index, kind, words, query=query, boost=boost)
