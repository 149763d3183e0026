"""What was done to which document, what it was made from, what failed and why, and what it cost: SQLite, one file a state folder."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping
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
    """What became of one document: outcome `enriched`, `failed`, `stale` or `skipped`, with the reason of the last three.

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

    Raises ConfigurationError where the file cannot be opened or was written by a newer version.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version > _VERSION:
                raise ConfigurationError(f"ledger {path} was written by a newer sira-es; update, or set another 'state' folder")
            self._db.executescript(_TABLES)
            self._db.execute(f"PRAGMA user_version={_VERSION}")
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(f"cannot use ledger {path}: {error}; set a writable 'state' folder") from None

    def record(self, target: str, entries: Iterable[Entry]) -> None:
        """Write what became of a page of documents, as one transaction."""
        now = time.time()
        rows = [
            (target, e.index, e.id, e.outcome, e.reason, e.source_hash, e.recipe, e.terms, _counts(e.rejected), now)
            for e in entries
        ]
        with self._db:
            self._db.execute("BEGIN")
            self._db.executemany("INSERT OR REPLACE INTO documents VALUES (?,?,?,?,?,?,?,?,?,?)", rows)

    def spend(self, target: str, *, calls: int, tokens: int, cost: float, seconds: float) -> None:
        """Add what a page or a run used."""
        self._db.execute("INSERT INTO spending VALUES (?,?,?,?,?,?)", (target, time.time(), calls, tokens, cost, seconds))

    def forget(self, target: str, documents: Iterable[tuple[str, str]]) -> None:
        """Drop the lines of documents (index, id) that were undone."""
        with self._db:
            self._db.execute("BEGIN")
            self._db.executemany(
                "DELETE FROM documents WHERE target=? AND index_name=? AND id=?", ((target, i, d) for i, d in documents)
            )

    def totals(self, target: str) -> Totals:
        """All sums for a target; zeros where nothing was done yet."""
        calls, tokens, cost, seconds = self._db.execute(
            "SELECT COALESCE(SUM(calls),0), COALESCE(SUM(tokens),0), COALESCE(SUM(cost),0), COALESCE(SUM(seconds),0) "
            "FROM spending WHERE target=?",
            (target,),
        ).fetchone()
        enriched, terms = self._db.execute(
            "SELECT COUNT(*), COALESCE(SUM(terms),0) FROM documents WHERE target=? AND outcome='enriched'", (target,)
        ).fetchone()
        stale = self._db.execute("SELECT COUNT(*) FROM documents WHERE target=? AND outcome='stale'", (target,)).fetchone()[0]
        failed = dict(
            self._db.execute(
                "SELECT reason, COUNT(*) FROM documents WHERE target=? AND outcome='failed' GROUP BY reason ORDER BY reason",
                (target,),
            ).fetchall()
        )
        return Totals(calls, tokens, cost, seconds, terms, enriched, stale, failed)

    def failures(self, target: str) -> list[tuple[str, str, str]]:
        """Index, id and reason of each failed document."""
        return self._db.execute(
            "SELECT index_name, id, reason FROM documents WHERE target=? AND outcome='failed' ORDER BY index_name, id", (target,)
        ).fetchall()

    def close(self) -> None:
        self._db.close()


def _counts(rejected: Mapping[str, int]) -> str:
    return ",".join(f"{verdict}={n}" for verdict, n in sorted(rejected.items()))
