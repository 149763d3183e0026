"""Tuning on a live index: the value of every query under a choice, from stored answers, an equal request sent once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast

from sira_es.dsl.compile import Mode
from sira_es.errors import UnsupportedError
from sira_es.evaluate.bench import Bench
from sira_es.evaluate.collections import Queries
from sira_es.evaluate.findings import Finding
from sira_es.evaluate.judgments import Judgments
from sira_es.evaluate.measures import depth_of, parse_measures, per_query
from sira_es.evaluate.run import search_all, select
from sira_es.evaluate.tuning import Choice, Tuned, check_enough, tune
from sira_es.evaluate.variants import Variant

__all__ = ["configuration_of", "tune_index", "variant_of"]

_RULES = ("budget", "max_terms", "max_df", "min_margin")
_NAMES = ("budget", "knee", "lift", "max_terms", "min_margin", "max_df")


def variant_of(choice: Choice) -> Variant:
    """The run of a choice."""
    values: dict[str, Any] = dict(choice)
    return Variant(
        "tuned",
        rules=MappingProxyType({name: values[name] for name in _RULES}),
        mode=cast("Mode", values["mode"]),
        enriched_weight=values["enriched_weight"],
    )


async def tune_index(
    bench: Bench,
    queries: Queries,
    judgments: Judgments,
    *,
    measure: str = "nDCG@10",
    progress: Callable[[int], None] | None = None,
) -> tuple[Tuned, tuple[Finding, ...]]:
    """Choose the numbers of the method for the bench's index; `progress` is told how many choices were measured.

    Raises InputError for too few judged queries.
    """
    name = parse_measures([measure])[0]
    texts, grades, findings = select(queries, judgments)
    check_enough(grades)
    done = 0

    async def values(choice: Choice) -> Mapping[str, float] | None:
        nonlocal done
        try:
            rankings, _ = await search_all(texts, {"tuned": bench.search(variant_of(choice))}, depth_of([name]))
        except UnsupportedError:
            return None
        done += 1
        if progress is not None:
            progress(done)
        return per_query(rankings["tuned"], grades, [name])[name]

    return await tune(list(texts), values), findings


def configuration_of(bench: Bench, choice: Choice) -> dict[str, dict[str, Any]]:
    """The parts of an index's configuration that stand for a choice; what is not tuned stays as configured."""
    values: dict[str, Any] = dict(choice)
    configured = bench.settings
    expansion = {name: values.get(name, configured[name]) for name in _NAMES}
    return {"expansion": expansion, "search": {"mode": values["mode"], "enriched_weight": values["enriched_weight"]}}
