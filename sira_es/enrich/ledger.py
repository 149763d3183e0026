"""What was done to which document, from what, what failed and why, and what it cost: one SQLite file a state folder."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from sira_es.state import StateFile

__all__ = ["Entry", "Ledger", "Totals", "address"]

_VERSION = 2
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
CREATE TABLE IF NOT EXISTS cursors (
    target TEXT NOT NULL, index_uuid TEXT NOT NULL, shard INTEGER NOT NULL, made_by TEXT NOT NULL,
    seq_no INTEGER NOT NULL,
    PRIMARY KEY (target, index_uuid, shard)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS words (
    target TEXT NOT NULL, word TEXT NOT NULL, documents INTEGER NOT NULL,
    PRIMARY KEY (target, word)
) WITHOUT ROWID;
"""

_PORTS = {"http": 80, "https": 443}


def address(url: str) -> str:
    """An address as it is named in files of state, however it was written: host in lower case, port, no slash at the end."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{parts.port or _PORTS.get(parts.scheme)}{parts.path.rstrip('/')}"


@dataclass(frozen=True, slots=True)
class Entry:
    """What became of one document: outcome `enriched`, `failed`, `stale` or `skipped`, and the `reason`.

    Beside `enriched` the reason notes what is unusual: that a text was read in part, or gives orders to models.
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
    """Sums over all runs on a target: model calls, tokens, cost (US dollars), seconds; failures and stale documents.

    `skipped` counts documents with nothing to read, by reason, `noted` enriched ones with something unusual.
    """

    calls: int
    tokens: int
    cost: float
    seconds: float
    terms: int
    enriched: int
    stale: int
    failed: Mapping[str, int]
    skipped: Mapping[str, int] = field(default_factory=dict, compare=False)
    noted: Mapping[str, int] = field(default_factory=dict, compare=False)


