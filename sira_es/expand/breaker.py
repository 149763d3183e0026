"""A circuit breaker: what failed several times in a row is left alone for a while, then tried once."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Breaker"]


class Breaker:
    """Open after `failures` in a row; then one trial a pause, which doubles from `pause` to `longest` seconds.

    A success closes it again. Not bound to an event loop; a trial that never reports back counts as failed.
    """

    def __init__(
        self,
        *,
        failures: int = 5,
        pause: float = 5.0,
        longest: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most, self._first, self._longest, self._clock = failures, pause, longest, clock
        self._failed = 0
        self._pause = pause
        self._next_trial = 0.0

    @property
    def open(self) -> bool:
        return self._failed >= self._most

    @property
    def seconds_left(self) -> float:
        """How long until the next trial; 0 where one may be made."""
        return max(0.0, self._next_trial - self._clock()) if self.open else 0.0

    def allows(self) -> bool:
        """Whether to try now. Where it is open, a yes is the one trial of this pause."""
        if not self.open:
            return True
        if self.seconds_left > 0:
            return False
        self._pause = min(2 * self._pause, self._longest)
        self._next_trial = self._clock() + self._pause
        return True

    def succeeded(self) -> None:
        self._failed = 0
        self._pause = self._first

    def failed(self) -> None:
        """One more failure; those of trials change nothing, their pause is running."""
        if self.open:
            return
        self._failed += 1
        if self.open:
            self._next_trial = self._clock() + self._pause
