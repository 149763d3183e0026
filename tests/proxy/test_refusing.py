"""Requests that are answered with 400, by the proxy itself."""

from __future__ import annotations

from collections.abc import Callable

from proxy.running import RawNode, Running, send

Start = Callable[..., Running]
TWICE = (
    "Host",
    "Authorization",
    "Es-Secondary-Authorization",
    "Es-Security-Runas-User",
    "X-Proxy-User",
    "X-Proxy-Roles",
)


def test_who_asks_is_said_once(start: Start) -> None:
    """Else the cluster might take one of two, and what is remembered for the caller belong to the other."""
    with RawNode() as node:
        proxy = start({"cluster": {"url": node.url}})
        for name in TWICE:
            host = b"" if name == "Host" else b"host: x\r\n"
            twice = b"".join(b"%s: %s\r\n" % (name.lower().encode(), value) for value in (b"Basic YTpi", b"Basic Yzpk"))
            answer = send(proxy.port, b"GET /docs/_search HTTP/1.1\r\n%s%s\r\n" % (host, twice))[0]
            assert answer.status == 400, name
            assert f"more than one {name} header".encode() in answer.body
        assert not node.seen
        cookies = b"GET /docs/_search HTTP/1.1\r\nhost: x\r\ncookie: a=1\r\ncookie: b=2\r\n\r\n"
        assert send(proxy.port, cookies)[0].status == 200
        assert [value for name, value in node.seen[0].headers if name == b"cookie"] == [b"a=1", b"b=2"]


def test_a_method_that_no_engine_knows(start: Start) -> None:
    with RawNode() as node:
        proxy = start({"cluster": {"url": node.url}})
        for method in (b"PROPFIND", b"LOCK", b"M-SEARCH"):
            answer = send(proxy.port, method + b" / HTTP/1.1\r\nhost: x\r\n\r\n")[0]
            assert answer.status == 400
            assert b"knows no method " + method in answer.body
        assert not node.seen
        for method in (b"GET", b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"TRACE"):
            assert send(proxy.port, method + b" / HTTP/1.1\r\nhost: x\r\n\r\n")[0].status == 200
