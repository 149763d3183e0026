"""What was done and spent, in a file that several processes share and that survives being killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sira_es.enrich.ledger import Entry, Ledger, Totals, address
from sira_es.errors import ConfigurationError

TARGET = "http://es:9200/docs"
NOTHING = Totals(0, 0, 0.0, 0.0, 0, 0, 0, {})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger.sqlite"


@pytest.fixture
def ledger(file: Path) -> Iterator[Ledger]:
    opened = Ledger(file)
    yield opened
    opened.close()


def test_folder_and_file_are_made(ledger: Ledger, file: Path) -> None:
    assert file.is_file()
    assert ledger.totals(TARGET) == NOTHING
    assert ledger.failures(TARGET) == []


def test_documents_are_counted_by_what_became_of_them(ledger: Ledger) -> None:
    ledger.record(
        TARGET,
        [
            Entry("docs", "1", "enriched", terms=4, rejected={"present": 2}),
            Entry("docs", "2", "enriched", terms=3),
            Entry("docs", "3", "failed", "timeout"),
            Entry("docs", "4", "failed", "timeout"),
            Entry("docs", "5", "failed", "not recorded"),
            Entry("docs", "6", "stale", "conflict"),
            Entry("docs", "7", "skipped", "no text"),
        ],
    )
    assert ledger.totals(TARGET) == Totals(0, 0, 0.0, 0.0, 7, 2, 1, {"not recorded": 1, "timeout": 2})


def test_the_last_outcome_of_a_document_is_the_one_that_counts(ledger: Ledger) -> None:
    ledger.record(TARGET, [Entry("docs", "1", "failed", "timeout")])
    ledger.record(TARGET, [Entry("docs", "1", "enriched", terms=2)])
    assert ledger.totals(TARGET) == Totals(0, 0, 0.0, 0.0, 2, 1, 0, {})
    assert ledger.failures(TARGET) == []


def test_one_id_in_two_indices_is_two_documents(ledger: Ledger) -> None:
    ledger.record(TARGET, [Entry("a", "1", "enriched"), Entry("b", "1", "enriched")])
    assert ledger.totals(TARGET).enriched == 2


def test_spending_adds_up_and_stays_when_documents_are_undone(ledger: Ledger) -> None:
    ledger.spend(TARGET, calls=2, tokens=300, cost=0.25, seconds=1.5)
    ledger.spend(TARGET, calls=1, tokens=100, cost=0.5, seconds=2.0)
    ledger.record(TARGET, [Entry("docs", "1", "enriched", terms=4), Entry("docs", "2", "enriched", terms=1)])
    ledger.forget(TARGET, [("docs", "1"), ("docs", "unknown")])
    assert ledger.totals(TARGET) == Totals(3, 400, 0.75, 3.5, 1, 1, 0, {})


def test_targets_never_mix(ledger: Ledger) -> None:
    ledger.record(TARGET, [Entry("docs", "1", "failed", "timeout")])
    ledger.spend(TARGET, calls=1, tokens=1, cost=1, seconds=1)
    ledger.forget("http://other:9200/docs", [("docs", "1")])
    assert ledger.totals("http://other:9200/docs") == NOTHING
    assert ledger.totals(TARGET).failed == {"timeout": 1}


def test_failures_are_listed_in_order(ledger: Ledger) -> None:
    ledger.record(
        TARGET,
        [Entry("b", "1", "failed", "x"), Entry("a", "2", "failed", "y"), Entry("a", "1", "failed", "x"), Entry("a", "3", "stale")],
    )  # fmt: skip
    assert ledger.failures(TARGET) == [("a", "1", "x"), ("a", "2", "y"), ("b", "1", "x")]


def test_what_was_recorded_is_there_when_the_file_is_opened_again(ledger: Ledger, file: Path) -> None:
    ledger.record(TARGET, [Entry("docs", "1", "enriched", terms=4)])
    with closing(Ledger(file)) as again:
        assert again.totals(TARGET).enriched == 1


def test_a_page_is_recorded_whole_or_not_at_all(ledger: Ledger) -> None:
    bad = Entry("docs", "2", "enriched", terms=None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="cannot use ledger"):
        ledger.record(TARGET, [Entry("docs", "1", "enriched"), bad])
    assert ledger.totals(TARGET).enriched == 0
    ledger.record(TARGET, [Entry("docs", "1", "enriched")])
    assert ledger.totals(TARGET).enriched == 1


WRITER = """
import sys
from pathlib import Path
from sira_es.enrich.ledger import Entry, Ledger
ledger = Ledger(Path(sys.argv[1]))
for page in range(int(sys.argv[3])):
    ledger.record("t", [Entry("docs", f"{sys.argv[2]}-{page}-{i}", "enriched", terms=1) for i in range(20)])
    ledger.spend("t", calls=1, tokens=1, cost=0.5, seconds=1)
    print(page, flush=True)
