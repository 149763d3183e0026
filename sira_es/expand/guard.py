"""A model that is asked by searches: left alone while it fails, and not asked again about what it cannot answer.

Stands between the model and the store: a stored answer is always served, and an answer that comes late counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from sira_es.cluster.cache import Cache
from sira_es.errors import ModelError
from sira_es.expand.breaker import Breaker
from sira_es.llm.model import Answer, AnswerSource, Prompt, UselessAnswerError

__all__ = ["Guarded"]

OF_ONE_QUERY = frozenset({"refused", "context length", "unusable answer", "empty answer", "bad request"})
"""Reasons that say nothing about the next query."""

REMEMBERED = 10_000
LONGEST = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class _Failure:
    error: ModelError
    pause: float
    until: float


class Guarded:
    """A source behind a circuit breaker and with a memory of failures; it raises ModelError at once instead of asking.

    A prompt that failed is asked again after `pause` seconds (`pause_of_query` where it was the prompt's own fault),
    doubled with each failure up to six hours.
    """

    def __init__(
        self,
        source: AnswerSource,
        *,
        usable: Callable[[Prompt, Answer], bool],
        breaker: Breaker | None = None,
        pause: float = 5.0,
        pause_of_query: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = source.name
        self._source = source
        self._usable = usable
        self._breaker = breaker or Breaker(clock=clock)
        self._pauses = {False: pause, True: pause_of_query}
        self._clock = clock
        self._failures: Cache[_Failure] = Cache(REMEMBERED, 2 * LONGEST, clock)

    async def ask(self, prompt: Prompt) -> Answer:
        """The source's answer. Raises ModelError: its own, an earlier one, or with reason "resting"."""
        key = (prompt.version, *(m["content"] for m in prompt.messages))
        before = self._failures.get(key)
        if before is not None and (left := before.until - self._clock()) > 0:
            raise ModelError(f"{before.error} (not asked again for {left:.0f} s)", reason=before.error.reason)
        if not self._breaker.allows():
            raise ModelError(
                f"model {self.name} failed several times in a row and is left alone"
                f" for another {self._breaker.seconds_left:.0f} s",
                reason="resting",
            )
        try:
            answer = await self._source.ask(prompt)
            if not self._usable(prompt, answer):
                problem = f"model {self.name} gave an answer without a word that could be used"
                raise UselessAnswerError(problem, reason="unusable answer", answer=answer)
        except ModelError as error:
            self._remember(key, error, before)
            raise
        except BaseException:  # given up: it hangs, or we are closed
            self._breaker.failed()
            raise
        self._breaker.succeeded()
        return answer

    async def close(self) -> None:
        await self._source.close()

    def _remember(self, key: Hashable, error: ModelError, before: _Failure | None) -> None:
        own = error.reason in OF_ONE_QUERY
        if own:
            self._breaker.succeeded()
        else:
            self._breaker.failed()
        pause = min(2 * before.pause, LONGEST) if before else self._pauses[own]
        until = self._clock() + max(pause, min(error.retry_after or 0.0, LONGEST))
        self._failures.put(key, _Failure(error, pause, until))
