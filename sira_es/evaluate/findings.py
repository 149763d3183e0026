"""What was odd in an input and did not stop the work: counted, and named by its first case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Finding", "Tally"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`count` cases of one oddity in `source`, a file or a run: `what` it is, what became of it, its `first` case."""

    source: str
    what: str
    count: int
    first: str

    def __str__(self) -> str:
        return f"{self.source}: {self.what}: {self.count} (first: {self.first})"

    def to_json(self) -> dict[str, str | int]:
        return {"source": self.source, "what": self.what, "count": self.count, "first": self.first}


class Tally:
    """Counts oddities of one source while it is read."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._cases: dict[str, tuple[int, str]] = {}

    def note(self, what: str, first: Callable[[], str] | str) -> None:
        """Count a case; `first` names it, and is only asked the first time."""
        if what in self._cases:
            count, named = self._cases[what]
            self._cases[what] = (count + 1, named)
        else:
            self._cases[what] = (1, first if isinstance(first, str) else first())

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(Finding(self.source, what, count, first) for what, (count, first) in self._cases.items())
