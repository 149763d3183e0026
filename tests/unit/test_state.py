"""Files of the state folder, whatever they hold."""

from __future__ import annotations

import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sira_es.state import StateFile


def test_a_file_is_its_owners_alone(tmp_path: Path) -> None:
    """Answers and notes are made from documents and queries that not everybody on a machine may see."""
    file = StateFile(tmp_path / "new" / "some.sqlite", "some file", "CREATE TABLE t (x TEXT)")
    with file.transaction() as connection:
        connection.execute("INSERT INTO t VALUES ('said')")
    made = list((tmp_path / "new").iterdir())
    assert {path.name for path in made} >= {"some.sqlite", "some.sqlite-wal"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o600}
    file.close()


def test_processes_that_make_a_file_at_once_all_can_use_it(tmp_path: Path) -> None:
    together = threading.Barrier(3)

    def process(file: Path) -> None:
        together.wait()
        StateFile(file, "some file", "CREATE TABLE t (x TEXT)").close()

    with ThreadPoolExecutor(3) as pool:
        for number in range(200):
            assert list(pool.map(process, [tmp_path / str(number)] * 3)) == [None] * 3
