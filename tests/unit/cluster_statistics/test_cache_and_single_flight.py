"""Cached values age and are bounded; equal calls share one run."""

import asyncio

import pytest

from sira_es.cluster.cache import Cache, SingleFlight

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_a_value_is_kept_for_its_time_and_no_longer() -> None:
    now = [0.0]
    cache: Cache[int] = Cache(10, 60.0, lambda: now[0])
    cache.put("a", 1)
    now[0] = 59.9
    assert cache.get("a") == 1
    now[0] = 60.0
    assert cache.get("a") is None


def test_the_least_recently_used_goes_first() -> None:
    cache: Cache[int] = Cache(2, 60.0)
    cache.put("a", 1)
    cache.put("b", 2)
    cache.get("a")
    cache.put("c", 3)
    assert [cache.get(k) for k in "abc"] == [1, None, 3]
    assert len(cache) == 2


async def test_a_hundred_equal_calls_are_one_run() -> None:
    flight, runs = SingleFlight(), []

    async def call() -> int:
        runs.append(1)
        await asyncio.sleep(0.01)
        return len(runs)

    assert await asyncio.gather(*(flight.run("same", call) for _ in range(100))) == [1] * 100
    assert await flight.run("same", call) == 2


async def test_different_calls_are_their_own_runs() -> None:
    flight = SingleFlight()

    async def call(value: int) -> int:
        await asyncio.sleep(0)
        return value

    assert await asyncio.gather(*(flight.run(i, lambda i=i: call(i)) for i in range(3))) == [0, 1, 2]


async def test_an_error_reaches_every_caller_and_is_forgotten() -> None:
    flight = SingleFlight()

    async def fails() -> int:
        await asyncio.sleep(0)
        raise ValueError("no")

    async def works() -> int:
        return 1

    results = await asyncio.gather(*(flight.run("x", fails) for _ in range(3)), return_exceptions=True)
    assert [str(r) for r in results] == ["no"] * 3
    assert await flight.run("x", works) == 1


async def test_a_caller_that_goes_away_ends_no_run() -> None:
    flight, done = SingleFlight(), asyncio.Event()

    async def call() -> int:
        await done.wait()
        return 7

    impatient = asyncio.ensure_future(flight.run("x", call))
    patient = asyncio.ensure_future(flight.run("x", call))
    await asyncio.sleep(0)
    impatient.cancel()
    done.set()
    assert await patient == 7


async def test_closing_ends_what_is_under_way() -> None:
    flight = SingleFlight()
    waiting = asyncio.ensure_future(flight.run("x", asyncio.Event().wait))
    await asyncio.sleep(0)
    await flight.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