class Ledger:
    """The ledger of a state folder. `target` is cluster and index together, so that two clusters never mix.

    Any number of processes may share the file; it and its folder are made where they are missing. Raises
    ConfigurationError, here and in every method, where the file cannot be used: not a database, of a newer version, not
    writable, disk full.
    """

    def __init__(self, path: Path) -> None:
        self._file = StateFile(path, "ledger", _TABLES, version=_VERSION)
        self._db = self._file.connection
        self._lines: dict[str, int | None] = {}

    def record(self, target: str, entries: Iterable[Entry]) -> None:
        """Write what became of a page of documents: all of it or, where that fails, nothing."""
        now = time.time()
        rows = [
            (target, e.index, e.id, e.outcome, e.reason, e.source_hash, e.recipe, e.terms, _counts(e.rejected), now)
            for e in entries
        ]
        with self._file.transaction():
            self._db.executemany("INSERT OR REPLACE INTO documents VALUES (?,?,?,?,?,?,?,?,?,?)", rows)

    def spend(self, target: str, *, calls: int, tokens: int, cost: float, seconds: float) -> None:
        """Add what was used; what this ledger object adds to a target is one line."""
        used = (calls, tokens, cost, seconds)
        with self._file.guarded():
            if target not in self._lines:
                begun = self._db.execute("INSERT INTO spending VALUES (?,?,0,0,0.0,0.0)", (target, time.time()))
                self._lines[target] = begun.lastrowid
            self._db.execute(
                "UPDATE spending SET calls=calls+?, tokens=tokens+?, cost=cost+?, seconds=seconds+? WHERE rowid=?",
                (*used, self._lines[target]),
            )

    def forget(self, target: str, documents: Iterable[tuple[str, str]]) -> None:
        """Drop the lines of documents (index, id) that were undone."""
        rows = [(target, index, doc_id) for index, doc_id in documents]
        with self._file.transaction():
            self._db.executemany("DELETE FROM documents WHERE target=? AND index_name=? AND id=?", rows)

    def forget_all(self, target: str) -> None:
        """Drop the lines of all documents, the cursors and the words; what was spent stays."""
        with self._file.transaction():
            for table in ("documents", "cursors", "words"):
                self._db.execute(f"DELETE FROM {table} WHERE target=?", (target,))  # noqa: S608  constants only

    def has_made(self, target: str, recipe: str) -> bool:
        """Whether any document is known to be enriched by a recipe."""
        query = "SELECT 1 FROM documents WHERE target=? AND outcome='enriched' AND recipe=? LIMIT 1"
        with self._file.guarded():
            return self._db.execute(query, (target, recipe)).fetchone() is not None

    def totals(self, target: str) -> Totals:
        """All sums for a target; zeros where nothing was done yet."""
        spent = (
            "SELECT COALESCE(SUM(calls),0), COALESCE(SUM(tokens),0), COALESCE(SUM(cost),0.0), COALESCE(SUM(seconds),0.0) "
            "FROM spending WHERE target=?"
        )
        outcomes = "SELECT outcome, COUNT(*), SUM(terms) FROM documents WHERE target=? GROUP BY outcome"
        reasons = (  # a note may go on with a figure after a colon
            "SELECT CASE WHEN outcome='enriched' THEN substr(reason, 1, instr(reason || ':', ':') - 1) ELSE reason END r, "
            "COUNT(*) FROM documents WHERE target=? AND outcome=? GROUP BY r ORDER BY r"
        )
        with self._file.guarded():
            calls, tokens, cost, seconds = self._db.execute(spent, (target,)).fetchone()
            found = {outcome: (count, terms) for outcome, count, terms in self._db.execute(outcomes, (target,))}
            failed, skipped, noted = (
                {reason: n for reason, n in self._db.execute(reasons, (target, kind)) if reason}
                for kind in ("failed", "skipped", "enriched")
            )
        enriched, terms = found.get("enriched", (0, 0))
        return Totals(
            calls, tokens, cost, seconds, terms, enriched, found.get("stale", (0, 0))[0], failed, skipped, noted
        )

    def failures(self, target: str) -> list[tuple[str, str, str]]:
        """Index, id and reason of each failed document."""
        return self._listed(target, "outcome='failed'")

    def failed_since(self, target: str, when: float) -> dict[tuple[str, str], str]:
        """The hash of the text of each document (index, id) that failed after a Unix time."""
        query = "SELECT index_name, id, source_hash FROM documents WHERE target=? AND outcome='failed' AND at>?"
        with self._file.guarded():
            return {(index, doc_id): digest for index, doc_id, digest in self._db.execute(query, (target, when))}

    def noted(self, target: str) -> list[tuple[str, str, str]]:
        """Index, id and note of each enriched document that has one, and of each that was skipped."""
        return self._listed(target, "outcome IN ('enriched', 'skipped') AND reason<>''")

    def documents(
        self, target: str, after: tuple[str, str], most: int, *, unfinished: bool = False
    ) -> list[tuple[str, str]]:
        """The next documents (index, id) after one, in their order; all, or those that are not enriched."""
        query = (
            "SELECT index_name, id FROM documents WHERE target=? AND (index_name, id) > (?, ?) "
            "AND (outcome<>'enriched' OR NOT ?) ORDER BY index_name, id LIMIT ?"
        )
        with self._file.guarded():
            return self._db.execute(query, (target, *after, unfinished, most)).fetchall()

    def cursor(self, target: str, index_uuid: str, shard: int, made_by: str) -> int:
        """Up to which `_seq_no` every document of a shard is known to be enriched by `made_by`; -1: nothing is known."""
        query = "SELECT seq_no FROM cursors WHERE target=? AND index_uuid=? AND shard=? AND made_by=?"
        with self._file.guarded():
            row = self._db.execute(query, (target, index_uuid, shard, made_by)).fetchone()
        return int(row[0]) if row else -1

    def advance(self, target: str, index_uuid: str, shard: int, made_by: str, seq_no: int) -> None:
        """Note that a shard is done up to `seq_no`."""
        with self._file.guarded():
            self._db.execute(
                "INSERT OR REPLACE INTO cursors VALUES (?,?,?,?,?)", (target, index_uuid, shard, made_by, seq_no)
            )

    def words(self, target: str) -> dict[str, int]:
        """In how many documents' kept terms the most frequent words and phrases stand; "" counts the documents."""
        with self._file.guarded():
            return dict(self._db.execute("SELECT word, documents FROM words WHERE target=?", (target,)).fetchall())

    def keep_words(self, target: str, counts: Mapping[str, int]) -> None:
        """Replace what `words` returns."""
        with self._file.transaction():
            self._db.execute("DELETE FROM words WHERE target=?", (target,))
            self._db.executemany("INSERT INTO words VALUES (?,?,?)", [(target, w, n) for w, n in counts.items()])

    def _listed(self, target: str, which: str) -> list[tuple[str, str, str]]:
        query = f"SELECT index_name, id, reason FROM documents WHERE target=? AND {which} ORDER BY index_name, id"  # noqa: S608
        with self._file.guarded():
            return self._db.execute(query, (target,)).fetchall()

    def close(self) -> None:
        self._file.close()


def _counts(rejected: Mapping[str, int]) -> str:
    return ",".join(f"{verdict}={n}" for verdict, n in sorted(rejected.items()))
