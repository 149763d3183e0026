"""Where a run stops, how far it is, and what it tells at the end."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sira_es.enrich.impact import Impact
from sira_es.errors import ConfigurationError
from sira_es.llm.model import Answer

__all__ = ["Budget", "EnrichReport", "Limits", "Progress"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a run stops, with exit code 4: cost in US dollars, documents, seconds. None: no limit."""

    cost: float | None = None
    documents: int | None = None
    seconds: float | None = None


class Budget:
    """What a run has spent of its limits. `hit` names the limit that was reached, empty while none was.

    Calls under way count with the mean cost of those that were answered, so that a limit of cost is passed by no more
    than calls cost more than that; the first calls, as many as run at a time, have no mean yet.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.started = time.monotonic()
        self.hit = ""
        self.calls = 0
        self.tokens = 0
        self.cost = 0.0
        self._documents = 0
        self._under_way = 0
        self._unpriced = ""
        self.book: Callable[[], None] = lambda: None
        """Called after each paid answer, to have it written down."""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def seconds_left(self) -> float:
        """Until the limit of time; infinite without one."""
        return math.inf if self.limits.seconds is None else self.limits.seconds - self.seconds

    def over(self) -> bool:
        """Whether a limit of cost or time is reached."""
        mean = self.cost / self.calls if self.calls else 0.0
        expected = self.cost + (self._under_way + 1) * mean
        if self.limits.cost is not None and (expected > self.limits.cost or self.cost >= self.limits.cost):
            self.hit = self.hit or "cost"
        elif self.seconds_left() <= 0:
            self.hit = self.hit or "time"
        return bool(self.hit)

    def admits(self) -> bool:
        """Whether one more document may be worked on; it is counted."""
        if self.over():
            return False
        if self.limits.documents is not None and self._documents >= self.limits.documents:
            self.hit = "documents"
            return False
        self._documents += 1
        return True

    def begin(self) -> Callable[[Answer | None], None]:
        """A call goes out; returns what to tell its answer when that arrives, and None when nobody waits for it any more.

        An answer that comes after that counts all the same: it was paid.
        """
        self._under_way += 1
        waits = True

        def end(answer: Answer | None) -> None:
            nonlocal waits
            self._under_way -= waits
            waits = False
            if answer is not None and answer.source == "model":
                self._pay(answer)

        return end

    def _pay(self, answer: Answer) -> None:
        """Count an answer; one of unknown price ends a run with a limit of cost."""
        self.calls += 1
        self.tokens += answer.prompt_tokens + answer.completion_tokens
        self.cost += answer.cost or 0.0
        if answer.cost is None and self.limits.cost is not None:
            self.hit, self._unpriced = "cost", answer.model
        self.book()

    def check(self) -> None:
        """Raise ConfigurationError where the limit of cost cannot be kept, for want of a price."""
        if self._unpriced:
            raise ConfigurationError(
                f"no price is known for {self._unpriced}, so --max-cost cannot be kept; use --max-docs instead"
            )


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is. `total` is what was to be done when it began; `held` are words held back, with their share."""

    total: int
    done: int = 0
    enriched: int = 0
    stale: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    noted: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, float] = field(default_factory=dict)
    terms: int = 0
    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Documents a second."""
        return self.done / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float:
        return (self.total - self.done) / self.rate if self.rate and self.total > self.done else 0.0


@dataclass(frozen=True, slots=True)
class EnrichReport:
    """What `enrich --json` and `status --json` print. `stopped` names the limit that ended the run, empty where none did.

    Every document is either `enriched` by the present recipe, `stale`, `pending`, skipped or without a text field, as far
    as counts tell: a document whose text changed since counts as enriched until a run sees it. `changed` counts those
    that changed while the model was asked; they are in `stale`, too. `skipped` counts documents with nothing to read or
    with fields of their own where ours would go, `noted` those read in part or with texts that give orders to models,
    `held` the words that were held back, with the share of the documents whose terms have them. `terms_per_document` is
    None where it is not known. `impact` is what the terms cost the index.
    """

    documents: int
    enriched: int
    pending: int
    stale: int
    failed: Mapping[str, int]
    terms_per_document: float | None
    calls: int
    tokens: int
    cost: float
    seconds: float
    stopped: str = ""
    skipped: Mapping[str, int] = field(default_factory=dict)
    noted: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, float] = field(default_factory=dict)
    done: int = 0
    without_text: int = 0
    changed: int = 0
    impact: Impact = field(default_factory=Impact)

    @property
    def reasons(self) -> str:
        """What failed, for people, the commonest reason first: "2 documents failed (1 refused, 1 timeout)"."""
        failed = Counter(self.failed)
        told = [f"{failed.total()} documents failed ({', '.join(f'{n} {r}' for r, n in failed.most_common())})"]
        told = told if failed else []
        return ", ".join([*told, *([f"{self.changed} changed meanwhile"] if self.changed else [])])

    def to_json(self) -> dict[str, Any]:
        """The document of interface `enrich --json`."""
        return {
            "documents": self.documents,
            "enriched": self.enriched,
            "pending": self.pending,
            "stale": self.stale,
            "failed": dict(self.failed),
            "skipped": dict(self.skipped),
            "without_text": self.without_text,
            "noted": dict(self.noted),
            "held_back": {word: round(share, 3) for word, share in self.held.items()},
            "terms_per_document": None if self.terms_per_document is None else round(self.terms_per_document, 2),
            "calls": self.calls,
            "tokens": self.tokens,
            "cost": round(self.cost, 6),
            "seconds": round(self.seconds, 1),
            **self.impact.to_json(),
            **({"stopped": self.stopped} if self.stopped else {}),
        }
