"""What people say of an index's words: blocked, allowed, pinned. A SQLite file that running processes read as it changes."""

from __future__ import annotations

import math
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sira_es.errors import ConfigurationError, InputError
from sira_es.vocabulary import HumanTerms, normalise

__all__ = ["Rule", "TermStore"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS terms (
  target TEXT NOT NULL,
  kind TEXT NOT NULL,
  word TEXT NOT NULL,
  key TEXT NOT NULL,
  query TEXT NOT NULL,
  boost REAL,
  PRIMARY KEY (target, kind, key, query)
) WITHOUT ROWID
"""
SCHEMA_VERSION = 1
BUSY_SECONDS = 30.0

Kind = Literal["block", "allow", "pin"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One word or phrase of one index; `query`, in small letters, and `boost` belong to a pin."""

    kind: Kind
    word: str
    query: str = ""
    boost: float | None = None


class TermStore:
    """The rules of all indices, by the name under which an index is searched.

    The file is made with the first rule. Raises ConfigurationError, in every method, where it cannot be used.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._seen = -1
        self._human: dict[str, HumanTerms] = {}

    def human(self, target: str) -> HumanTerms:
        """The rules of an index as the method takes them; the same object until a rule changes, in whatever process."""
        with self._guarded(), self._lock:
            if self._connection is None and not self.path.exists():
                return self._human.setdefault(target, HumanTerms())
            changed = self._open().execute("PRAGMA data_version").fetchone()[0]
            if changed != self._seen:
                self._seen = changed
                self._human.clear()
            if target not in self._human:
                self._human[target] = _human(self._rules(target))
            return self._human[target]

    def rules(self, target: str) -> list[Rule]:
        """The rules of an index, by kind, query and word."""
        with self._guarded(), self._lock:
            return self._rules(target) if self._connection or self.path.exists() else []

    def add(
        self, target: str, kind: Kind, words: Sequence[str], *, query: str = "", boost: float | None = None
    ) -> None:
        """Add rules; one that is there gets the new boost, and a blocked word that is allowed is blocked no more.

        Raises InputError for a word without a letter or digit, a pin without a query, or a boost that is not above 0.
        """
        if kind == "pin" and not _key(query):
            raise InputError("a pin belongs to a query; name it with --query")
        if kind == "pin" and not (boost is not None and math.isfinite(boost) and boost > 0):
            raise InputError(f"boost {boost} is not a number above 0")
        given = {_word(w).casefold(): _word(w) for w in words}
        opposite = {"block": "allow", "allow": "block"}.get(kind, "")
        with self._guarded(), self._lock:
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            for key, word in given.items():
                pin = (_key(query), boost) if kind == "pin" else ("", None)
                connection.execute(
                    "INSERT OR REPLACE INTO terms (target, kind, word, key, query, boost) VALUES (?, ?, ?, ?, ?, ?)",
                    (target, kind, word, key, *pin),
                )
                connection.execute(
                    "DELETE FROM terms WHERE target = ? AND kind = ? AND key = ?", (target, opposite, key)
                )
            connection.execute("COMMIT")
            self._human.clear()

    def remove(self, target: str, kind: Kind, words: Sequence[str], *, query: str = "") -> int:
        """Take rules back; returns how many there were."""
        count = 0
        with self._guarded(), self._lock:
            if self._connection is None and not self.path.exists():
                return 0
            for word in words:
                rule = (target, kind, _word(word).casefold(), _key(query) if kind == "pin" else "")
                count += (
                    self._open()
                    .execute("DELETE FROM terms WHERE target = ? AND kind = ? AND key = ? AND query = ?", rule)
                    .rowcount
                )
            self._human.clear()
        return count

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _rules(self, target: str) -> list[Rule]:
        rows = self._open().execute(
            "SELECT kind, word, query, boost FROM terms WHERE target = ? ORDER BY kind, query, key", (target,)
        )
        return [Rule(*row) for row in rows]

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise self._unusable(str(error.strerror or error)) from None
            connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                version = int(connection.execute("PRAGMA user_version").fetchone()[0])
                if version > SCHEMA_VERSION:
                    raise self._unusable(f"it was made by a newer sira-es (version {version}); upgrade, or")
                if version == 0:
                    connection.execute(SCHEMA)
                    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            except BaseException:
                connection.close()
                raise
            self._connection, self._seen = connection, -1
        return self._connection

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._unusable(f"{error};") from None

    def _unusable(self, why: str) -> ConfigurationError:
        return ConfigurationError(
            f"cannot use the terms in {self.path}: {why} name another folder with `state`, or move the file away"
        )


def _human(rules: Sequence[Rule]) -> HumanTerms:
    pins: dict[str, tuple[tuple[str, float], ...]] = {}
    for rule in rules:
        if rule.kind == "pin" and rule.boost is not None:
            pins[rule.query] = (*pins.get(rule.query, ()), (rule.word, rule.boost))
    return HumanTerms(
        block=frozenset(r.word for r in rules if r.kind == "block"),
        allow=frozenset(r.word for r in rules if r.kind == "allow"),
        pins=pins,
    )


def _key(text: str) -> str:
    return normalise(text).casefold()


def _word(text: str) -> str:
    word = normalise(text)
    if not any(c.isalnum() for c in word):
        raise InputError(f"'{text}' holds no letter and no digit; name a word or a phrase")
    return word
