"""Rankings and judgments become one `Evaluation`: figures, comparisons, the queries that gained and lost most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from sira_es.errors import InputError
from sira_es.evaluate.compare import SEED, Comparison, Test, compare
from sira_es.evaluate.findings import Finding
from sira_es.evaluate.measures import Grades, Run, per_query

__all__ = ["Cause", "Evaluation", "Explained", "QueryChange", "assess", "write_runs"]


@dataclass(frozen=True, slots=True)
class QueryChange:
    """One query's value in the baseline and in a run."""

    query_id: str
    text: str
    before: float
    after: float

    @property
    def difference(self) -> float:
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class Cause:
    """A word of an expansion, and by how much the query's value changed because of it: without it, it was not so."""

    word: str
    change: float


@dataclass(frozen=True, slots=True)
class Explained:
    """A query that gained or lost, with the words that did it, the most effective first."""

    change: QueryChange
    causes: tuple[Cause, ...]

    def to_json(self) -> dict[str, Any]:
        c = self.change
        return {
            "query": c.query_id,
            "text": c.text,
            "before": c.before,
            "after": c.after,
            "because_of": [{"word": cause.word, "change": cause.change} for cause in self.causes],
        }


@dataclass(frozen=True)
class Evaluation:
    """Several runs over the same judged queries.

    `queries` are the texts of those evaluated: exactly the queries of `grades`. `values` holds run -> measure -> query
    id -> value. Figures are means over all these queries. `runs` are the rankings, the best document first.
    """

    queries: Mapping[str, str]
    grades: Grades
    runs: Mapping[str, Run]
    baseline: str
    measures: tuple[str, ...]
    values: Mapping[str, Mapping[str, Mapping[str, float]]]
    test: Test = "paired t"
    settings: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    @cached_property
    def figures(self) -> dict[str, dict[str, float]]:
        """Run -> measure -> mean over the queries."""
        return {
            run: {name: sum(of_query.values()) / len(of_query) for name, of_query in measures.items()}
            for run, measures in self.values.items()
        }

    @cached_property
    def comparisons(self) -> dict[str, dict[str, Comparison]]:
        """Run -> measure -> comparison with the baseline, for every run but that."""
        base = self.values[self.baseline]
        return {
            run: {name: compare(base[name], of_query, test=self.test) for name, of_query in measures.items()}
            for run, measures in self.values.items()
            if run != self.baseline
        }

    def changes(self, run: str, measure: str | None = None) -> list[QueryChange]:
        """Every query, the greatest loss first and the greatest gain last; `measure` is the first one if not named."""
        name = measure or self.measures[0]
        before, after = self.values[self.baseline][name], self.values[run][name]
        found = [QueryChange(query, text, before[query], after[query]) for query, text in self.queries.items()]
        return sorted(found, key=lambda change: change.difference)

    def worst(self, run: str, count: int = 10) -> list[QueryChange]:
        """The queries that lose most, at most `count`; only losers."""
        return [change for change in self.changes(run)[:count] if change.difference < 0]

    def best(self, run: str, count: int = 10) -> list[QueryChange]:
        """The queries that gain most, at most `count`; only winners."""
        return [change for change in self.changes(run)[::-1][:count] if change.difference > 0]

    @cached_property
    def condensed(self) -> Evaluation | None:
        """The same with unjudged documents taken out of every ranking, so that a change made of them shows.

        None where the judgments name relevant documents only: all that would be left is right by construction.
        """
        if not any(grade == 0 for judged in self.grades.values() for grade in judged.values()):
            return None
        runs = {
            name: {query: [doc for doc in docs if doc in self.grades[query]] for query, docs in run.items()}
            for name, run in self.runs.items()
        }
        return assess(self.queries, self.grades, runs, baseline=self.baseline, measures=self.measures, test=self.test)

    def to_json(self) -> dict[str, Any]:
        """The document of `eval --json`; `condensed`, where it means anything, has the same `runs` and `compare`."""
        document = {
            **self._tables(),
            "queries": len(self.queries),
            "settings": {
                "baseline": self.baseline,
                "measures": list(self.measures),
                "seed": SEED,
                **self.settings,
            },
            "findings": [finding.to_json() for finding in self.findings],
        }
        if self.condensed is not None:
            document["condensed"] = self.condensed._tables()
        return document

    def _tables(self) -> dict[str, Any]:
        compared = {
            run: {name: comparison.to_json() for name, comparison in of_run.items()}
            for run, of_run in self.comparisons.items()
        }
        return {"runs": self.figures, "compare": compared}


def assess(
    queries: Mapping[str, str],
    grades: Grades,
    runs: Mapping[str, Run],
    *,
    baseline: str,
    measures: tuple[str, ...],
    test: Test = "paired t",
    settings: Mapping[str, Any] | None = None,
    findings: tuple[Finding, ...] = (),
) -> Evaluation:
    """Compute the values of every run; `queries` and `grades` hold the same ids, `measures` are canonical names."""
    values = {name: per_query(run, grades, measures) for name, run in runs.items()}
    return Evaluation(queries, grades, runs, baseline, measures, values, test, settings or {}, findings)


def write_runs(evaluation: Evaluation, folder: str | Path) -> list[Path]:
    """Write `<run>.run` for each run and `judgments.qrels` in TREC format, for any tool to compute the figures again.

    The score is the negative rank: strictly decreasing, as trec_eval orders ties by id. Raises InputError on an id with
    white space, which the format cannot hold, before anything is written.
    """
    texts = {f"{name}.run": _trec_run(name, run) for name, run in evaluation.runs.items()}
    texts["judgments.qrels"] = [
        (query, "0", doc, str(grade)) for query, judged in evaluation.grades.items() for doc, grade in judged.items()
    ]
    for name, rows in texts.items():
        for fields in rows:
            bad = next((text for text in fields if text.split() != [text]), None)
            if bad is not None:
                raise InputError(f"{name} cannot be written: {bad!r} has white space, which TREC files cannot hold")
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in texts.items():
            (folder / name).write_text("".join(" ".join(fields) + "\n" for fields in rows), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{folder}: run files cannot be written: {error.strerror or error}") from None
    return [folder / name for name in texts]


def _trec_run(name: str, run: Run) -> Sequence[tuple[str, ...]]:
    return [
        (query, "Q0", doc, str(rank), str(-rank), name)
        for query, docs in run.items()
        for rank, doc in enumerate(docs, 1)
    ]
