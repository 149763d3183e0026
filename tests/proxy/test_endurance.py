"""Much of it: a large body, many idle connections, many requests. Memory and files stay as they are."""

from __future__ import annotations

import os
import resource
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from proxy.asking import call, fill, settings
from proxy.running import OK, RawNode, Running, read_message

MB = 1 << 20


def memory(proxy: Running) -> float:
    """Resident megabytes."""
    status = Path(f"/proc/{proxy.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def files(proxy: Running) -> int:
    return len(os.listdir(f"/proc/{proxy.process.pid}/fd"))


def ask(connection: socket.socket) -> int:
    connection.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    with connection.makefile("rb") as stream:
        return read_message(stream).status


class Counting:
    """Takes one request of any size and counts its bytes."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.count = 0
        self.thread = threading.Thread(target=self._take, daemon=True)
        self.thread.start()

    def _take(self) -> None:
        connection, _ = self._socket.accept()
        with connection:
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(65536)
            head, _, first = head.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            self.count = len(first)
            while self.count < length:
                self.count += len(connection.recv(MB))
            connection.sendall(OK)
        self._socket.close()


@pytest.mark.parametrize("megabytes", [64, pytest.param(1024, marks=pytest.mark.slow)])
def test_a_large_bulk_passes_in_constant_memory(tmp_path: Path, megabytes: int) -> None:
    node = Counting()
    with Running(tmp_path, {"cluster": {"url": node.url}}) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=300) as connection:
            before = memory(proxy)
            size = megabytes * MB
            connection.sendall(b"POST /_bulk HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size)
            most = 0.0
            for i in range(megabytes):
                connection.sendall(b"x" * MB)
                if i % 16 == 0:
                    most = max(most, memory(proxy))
            with connection.makefile("rb") as stream:
                assert read_message(stream).status == 200
        node.thread.join(60)
        assert node.count == size
        print(f"{megabytes} MB: {before:.0f} MB resident before, {most:.0f} MB at most")  # noqa: T201  shown with -s
        assert most - before < 40


@pytest.mark.slow
def test_ten_thousand_idle_connections_hinder_nobody(tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(10_000, limit[1] - 1000)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    idle: list[socket.socket] = []
    try:
        with RawNode() as node, Running(tmp_path, {"cluster": {"url": node.url}}) as proxy:
            before = memory(proxy)
            for _ in range(count):
                connection = socket.create_connection(("127.0.0.1", proxy.port), timeout=60)
                idle.append(connection)
                assert ask(connection) == 200
            assert call(f"{proxy.url}/_cat/health").status == 200
            print(f"{count} idle: {before:.0f} MB resident before, {memory(proxy):.0f} MB with them")  # noqa: T201
            assert memory(proxy) - before < count * 0.03
            for connection in idle[:: max(1, count // 100)]:
                assert ask(connection) == 200
    finally:
        for connection in idle:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def test_searches_of_an_index_that_there_is_not_are_not_held(node_url: str, index_name: str, tmp_path: Path) -> None:
    """What its look-up came to is remembered for seconds; not for whom."""
    body = b'{"query":{"match":{"title":"laptop bag"}},"ext":"%s"}' % (200_000 * b"x")
    search = b"POST /%s/_search HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (index_name.encode(), len(body))
    with (
        Running(tmp_path, settings(node_url, index_name)) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as connection,
        connection.makefile("rb") as stream,
    ):
        for i in range(220):
            connection.sendall(search + body)
            assert read_message(stream).header(b"x-sira-expansion") == b"failed; reason=index look-up"
            if i == 20:
                before = memory(proxy)
        assert memory(proxy) < before + 10


@pytest.mark.parametrize("count", [2000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_memory_and_files_stay_flat(node_url: str, index_name: str, tmp_path: Path, count: int) -> None:
    fill(node_url, index_name)
    body = b'{"query":{"match":{"title":"laptop bag"}}}'
    search = (
        b"POST /%s/_search HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (index_name.encode(), len(body)) + body
    )
    passed = b"GET /_cat/health HTTP/1.1\r\nhost: x\r\n\r\n"
    broken = b"GET /a b HTTP/1.1\r\n\r\n"
    found = b'{"took":1,"_shards":{"failed":0},"hits":{"hits":[]}}'
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(found) + found

    def run(times: int) -> None:
        stream: Any = None
        for i in range(times):
            if i % 500 == 0:
                connection = socket.create_connection(("127.0.0.1", proxy.port), timeout=60)
                stream = connection.makefile("rb")
                opened.append((connection, stream))
            opened[-1][0].sendall(passed if i % 5 == 0 else search)
            assert read_message(stream).status == 200
            if i % 100 == 0:
                with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as other:
                    other.sendall(broken if i % 200 else search)  # and leave
        for connection, one in opened:
            one.close()
            connection.close()
        opened.clear()

    opened: list[tuple[socket.socket, Any]] = []
    with (
        RawNode(answer, relay=node_url) as node,
        Running(tmp_path, settings(node.url, index_name)) as proxy,
    ):
        run(1000)
        before, held = memory(proxy), files(proxy)
        run(count)
        node.seen.clear()
        grown = f"{before:.0f} to {memory(proxy):.0f} MB, {held} to {files(proxy)} files"
        print(f"{count} requests: {grown}")  # noqa: T201
        assert memory(proxy) - before < 12
        assert files(proxy) <= held + 4
