"""Answers to the queries that come often, had before anybody asks: then serving them calls no model."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sira_es.errors import ModelError
from sira_es.expand.skip import Skip
from sira_es.llm.model import Answer, UselessAnswerError

__all__ = ["Warmed", "warm"]


@dataclass(frozen=True, slots=True)
class Warmed:
    """What came of `queries` distinct texts: answers that were `known`, those that are `new`, the rest by reason.

    `cost` is in US dollars, without the `unpriced` calls; `left` were not asked because of the limit of cost.
    """

    queries: int
    known: int = 0
    new: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)
    left: int = 0
    tokens: int = 0
    cost: float = 0.0
    unpriced: int = 0
    seconds: float = 0.0
    problem: str = ""

    @property
    def done(self) -> int:
        return self.known + self.new + sum(self.skipped.values()) + sum(self.failed.values()) + self.left

    def to_json(self) -> dict[str, Any]:
        """The document that `sira-es warm --json` prints."""
        return {
            "queries": self.queries,
            "known": self.known,
            "new": self.new,
            "skipped": dict(self.skipped),
            "failed": dict(self.failed),
            "left": self.left,
            "tokens": self.tokens,
            "cost": round(self.cost, 6),
            "unpriced": self.unpriced,
            "seconds": round(self.seconds, 3),
        }


async def warm(
    fetch: Callable[[str], Awaitable[Answer | Skip]],
    texts: Sequence[str],
    *,
    concurrency: int,
    max_cost: float | None = None,
    on_progress: Callable[[Warmed], None] = lambda _: None,
) -> Warmed:
    """Fetch the answer to each distinct text, at most `concurrency` at a time.

    Once `max_cost` US dollars are spent, no further one is fetched; those under way are finished. A ModelError counts as
    failed; anything else that `fetch` raises ends all of it.
    """
    started = time.monotonic()
    unique = list(dict.fromkeys(texts))
    report = Warmed(len(unique))
    waiting = iter(unique)

    async def work() -> None:
        nonlocal report
        for text in waiting:
            stopped = max_cost is not None and report.cost >= max_cost
            outcome = None if stopped else await _outcome(fetch, text)
            report = replace(_with(report, outcome), seconds=time.monotonic() - started)
            on_progress(report)

    workers = [asyncio.create_task(work()) for _ in range(max(1, concurrency))]
    try:
        await asyncio.gather(*workers)
    finally:  # where one has failed for all
        for worker in workers:
            worker.cancel()
    return report


async def _outcome(fetch: Callable[[str], Awaitable[Answer | Skip]], text: str) -> Answer | Skip | ModelError:
    try:
        return await fetch(text)
    except ModelError as error:
        return error


def _with(report: Warmed, outcome: Answer | Skip | ModelError | None) -> Warmed:
    if outcome is None:
        return replace(report, left=report.left + 1)
    if isinstance(outcome, Skip):
        return replace(report, skipped=_more(report.skipped, outcome.why.value))
    if isinstance(outcome, ModelError):
        report = _paid(report, outcome.answer) if isinstance(outcome, UselessAnswerError) else report
        return replace(report, failed=_more(report.failed, outcome.reason), problem=report.problem or str(outcome))
    if outcome.source == "store":
        return replace(report, known=report.known + 1)
    return replace(_paid(report, outcome), new=report.new + 1)


def _paid(report: Warmed, answer: Answer) -> Warmed:
    if answer.source != "model":
        return report
    return replace(
        report,
        tokens=report.tokens + answer.prompt_tokens + answer.completion_tokens,
        cost=report.cost + (answer.cost or 0.0),
        unpriced=report.unpriced + (answer.cost is None),
    )


def _more(counts: Mapping[str, int], name: str) -> Mapping[str, int]:
    return dict(Counter(counts) + Counter([name]))
