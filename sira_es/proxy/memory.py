"""What was served for a text stays served for a while, whether expanded or not: page 2 must agree with page 1."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import TypeAdapter, ValidationError

from sira_es.dsl.compile import Coverage
from sira_es.errors import ConfigurationError
from sira_es.state import StateFile
from sira_es.vocabulary.model import Expansion

__all__ = ["Key", "Memory", "Served", "SharedMemory"]

STAYS_SECONDS = 600.0
SWEEP_SECONDS = 60.0
MOST = 10_000

Key = tuple[str, str, str]
"""Identity of the caller, index, the text without what does not make it another."""


@dataclass(frozen=True, slots=True)
class Served:
    """What becomes of a text.

    `expansion` None: nothing of ours is sent, for the `reason`. `failed`: it should have been more, and `reason` says why
    not; an expansion without terms then still reaches what was added to documents.
    """

    expansion: Expansion | None
    coverage: Coverage = "none"
    reason: str = ""
    failed: bool = False


class Memory(Protocol):
    """Keeps the first of what is put under a key for ten minutes."""

    def get(self, key: Key) -> Served | None: ...

    def put(self, key: Key, served: Served) -> Served:
        """Keep it, unless something is kept; returns what is kept now."""

    def close(self) -> None: ...


class LocalMemory:
    """For one process; the longest unused goes first where there are too many."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[Key, tuple[float, Served]] = OrderedDict()

    def get(self, key: Key) -> Served | None:
        found = self._kept.get(key)
        if found is None:
            return None
        if self._clock() >= found[0]:
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return found[1]

    def put(self, key: Key, served: Served) -> Served:
        if kept := self.get(key):
            return kept
        self._kept[key] = (self._clock() + STAYS_SECONDS, served)
        while len(self._kept) > MOST:
            self._kept.popitem(last=False)
        return served

    def close(self) -> None:
        self._kept.clear()


_SERVED = TypeAdapter(Served)
_TABLES = """
CREATE TABLE IF NOT EXISTS served (key TEXT PRIMARY KEY, until REAL, served TEXT);
CREATE INDEX IF NOT EXISTS served_until ON served (until);
"""


class SharedMemory:
    """For several processes of one machine: a file beside, for its owner's eyes only, so that all of them serve the same.

    A file that cannot be used is done without, then each process keeps its own.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._own = LocalMemory()
        self._swept = 0.0
        self._file: sqlite3.Connection | None = None
        try:
            self._file = StateFile(path, "what was served", _TABLES, synchronous="OFF").connection
            path.chmod(0o600)
            self._file.execute("PRAGMA busy_timeout = 1000")  # no search waits longer for another process
            self._sweep(self._file)
        except (ConfigurationError, OSError, sqlite3.Error):
            self._file = None

    def get(self, key: Key) -> Served | None:
        if known := self._own.get(key):
            return known
        try:
            row = self._row(key)
            return self._own.put(key, _SERVED.validate_json(row)) if row else None
        except (sqlite3.Error, ValidationError):
            return None

    def put(self, key: Key, served: Served) -> Served:
        if self._file is not None:
            row = (self._name(key), self._clock() + STAYS_SECONDS, _SERVED.dump_json(served).decode())
            try:
                self._sweep(self._file)
                self._file.execute("DELETE FROM served WHERE key = ? AND until < ?", (row[0], self._clock()))
                self._file.execute("INSERT OR IGNORE INTO served VALUES (?, ?, ?)", row)
            except sqlite3.Error:
                return self._own.put(key, served)
            return self.get(key) or self._own.put(key, served)
        return self._own.put(key, served)

    def close(self) -> None:
        self._own.close()
        if self._file is not None:
            self._file.close()

    def _sweep(self, file: sqlite3.Connection) -> None:
        """Delete what has run out, now and then."""
        now = self._clock()
        if abs(now - self._swept) >= SWEEP_SECONDS:
            self._swept = now
            file.execute("DELETE FROM served WHERE until < ?", (now,))

    @staticmethod
    def _name(key: Key) -> str:
        """A hash: the file holds no text of a user as a key."""
        return hashlib.blake2b("\n".join(key).encode(), digest_size=16).hexdigest()

    def _row(self, key: Key) -> str | None:
        if self._file is None:
            return None
        found = self._file.execute(
            "SELECT served FROM served WHERE key = ? AND until >= ?", (self._name(key), self._clock())
        ).fetchone()
        return str(found[0]) if found else None