"""


def writer(file: Path, name: str, pages: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(file), name, str(pages)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_several_processes_may_open_a_new_file_and_write_at_once(file: Path) -> None:
    writers = [writer(file, str(n), 20) for n in range(4)]
    said = [w.communicate(timeout=60)[1] for w in writers]
    assert [w.returncode for w in writers] == [0, 0, 0, 0], said
    with closing(Ledger(file)) as ledger:
        totals = ledger.totals("t")
    assert (totals.enriched, totals.calls, totals.cost) == (4 * 20 * 20, 80, 40.0)


def test_a_process_that_is_killed_leaves_whole_pages_and_a_usable_file(file: Path) -> None:
    with writer(file, "x", 1_000_000) as killed:
        assert killed.stdout is not None
        pages = 0
        while pages < 20:
            pages = int(killed.stdout.readline()) + 1
        os.kill(killed.pid, signal.SIGKILL)
        killed.communicate()
    with closing(Ledger(file)) as ledger:
        totals = ledger.totals("t")
        assert totals.enriched % 20 == 0
        assert totals.enriched >= 20 * 20
        ledger.record("t", [Entry("docs", "after", "failed", "x")])
        assert ledger.totals("t").failed == {"x": 1}


# Files that cannot be used


def test_a_file_of_a_newer_version_is_left_alone(file: Path) -> None:
    Ledger(file).close()
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(ConfigurationError, match=r"made by a newer sira-es .*; upgrade, or name another folder"):
        Ledger(file)


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    file = tmp_path / "ledger.sqlite"
    file.write_text("this is a text, and a long one so that it cannot be taken for an empty database" * 20)
    with pytest.raises(ConfigurationError, match=r"cannot use ledger .*ledger\.sqlite: file is not a database"):
        Ledger(file)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(ConfigurationError, match=r"cannot use ledger .*: File exists"):
        Ledger(tmp_path / "state" / "ledger.sqlite")


def test_a_folder_in_place_of_the_file_is_told(file: Path) -> None:
    file.mkdir(parents=True)
    with pytest.raises(ConfigurationError, match=r"cannot use ledger .*: unable to open database file"):
        Ledger(file)


def test_a_full_disk_is_told_in_one_line_and_loses_nothing(ledger: Ledger) -> None:
    ledger.record(TARGET, [Entry("docs", "1", "enriched")])
    ledger._db.execute("PRAGMA max_page_count=1")  # sqlite raises it to the present size
    with pytest.raises(ConfigurationError, match=r"cannot use ledger .*: database or disk is full"):
        ledger.record(TARGET, [Entry("docs", str(i), "failed", "x" * 1000) for i in range(100)])
    assert ledger.totals(TARGET) == Totals(0, 0, 0.0, 0.0, 0, 1, 0, {})


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("http://es:9200", "http://es:9200"),
        ("HTTP://ES:9200/", "http://es:9200"),
        ("https://es.example/prefix/", "https://es.example:443/prefix"),
        ("http://[::1]:9200", "http://[::1]:9200"),
    ],
)
def test_an_address_has_one_name_however_it_is_written(written: str, named: str) -> None:
    assert address(written) == named
