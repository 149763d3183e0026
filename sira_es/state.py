"""The SQLite files of the state folder: made where they are missing, shared by processes, refused where they are not ours."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from sira_es.errors import ConfigurationError

__all__ = ["StateFile"]

BUSY_SECONDS = 30.0


class StateFile:
    """An open file. `what` is its name in messages, `tables` the statements that make it, split by semicolons.

    `tables` also bring a file of an older `version` up to date. A commit survives the end of the process, with
    `synchronous` FULL that of the power too. Raises ConfigurationError, here and within `guarded`, where the file cannot
    be used: not a database, not ours, of a newer version, not writable, disk full.
    """

    def __init__(
        self,
        path: Path,
        what: str,
        tables: str,
        *,
        version: int = 1,
        synchronous: Literal["OFF", "NORMAL", "FULL"] = "NORMAL",
    ) -> None:
        self._path, self._what, self._version = path, what, version
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)  # what it holds was made from documents and queries
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from None
        with self.guarded():
            self.connection = self.connect()
            try:
                self._found()  # before anything is changed in a file that may not be ours
                self._set_journal()
                self.connection.execute(f"PRAGMA synchronous = {synchronous}")
                self.connection.execute("BEGIN IMMEDIATE")
                if self._found() < version:
                    for statement in tables.split(";"):
                        self.connection.execute(statement)
                    self.connection.execute(f"PRAGMA user_version = {version}")
                self.connection.execute("COMMIT")
            except BaseException:
                self.connection.close()
                raise

    def connect(self) -> sqlite3.Connection:
        """A further connection, for any thread. Each statement is a transaction of its own."""
        return sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Raises ConfigurationError in place of sqlite3.Error."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._unusable(str(error)) from None

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """The connection, in one transaction: all of it or, where that fails, nothing. Guarded."""
        with self.guarded(), self.connection:
            self.connection.execute("BEGIN IMMEDIATE")
            yield self.connection

    def close(self) -> None:
        self.connection.close()

    def _found(self) -> int:
        """The version of the file, 0 where it is empty. Raises ConfigurationError for one that is not ours to use."""
        # In one statement, lest another process makes the file in between.
        query = (
            "SELECT user_version, (SELECT count(*) FROM sqlite_master WHERE type = 'table') FROM pragma_user_version"
        )
        found, tables = self.connection.execute(query).fetchone()
        if found > self._version:
            raise self._unusable(f"it was made by a newer sira-es (version {found}); upgrade, or")
        if found == 0 and tables:
            raise self._unusable("it is another program's database")
        return int(found)

    def _set_journal(self) -> None:
        give_up = time.monotonic() + BUSY_SECONDS
        while True:  # the busy timeout does not cover this change while another process makes it
            try:
                self.connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > give_up:
                    raise
                time.sleep(0.02)

    def _unusable(self, why: str) -> ConfigurationError:
        hint = "name another folder with `state`, or move the file away"
        return ConfigurationError(
            f"cannot use {self._what} {self._path}: {why}{'' if why.endswith(' or') else ';'} {hint}"
        )
