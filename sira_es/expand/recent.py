"""What was expanded a moment ago: given at once, to be made anew in the background when it is no longer fresh."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from sira_es.cluster.cache import Cache
from sira_es.expand.expanded import Expanded

__all__ = ["Recent"]


@dataclass(frozen=True, slots=True)
class _Kept:
    made: float
    tag: tuple[object, ...]
    expanded: Expanded


class Recent:
    """At most `size` expansions, fresh for `fresh` seconds and given until they are `old`.

    Only what has an answer and known figures is kept, so that a failure is never repeated from here.
    """

    def __init__(
        self,
        *,
        size: int = 10_000,
        fresh: float = 60.0,
        old: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fresh, self._clock = fresh, clock
        self._kept: Cache[_Kept] = Cache(size, old, clock)

    def get(self, key: Hashable, tag: tuple[object, ...]) -> tuple[Expanded, bool] | None:
        """An expansion and whether it is fresh. One made with other objects than those of `tag` does not count."""
        kept = self._kept.get(key)
        if kept is None or not all(a is b for a, b in zip(kept.tag, tag, strict=True)):
            return None
        return kept.expanded, self._clock() - kept.made < self._fresh

    def put(self, key: Hashable, tag: tuple[object, ...], expanded: Expanded) -> None:
        if expanded.origin and expanded.expansion.documents is not None:
            self._kept.put(key, _Kept(self._clock(), tag, expanded))
