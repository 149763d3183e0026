"""Which questions are out in which batch: one SQLite file a state folder, so that no question is paid twice."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sira_es.errors import ConfigurationError
from sira_es.state import StateFile

__all__ = ["Noted", "Notes"]

_TABLES = """
CREATE TABLE batches (
    token TEXT PRIMARY KEY, owner TEXT NOT NULL, id TEXT NOT NULL, created REAL NOT NULL,
    questions INTEGER NOT NULL, cost REAL NOT NULL, ended INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE questions (
    key TEXT NOT NULL, token TEXT NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (key, token)
) WITHOUT ROWID;
CREATE INDEX of_batch ON questions (token);
"""


@dataclass(frozen=True, slots=True)
class Noted:
    """A batch that was not collected yet. Without an `id` it is not known whether it was ever submitted.

    `created` is a Unix time, `cost` what it is expected to cost in US dollars; 0 where no price is known.
    """

    token: str
    id: str
    created: float
    questions: int
    cost: float


class Notes:
    """The batches of a state folder. `owner` is a model at its address: any run with it collects all of them.

    A question is `out` from before its batch is submitted until it is answered; one that a batch could not answer keeps
    the reason until the next run of the owner begins. Raises ConfigurationError where the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # What is paid for must not be forgotten.
        self._file = StateFile(path, "the notes of batches", _TABLES, synchronous="FULL")
        self._db = self._file.connection

    @contextmanager
    def submitting(self) -> Iterator[None]:
        """At most one process submits at a time; the lock ends with it. Raises ConfigurationError where another does."""
        lock = sqlite3.connect(self.path.with_suffix(".lock"), timeout=0, isolation_level=None)
        try:
            try:
                lock.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError:
                raise ConfigurationError(
                    f"another run submits batches from {self.path.parent}; wait until it has, then run this again"
                ) from None
            yield
        finally:
            lock.close()

    def begin(self, owner: str, token: str, keys: Sequence[str], cost: float) -> None:
        """Note a batch, and what it asks, before it is submitted."""
        with self._file.transaction():
            self._db.execute(
                "INSERT INTO batches VALUES (?,?,'',?,?,?,0)", (token, owner, time.time(), len(keys), cost)
            )
            self._db.executemany("INSERT INTO questions VALUES (?,?,'')", [(key, token) for key in keys])

    def submitted(self, token: str, batch_id: str) -> None:
        with self._file.guarded():
            self._db.execute("UPDATE batches SET id=? WHERE token=?", (batch_id, token))

    def forget(self, token: str) -> None:
        """Drop a batch that was not submitted after all."""
        with self._file.transaction():
            self._db.execute("DELETE FROM questions WHERE token=?", (token,))
            self._db.execute("DELETE FROM batches WHERE token=?", (token,))

    def forget_ended(self, owner: str) -> None:
        """Drop what batches could not answer: it may be asked again."""
        with self._file.transaction():
            self._db.execute(
                "DELETE FROM questions WHERE token IN (SELECT token FROM batches WHERE owner=? AND ended)", (owner,)
            )
            self._db.execute("DELETE FROM batches WHERE owner=? AND ended", (owner,))

    def open(self, owner: str) -> list[Noted]:
        """The batches of an owner that were not collected yet, the oldest first."""
        query = "SELECT token, id, created, questions, cost FROM batches WHERE owner=? AND NOT ended ORDER BY created"
        with self._file.guarded():
            return [Noted(*row) for row in self._db.execute(query, (owner,))]

    def states(self, owner: str, keys: Sequence[str]) -> dict[str, str]:
        """Of each question that is noted for an owner: empty while it is out, else why a batch could not answer it."""
        query = (
            "SELECT key, reason FROM questions JOIN batches USING (token) "
            "WHERE key IN (SELECT value FROM json_each(?)) AND owner=?"
        )
        with self._file.guarded():
            return dict(self._db.execute(query, (json.dumps(list(keys)), owner)).fetchall())

    def out_in(self, token: str, keys: Sequence[str]) -> set[str]:
        """Those of the questions that are out in this batch."""
        query = "SELECT key FROM questions WHERE token=? AND reason='' AND key IN (SELECT value FROM json_each(?))"
        with self._file.guarded():
            return {key for (key,) in self._db.execute(query, (token, json.dumps(list(keys))))}

    def settle(self, token: str, outcomes: Mapping[str, str]) -> list[str]:
        """Note that questions of a batch were answered (empty), or why not; returns those that were out until now."""
        settled = []
        with self._file.transaction():
            for key, reason in outcomes.items():
                done = "UPDATE questions SET reason=?" if reason else "DELETE FROM questions"
                which = ([reason] if reason else []) + [key, token]
                if self._db.execute(f"{done} WHERE key=? AND token=? AND reason=''", which).rowcount:
                    settled.append(key)
        return settled

    def end(self, token: str, reason: str) -> None:
        """A batch is collected; what is still out in it was not answered for this reason."""
        with self._file.transaction():
            self._db.execute("UPDATE questions SET reason=? WHERE token=? AND reason=''", (reason, token))
            self._db.execute("UPDATE batches SET ended=1 WHERE token=?", (token,))

    def close(self) -> None:
        self._file.close()
