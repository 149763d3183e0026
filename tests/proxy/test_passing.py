"""What the proxy does not rewrite is on the wire as it came, both ways; what could be read in two ways goes nowhere."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest

from proxy.running import CUT, OK, RawNode, Running, send

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def node() -> Iterator[RawNode]:
    with RawNode() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(node: RawNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("proxy"), {"cluster": {"url": node.url}}) as running:
        yield running


@pytest.fixture(autouse=True)
def fresh(node: RawNode) -> None:
    node.answers = [OK]
    node.seen.clear()


TARGETS = [
    "/",
    "/_search?",
    "/a%2Cb/_search?q=x%2Cy&pretty",
    "/docs/_doc/a%2Fb",
    "/docs/_doc/%E4%BD%A0?routing=a+b",
    "//docs///_search",
    "/docs/../_cat/./indices",
    "/docs/_search?a=1?b=2&&c",
    "/<logs-{now/d}>/_search",
    "/_cat/indices?h=index,health&s=index:desc#part",
    "/%zz",
]


@pytest.mark.parametrize("target", TARGETS)
def test_the_request_target_passes_byte_for_byte(proxy: Running, node: RawNode, target: str) -> None:
    send(proxy.port, f"GET {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    assert node.seen[0].first == f"GET {target} HTTP/1.1".encode()


BODIES = [
    b'{"query":{"match_all":{}}}',
    b'{"query" : {"match": {"a": "x"}}, "query": {"match": {"a": "y"}}}\n\n',
    b'{"n": 0.10000000149011612, "big": 9007199254740993, "e": 1E400}',
    b"\xff\xfe not JSON at all \x00",
    b"index: yaml\n",
    b"{" * 10_000,
]


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
@pytest.mark.parametrize("path", ["/docs/_search", "/docs/_msearch", "/_bulk"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_body_that_is_not_rewritten_passes_byte_for_byte(
    proxy: Running, node: RawNode, path: str, body: bytes, framing: str
) -> None:
    """elastic/elasticsearch: `_bulk` must stay as it is (infinilabs/gateway#39)."""
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n".encode()
    if framing == "length":
        request = head + b"content-length: %d\r\n\r\n" % len(body) + body
    else:
        cut = len(body) // 2 or 1
        parts = [body[:cut], body[cut:]]
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts if p)
        request = head + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    assert send(proxy.port, request)[0].status == 200
    assert node.seen[0].body == body


def test_a_compressed_body_passes_compressed(proxy: Running, node: RawNode) -> None:
    """joona/aws-es-proxy#5"""
    body = gzip.compress(b'{"index":{}}\n{"a":1}\n')
    head = b"POST /docs/_bulk HTTP/1.1\r\nhost: x\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body)
    send(proxy.port, head + body)
    assert node.seen[0].body == body
    assert node.seen[0].header(b"content-encoding") == b"gzip"


def test_headers_pass_in_order_with_repeats_and_ours_and_hop_by_hop_do_not(proxy: Running, node: RawNode) -> None:
    """elastic/elasticsearch-py#2923: Accept and Content-Type go on in pair, as they are."""
    send(
        proxy.port,
        b"GET /_cat/health HTTP/1.1\r\nHost: x\r\nX-Opaque-Id: mine\r\nWarning: one\r\nWarning: two\r\n"
        b"Accept: application/vnd.elasticsearch+json;compatible-with=8\r\nAuthorization: ApiKey abc==\r\n"
        b"es-security-runas-user: anna\r\nX-Sira: off\r\nX-Sira-Key: k\r\nKeep-Alive: timeout=5\r\nTE: trailers\r\n"
        b"Connection: keep-alive, X-Gone\r\nX-Gone: 1\r\nCookie: a=b\r\n\r\n",
    )
    seen = [h for h in node.seen[0].headers if h[0] != b"host"]
    assert seen == [
        (b"x-opaque-id", b"mine"),
        (b"warning", b"one"),
        (b"warning", b"two"),
        (b"accept", b"application/vnd.elasticsearch+json;compatible-with=8"),
        (b"authorization", b"ApiKey abc=="),
        (b"es-security-runas-user", b"anna"),
        (b"cookie", b"a=b"),
    ]
    assert node.seen[0].header(b"host") == node.url.removeprefix("http://").encode()


