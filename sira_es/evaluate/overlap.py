"""How far two rankings of one query are apart, for queries that nobody judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sira_es.evaluate.measures import Run
from sira_es.rankings import jaccard, rbo

__all__ = ["Overlap", "QueryOverlap", "by_query", "overlap"]

_DEPTH, _TOP = 10, 3


@dataclass(frozen=True, slots=True)
class QueryOverlap:
    """One query in two runs: `rbo` and `jaccard` of the first ten, both in [0, 1]; the hits each run had, up to ten."""

    query_id: str
    rbo: float
    jaccard: float
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def top_changed(self) -> bool:
        return self.before[:_TOP] != self.after[:_TOP]

    @property
    def top_new(self) -> int:
        """How many of the first three were not among the first three before."""
        return len(set(self.after[:_TOP]) - set(self.before[:_TOP]))


@dataclass(frozen=True, slots=True)
class Overlap:
    """A run beside the baseline over queries without judgments; at least one query."""

    queries: tuple[QueryOverlap, ...]

    def most_changed(self, count: int = 10) -> list[QueryOverlap]:
        return sorted(self.queries, key=lambda q: q.rbo)[:count]

    def to_json(self) -> dict[str, Any]:
        """The figures that `eval --no-judgments --json` prints; shares are in [0, 1], the rest are counts of queries."""
        total = len(self.queries)
        empty = [q for q in self.queries if not q.before]
        return {
            f"RBO@{_DEPTH}": sum(q.rbo for q in self.queries) / total,
            f"Jaccard@{_DEPTH}": sum(q.jaccard for q in self.queries) / total,
            "changed_top_3": sum(q.top_changed for q in self.queries) / total,
            "new_in_top_3": sum(q.top_new > 0 for q in self.queries) / total,
            "zero_results_before": len(empty),
            "zero_results_after": sum(not q.after for q in self.queries),
            "rescued": sum(bool(q.after) for q in empty),
        }


def overlap(baseline: Run, run: Run) -> Overlap:
    """Compare two runs over the queries of the baseline."""
    found = []
    for query, docs in baseline.items():
        before, after = tuple(docs[:_DEPTH]), tuple(run[query][:_DEPTH])
        found.append(QueryOverlap(query, rbo(before, after), jaccard(before, after), before, after))
    return Overlap(tuple(found))


def by_query(found: Overlap, texts: Mapping[str, str]) -> list[dict[str, Any]]:
    """The queries that changed most, as `--json` lists them."""
    return [
        {
            "query": q.query_id,
            "text": texts[q.query_id],
            f"RBO@{_DEPTH}": q.rbo,
            "before": list(q.before[:_TOP]),
            "after": list(q.after[:_TOP]),
        }
        for q in found.most_changed()
    ]
