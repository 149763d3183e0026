"""`sira-es demo`: a real node, a real collection, recorded answers of a large model, and what they change."""

from __future__ import annotations

from pathlib import Path

import click

from sira_es.cli.common import Options, print_json, run_async, url_options
from sira_es.cli.enrich import progress_bar
from sira_es.cli.eval import show, tell_problems
from sira_es.cli.search import headline
from sira_es.errors import UnsupportedError
from sira_es.evaluate import Evaluation, Search, read_documents, read_judgments, read_queries
from sira_es.evaluate.bench import Bench
from sira_es.evaluate.on_index import assess_index
from sira_es.evaluate.variants import ABLATIONS, BASELINE, EXPANDED
from sira_es.resources import data_file
from sira_es.settings import IndexSettings, Settings, load_settings
from sira_es.sira import AsyncSira, Sides

INDEX = "sira-es-demo"
MARK = "sira-es demo"
SHOWN = 3
_SIDES: tuple[tuple[str, Sides], ...] = (("before", "baseline"), ("after", "both"))


@click.command()
@url_options
def demo(options: Options) -> None:
    """Show the method at work on this machine: a support FAQ with 719 answers and 300 judged questions.

    Starts an OpenSearch node (a JDK and Maven are needed), or uses the cluster of --url. Touches no index but its own.

    Example: sira-es demo --url http://127.0.0.1:9200
    """
    url = options.url or _node(options)
    settings = _settings(url)
    evaluation = run_async(_demo(options, settings))
    if options.json:
        print_json(evaluation.to_json())
        return
    click.echo()
    show(evaluation)
    click.echo(
        f"""
Answers were given in batches by a large model that may know this public collection: your own figures are what counts.

On your own cluster:
  sira-es init --index YOUR_INDEX --url https://your-cluster:9200    # writes sira-es.yml; name your model there
  sira-es doctor --index YOUR_INDEX                                  # what must hold, and remedies
  sira-es enrich --index YOUR_INDEX --dry-run                        # documents, tokens and cost; nothing is written
  sira-es search "words of a user" --index YOUR_INDEX --baseline
The demo's index is {INDEX} on {url}; 'sira-es dev down' stops a node that was started here."""
    )


def _node(options: Options) -> str:
    from sira_es.devnode import up

    return up(on_progress=options.say).url


def _settings(url: str) -> Settings:
    settings = load_settings(data_file("examples", "sira-es.yml"), **{"cluster.url": url})
    index: IndexSettings = next(iter(settings.indices.values()))
    return settings.model_copy(update={"indices": {INDEX: index}, "state": settings.state / "demo"})


async def _demo(options: Options, settings: Settings) -> Evaluation:
    faq = data_file("examples", "stackfaq")
    async with AsyncSira(
        settings,
        query_answers=faq / "recorded" / "queries.jsonl.gz",
        document_answers=faq / "recorded" / "documents.jsonl.gz",
    ) as sira:
        await _load(options, sira, faq / "corpus.jsonl.gz")
        with progress_bar(options) as report:
            enriched = await sira.enrich(INDEX, on_progress=report)
        options.say(
            f"{enriched.enriched} of {enriched.documents} documents are enriched ({enriched.calls} calls to a model)"
        )
        options.say("merging the index, so that figures are those of its documents alone (up to half a minute)")
        await sira.merge(INDEX)
        bench = Bench(sira, INDEX)
        documents_only, queries_only = ABLATIONS[:2]
        evaluation = await assess_index(
            bench,
            read_queries(faq / "queries.jsonl.gz"),
            read_judgments(faq / "qrels.tsv"),
            (BASELINE, documents_only, queries_only, EXPANDED),
            more={"best_fields": _best_fields(sira)},
        )
        await tell_problems(options, bench)
        if not options.json:
            await _show_queries(sira, evaluation)
        return evaluation


async def _load(options: Options, sira: AsyncSira, corpus: Path) -> None:
    made_by = await sira.made_by(INDEX)
    if made_by not in {None, MARK}:
        raise UnsupportedError(
            f"index {INDEX} exists and was not made by the demo; delete or rename it, or use another cluster"
        )
    documents = read_documents(corpus)
    if made_by == MARK:
        if (await sira.status(INDEX)).documents == documents.count:
            return
        options.say(f"{INDEX} was left unfinished and is made again")
        await (await sira.cluster()).request("DELETE", f"/{INDEX}")
    options.say(f"indexing {documents.count} documents into {INDEX}")
    await sira.load(INDEX, documents, made_by=MARK)


def _best_fields(sira: AsyncSira) -> Search:
    """The other plain query, the weaker one on this collection."""

    async def search(query_id: str, text: str) -> list[tuple[str, float]]:
        body = {"query": {"multi_match": {"query": text, "fields": ["title", "text"], "type": "best_fields"}}}
        result = await sira.search(text, INDEX, size=100, sides="baseline", source=False, body=body)
        return [(hit.id, hit.score or 0.0) for hit in result.hits]

    return search


async def _show_queries(sira: AsyncSira, evaluation: Evaluation) -> None:
    """Three queries about different things among those that gain most, before and after."""
    seen: set[str] = set()
    shown = 0
    for change in evaluation.best("expanded", count=60):
        right = evaluation.grades[change.query_id]
        if seen & right.keys():
            continue
        seen |= right.keys()
        click.echo(f'\n"{change.text}"   nDCG@10 {change.before:.2f} -> {change.after:.2f}')
        for name, sides in _SIDES:
            result = await sira.search(change.text, INDEX, size=3, sides=sides, query_id=change.query_id)
            for place, hit in enumerate(result.hits, 1):
                click.echo(
                    f"  {name if place == 1 else '':7}{place}. {'*' if right.get(hit.id) else ' '} {headline(hit)}"
                )
        words = result.expansion.expansion.clauses if result.expansion else ()
        click.echo(f"         with {', '.join(f'{t.word} {t.boost:.2f}' for t in words[:10])}")
        shown += 1
        if shown == SHOWN:
            break
    click.echo("\n* judged right")
