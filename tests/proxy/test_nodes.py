"""Nodes that misbehave: connections that are not used again, nodes that are left out and taken in again."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable

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


def test_headers_that_are_too_large_for_the_cluster_hold_no_other_client_up(start: Start, node_url: str) -> None:
    proxy = start({"cluster": {"url": node_url}})
    large = b"GET / HTTP/1.1\r\nhost: x\r\ncookie: %s\r\n\r\n" % (b"a" * 9000)
    for _ in range(3):
        assert send(proxy.port, large)[0].status == 400
        assert send(proxy.port, GET)[0].status == 200
