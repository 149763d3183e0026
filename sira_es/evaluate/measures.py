"""Figures of runs by ir-measures names: `nDCG@10`, `R@100`, `RR`, `P@5`, `Judged@10`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sira_es.errors import InputError

__all__ = ["DEFAULT_MEASURES", "JUDGED", "Grades", "Run", "depth_of", "parse_measures", "per_query"]

Run = Mapping[str, Sequence[str]]
"""Document ids by query id, the best first."""
Grades = Mapping[str, Mapping[str, int]]

JUDGED = "Judged@10"
DEFAULT_MEASURES = ("nDCG@10", "R@10", "R@100", JUDGED)
_LEAST_DEPTH = 100


def parse_measures(names: Iterable[str]) -> tuple[str, ...]:
    """Return canonical names (`NDCG@10` becomes `nDCG@10`) without repeats; `Judged@10` always comes along.

    Raises InputError on a name that ir-measures does not know or cannot compute from a ranking and grades alone.
    """
    import ir_measures

    found: dict[str, None] = {}
    for name in [*names, JUDGED]:
        try:
            measure = ir_measures.parse_measure(name)
            usable = _provider().supports(measure)
        except (NameError, ValueError, TypeError, KeyError, AssertionError):
            usable = False
        if not usable:
            raise InputError(f"measure {name!r} is not known; use names of ir-measures, such as nDCG@10 R@100 RR P@5")
        found[str(measure)] = None
    return tuple(found)


def depth_of(measures: Iterable[str]) -> int:
    """How many hits to ask for: the largest cutoff, at least 100. A measure without a cutoff sees these only."""
    import ir_measures

    return max([_LEAST_DEPTH, *(_cutoff(ir_measures.parse_measure(name)) for name in measures)])


def _cutoff(measure: Any) -> int:
    try:
        return int(measure["cutoff"])
    except (KeyError, TypeError, ValueError):
        return 0


def per_query(run: Run, grades: Grades, measures: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return measure -> query id -> value, for every query of `grades`, as ir-measures (trec_eval) computes them.

    A query without a hit counts 0, one without a relevant document too. A figure is the mean over all queries of
    `grades`. Ranks become strictly decreasing scores, since trec_eval orders ties by id.
    """
    import ir_measures

    scored = {query: {doc: float(-rank) for rank, doc in enumerate(docs, 1)} for query, docs in run.items() if docs}
    values = {name: dict.fromkeys(grades, 0.0) for name in measures}
    parsed = {ir_measures.parse_measure(name): name for name in measures}
    if scored:
        for metric in _provider().iter_calc(list(parsed), {q: dict(g) for q, g in grades.items()}, scored):
            if metric.query_id in grades:
                values[parsed[metric.measure]][metric.query_id] = float(metric.value)
    return values


def _provider() -> Any:
    """Return the implementations that run inside this process; the others start Perl, or need more than grades."""
    import ir_measures

    inside = (
        ir_measures.pytrec_eval,
        ir_measures.judged,
        ir_measures.msmarco,
        ir_measures.compat,
        ir_measures.accuracy,
    )
    return ir_measures.providers.FallbackProvider(inside)
