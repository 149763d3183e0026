"""What became of a search, as headers, figures and the log tell it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from sira_es.proxy.wire import RawHeaders

__all__ = ["NOT_LOOKED_AT", "Outcome", "Stages", "own_headers", "told"]

State = Literal["applied", "cached", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`applied`: expanded, made for this search; `cached`: as served before; else why not, in a few words of ours."""

    state: State
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.state}; reason={self.reason}" if self.reason else self.state


NOT_LOOKED_AT = Outcome("skipped", "not a search")


def told(outcomes: Sequence[Outcome]) -> str:
    """The value of X-Sira-Expansion: one outcome, or how many of each for the searches of an `_msearch`."""
    if len(outcomes) == 1:
        return str(outcomes[0])
    counts = Counter(o.state for o in outcomes)
    return ", ".join(
        f"{state}={counts[state]}" for state in ("applied", "cached", "skipped", "failed") if counts[state]
    )


@dataclass(slots=True)
class Stages:
    """How long each part of serving a search took, in seconds."""

    seconds: dict[str, float] = field(default_factory=dict)
    _since: float = field(default_factory=time.perf_counter)

    def done(self, stage: str) -> None:
        """What went on since the last call was this stage."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now

    def header(self) -> bytes:
        """The value of Server-Timing, in milliseconds."""
        return ", ".join(f"sira-{stage};dur={1000 * s:.2f}" for stage, s in self.seconds.items()).encode()


def own_headers(outcomes: Sequence[Outcome], stages: Stages) -> RawHeaders:
    return [(b"x-sira-expansion", told(outcomes).encode()), (b"server-timing", stages.header())]
