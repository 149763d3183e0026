"""What people say of an index's words: blocked, allowed, pinned. A SQLite file that running processes read as it changes."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sira_es.errors import InputError
from sira_es.state import StateFile
from sira_es.vocabulary import HumanTerms, normalise

__all__ = ["Rule", "TermStore"]

TABLES = """
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
        self._file: StateFile | None = None
        self._seen = -1
        self._human: dict[str, HumanTerms] = {}

    def human(self, target: str) -> HumanTerms:
        """The rules of an index as the method takes them; the same object until a rule changes, in whatever process."""
        with self._lock:
            if self._file is None and not self.path.exists():
                return self._human.setdefault(target, HumanTerms())
            file = self._open()
            with file.guarded():
                changed = file.connection.execute("PRAGMA data_version").fetchone()[0]
            if changed != self._seen:
                self._seen = changed
                self._human.clear()
            if target not in self._human:
                self._human[target] = _human(self._rules(target))
            return self._human[target]

    def rules(self, target: str) -> list[Rule]:
        """The rules of an index, by kind, query and word."""
        with self._lock:
            return self._rules(target) if self._file or self.path.exists() else []

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
        with self._lock, self._open().transaction() as connection:
            for key, word in given.items():
                pin = (_key(query), boost) if kind == "pin" else ("", None)
                connection.execute(
                    "INSERT OR REPLACE INTO terms (target, kind, word, key, query, boost) VALUES (?, ?, ?, ?, ?, ?)",
                    (target, kind, word, key, *pin),
                )
                connection.execute(
                    "DELETE FROM terms WHERE target = ? AND kind = ? AND key = ?", (target, opposite, key)
                )
            self._human.clear()

    def remove(self, target: str, kind: Kind, words: Sequence[str], *, query: str = "") -> int:
        """Take rules back; returns how many there were."""
        count = 0
        with self._lock:
            if self._file is None and not self.path.exists():
                return 0
            with self._open().transaction() as connection:
                for word in words:
                    rule = (target, kind, _word(word).casefold(), _key(query) if kind == "pin" else "")
                    deleted = "DELETE FROM terms WHERE target = ? AND kind = ? AND key = ? AND query = ?"
                    count += connection.execute(deleted, rule).rowcount
            self._human.clear()
        return count

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _rules(self, target: str) -> list[Rule]:
        file = self._open()
        found = "SELECT kind, word, query, boost FROM terms WHERE target = ? ORDER BY kind, query, key"
        with file.guarded():
            return [Rule(*row) for row in file.connection.execute(found, (target,))]

    def _open(self) -> StateFile:
        if self._file is None:
            self._file, self._seen = StateFile(self.path, "the terms in", TABLES), -1
        return self._file


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