def test_nothing_is_added_to_a_request_without_headers(proxy: Running, node: RawNode) -> None:
    send(proxy.port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert [name for name, _ in node.seen[0].headers] == [b"host"]


def test_an_answer_comes_back_with_its_headers_status_and_bytes(proxy: Running, node: RawNode) -> None:
    """elastic/elasticsearch-py#1768: X-elastic-product must arrive, or the client refuses the server."""
    body = gzip.compress(b'{"took":1}')
    node.answers = [
        b"HTTP/1.1 404 Not Found\r\nX-elastic-product: Elasticsearch\r\nWarning: 299 a\r\nWarning: 299 b\r\n"
        b"Set-Cookie: s=1\r\nAccess-Control-Allow-Origin: *\r\nKeep-Alive: timeout=1\r\nConnection: keep-alive\r\n"
        b"content-type: application/vnd.elasticsearch+json;compatible-with=8\r\n"
        b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    ]
    answer = send(proxy.port, b"GET /docs HTTP/1.1\r\nhost: x\r\naccept-encoding: gzip\r\n\r\n")[0]
    assert answer.status == 404
    assert answer.body == body
    assert answer.headers == [
        (b"x-elastic-product", b"Elasticsearch"),
        (b"warning", b"299 a"),
        (b"warning", b"299 b"),
        (b"set-cookie", b"s=1"),
        (b"access-control-allow-origin", b"*"),
        (b"content-type", b"application/vnd.elasticsearch+json;compatible-with=8"),
        (b"content-encoding", b"gzip"),
        (b"content-length", str(len(body)).encode()),
    ]


def test_a_cookie_that_the_cluster_sets_for_one_client_does_not_go_out_for_another(
    proxy: Running, node: RawNode
) -> None:
    node.answers = [OK.replace(b"\r\n\r\n", b"\r\nSet-Cookie: secret=1; Path=/\r\n\r\n")]
    send(proxy.port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    send(proxy.port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert node.seen[1].header(b"cookie") is None


def test_a_redirect_is_the_clients_affair(proxy: Running, node: RawNode) -> None:
    node.answers = [b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere.example/\r\ncontent-length: 0\r\n\r\n"]
    answer = send(proxy.port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")[0]
    assert (answer.status, answer.header(b"location")) == (302, b"http://elsewhere.example/")
    assert len(node.seen) == 1


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"])
def test_every_method_passes(proxy: Running, node: RawNode, method: str) -> None:
    """elastic/search-ui, searchkit/searchkit#607: a preflight must reach the cluster."""
    node.answers = [OK.replace(b"{}", b"") if method == "HEAD" else OK]
    answer = send(proxy.port, f"{method} /docs HTTP/1.1\r\nhost: x\r\norigin: http://a\r\n\r\n".encode())[0]
    assert (answer.status, answer.header(b"content-length")) == (200, b"2")
    assert node.seen[0].first == f"{method} /docs HTTP/1.1".encode()


def test_get_with_a_body_keeps_it(proxy: Running, node: RawNode) -> None:
    send(proxy.port, b"GET /docs/_search HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
    assert (node.seen[0].first, node.seen[0].body) == (b"GET /docs/_search HTTP/1.1", b"{}")


def test_one_connection_serves_request_after_request(proxy: Running, node: RawNode) -> None:
    answers = send(proxy.port, *[b"GET /%d HTTP/1.1\r\nhost: x\r\n\r\n" % i for i in range(5)])
    assert [a.status for a in answers] == [200] * 5
    assert [s.first.split()[1] for s in node.seen] == [b"/0", b"/1", b"/2", b"/3", b"/4"]


def test_pipelined_requests_are_answered_in_order(proxy: Running, node: RawNode) -> None:
    both = b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n" + b"GET /b HTTP/1.1\r\nhost: x\r\n\r\n"
    assert [a.status for a in send(proxy.port, both, b"")] == [200, 200]
    assert [s.first.split()[1] for s in node.seen] == [b"/a", b"/b"]


def test_what_follows_a_chunked_body_is_no_header(proxy: Running, node: RawNode) -> None:
    """Whatever strips headers before the proxy need not look there: a caller could say who he is."""
    chunked = b"connection: upgrade\r\nupgrade: h2c\r\n", b""
    for offer in chunked:
        head = b"POST /docs/_bulk HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n" + offer + b"\r\n"
        trailers = b"authorization: Basic YTpi\r\nx-proxy-roles: admin\r\nx-a: b\r\n"
        assert send(proxy.port, head + b"2\r\n{}\r\n0\r\n" + trailers + b"\r\n")[0].status == 200
    assert [s.body for s in node.seen] == [b"{}", b"{}"]
    assert [[name for name, _ in s.headers] for s in node.seen] == [[b"host", b"transfer-encoding"]] * 2


def test_a_client_of_http_1_0_gets_no_chunks(proxy: Running, node: RawNode) -> None:
    node.answers = [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"]
    answer = send(proxy.port, b"GET /_cat/health HTTP/1.0\r\n\r\n")[0]
    assert (answer.body, answer.header(b"transfer-encoding")) == (b"onetwo", None)


def test_a_client_that_waits_for_100_continue_gets_it(proxy: Running, node: RawNode) -> None:
    import socket

    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as connection:
        connection.sendall(b"PUT /a HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 100 Continue")
        connection.sendall(b"{}")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    assert node.seen[0].body == b"{}"
    assert node.seen[0].header(b"expect") is None


def test_a_body_beside_an_offer_of_http2_arrives_whole(proxy: Running, node: RawNode) -> None:
    """What the JDK's own HTTP client sends with its first request."""
    request = (
        b"POST /docs/_doc HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAE\r\n"
        b"host: x\r\ncontent-length: 7\r\n\r\n" + b'{"a":1}'
    )
    again = b"POST /docs/_doc HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    assert [a.status for a in send(proxy.port, request + again, b"")] == [200, 200]
    assert [s.body for s in node.seen] == [b'{"a":1}', b"{}"]
    assert node.seen[0].header(b"upgrade") is None


SMUGGLING = {
    "two lengths": b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhelloX",
    "length and chunked": b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n"
    b"1\r\nZ\r\n0\r\n\r\n",
    "chunked by another name": b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a second coding": b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "folded header": b"GET /a HTTP/1.1\r\nhost: x\r\nx-a: b\r\n  content-length: 5\r\n\r\n",
    "bare CR in a header": b"GET /a HTTP/1.1\r\nhost: x\r\nx-a: b\rcontent-length: 5\r\n\r\n",
    "bare LF between headers": b"GET /a HTTP/1.1\r\nhost: x\r\nx-a: b\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "space before the colon": b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length : 5\r\n\r\nhello",
    "NUL in a header": b"GET /a HTTP/1.1\r\nhost: x\r\nx-a: b\x00c\r\n\r\n",
    "length that is no number": b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: +5\r\n\r\nhello",
    "length below 0": b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
    "two hosts": b"GET /a HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n",
    "chunk size with a sign": b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n+1\r\nZ\r\n0\r\n\r\n",
    "space in the target": b"GET /a b HTTP/1.1\r\nhost: x\r\n\r\n",
    "absolute target": b"GET http://169.254.169.254/latest HTTP/1.1\r\nhost: x\r\n\r\n",
    "tunnel": b"CONNECT evil.example:443 HTTP/1.1\r\nhost: evil.example:443\r\n\r\n",
    "no path": b"GET docs/_search HTTP/1.1\r\nhost: x\r\n\r\n",
    "credentials named as hop-by-hop": b"GET /a HTTP/1.1\r\nhost: x\r\nes-security-runas-user: u\r\n"
    b"connection: es-security-runas-user\r\n\r\n",
    "headers without end": b"GET /a HTTP/1.1\r\nhost: x\r\n" + b"x-a: " + b"b" * 70_000 + b"\r\n\r\n",
    "target that is not ASCII": "GET /docs/_doc/stra\u00dfe HTTP/1.1\r\nhost: x\r\n\r\n".encode(),
    "not UTF-8": b"GET /\xff\xfe HTTP/1.1\r\nhost: x\r\n\r\n",
}


@pytest.mark.parametrize("kind", SMUGGLING)
def test_what_could_be_read_in_two_ways_is_refused_and_never_sent_on(proxy: Running, node: RawNode, kind: str) -> None:
    answers = send(proxy.port, SMUGGLING[kind])
    assert all(answer.status == 400 for answer in answers)
    assert not node.seen


def test_a_host_header_leads_nowhere_else(proxy: Running, node: RawNode) -> None:
    send(
        proxy.port,
        b"GET /a HTTP/1.1\r\nhost: evil.example\r\n\r\n",
        b"GET //evil.example/a HTTP/1.1\r\nhost: y\r\n\r\n",
    )
    assert [s.first.split()[1] for s in node.seen] == [b"/a", b"//evil.example/a"]


def test_a_short_answer_that_breaks_off_becomes_an_error(proxy: Running, node: RawNode) -> None:
    node.answers = [b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{" + CUT]
    answer = send(proxy.port, b"GET /_cat/indices HTTP/1.1\r\nhost: x\r\n\r\n")[0]
    assert (answer.status, b"sira_upstream_lost" in answer.body) == (502, True)


@pytest.mark.parametrize("framing", [b"content-length: 1000000", b"transfer-encoding: chunked"])
def test_a_long_answer_that_breaks_off_is_seen_to_be_broken(proxy: Running, node: RawNode, framing: bytes) -> None:
    begun = b"30d40\r\n" if b"chunked" in framing else b""
    node.answers = [b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n" + begun + b"x" * 150_000 + CUT]
    assert send(proxy.port, b"GET /_cat/indices HTTP/1.1\r\nhost: x\r\n\r\n") == []


def test_a_put_whose_connection_is_lost_is_not_sent_again(proxy: Running, node: RawNode) -> None:
    node.answers = [OK, None, OK]
    first = send(proxy.port, b"PUT /a/_doc/1 HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
    second = send(proxy.port, b"PUT /a/_doc/2 HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
    assert [first[0].status, second[0].status] == [200, 502]
    assert [s.first.split()[1] for s in node.seen] == [b"/a/_doc/1", b"/a/_doc/2"]
