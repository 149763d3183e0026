"""Staying with an index: one pass after another, through restarts of nodes and pauses of the model."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

from sira_es.enrich.report import EnrichReport
from sira_es.errors import ClusterError, ClusterRefused, InputError, ModelError, SiraError

__all__ = ["RETRY_SECONDS", "follow"]

RETRY_SECONDS = 600.0
"""How long a document that failed rests before it is tried again."""

LONGEST_PAUSE = 60.0
IDLE_SHARE = 9  # a pass that read documents and changed none is followed by a pause of nine times its length
_FOR_GOOD = frozenset({"wrong key", "unknown model", "quota", "bad request", "unusable answer", "empty answer"})


async def follow(
    one_pass: Callable[[], Awaitable[EnrichReport | None]],
    *,
    pause: float,
    on_trouble: Callable[[SiraError], None],
    seconds_left: Callable[[], float] = lambda: math.inf,
) -> EnrichReport:
    """Make passes, `pause` seconds apart, until one stops at a limit; its report.

    A pass returns None where there was nothing to do. What passes by itself (a node that restarts, a model that fails,
    an index that is made anew) is told to `on_trouble` and waited for, as long as there are `seconds_left`; anything
    else is raised.
    """

    async def rest(seconds: float) -> None:
        await asyncio.sleep(max(0.0, min(seconds, seconds_left())))

    troubles = 0
    worked = False
    while True:
        started = time.monotonic()
        try:
            report = await one_pass()
            troubles = 0
            worked = worked or (report is not None and report.done > 0)
        except (ClusterError, InputError, ModelError) as error:
            if not _passes(error, worked) or seconds_left() <= 0:
                raise
            on_trouble(error)
            troubles += 1
            await rest(min(LONGEST_PAUSE, pause * 2.0**troubles))
            continue
        if report is not None and report.stopped:
            return report
        lasted = time.monotonic() - started
        in_vain = report is not None and not report.done
        await rest(max(pause, min(LONGEST_PAUSE, IDLE_SHARE * lasted)) if in_vain else pause)


def _passes(error: ClusterError | InputError | ModelError, worked: bool) -> bool:
    """Whether it may pass by itself. Another server than a model's at the address does so only if it `worked` before."""
    if isinstance(error, ModelError):
        return error.reason not in _FOR_GOOD and (worked or error.reason != "bad answer")
    return not isinstance(error, ClusterRefused) or error.status in {404, 429} or error.status >= 500
