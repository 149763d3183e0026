"""What was done to which document, from what, what failed and why, and what it cost: one SQLite file a state folder."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sira_es.errors import ConfigurationError

__all__ = ["Entry", "Ledger", "Totals"]

_VERSION = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS documents (
    target TEXT NOT NULL, index_name TEXT NOT NULL, id TEXT NOT NULL,
    outcome TEXT NOT NULL, reason TEXT NOT NULL, source_hash TEXT NOT NULL, recipe TEXT NOT NULL,
    terms INTEGER NOT NULL, rejected TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (target, index_name, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS failures ON documents (target, reason) WHERE outcome = 'failed';
CREATE TABLE IF NOT EXISTS spending (
    target TEXT NOT NULL, at REAL NOT NULL, calls INTEGER NOT NULL, tokens INTEGER NOT NULL, cost REAL NOT NULL,
    seconds REAL NOT NULL
);
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """What became of one document: outcome `enriched`, `failed`, `stale` or `skipped`; `reason` is that of the last three.

    `rejected` counts the phrases that were not kept, by verdict.
    """

    index: str
    id: str
    outcome: str
    reason: str = ""
    source_hash: str = ""
    recipe: str = ""
    terms: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all runs on a target: model calls, tokens, cost (US dollars), seconds; failures and stale documents."""

    calls: int
    tokens: int
    cost: float
    seconds: float
    terms: int
    enriched: int
    stale: int
    failed: Mapping[str, int]


class Ledger:
    """The ledger of a state folder. `target` is cluster and index together, so that two clusters never mix.

    Any number of processes may share the file; it and its folder are made where they are missing. Raises
    ConfigurationError, here and in every method, where the file cannot be used: not a database, of a newer version, not
    writable, disk full.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from None
        with self._guarded():
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > _VERSION:
            raise self._unusable("written by a newer sira-es; update")
        if version < _VERSION:
            self._db.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version={_VERSION}; COMMIT;")

    def record(self, target: str, entries: Iterable[Entry]) -> None:
        """Write what became of a page of documents: all of it or, where that fails, nothing."""
        now = time.time()
        rows = [
            (target, e.index, e.id, e.outcome, e.reason, e.source_hash, e.recipe, e.terms, _counts(e.rejected), now)
            for e in entries
        ]
        with self._guarded(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR REPLACE INTO documents VALUES (?,?,?,?,?,?,?,?,?,?)", rows)

    def spend(self, target: str, *, calls: int, tokens: int, cost: float, seconds: float) -> None:
        """Add what a page or a run used."""
        row = (target, time.time(), calls, tokens, cost, seconds)
        with self._guarded():
            self._db.execute("INSERT INTO spending VALUES (?,?,?,?,?,?)", row)

    def forget(self, target: str, documents: Iterable[tuple[str, str]]) -> None:
        """Drop the lines of documents (index, id) that were undone."""
        rows = [(target, index, doc_id) for index, doc_id in documents]
        with self._guarded(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("DELETE FROM documents WHERE target=? AND index_name=? AND id=?", rows)

    def totals(self, target: str) -> Totals:
        """All sums for a target; zeros where nothing was done yet."""
        spent = (
            "SELECT COALESCE(SUM(calls),0), COALESCE(SUM(tokens),0), COALESCE(SUM(cost),0.0), COALESCE(SUM(seconds),0.0) "
            "FROM spending WHERE target=?"
        )
        outcomes = "SELECT outcome, COUNT(*), SUM(terms) FROM documents WHERE target=? GROUP BY outcome"
        failures = (
            "SELECT reason, COUNT(*) FROM documents WHERE target=? AND outcome='failed' GROUP BY reason ORDER BY reason"
        )
        with self._guarded():
            calls, tokens, cost, seconds = self._db.execute(spent, (target,)).fetchone()
            found = {outcome: (count, terms) for outcome, count, terms in self._db.execute(outcomes, (target,))}
            failed = dict(self._db.execute(failures, (target,)).fetchall())
        enriched, terms = found.get("enriched", (0, 0))
        return Totals(calls, tokens, cost, seconds, terms, enriched, found.get("stale", (0, 0))[0], failed)

    def failures(self, target: str) -> list[tuple[str, str, str]]:
        """Index, id and reason of each failed document."""
        query = (
            "SELECT index_name, id, reason FROM documents WHERE target=? AND outcome='failed' ORDER BY index_name, id"
        )
        with self._guarded():
            return self._db.execute(query, (target,)).fetchall()

    def close(self) -> None:
        self._db.close()

    def _unusable(self, why: str) -> ConfigurationError:
        return ConfigurationError(f"cannot use ledger {self._path}: {why}; or set another 'state' folder")

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._unusable(str(error)) from None


def _counts(rejected: Mapping[str, int]) -> str:
    return ",".join(f"{verdict}={n}" for verdict, n in sorted(rejected.items()))
