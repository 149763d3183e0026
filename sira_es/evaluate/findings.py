"""What was odd in an input and did not stop the work: counted, and named by its first case."""

from __future__ import annotations

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

    def note(self, what: str, case: str) -> None:
        """Count a case; the first one is named."""
        count, first = self._cases.get(what, (0, case))
        self._cases[what] = (count + 1, first)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(Finding(self.source, what, count, first) for what, (count, first) in self._cases.items())
