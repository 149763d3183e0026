"""Where nodes are kept, and what this machine must offer: room, a JDK, Maven, an account, free ports."""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import random
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sira_es.errors import ConfigurationError, SiraError

__all__ = [
    "Account",
    "Jdk",
    "NodeError",
    "ToolMissingError",
    "check_port",
    "check_space",
    "find_jdk",
    "find_maven",
    "free_port",
    "home",
    "locked",
    "unprivileged",
]

_JDK_FOLDERS = ("/usr/lib/jvm/*", "/Library/Java/JavaVirtualMachines/*/Contents/Home")
_NEEDED_BYTES = 1 << 30
TRANSPORT = 100  # added to the HTTP port


class NodeError(SiraError):
    """A node could not be fetched, started or ended."""


class ToolMissingError(NodeError):
    """A JDK or Maven is missing on this machine."""


def home(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of all distributions and data: SIRA_ES_DEV_HOME, else sira-es/nodes in the user's cache folder.

    For root without XDG_CACHE_HOME that is below /var/cache: other accounts may not enter root's own home, and one of
    them has to run Elasticsearch.
    """
    if own := environ.get("SIRA_ES_DEV_HOME"):
        return Path(own).expanduser().absolute()
    root_cache = "/var/cache" if os.geteuid() == 0 else ""
    cache = environ.get("XDG_CACHE_HOME") or root_cache or "~/.cache"
    return Path(cache).expanduser().absolute() / "sira-es" / "nodes"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock file at `path`; other processes and threads wait. The holder may delete the file."""
    while True:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _still_at(path, file.fileno()):
                yield
                return


def _still_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def check_space(folder: Path, needed: int = _NEEDED_BYTES) -> None:
    """NodeError unless `needed` bytes are free where `folder` is."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise disk_full(folder, f"{free >> 20} MB free, {needed >> 20} MB needed")


def disk_full(folder: Path, detail: str) -> NodeError:
    return NodeError(f"the disk of {folder} is full ({detail}): free some space or set SIRA_ES_DEV_HOME")


@contextmanager
def disk_errors_of(folder: Path) -> Iterator[None]:
    """Turns a failure to use `folder`, or a file in it, into one line."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(folder, "no space left while writing") from error
        where = error.filename or folder
        raise NodeError(
            f"cannot use {where}: {error.strerror}; set SIRA_ES_DEV_HOME to a folder of your own"
        ) from error


def _bindable(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
    return True


def check_port(port: int) -> None:
    """Raises unless a node can listen on `port` and its transport port."""
    if not 0 < port <= 65535 - TRANSPORT:
        raise ConfigurationError(f"port {port} cannot be used: choose one from 1 to {65535 - TRANSPORT}")
    for wanted in (port, port + TRANSPORT):
        if not _bindable(wanted):
            raise NodeError(f"port {wanted} on 127.0.0.1 is taken by another program: end it or choose another --port")


def free_port() -> int:
    """An HTTP port that nothing uses, nor the transport port that goes with it.

    Below the ports that systems hand out to outgoing connections: one of those may be gone when the node is up.
    """
    ports = random.sample(range(20000, 30000), 1000)
    for port in ports:
        if _bindable(port) and _bindable(port + TRANSPORT):
            return port
    raise NodeError("found no free port from 20000 to 30000: choose one with --port")


@dataclass(frozen=True)
class Jdk:
    """A Java development kit: its folder and its feature version (17, 21, ...)."""

    folder: Path
    feature: int

    @property
    def java(self) -> Path:
        return self.folder / "bin" / "java"

    @property
    def javac(self) -> Path:
        return self.folder / "bin" / "javac"


def find_jdk(
    versions: tuple[int, int | None],
    *,
    environ: Mapping[str, str] = os.environ,
    patterns: Iterable[str] = _JDK_FOLDERS,
) -> Jdk:
    """The lowest JDK from `versions[0]` to `versions[1]`, looked for in JAVA_HOME, PATH and the system's folders.

    The lowest one, because an engine is tested with the Java of its time. Raises ToolMissingError if there is none.
    """
    found = [jdk for folder in _java_folders(environ, patterns) if (jdk := _jdk_at(folder)) is not None]
    oldest, newest = versions
    fitting = [jdk for jdk in found if jdk.feature >= oldest and (newest is None or jdk.feature <= newest)]
    if fitting:
        return min(fitting, key=lambda jdk: jdk.feature)
    wanted = f"JDK {oldest} or newer" if newest is None else f"JDK from {oldest} to {newest}"
    seen = f"; found only {', '.join(sorted({f'JDK {jdk.feature}' for jdk in found}))}" if found else ""
    raise ToolMissingError(
        f"no {wanted} in JAVA_HOME, on PATH or in /usr/lib/jvm{seen}: install one (Debian, Ubuntu: "
        f"apt install openjdk-{oldest}-jdk-headless) or set JAVA_HOME"
    )


def _java_folders(environ: Mapping[str, str], patterns: Iterable[str]) -> Iterator[Path]:
    if java_home := environ.get("JAVA_HOME"):
        yield Path(java_home)
    if java := shutil.which("java", path=environ.get("PATH", "")):
        yield Path(java).resolve().parent.parent
    for pattern in patterns:
        yield from sorted(Path("/").glob(pattern.lstrip("/")))


def _jdk_at(folder: Path) -> Jdk | None:
    """The JDK in `folder`; a runtime without compiler is none."""
    if not os.access(folder / "bin" / "java", os.X_OK) or not os.access(folder / "bin" / "javac", os.X_OK):
        return None
    try:
        text = (folder / "release").read_text("utf-8", "replace")
    except OSError:
        answer = subprocess.run([folder / "bin" / "javac", "-version"], capture_output=True, text=True, check=False)  # noqa: S603  a JDK of the user
        text = f'JAVA_VERSION="{(answer.stdout + answer.stderr).removeprefix("javac ").strip()}"'
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    return Jdk(folder, int(match[1])) if match else None


def find_maven(environ: Mapping[str, str] = os.environ) -> Path:
    """The `mvn` of PATH or MAVEN_HOME; ToolMissingError when there is none."""
    places = os.pathsep.join([environ.get("PATH", ""), os.path.join(environ.get("MAVEN_HOME", ""), "bin")])
    if mvn := shutil.which("mvn", path=places):
        return Path(mvn)
    raise ToolMissingError(
        "Maven (mvn) is neither on PATH nor in MAVEN_HOME: install it "
        "(Debian, Ubuntu: apt install maven; macOS: brew install maven)"
    )


@dataclass(frozen=True)
class Account:
    """An account of this machine to run a node as."""

    name: str
    uid: int
    gid: int

    def take(self, *folders: Path) -> None:
        """Makes this account the owner of everything in `folders`."""
        for folder in folders:
            for directory, _, files in os.walk(folder):
                for name in ("", *files):
                    os.lchown(os.path.join(directory, name), self.uid, self.gid)

    def check_access(self, *paths: Path) -> None:
        """NodeError unless this account can reach each of `paths`."""
        for path in paths:
            reach = subprocess.run(  # noqa: S603  fixed command, paths as arguments
                ["/bin/sh", "-c", 'test -r "$1" && test -x "$1"', "sh", path],
                cwd="/", check=False, user=self.uid, group=self.gid, extra_groups=[],
            )  # fmt: skip
            if reach.returncode:
                raise NodeError(
                    f"Elasticsearch does not run as root and account {self.name} cannot enter {path}: "
                    f"set {'JAVA_HOME' if path.name == 'java' else 'SIRA_ES_DEV_HOME'} to a folder that it may enter"
                )


def unprivileged() -> Account | None:
    """The account `nobody` when this process is root's, else None."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
