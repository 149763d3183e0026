"""Nodes: up, down, status."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from sira_es.errors import ConfigurationError

from . import answer, process
from .engines import ENGINES, Engine, engine_named
from .install import distribution, source
from .place import (
    TRANSPORT,
    Jdk,
    NodeError,
    check_port,
    check_space,
    disk_errors_of,
    find_jdk,
    free_port,
    home,
    locked,
    unprivileged,
)

__all__ = ["NodeStatus", "RunningNode", "down", "status", "up"]

Progress = Callable[[str], None]

_HEAP = ("-Xms512m", "-Xmx1g")
_READY_SECONDS = 120
_ROUNDS = 10_000
_SECURITY = {
    "xpack.security.enabled": "true",
    "xpack.security.transport.ssl.enabled": "false",
    "xpack.security.authc.api_key.enabled": "true",
}


@dataclass(frozen=True)
class RunningNode:
    """A node that answers; `pid` is the server process, `folder` holds its data, logs and settings."""

    engine: str
    url: str
    pid: int
    version: str
    instance: str
    folder: Path


@dataclass(frozen=True)
class NodeStatus:
    """One line of `status`: a stopped node has neither url nor pid, a starting one no pid that is sure to last."""

    engine: str
    instance: str
    state: Literal["running", "starting", "stopped"]
    url: str | None
    version: str
    pid: int | None


@dataclass(frozen=True)
class _Record:
    """What a node was last started with."""

    engine: Engine
    port: int
    settings: Mapping[str, str]
    password: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        https = self.settings.get("xpack.security.http.ssl.enabled") == "true"
        return f"{'https' if https else 'http'}://127.0.0.1:{self.port}"


@dataclass(frozen=True)
class _Instance:
    """A named node's place on disk: `name` is also its node name."""

    home: Path
    name: str

    @property
    def folder(self) -> Path:
        return self.home / "instances" / self.name

    @property
    def mark(self) -> str:
        """What its command line carries and no other command line has."""
        return f"sira-es-node-{hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:16]}"

    @property
    def log(self) -> Path:
        return self.folder / "node.log"

    @property
    def lock(self) -> Path:
        return self.home / "instances" / f".{self.name}.lock"

    def read(self) -> _Record | None:
        """None when it was never started, or its record cannot be read."""
        try:
            stored = json.loads((self.folder / "node.json").read_bytes())
            return _Record(
                ENGINES[stored["engine"]], int(stored["port"]), dict(stored["settings"]), stored.get("password", "")
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, record: _Record) -> None:
        fresh = self.folder / "node.json.new"
        stored = {"engine": record.engine.name, "port": record.port, "settings": dict(record.settings)}
        fresh.touch(mode=0o600)
        fresh.write_text(json.dumps(stored | ({"password": record.password} if record.password else {})), "utf-8")
        fresh.replace(self.folder / "node.json")


def up(
    engine: str = "os2",
    port: int | None = None,
    on_progress: Progress = lambda message: None,
    *,
    settings: Mapping[str, str] | None = None,
    instance: str | None = None,
    password: str = "",
    files: Mapping[str, bytes] | None = None,
) -> RunningNode:
    """Starts a node, or finds it running, and returns when it answers: within 120 s of its start, or raises.

    `port` is the HTTP port (None: the engine's own, 0: any free one), the transport port is 100 above. `settings` go
    over ours; a value with commas is a list. `instance` names one of several nodes of an engine (None: the engine's
    name); nodes that form a cluster wait for each other, so start them from one thread each. `password` switches the
    security of an Elasticsearch node on: it is that of the user `admin`, who may do everything. `files` are put into
    its configuration folder, by path in it. `on_progress` gets lines for a person. Raises ConfigurationError, NodeError,
    and ToolMissingError where a JDK or Maven is missing.
    """
    row = engine_named(engine)
    node = _Instance(home(), _instance_name(engine, instance))
    if (password or files) and row.family != "elasticsearch":
        raise ConfigurationError(
            f"{row.title} from Maven has no security and no files of its own: choose es7, es8 or es9"
        )
    asked = _Record(row, port or 0, {**(_SECURITY if password else {}), **(settings or {})}, password)
    with disk_errors_of(node.home):
        _make_folders(node.home)
        with locked(node.lock):
            if not process.alive(node.mark):
                return _start(node, replace(asked, port=_port(row, port)), files or {}, on_progress)
            record = _same(node, asked)
            on_progress(f"{node.name} runs already")
            return _ready(node, record)


