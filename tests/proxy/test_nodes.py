"""Nodes that misbehave: connections that are not used again, nodes that are left out and taken in again."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from proxy.asking import ANSWERS, HOT, call, fill, match, search, settings
from proxy.running import OK, RawNode, Running, read_message, send

Start = Callable[..., Running]
GET = b"GET /_cat/health HTTP/1.1\r\nhost: x\r\n\r\n"
SEARCH = b"POST /docs/_search HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


class Deaf(RawNode):
    """Answers what names `/bad` as told, and nothing that comes later over the same connection."""

    def _talk(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            try:
                while b"bad" not in (message := read_message(stream)).first:
                    self.seen.append(message)
                    connection.sendall(OK)
                connection.sendall(self.answers[0] or b"")
                while stream.read(1):
                    pass
            except (EOFError, OSError):
                return


def refusal(status: int, size: int, *, chunked: bool = False) -> bytes:
    body = b"x" * size
    framing = b"transfer-encoding: chunked" if chunked else b"content-length: %d" % size
    return b"HTTP/1.1 %d X\r\n%s\r\n\r\n%s" % (
        status,
        framing,
        b"%x\r\n%s\r\n0\r\n\r\n" % (size, body) if chunked else body,
    )


def test_a_connection_on_which_a_node_refused_what_it_could_not_read_is_not_used_again(start: Start) -> None:
    """Netty takes nothing more from a connection whose request it could not decode, and does not say so."""
    body = b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
    with Deaf() as node:
        proxy = start({"cluster": {"url": node.url}})
        for status, target in itertools.product((400, 413, 431), (b"/bad", b"/bad/_search")):
            for size, chunked in ((0, False), (20, False), (200_000, False), (20, True)):
                node.answers = [refusal(status, size, chunked=chunked)]
                got = send(proxy.port, b"POST %s HTTP/1.1\r\nhost: x\r\n%s" % (target, body))[0]
                assert (got.status, len(got.body)) == (status, size)
                assert [send(proxy.port, request)[0].status for request in (GET, SEARCH)] == [200, 200]


class Frozen:
    """Takes connections, and answers nothing until it thaws; then it goes on as the node at `url`."""

    def __init__(self, url: str) -> None:
        self._to = ("127.0.0.1", int(url.rpartition(":")[2]))
        self._thawed = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            self._thawed.wait(60)
            with socket.create_connection(self._to) as node:
                threading.Thread(target=_copy, args=(node, client), daemon=True).start()
                _copy(client, node)

    def thaw(self) -> None:
        self._thawed.set()

    def close(self) -> None:
        self._socket.close()
        self._thawed.set()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def until(holds: Callable[[], bool], seconds: float = 20) -> None:
    give_up = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.2)


def test_a_node_that_takes_connections_and_never_answers_is_left_out_until_it_does(
    start: Start, node_url: str, index_name: str, tmp_path: Path
) -> None:
    fill(node_url, index_name)
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps({"id": text, "answer": a}) + "\n" for text, a in ANSWERS.items()))
    frozen = Frozen(node_url)
    proxy = start(settings([frozen.url, node_url], index_name), "--recorded", str(answers))
    name = frozen.url.removeprefix("http://")

    def state() -> str:
        return str(call(f"{proxy.url}/_sira/health").json["nodes"][name])

    for _ in range(4):
        begun = time.monotonic()
        assert call(f"{proxy.url}/_sira/health").json["status"] in {"ready", "starting"}
        assert time.monotonic() - begun < 1
    until(lambda: state() == "down")
    begun = time.monotonic()
    for _ in range(6):
        assert call(f"{proxy.url}/_cat/health").status == 200
        assert search(proxy.url, index_name, {"query": {"match_all": {}}}).status == 200
    assert time.monotonic() - begun < 5
    until(lambda: call(f"{proxy.url}/_sira/health").status == 200)
    assert search(proxy.url, index_name, match(HOT)).expansion == "applied"
    frozen.thaw()
    until(lambda: state() == "up")
    assert [call(f"{proxy.url}/_cat/health").status for _ in range(4)] == [200] * 4
    assert sum("left out for a while" in line for line in proxy.lines) == 1
    frozen.close()


def test_headers_that_are_too_large_for_the_cluster_hold_no_other_client_up(start: Start, node_url: str) -> None:
    proxy = start({"cluster": {"url": node_url}})
    large = b"GET / HTTP/1.1\r\nhost: x\r\ncookie: %s\r\n\r\n" % (b"a" * 9000)
    for _ in range(3):
        assert send(proxy.port, large)[0].status == 400
        assert send(proxy.port, GET)[0].status == 200
