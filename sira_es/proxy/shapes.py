"""Bodies whose rewritten form the cluster refused: the next one of the same shape passes as it is."""

from __future__ import annotations

import hashlib
import re
import time

__all__ = ["Shapes"]

STAYS_SECONDS = 3600.0
MOST = 500

_VALUES = re.compile(rb'("(?:[^"\\]|\\.)*+"\s*+:)|"(?:[^"\\]|\\.)*+"|-?\d[\d.eE+-]*|\s+')


class Shapes:
    """A shape is a body without its strings, numbers and spaces."""

    def __init__(self) -> None:
        self._known: dict[str, dict[bytes, float]] = {}

    def remember(self, index: str, body: bytes) -> None:
        shapes = self._known.setdefault(index, {})
        shapes[_shape(body)] = time.monotonic() + STAYS_SECONDS
        if len(shapes) > MOST:
            del shapes[next(iter(shapes))]

    def refused(self, index: str, body: bytes) -> bool:
        """Whether a body of this shape was refused within the last hour."""
        shapes = self._known.get(index)
        return shapes is not None and time.monotonic() < shapes.get(_shape(body), 0.0)


def _shape(body: bytes) -> bytes:
    return hashlib.blake2b(_VALUES.sub(rb"\1", body), digest_size=16).digest()
