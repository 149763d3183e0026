"""An evaluation of a live index: runs side by side, the words behind the worst and best queries, the budget curve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sira_es.evaluate.bench import Bench
from sira_es.evaluate.collections import Queries
from sira_es.evaluate.compare import Test
from sira_es.evaluate.evaluation import Cause, Evaluation, Explained, QueryChange
from sira_es.evaluate.judgments import Judgments
from sira_es.evaluate.measures import DEFAULT_MEASURES, depth_of, per_query
from sira_es.evaluate.overlap import Overlap, overlap
from sira_es.evaluate.run import Search, evaluate, search_all, select
from sira_es.evaluate.variants import BASELINE, EXPANDED, Variant, another_budget
from sira_es.vocabulary import Expansion

__all__ = ["BUDGETS", "assess_index", "budget_curve", "compare_index", "explained"]

BUDGETS = (0.0, 0.3, 0.6, 0.9, 1.2, 1.6, 2.4, 4.8)
DOCUMENTS = "words of documents"


async def assess_index(
    bench: Bench,
    queries: Queries,
    judgments: Judgments,
    variants: Sequence[Variant] = (BASELINE, EXPANDED),
    *,
    measures: Sequence[str] = DEFAULT_MEASURES,
    test: Test = "paired t",
    more: Mapping[str, Search] | None = None,
) -> Evaluation:
    """Evaluate variants, and `more` runs, on the bench's index. Judged documents that the index lacks are noted."""
    grades = select(queries, judgments)[1]
    known = await bench.known({doc for judged in grades.values() for doc in judged})
    return await evaluate(
        queries,
        judgments,
        {**{v.name: bench.search(v) for v in variants}, **(more or {})},
        measures=measures,
        test=test,
        known_documents=known,
        settings=bench.settings,
    )


async def compare_index(
    bench: Bench, queries: Queries, variants: Sequence[Variant] = (BASELINE, EXPANDED)
) -> dict[str, Overlap]:
    """Compare the variants with the first of them over queries that nobody judged."""
    searches = {v.name: bench.search(v) for v in variants}
    rankings, _ = await search_all(queries.texts, searches, depth_of(()))
    first, *others = searches
    return {name: overlap(rankings[first], rankings[name]) for name in others}


async def budget_curve(bench: Bench, evaluation: Evaluation) -> list[tuple[float, float]]:
    """The first measure at several expansion budgets, the configured one among them: (budget, mean), by budget."""
    budgets = sorted({*BUDGETS, bench.rules.budget})
    variants = {f"{budget:g}": bench.search(another_budget(budget)) for budget in budgets}
    rankings, _ = await search_all(evaluation.queries, variants, depth_of(evaluation.measures))
    measure = evaluation.measures[0]
    curve = []
    for budget in budgets:
        values = per_query(rankings[f"{budget:g}"], evaluation.grades, [measure])[measure]
        curve.append((budget, math.fsum(values.values()) / len(values)))
    return curve


async def explained(bench: Bench, evaluation: Evaluation, changes: Sequence[QueryChange]) -> list[Explained]:
    """For each query that gained or lost in run `expanded`, the words that did it: each is left out in turn.

    One search a word. Only causes that have the sign of the change are told, those of the whole change or more first.
    """
    return [Explained(change, await _causes(bench, evaluation, change)) for change in changes]


async def _causes(bench: Bench, evaluation: Evaluation, change: QueryChange) -> tuple[Cause, ...]:
    expansion = await bench.expansion(EXPANDED, change.query_id, change.text)
    without: dict[str, Search] = {
        term.word: _searching(bench, EXPANDED, _without(expansion, term.tokens)) for term in expansion.clauses
    }
    without[DOCUMENTS] = bench.search(replace(EXPANDED, documents=False))
    text = {change.query_id: change.text}
    rankings, _ = await search_all(text, without, depth_of(evaluation.measures))
    grades = {change.query_id: evaluation.grades[change.query_id]}
    measure = evaluation.measures[0]
    causes = []
    for word, run in rankings.items():
        effect = change.after - per_query(run, grades, [measure])[measure][change.query_id]
        if effect * change.difference > 1e-9:
            causes.append(Cause(word, effect))
    return tuple(sorted(causes, key=lambda cause: -abs(cause.change)))


def _without(expansion: Expansion, tokens: tuple[str, ...]) -> Expansion:
    return replace(expansion, terms=tuple(t for t in expansion.terms if t.tokens != tokens))


def _searching(bench: Bench, variant: Variant, expansion: Expansion) -> Search:
    async def search(query_id: str, text: str) -> list[tuple[str, float]]:
        return await bench.rank(await bench.request(variant, query_id, text, expansion=expansion))

    return search