def _instance_name(engine: str, instance: str | None) -> str:
    name = engine if instance is None else instance
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", name):
        raise ConfigurationError(f"instance name {name!r} cannot be used: take a-z, 0-9 and -, at most 64")
    if name in ENGINES and name != engine:
        raise ConfigurationError(f"instance name {name!r} is that of another engine: choose another one")
    return name


def _make_folders(place: Path) -> None:
    for folder in (place, place / "distributions", place / "instances"):
        if not folder.is_dir():
            folder.mkdir(parents=True)
            folder.chmod(0o755)  # whatever the umask: as root the node is run by another account


def _port(row: Engine, port: int | None) -> int:
    return free_port() if port == 0 else port or row.port


def _same(node: _Instance, asked: _Record) -> _Record:
    """The record of a running node; ConfigurationError when it runs as something else than what is asked for."""
    record = node.read()
    if record is None:
        raise NodeError(
            f"{node.name} runs but its record in {node.folder} is lost: run `sira-es dev down`, then up again"
        )
    if record != replace(asked, port=asked.port or record.port):
        raise ConfigurationError(
            f"{node.name} runs already as {record.engine.title} at {record.url} with other options: "
            f"run `sira-es dev down --engine {record.engine.name}` first"
        )
    return record


def _start(node: _Instance, record: _Record, files: Mapping[str, bytes], on_progress: Progress) -> RunningNode:
    row = record.engine
    earlier = node.read()
    if earlier is not None and earlier.engine != row:
        raise ConfigurationError(f"{node.folder} holds data of {earlier.engine.title}: choose another instance name")
    check_port(record.port)
    check_space(node.home)
    jdk = find_jdk(row.jdk)
    if row.family == "elasticsearch" and (account := unprivileged()):
        account.check_access(node.home, jdk.java)
    place = distribution(row, jdk, node.home, on_progress)
    node.folder.mkdir(exist_ok=True)
    node.folder.chmod(0o755)
    node.write(record)
    on_progress(f"starting {row.title} on {record.url} (Java {jdk.feature}, log: {node.log})")
    begin = time.monotonic()
    try:
        if row.family == "opensearch":
            _launch_opensearch(node, record, jdk, place)
        else:
            _launch_elasticsearch(node, record, jdk, place, files)
        running = _ready(node, record)
    except BaseException:  # Ctrl-C included: what did not come up must not stay behind
        process.end(node.mark)
        raise
    on_progress(f"{row.title} is ready after {time.monotonic() - begin:.0f} s")
    return running


def _settings(node: _Instance, record: _Record) -> dict[str, str]:
    base = {
        "cluster.name": "sira-es-dev",
        "node.name": node.name,
        "node.attr.dev": node.mark,
        "network.host": "127.0.0.1",
        "http.port": str(record.port),
        "transport.port": str(record.port + TRANSPORT),
        "path.data": str(node.folder / "data"),
        "path.logs": str(node.folder / "logs"),
        # A nearly full disk would make every index read-only.
        "cluster.routing.allocation.disk.threshold_enabled": "false",
    }
    if not any(key.startswith(("discovery.", "cluster.initial_")) for key in record.settings):
        base["discovery.type"] = "single-node"
    return {**base, **record.engine.settings, **record.settings}


def _launch_opensearch(node: _Instance, record: _Record, jdk: Jdk, place: Path) -> None:
    launcher = node.folder / "OsNode.java"
    launcher.write_bytes(source(launcher.name))
    command: list[str | Path] = [
        jdk.java,
        *_HEAP,
        *record.engine.jvm_options,
        "-cp",
        f"{place / 'lib'}/*",
        launcher,
        node.folder,
    ]
    command += [f"{key}={value}" for key, value in _settings(node, record).items()]
    command += record.engine.plugins
    process.launch(command, folder=node.folder, log=node.log, environment=_environment(), account=None)


