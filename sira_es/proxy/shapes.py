"""Bodies whose rewritten form the cluster refused: the next one of the same shape passes as it is."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Shapes", "Verdict"]

Verdict = Literal["taken", "unsure", "refused"]

FIRST_SECONDS, MOST_SECONDS = 60.0, 3600.0
"""How long a refused shape rests after the first refusal, and at most: four times as long after each further one."""

UNSURE_SECONDS = 5.0
"""The same where the cluster may have had other reasons: it was busy, or a shard failed."""

MOST = 500

_VALUES = re.compile(rb'("(?:[^"\\]|\\.)*+"\s*+:)|"(?:[^"\\]|\\.)*+"|-?\d[\d.eE+-]*|\s+')


class Shapes:
    """A shape is a body without its strings, numbers and spaces."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, dict[bytes, _Rest]] = {}

    def remember(self, index: str, body: bytes, verdict: Verdict) -> None:
        """What the cluster made of a rewritten body that came with these bytes."""
        shapes = self._known.setdefault(index, {})
        if verdict == "taken":
            if shapes:
                shapes.pop(_shape(body), None)
            return
        shape, now = _shape(body), self._clock()
        earlier = shapes.get(shape, _Rest())
        if now < earlier.until:
            return  # sent before the other one was refused
        if verdict == "unsure":
            shapes[shape] = _Rest(now + UNSURE_SECONDS, earlier.seconds)
        else:
            seconds = min(MOST_SECONDS, 4 * earlier.seconds or FIRST_SECONDS)
            shapes[shape] = _Rest(now + seconds, seconds)
        if len(shapes) > MOST:
            del shapes[next(iter(shapes))]

    def refused(self, index: str, body: bytes) -> bool:
        """Whether a body of this shape was refused, and rests."""
        shapes = self._known.get(index)
        return shapes is not None and len(shapes) > 0 and self._clock() < shapes.get(_shape(body), _Rest()).until


@dataclass(frozen=True, slots=True)
class _Rest:
    """Until when a shape rests; `seconds` is how long it last did for a refusal that was sure."""

    until: float = 0.0
    seconds: float = 0.0


def _shape(body: bytes) -> bytes:
    return hashlib.blake2b(_VALUES.sub(rb"\1", body), digest_size=16).digest()
