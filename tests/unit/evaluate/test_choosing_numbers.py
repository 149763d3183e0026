"""Tuning: what is chosen, what is held out, and that the default stays where nothing is clearly better."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from sira_es.errors import InputError
from sira_es.evaluate.tuning import DEFAULT, GRID, LEAST_QUERIES, Choice, check_enough, tune
from sira_es.settings import ExpansionSettings, SearchSettings

pytestmark = pytest.mark.anyio

QUERIES = [f"q{i}" for i in range(100)]


def worth(effect: Mapping[str, float], noise: float = 0.0, seed: int = 1):  # type: ignore[no-untyped-def]
    """Values that rise by `effect` (by name=value) over 0.5, each query with noise of its own under each choice."""
    asked: list[Choice] = []

    async def values(choice: Choice) -> dict[str, float]:
        asked.append(choice)
        mean = 0.5 + sum(effect.get(f"{name}={value}", 0.0) for name, value in choice)
        draw = random.Random(f"{seed}{choice}")
        return {q: mean + draw.gauss(0, noise) for q in QUERIES}

    return values, asked


def test_the_first_value_of_every_number_is_the_default_of_the_product() -> None:
    usual = dict(DEFAULT)
    settings = {**ExpansionSettings().model_dump(), **SearchSettings().model_dump()}
    assert {name: settings[name] for name in usual} == usual


async def test_what_is_clearly_better_is_chosen_and_its_figure_is_held_out() -> None:
    values, _ = worth({"budget=0.6": 0.05, "max_terms=10": 0.03}, noise=0.02)
    found = await tune(QUERIES, values)
    assert found.changed["budget"] == 0.6
    assert found.changed["max_terms"] == 10
    assert found.held_out.difference == pytest.approx(0.08, abs=0.02)
    assert found.held_out.p is not None
    assert found.held_out.p < 0.001
    assert len(found.folds) == 5


async def test_noise_alone_leaves_the_default() -> None:
    kept = 0
    for seed in range(10):
        values, _ = worth({}, noise=0.1, seed=seed)
        kept += (await tune(QUERIES, values)).choice == DEFAULT
    assert kept >= 8


async def test_the_figure_on_the_chosen_queries_is_told_apart_and_is_the_higher_one() -> None:
    values, _ = worth({"budget=0.6": 0.05}, noise=0.1)
    found = await tune(QUERIES, values)
    assert found.optimistic.difference > found.held_out.difference


async def test_every_choice_is_asked_for_once() -> None:
    values, asked = worth({"budget=0.6": 0.05}, noise=0.05)
    found = await tune(QUERIES, values)
    assert len(asked) == len(set(asked)) == found.tried


async def test_a_choice_that_cannot_be_searched_with_is_passed_over() -> None:
    values, _ = worth({"mode=rescore": 0.5, "mode=rerank": 0.1}, noise=0.01)

    async def without_rescore(choice: Choice) -> Mapping[str, float] | None:
        return None if dict(choice)["mode"] == "rescore" else await values(choice)

    assert (await tune(QUERIES, without_rescore)).changed["mode"] == "rerank"


async def test_the_same_judgments_give_the_same_choice() -> None:
    first, second = [await tune(QUERIES, worth({"budget=0.9": 0.02}, noise=0.05)[0]) for _ in range(2)]
    assert first == second


def test_too_few_judged_queries_are_refused() -> None:
    few = {f"q{i}": {"a": 1} for i in range(LEAST_QUERIES - 1)}
    check_enough({**few, "one more": {"a": 1}})
    with pytest.raises(InputError, match=f"below {LEAST_QUERIES}"):
        check_enough({**few, "nothing relevant": {"a": 0}})


def test_every_number_has_alternatives() -> None:
    assert all(len(set(values)) == len(values) > 1 for values in GRID.values())
