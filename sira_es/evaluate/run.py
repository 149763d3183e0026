"""The loop over queries: every run is asked every judged query, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from sira_es.errors import InputError
from sira_es.evaluate.collections import Queries
from sira_es.evaluate.compare import Test
from sira_es.evaluate.evaluation import Evaluation, assess
from sira_es.evaluate.findings import Finding, Tally
from sira_es.evaluate.judgments import Judgments
from sira_es.evaluate.measures import DEFAULT_MEASURES, Grades, depth_of, parse_measures

__all__ = ["Search", "evaluate", "search_all", "select"]

Search = Callable[[str, str], Awaitable[Sequence[tuple[str, float]]]]
"""`search(query_id, text)` returns (document id, score), the best first, possibly fewer than asked for."""

CONCURRENCY = 8


def select(
    queries: Queries, judgments: Judgments, *, known_documents: Collection[str] | None = None
) -> tuple[dict[str, str], Grades, tuple[Finding, ...]]:
    """Return the queries that are both in the file and judged, their grades, and what did not match.

    Left out, counted and named: queries without a judgment, judgments of unknown queries. Kept, counted and named:
    queries without a relevant document (0 in every run, as in trec_eval), and, where `known_documents` is given, judged
    documents that are not among them (a relevant one still counts in recall and in the ideal ranking).

    Raises InputError where no query is judged.
    """
    of_queries, of_judgments = Tally(str(queries.path)), Tally(str(judgments.path))
    texts: dict[str, str] = {}
    for query, text in queries.texts.items():
        if query in judgments.grades:
            texts[query] = text
        else:
            of_queries.note("queries without a judgment, left out", repr(query))
    if not texts:
        first, judged = next(iter(queries.texts)), next(iter(judgments.grades))
        raise InputError(
            f"no query of {queries.path} is judged in {judgments.path}; make the ids match"
            f" (first: {first!r} and {judged!r})"
        )
    for query, of_query in judgments.grades.items():
        if query not in texts:
            for doc in of_query:
                of_judgments.note("judgments of unknown queries, left out", f"query {query!r}, document {doc!r}")
    grades = {query: judgments.grades[query] for query in texts}
    missing: set[str] = set()
    for query, of_query in grades.items():
        if not any(of_query.values()):
            of_judgments.note("queries without a relevant document, 0 in every run", repr(query))
        if known_documents is not None:
            missing.update(doc for doc in of_query if doc not in known_documents)
    for doc in sorted(missing):
        of_judgments.note("judged documents that the index lacks, counted as not found", repr(doc))
    findings = (*queries.findings, *judgments.findings, *of_queries.findings, *of_judgments.findings)
    return texts, grades, findings


async def evaluate(
    queries: Queries,
    judgments: Judgments,
    searches: Mapping[str, Search],
    *,
    baseline: str = "baseline",
    measures: Sequence[str] = DEFAULT_MEASURES,
    test: Test = "paired t",
    known_documents: Collection[str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Ask every judged query of every run (at most 8 searches at a time) and compute the figures.

    A search that fails ends the evaluation with its error: figures over what is left would be other figures.
    """
    names = parse_measures(measures)
    texts, grades, findings = select(queries, judgments, known_documents=known_documents)
    depth = depth_of(names)
    rankings, noted = await search_all(texts, searches, depth)
    return assess(
        texts,
        grades,
        rankings,
        baseline=baseline,
        measures=names,
        test=test,
        settings={"depth": depth, **(settings or {})},
        findings=(*findings, *noted),
    )


async def search_all(
    texts: Mapping[str, str], searches: Mapping[str, Search], depth: int
) -> tuple[dict[str, dict[str, Sequence[str]]], tuple[Finding, ...]]:
    """Ask every query of every run, at most 8 searches at a time; return the rankings by run, cut at `depth`.

    Raises what a search raises, the first of it.
    """
    tallies = {name: Tally(f"run {name}") for name in searches}
    rankings: dict[str, dict[str, Sequence[str]]] = {name: dict.fromkeys(texts, ()) for name in searches}
    jobs = iter([(name, query) for query in texts for name in searches])

    async def work(jobs: Iterator[tuple[str, str]]) -> None:
        for name, query in jobs:
            hits = await searches[name](query, texts[query])
            rankings[name][query] = _ranking(query, hits, depth, tallies[name])

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(CONCURRENCY):
                group.create_task(work(jobs))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return rankings, tuple(finding for tally in tallies.values() for finding in tally.findings)


def _ranking(query: str, hits: Sequence[tuple[str, float]], depth: int, tally: Tally) -> list[str]:
    """Return the ids of the hits in their order, each once: a target of several indices may hold an id twice."""
    found: dict[str, None] = {}
    for doc, _ in hits:
        if doc in found:
            tally.note("hits whose id stood higher up already, left out", f"query {query!r}, document {doc!r}")
        found[doc] = None
    return list(found)[:depth]
