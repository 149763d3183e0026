"""Choosing the numbers of the method on judgments, so that the figure which comes with them is held out.

Nested cross-validation. `_best` climbs: from the default, one number at a time, to the mean value of the queries that it
is shown. `_guarded` does so only where it pays on queries that `_best` was not shown: inside its own queries it climbs on
all folds but one, in turn, and the values on the folds left out must be significantly better than the default's (paired
t-test, p < .05); else the default stays. The figure reported is that of `_guarded` as a whole, on outer folds that it was
not shown. What it chooses from all queries is what is recommended.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sira_es.errors import InputError
from sira_es.evaluate.compare import SEED, Comparison, compare

__all__ = ["DEFAULT", "FOLDS", "GRID", "LEAST_QUERIES", "Choice", "Tuned", "check_enough", "tune"]

Choice = tuple[tuple[str, float | str], ...]
"""A value for every name of GRID, in its order."""
Values = Callable[[Choice], Awaitable[Mapping[str, float] | None]]
"""The value of each query under a choice; None where the choice cannot be searched with."""

GRID: Mapping[str, Sequence[float | str]] = {
    "budget": (1.2, 0.3, 0.6, 0.9, 1.6, 2.4),
    "max_terms": (16, 6, 10, 24),
    "max_df": (0.5, 0.1, 0.25),
    "min_margin": (0.0, 0.5, 1.0),
    "enriched_weight": (1.5, 0.5, 1.0, 2.0, 3.0),
    "mode": ("recall", "rerank", "rescore"),
}
"""What is tried; the first of each is the default."""
DEFAULT: Choice = tuple((name, values[0]) for name, values in GRID.items())
LEAST_QUERIES = 50
FOLDS = 5
_PASSES = 2
_SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was chosen, and what it is worth.

    `held_out` compares the whole procedure with the default, each query under what was chosen without it; `optimistic`
    is what `choice` gains on the very queries that it was chosen on. `folds` are the choices of the outer folds.
    """

    choice: Choice
    default_mean: float
    held_out_mean: float
    held_out: Comparison
    optimistic: Comparison
    folds: tuple[Choice, ...]
    queries: int
    tried: int

    @property
    def changed(self) -> dict[str, float | str]:
        """Where the choice differs from the default."""
        return {name: value for (name, value), (_, usual) in zip(self.choice, DEFAULT, strict=True) if value != usual}


def check_enough(grades: Mapping[str, Mapping[str, int]]) -> None:
    """Raise InputError where fewer than `LEAST_QUERIES` queries have a relevant document: the choice would be chance."""
    useful = sum(any(judged.values()) for judged in grades.values())
    if useful < LEAST_QUERIES:
        raise InputError(
            f"{useful} queries have a relevant document; below {LEAST_QUERIES} a better number is chance:"
            " judge more queries, or keep the default"
        )


async def tune(queries: Sequence[str], values: Values) -> Tuned:
    """Choose from GRID for these queries, given by id. Each choice is asked for once, for all queries."""
    memo: dict[Choice, Mapping[str, float] | None] = {}

    async def known(choice: Choice) -> Mapping[str, float] | None:
        if choice not in memo:
            memo[choice] = await values(choice)
        return memo[choice]

    usual = await _needed(DEFAULT, known)
    folds = _folds(queries, SEED)
    chosen = []
    held: dict[str, float] = {}
    for fold in folds:
        choice = await _guarded([q for other in folds if other is not fold for q in other], known)
        found = await _needed(choice, known)
        chosen.append(choice)
        held |= {q: found[q] for q in fold}
    final = await _guarded(queries, known)
    in_sample = await _needed(final, known)
    default = {q: usual[q] for q in queries}
    return Tuned(
        choice=final,
        default_mean=_mean(default.values()),
        held_out_mean=_mean(held.values()),
        held_out=compare(default, held),
        optimistic=compare(default, {q: in_sample[q] for q in queries}),
        folds=tuple(chosen),
        queries=len(queries),
        tried=len(memo),
    )


async def _guarded(queries: Sequence[str], values: Values) -> Choice:
    usual = await _needed(DEFAULT, values)
    folds = _folds(queries, SEED + 1)
    held: dict[str, float] = {}
    for fold in folds:
        found = await _needed(await _best([q for f in folds if f is not fold for q in f], values), values)
        held |= {q: found[q] for q in fold}
    outcome = compare({q: usual[q] for q in queries}, held)
    better = outcome.difference > 0 and outcome.p is not None and outcome.p < _SIGNIFICANT
    return await _best(queries, values) if better else DEFAULT


async def _best(queries: Sequence[str], values: Values) -> Choice:
    """Climb from the default, one number at a time; of equally good values the earlier in GRID stays."""
    best = DEFAULT
    reached = _mean_of(await values(best), queries)
    for _ in range(_PASSES):
        before = best
        for place, (name, candidates) in enumerate(GRID.items()):
            for candidate in candidates:
                choice = (*best[:place], (name, candidate), *best[place + 1 :])
                found = _mean_of(await values(choice), queries)
                if found > reached + 1e-9:
                    best, reached = choice, found
        if best == before:
            break
    return best


def _folds(queries: Sequence[str], seed: int) -> list[list[str]]:
    shuffled = sorted(queries)
    random.Random(seed).shuffle(shuffled)  # noqa: S311  folds are no secret
    return [shuffled[start::FOLDS] for start in range(FOLDS)]


async def _needed(choice: Choice, values: Values) -> Mapping[str, float]:
    found = await values(choice)
    if found is None:
        raise InputError("the default cannot be searched with; choose another --baseline")
    return found


def _mean_of(values: Mapping[str, float] | None, queries: Sequence[str]) -> float:
    return -math.inf if values is None else _mean(values[q] for q in queries)


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed)
