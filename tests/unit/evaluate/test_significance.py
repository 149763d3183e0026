"""Comparing two runs: tests on known data, the interval, wins and losses."""

from __future__ import annotations

import itertools

import pytest
from scipy import stats

from sira_es.evaluate import compare

# Student (1908), "The probable error of a mean": additional hours of sleep by two drugs in ten patients.
FIRST = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SECOND = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def by_query(values: list[float]) -> dict[str, float]:
    return {f"q{i}": value for i, value in enumerate(values)}


def test_the_paired_t_test_of_students_sleep_data() -> None:
    found = compare(by_query(FIRST), by_query(SECOND))
    assert found.difference == pytest.approx(1.58)
    assert found.p == pytest.approx(0.002833, abs=1e-6)
    assert found.ci == pytest.approx((0.7001142, 2.4598858), abs=1e-6)


def test_the_paired_t_test_agrees_with_scipy() -> None:
    expected = stats.ttest_rel(SECOND, FIRST)
    found = compare(by_query(FIRST), by_query(SECOND))
    assert found.p_t == pytest.approx(expected.pvalue)
    assert found.ci == pytest.approx(tuple(expected.confidence_interval(0.95)))


def test_the_randomization_test_comes_close_to_all_sign_changes() -> None:
    differences = [b - a for a, b in zip(FIRST, SECOND, strict=True)]
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=10)
    ]
    exact = sum(total >= abs(sum(differences)) - 1e-9 for total in sums) / len(sums)
    assert compare(by_query(FIRST), by_query(SECOND)).p_randomization == pytest.approx(exact, abs=0.002)


def test_the_randomization_test_is_the_same_every_time_and_can_be_the_one_reported() -> None:
    first, second = (compare(by_query(FIRST), by_query(SECOND), test="randomization") for _ in range(2))
    assert first == second
    assert first.to_json()["test"] == "randomization"
    assert first.to_json()["p"] == first.p_randomization != first.p_t


def test_p_of_the_randomization_test_is_never_zero() -> None:
    found = compare(by_query([0.0] * 200), by_query([0.5, 0.6] * 100))
    assert found.p_randomization == pytest.approx(1 / 10_001)


def test_wins_losses_ties_and_the_relative_gain_are_of_queries() -> None:
    found = compare(by_query([0.5, 0.5, 0.5, 0.5]), by_query([0.9, 0.5, 0.45, 0.3]))
    assert (found.better, found.worse, found.ties) == (1, 2, 1)
    assert found.relative == pytest.approx(0.075)


def test_worse_by_a_tenth_counts_only_losses_above_a_tenth() -> None:
    found = compare(by_query([0.5, 0.5, 0.5, 0.3]), by_query([0.4, 0.39, 0.9, 0.2]))
    assert found.worse_by_0_1 == 0.25


def test_rounding_is_neither_a_win_nor_a_loss() -> None:
    found = compare({"a": 0.3, "b": 0.3}, {"a": 0.1 + 0.2, "b": 0.3})
    assert (found.better, found.worse, found.ties) == (0, 0, 2)


@pytest.mark.parametrize("values", [[0.5], [0.5, 0.5, 0.5]])
def test_without_variance_there_is_nothing_to_test(values: list[float]) -> None:
    found = compare(by_query([0.25] * len(values)), by_query(values))
    assert (found.p, found.p_randomization, found.ci) == (None, None, None)
    assert found.relative == pytest.approx(1.0)


def test_no_relative_gain_over_a_baseline_of_zero() -> None:
    assert compare(by_query([0.0, 0.0]), by_query([0.5, 1.0])).relative is None
