"""Files of the state folder, whatever they hold."""

from __future__ import annotations

import stat
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
