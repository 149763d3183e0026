"""A proxy in a process of its own, a node that is a script, and requests written byte by byte."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

ROOT = Path(__file__).parents[2]


class Running:
    """`sira-es proxy` with a configuration, listening on a free port."""

    def __init__(self, folder: Path, content: Mapping[str, Any], *options: str) -> None:
        self.config = folder / "proxy.yml"
        self.state = folder / "proxy-state"
        self.write(content)
        command = [
            sys.executable,
            "-m",
            "sira_es",
            "proxy",
            "-c",
            str(self.config),
            "--listen",
            "127.0.0.1:0",
            *options,
        ]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stderr=subprocess.PIPE, env={**os.environ, "PYTHONWARNINGS": "default"}
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            line = self.wait_for(" in front of ", seconds=60)
            self.url = line.split(" in front of ")[0].removeprefix("sira-es: ")
            self.port = int(self.url.rpartition(":")[2])
            if content.get("indices"):
                self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def write(self, content: Mapping[str, Any]) -> None:
        self.config.write_text(yaml.safe_dump({"state": str(self.state), **content}))

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.decode(errors="replace").rstrip())

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The lines of the access log."""
        return [json.loads(line) for line in self.lines if line.startswith("{")]

    def wait_for(self, text: str, seconds: float = 10) -> str:
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            found = next((line for line in self.lines if text in line), None)
            if found is not None:
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"not said: {text!r} in {self.lines[-20:]}")

    def _wait_until_ready(self) -> None:
        give_up = time.monotonic() + 30
        while time.monotonic() < give_up:
            said = send(self.port, b"GET /_sira/health HTTP/1.1\r\nhost: x\r\n\r\n", tls=self.url.startswith("https"))
            if said and b'"starting"' not in said[0].body:
                return
            time.sleep(0.05)
        raise AssertionError("the proxy did not become ready")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(60)
        self._reader.join(10)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextmanager
def proxies(folder: Path) -> Iterator[Callable[..., Running]]:
    """Starts proxies, each with a folder of its own below; they end with the block."""
    running: list[Running] = []

    def start(content: Mapping[str, Any], *options: str) -> Running:
        own = folder / f"proxy-{len(running)}"
        own.mkdir()
        running.append(Running(own, content, *options))
        return running[-1]

    yield start
    for proxy in running:
        proxy.stop()


@dataclass
class Raw:
    """One HTTP message as it stood on the wire."""

    head: bytes
    body: bytes

    @property
    def first(self) -> bytes:
        return self.head.split(b"\r\n", 1)[0]

    @property
    def status(self) -> int:
        return int(self.first.split(b" ")[1])

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        pairs = [line.split(b":", 1) for line in self.head.split(b"\r\n")[1:] if line]
        return [(name.lower(), value.strip()) for name, value in pairs]

    def header(self, name: bytes) -> bytes | None:
        return next((value for key, value in self.headers if key == name), None)


def read_message(stream: Any, *, body: bool = True) -> Raw:
    """One request or answer from a socket file, its body without chunking."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            raise EOFError(head)
        head += line
    message = Raw(head[:-4], b"")
    if not body:
        return message
    if (message.header(b"transfer-encoding") or b"").lower() == b"chunked":
        while size := int(_line(stream).split(b";")[0], 16):
            message.body += _exactly(stream, size)
            stream.readline()
        stream.readline()
    else:
        message.body = _exactly(stream, int(message.header(b"content-length") or 0))
    return message


def _line(stream: Any) -> bytes:
    line = stream.readline()
    if not line:
        raise EOFError
    return bytes(line)


def _exactly(stream: Any, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError(data)
    return bytes(data)


class RawNode:
    """Takes connections, keeps each request as it stood on the wire, and answers with the bytes that it was told.

    `answers` are used one after the other, the last for ever; None closes the connection without an answer. With the
    address of a real node in `relay`, only searches are answered here: that node is asked for all else, and what the proxy
    itself wants to know.
    `tls`: what is served over TLS.
    """

    def __init__(self, *answers: bytes | None, relay: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.answers = list(answers) or [OK]
        self._relay = relay
        self._tls = tls
        self.seen: list[Raw] = []
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._socket.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            self._open.add(connection)
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        if self._tls is not None:
            try:
                connection = self._tls.wrap_socket(connection, server_side=True)
            except OSError:  # whoever connects does not like what it is shown, or shows nothing that we like
                connection.close()
                return
        with connection, connection.makefile("rb") as stream:
            try:
                while True:
                    message = read_message(stream)
                    if self._relay and not _is_callers_search(message):
                        connection.sendall(self._ask(message))
                        continue
                    self.seen.append(message)
                    answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                    if answer is None:
                        return
                    connection.sendall(answer)
                    if answer.endswith(CUT):
                        return
            except (EOFError, OSError):
                return
            finally:
                self._open.discard(connection)

    def _ask(self, message: Raw) -> bytes:
        method, target = message.first.decode().split(" ")[:2]
        headers = {
            name: (message.header(name.encode()) or b"application/json").decode() for name in ("content-type", "accept")
        }
        place = self._relay.removeprefix("http://")
        connection = http.client.HTTPConnection(place, timeout=60)
        connection.request(method, target, message.body or None, headers)
        answer = connection.getresponse()
        body = b"" if method == "HEAD" else answer.read()
        head = f"HTTP/1.1 {answer.status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.close()
        return head.encode() + body

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        for connection in list(self._open):
            connection.close()


def _is_callers_search(message: Raw) -> bool:
    own = (message.header(b"x-opaque-id") or b"").startswith(b"sira-es")
    return not own and message.first.split(b" ")[1].endswith((b"/_search", b"/_msearch"))


OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
CUT = b"<cut>"
"""An answer that ends with this is followed by the end of the connection."""


def send(port: int, *requests: bytes, pause: float = 0, tls: bool = False) -> list[Raw]:
    """Send bytes over one connection; returns as many answers as there were requests, or as came before it closed."""
    opened = socket.create_connection(("127.0.0.1", port), timeout=30)
    if tls:
        opened = ssl._create_unverified_context().wrap_socket(opened)
    with opened as connection, connection.makefile("rb") as stream:
        answers = []
        for request in requests:
            connection.sendall(request)
            try:
                answers.append(read_message(stream, body=not request.startswith(b"HEAD")))
            except (EOFError, ConnectionError):
                break
            time.sleep(pause)
        return answers
