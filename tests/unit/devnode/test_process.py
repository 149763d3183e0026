"""Processes are started apart, found by their mark and ended with all that belongs to them."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sira_es.devnode import process

Start = Callable[[str], None]


@pytest.fixture
def mark() -> Iterator[str]:
    mark = f"sira-es-test-{secrets.token_hex(8)}"
    yield mark
    process.end(mark, patience=0)


@pytest.fixture
def start(mark: str, tmp_path: Path) -> Start:
    def start(script: str) -> None:
        command = ["/bin/sh", "-c", script, mark]
        environment = {"PATH": os.environ["PATH"]}
        process.launch(command, folder=tmp_path, log=tmp_path / "log", environment=environment, account=None)

    return start


def wait_for(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


def running(pids: list[int]) -> set[int]:
    return {found.pid for found in process._processes()} & set(pids)


def test_a_process_is_found_by_its_mark_with_the_children_that_lack_it(mark: str, start: Start) -> None:
    start("sleep 60 & sleep 60; true")
    wait_for(lambda: len(process.pids(mark)) == 3)


def test_ending_a_process_ends_its_children(mark: str, start: Start) -> None:
    start("sleep 60 & sleep 60; true")
    wait_for(lambda: len(process.pids(mark)) == 3)
    family = process.pids(mark)
    assert process.end(mark)
    assert not running(family)


def test_a_child_that_outlives_its_parent_is_ended_by_force(mark: str, start: Start) -> None:
    start("""/bin/sh -c 'trap "" TERM; while :; do sleep 0.05; done' & sleep 60; true""")
    wait_for(lambda: len(process.pids(mark)) >= 4)
    family = process.pids(mark)
    assert process.end(mark, patience=0.3)
    assert not running(family)


def test_a_process_that_ignores_the_request_is_ended_by_force(mark: str, start: Start) -> None:
    start("trap '' TERM; echo ready; while :; do sleep 0.05; done")
    wait_for(lambda: process.alive(mark))
    assert process.end(mark, patience=0.3)
    assert not process.alive(mark)


def test_ending_what_does_not_run_does_nothing(mark: str) -> None:
    assert not process.end(mark)


def test_a_process_that_was_killed_is_not_alive(mark: str, start: Start) -> None:
    start("sleep 60; true")
    wait_for(lambda: len(process.pids(mark)) == 2)
    for pid in process.pids(mark):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not process.alive(mark))


def test_output_goes_to_the_log(mark: str, start: Start, tmp_path: Path) -> None:
    start("echo out; echo err >&2")
    wait_for(lambda: (tmp_path / "log").read_text() == "out\nerr\n")


@pytest.mark.skipif(not os.access("/bin/ps", os.X_OK), reason="no /bin/ps on this machine")
def test_systems_without_proc_are_read_through_ps(
    mark: str, start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start("sleep 60; true")
    wait_for(lambda: len(process.pids(mark)) == 2)
    expected = process.pids(mark)
    monkeypatch.setattr(process, "_PROC", tmp_path)
    assert process.pids(mark) == expected