def _launch_elasticsearch(node: _Instance, record: _Record, jdk: Jdk, place: Path, files: Mapping[str, bytes]) -> None:
    if not (config := node.folder / "config").is_dir():
        shutil.copytree(place / "config", config)
    for name, content in {**(_administrator(record.password) if record.password else {}), **files}.items():
        (config / name).parent.mkdir(parents=True, exist_ok=True)
        (config / name).write_bytes(content)
    (node.folder / "tmp").mkdir(exist_ok=True)
    if account := unprivileged():
        account.take(place, node.folder)
    # The stock options write a garbage collector log and heap dumps into the distribution, which nodes share.
    quiet = ("-Xlog:disable", "-Xlog:all=warning:stderr", "-XX:-HeapDumpOnOutOfMemoryError")
    environment = _environment() | {
        "ES_JAVA_HOME": str(jdk.folder),
        "ES_JAVA_OPTS": " ".join((*_HEAP, *quiet, f"-Dsira.es.node={node.mark}")),
        "ES_PATH_CONF": str(config),
        "ES_TMPDIR": str(node.folder / "tmp"),
    }
    command: list[str | Path] = [place / "bin" / "elasticsearch"]
    for key, value in _settings(node, record).items():
        command += ["-E", f"{key}={value}"]
    process.launch(command, folder=node.folder, log=node.log, environment=environment, account=account)


def _administrator(password: str) -> dict[str, bytes]:
    """The files of the node's own user list, with one user who may do everything."""
    salt = os.urandom(32)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ROUNDS, 32)
    kept = f"{{PBKDF2}}{_ROUNDS}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"
    who = answer.ADMINISTRATOR
    return {"users": f"{who}:{kept}\n".encode(), "users_roles": f"superuser:{who}\n".encode()}


def _environment() -> dict[str, str]:
    """What a node inherits: no secret of our own environment."""
    return {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR") if name in os.environ}


def _ready(node: _Instance, record: _Record) -> RunningNode:
    """The node, once it answers for its health and is what it should be; NodeError when it ended, or after 120 s."""
    limit = time.monotonic() + _READY_SECONDS
    problem = ""
    while not answer.healthy(record.url, record.password):
        if not process.alive(node.mark):
            problem = "ended while starting"
        elif time.monotonic() > limit:
            problem = f"did not become ready in {_READY_SECONDS} s"
        if problem:
            raise NodeError(f"{record.engine.title} {problem}: {_last_words(node.log)} (log: {node.log})")
        time.sleep(0.3)
    answer.settled(record.url, record.password)
    found = answer.check(record.engine, record.url, record.password)
    return RunningNode(record.engine.name, record.url, found.pid, found.version, node.name, node.folder)


def _last_words(log: Path, lines: int = 3) -> str:
    """The last lines of a log that say something, as one line."""
    try:
        text = log.read_bytes()[-65536:].decode("utf-8", "replace")
    except OSError:
        return "no log"
    telling = [line.strip() for line in text.splitlines() if line.strip() and not re.match(r"\s+(at |\.\.\. \d)", line)]
    return " | ".join(line[:240] for line in telling[-lines:]) or "nothing in its log"


def down(engine: str = "os2", purge: bool = False, *, instance: str | None = None) -> bool:
    """Ends a node with all its processes; whether it ran. `purge` also deletes its data, logs and settings.

    Raises NodeError when a process cannot be ended.
    """
    engine_named(engine)
    node = _Instance(home(), _instance_name(engine, instance))
    if not node.lock.exists():
        return False
    with disk_errors_of(node.home), locked(node.lock):
        ran = process.end(node.mark)
        if purge:
            if node.folder.exists():
                shutil.rmtree(node.folder)
            node.lock.unlink()
    return ran


def status() -> list[NodeStatus]:
    """Every engine's own node, and every other instance that was ever started and not purged."""
    place = home()
    lines = [_status(_Instance(place, name), row) for name, row in ENGINES.items()]
    for folder in sorted((place / "instances").glob("*/node.json")):
        node = _Instance(place, folder.parent.name)
        record = node.read()
        if node.name not in ENGINES and record is not None:
            lines.append(_status(node, record.engine))
    return lines


def _status(node: _Instance, row: Engine) -> NodeStatus:
    record, found = node.read(), process.pids(node.mark)
    if record is None or not found:
        return NodeStatus(row.name, node.name, "stopped", None, row.version, None)
    who = answer.identify(record.url, record.password, timeout=2.0)
    if who is None or who.pid not in found:
        return NodeStatus(row.name, node.name, "starting", record.url, row.version, found[-1])
    return NodeStatus(row.name, node.name, "running", record.url, who.version, who.pid)
