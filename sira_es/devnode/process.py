"""Node processes: started apart from us, and found again by the mark on their command line.

A pid file would lie after a crash and name a stranger after the pid is used again. A node carries a mark that nothing
else has, so the process table alone says what runs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .place import Account, NodeError

__all__ = ["alive", "end", "launch", "pids"]

_PROC = Path("/proc")


@dataclass(frozen=True)
class _Process:
    pid: int
    group: int
    command: str


def _processes() -> Iterator[_Process]:
    """Every process that is not a zombie."""
    yield from _from_proc() if (_PROC / "self" / "stat").exists() else _from_ps()


def _from_proc() -> Iterator[_Process]:
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # After the name in parentheses, which may hold anything: state, parent, group.
            state, _, group = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[:3]
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:  # it ended while we looked, or is hidden from us
            continue
        if state != "Z":
            yield _Process(int(entry.name), int(group), command)


def _from_ps() -> Iterator[_Process]:
    command = ["/bin/ps", "-axww", "-o", "pid=,pgid=,stat=,command="]
    listing = subprocess.run(command, capture_output=True, text=True, errors="replace", check=True)  # noqa: S603
    for line in listing.stdout.splitlines():
        pid, group, state, *command = line.split(None, 3)
        if not state.startswith("Z"):
            yield _Process(int(pid), int(group), "".join(command))


def launch(
    command: Sequence[str | Path], *, folder: Path, log: Path, environment: Mapping[str, str], account: Account | None
) -> None:
    """Starts `command` in a process group of its own, with its output in `log`, as `account` (None: as we are).

    A shell between us and it hands it over to the system: it outlives us, is reaped when it ends, and no Ctrl-C of our
    terminal reaches it.
    """
    uid, gid = (account.uid, account.gid) if account else (None, None)
    with log.open("wb") as output:
        subprocess.run(  # noqa: S603  the command is ours, arguments stay apart
            ["/bin/sh", "-c", '"$@" &', "sh", *command],
            cwd=folder, env=environment, start_new_session=True, check=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            user=uid, group=gid, extra_groups=[] if account else None,
        )  # fmt: skip


def pids(mark: str) -> list[int]:
    """The processes with `mark` on their command line and those of their groups, in ascending order."""
    everything = list(_processes())
    return _members(everything, _groups(everything, mark))


def alive(mark: str) -> bool:
    return bool(pids(mark))


def _groups(everything: Sequence[_Process], mark: str) -> set[int]:
    return {process.group for process in everything if mark in process.command}


def _members(everything: Sequence[_Process], groups: set[int]) -> list[int]:
    return sorted(process.pid for process in everything if process.group in groups)


def end(mark: str, *, patience: float = 30.0) -> bool:
    """Ends all processes of `mark`, after `patience` seconds by force; whether there were any."""
    groups = _groups(list(_processes()), mark)  # once: a child may outlive the process that carries the mark
    left: list[int] = []
    for number, wait in ((signal.SIGTERM, patience), (signal.SIGKILL, 10.0)):
        _signal(_members(list(_processes()), groups), number)
        limit = time.monotonic() + wait
        while (left := _members(list(_processes()), groups)) and time.monotonic() < limit:
            time.sleep(0.1)
        if not left:
            return bool(groups)
    raise NodeError(f"process {', '.join(map(str, left))} of the node does not end: end it by hand (kill -9)")


def _signal(targets: Sequence[int], number: signal.Signals) -> None:
    for pid in targets:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
        except PermissionError as error:
            raise NodeError(f"no permission to end process {pid}: end it as the user who started it") from error
