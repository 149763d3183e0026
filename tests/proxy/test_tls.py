"""TLS on both sides: clients are served with a certificate, the cluster is checked as configured; what is wrong is one line."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.security.certificates import Certificates, make
from proxy.asking import ANSWERS, HOT, call, fill, match, settings
from proxy.running import OK, RawNode, Running, send

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
Start = Callable[..., Running]
GET = b"GET /_cat/health HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if not shutil.which("openssl"):
        pytest.skip("openssl is needed to make certificates")
    return make(tmp_path_factory.mktemp("certificates"))


def shown(certificates: Certificates, *, client: bool = False) -> ssl.SSLContext:
    """What a node serves with; `client`: it wants a certificate of its own authority from whoever connects."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.node, certificates.node_key)
    if client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates.ca)
    return context


@pytest.fixture
def node(certificates: Certificates) -> Iterator[RawNode]:
    with RawNode(OK, tls=shown(certificates)) as running:
        yield running


def asked(proxy: Running) -> tuple[int, Any]:
    answer = send(proxy.port, GET)[0]
    return answer.status, json.loads(answer.body)


def test_clients_are_served_over_tls(
    start: Start, certificates: Certificates, node_url: str, index_name: str, tmp_path: Path
) -> None:
    """Searches come back in better order, and other things pass, over one connection that is kept."""
    fill(node_url, index_name)
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps({"id": text, "answer": a}) + "\n" for text, a in ANSWERS.items()))
    tls = ("--tls-cert", str(certificates.node), "--tls-key", str(certificates.node_key))
    given = settings(node_url, index_name)
    proxy = start(given, "--recorded", str(answers), *tls)
    assert proxy.url.startswith("https://")
    context = ssl.create_default_context(cafile=str(certificates.ca))
    connection = http.client.HTTPSConnection("127.0.0.1", proxy.port, timeout=60, context=context)
    for _ in range(2):
        body = json.dumps(match(HOT))
        connection.request("POST", f"/{index_name}/_search", body, {"content-type": "application/json"})
        found = json.loads(connection.getresponse().read())
        assert found["hits"]["hits"][0]["_id"] == "fan"
    large = b"".join(b'{"index":{"_id":"large%d"}}\n{"title":"%s"}\n' % (i, b"x" * 50_000) for i in range(40))
    connection.request("POST", f"/{index_name}/_bulk", large, {"content-type": "application/x-ndjson"})
    assert json.loads(connection.getresponse().read())["errors"] is False
    connection.close()
    with pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(
            socket.create_connection(("127.0.0.1", proxy.port), timeout=10), server_hostname="localhost"
        )


def test_a_cluster_of_a_private_authority_is_trusted_by_its_file(
    start: Start, node: RawNode, certificates: Certificates
) -> None:
    """A custom CA is what enterprise networks have."""
    proxy = start({"cluster": {"url": node.url, "ca_certs": str(certificates.ca)}})
    assert asked(proxy) == (200, {})
    assert node.seen[0].first == b"GET /_cat/health HTTP/1.1"


def test_a_cluster_is_trusted_by_its_fingerprint(start: Start, node: RawNode, certificates: Certificates) -> None:
    proxy = start({"cluster": {"url": node.url, "fingerprint": certificates.fingerprint}})
    assert asked(proxy) == (200, {})


@pytest.mark.parametrize(
    ("cluster", "reason"),
    [
        ({}, "its certificate is not trusted"),
        ({"ca_certs": "stranger"}, "its certificate is not trusted"),
        ({"fingerprint": "ab" * 32}, "cluster.fingerprint names another"),
    ],
    ids=["no authority", "another authority", "another fingerprint"],
)
def test_a_cluster_that_cannot_be_trusted_gets_no_request_and_the_answer_says_why(
    start: Start, node: RawNode, certificates: Certificates, cluster: dict[str, str], reason: str
) -> None:
    if "ca_certs" in cluster:
        cluster = {"ca_certs": str(certificates.stranger)}
    proxy = start({"cluster": {"url": node.url, **cluster}})
    status, body = asked(proxy)
    assert (status, body["error"]["type"]) == (502, "sira_upstream_unreachable")
    assert reason in body["error"]["reason"]
    assert "\n" not in body["error"]["reason"]
    assert not node.seen
    proxy.wait_for(f"a node is left out for a while: {node.url}")
    asked(proxy)
    assert call(f"{proxy.url}/_sira/health/ready").status == 503
    assert proxy.stop() == 0
    assert sum(reason in line for line in proxy.lines) == 1  # not once for every request


def test_a_node_that_wants_a_certificate_gets_ours(start: Start, certificates: Certificates) -> None:
    known = {"ca_certs": str(certificates.ca)}
    ours = {"client_cert": str(certificates.client), "client_key": str(certificates.client_key)}
    other = {"client_cert": str(certificates.stranger), "client_key": str(certificates.stranger_key)}
    with RawNode(OK, tls=shown(certificates, client=True)) as node:
        assert asked(start({"cluster": {"url": node.url, **known, **ours}})) == (200, {})
        node.seen.clear()
        for wrong in ({}, other):
            status, body = asked(start({"cluster": {"url": node.url, **known, **wrong}}))
            assert status == 502
            assert "does not accept the certificate of cluster.client_cert" in body["error"]["reason"]
        assert not node.seen


