"""What fails several times in a row is left alone, and tried once a pause."""

from __future__ import annotations

import pytest

from sira_es.expand.breaker import Breaker


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(failures=3, pause=10, longest=40, clock=clock)


def fail(breaker: Breaker, times: int) -> None:
    for _ in range(times):
        breaker.failed()


def test_it_opens_after_so_many_failures_in_a_row(breaker: Breaker) -> None:
    fail(breaker, 2)
    breaker.succeeded()
    fail(breaker, 2)
    assert breaker.allows()
    fail(breaker, 1)
    assert breaker.open
    assert not breaker.allows()
    assert breaker.seconds_left == 10


def test_after_a_pause_one_may_try_and_no_other(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now = 10
    assert [breaker.allows() for _ in range(3)] == [True, False, False]


def test_pauses_double_up_to_the_longest(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    pauses = []
    for _ in range(4):
        pauses.append(breaker.seconds_left)
        clock.now += breaker.seconds_left
        assert breaker.allows()
        breaker.failed()
    assert pauses == [10, 20, 40, 40]


def test_a_success_closes_it_and_forgets_the_pauses(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now = 10
    assert breaker.allows()
    breaker.succeeded()
    assert not breaker.open
    assert breaker.allows()
    fail(breaker, 3)
    assert breaker.seconds_left == 10


def test_a_trial_that_never_ends_does_not_block_the_next_one(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now = 10
    assert breaker.allows()
    clock.now = 30
    assert breaker.allows()