@pytest.mark.parametrize(
    ("cluster", "options", "reason"),
    [
        ({"ca_certs": "nothing.pem"}, (), "cluster.ca_certs: cannot use nothing.pem"),
        ({"fingerprint": "abc"}, (), "cluster.fingerprint must be"),
        ({"client_cert": "nothing.pem"}, (), "cluster.client_cert: cannot use nothing.pem"),
        ({}, ("--tls-cert", "nothing.pem"), "--tls-cert: cannot use it"),
    ],
)
def test_files_that_cannot_be_used_end_it_with_one_line(
    tmp_path: Path, cluster: dict[str, str], options: tuple[str, ...], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    from sira_es.cli import run

    file = tmp_path / "sira-es.yml"
    file.write_text(json.dumps({"cluster": {"url": "https://127.0.0.1:9", **cluster}}))
    for workers in ("1", "2"):
        assert run(["proxy", "-c", str(file), "--listen", "127.0.0.1:0", "--workers", workers, *options]) == 2
        said = [line for line in capfd.readouterr().err.splitlines() if " in front of " not in line]
        assert [reason in line for line in said if "no index is configured" not in line] == [True], said


class Tunnel:
    """A forward proxy that takes CONNECT for any host to one port of this machine; or answers with a refusal."""

    def __init__(self, port: int, refusal: bytes = b"") -> None:
        self._port, self._refusal = port, refusal
        self.lines: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._socket.accept()
            except OSError:
                return
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += near.recv(1)
            self.lines.append(head.split(b"\r\n")[0])
            if self._refusal:
                near.sendall(self._refusal)
                near.close()
                continue
            near.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            far = socket.create_connection(("127.0.0.1", self._port))
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(a, b), daemon=True).start()

    @staticmethod
    def _copy(a: socket.socket, b: socket.socket) -> None:
        try:
            while data := a.recv(65536):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.usefixtures("no_proxy_of_this_machine")
class TestForwardProxy:
    """HTTP_PROXY, HTTPS_PROXY and NO_PROXY of the environment lead to the cluster, as for all else that asks it."""

    def test_http_goes_through_it_byte_for_byte(self, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
        with RawNode(OK) as forward:
            monkeypatch.setenv("HTTP_PROXY", forward.url)
            proxy = start({"cluster": {"url": "http://cluster.invalid:9200/prefix"}})
            body = b'{"index":{}}\n{"a":0.10000000149011612}\n'
            head = b"POST /a%%2Cb/_bulk?x= HTTP/1.1\r\nhost: x\r\nproxy-authorization: Basic eA==\r\n"
            answer = send(proxy.port, head % () + b"content-length: %d\r\n\r\n" % len(body) + body)[0]
            assert answer.status == 200
            seen = next(s for s in forward.seen if s.first.startswith(b"POST"))
            assert seen.first == b"POST http://cluster.invalid:9200/prefix/a%2Cb/_bulk?x= HTTP/1.1"
            assert seen.body == body
            assert seen.header(b"host") == b"cluster.invalid:9200"
            assert seen.header(b"proxy-authorization") is None  # the client's is for us, and not for the next proxy

    def test_https_goes_through_a_tunnel(
        self, start: Start, node: RawNode, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tunnel = Tunnel(int(node.url.rpartition(":")[2]))
        monkeypatch.setenv("HTTPS_PROXY", tunnel.url)
        proxy = start({"cluster": {"url": "https://cluster.invalid:9200", "fingerprint": certificates.fingerprint}})
        assert asked(proxy) == (200, {})
        assert tunnel.lines[0] == b"CONNECT cluster.invalid:9200 HTTP/1.1"
        assert node.seen[-1].first == b"GET /_cat/health HTTP/1.1"
        tunnel.close()

    def test_a_refused_tunnel_is_told_without_its_password(self, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
        tunnel = Tunnel(9, b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
        monkeypatch.setenv("HTTPS_PROXY", tunnel.url.replace("//", "//me:planted-word@"))
        proxy = start({"cluster": {"url": "https://cluster.invalid:9200"}})
        status, body = asked(proxy)
        assert (status, body["error"]["type"]) == (502, "sira_upstream_unreachable")
        assert "the forward proxy answers 407" in body["error"]["reason"]
        assert "planted" not in body["error"]["reason"] + "".join(proxy.lines)
        tunnel.close()

    @pytest.mark.parametrize("bypass", ["cluster.invalid", ".invalid"])
    def test_no_proxy_names_what_is_reached_without_it(
        self, start: Start, monkeypatch: pytest.MonkeyPatch, bypass: str
    ) -> None:
        with RawNode(OK) as forward:
            monkeypatch.setenv("HTTP_PROXY", forward.url)
            monkeypatch.setenv("NO_PROXY", bypass)
            status, body = asked(start({"cluster": {"url": "http://cluster.invalid:9200"}}))
            assert (status, forward.seen) == (502, [])
            assert "cannot be resolved" in body["error"]["reason"]
