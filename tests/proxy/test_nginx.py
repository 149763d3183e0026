"""docker/nginx.conf as it stands, with other addresses: searches go to the proxy, everything else straight to the cluster."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.asking import ANSWERS, HOT, call, fill, match, search, settings
from proxy.running import OK, ROOT, RawNode, Running, send

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
CONFIGURATION = ROOT / "docker" / "nginx.conf"


class Nginx:
    """Started with the configuration in a folder, until `stop`."""

    def __init__(self, folder: Path, sira: str, cluster: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        text = CONFIGURATION.read_text()
        assert (text.count("sira-es:9201"), text.count("opensearch:9200"), text.count("listen 9201")) == (1, 2, 1)
        text = text.replace("sira-es:9201", sira.removeprefix("http://"))
        text = text.replace("opensearch:9200", cluster.removeprefix("http://"))
        text = text.replace("listen 9201", f"listen 127.0.0.1:{self.port}")
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        own = "".join(f"  {kind}_temp_path {folder / kind};\n" for kind in kinds)
        (folder / "nginx.conf").write_text(text.replace("http {\n", f"http {{\n  access_log off;\n{own}", 1))
        for part in (*folder.parents, folder):  # its workers are not who started it
            if part.name.startswith(("pytest", "test")):
                part.chmod(0o755)
        assert NGINX is not None
        options = f"daemon off; pid {folder / 'pid'}; error_log {folder / 'error.log'};"
        command = [NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", options]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        give_up = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert time.monotonic() < give_up, (folder / "error.log").read_text()
                assert self._process.poll() is None, (folder / "error.log").read_text()
                time.sleep(0.05)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)


@pytest.fixture
def before(tmp_path: Path) -> Iterator[Callable[[str, str], Nginx]]:
    if NGINX is None:
        pytest.skip("no nginx on this machine")
    running: list[Nginx] = []

    def run(sira: str, cluster: str) -> Nginx:
        folder = tmp_path / "nginx"
        folder.mkdir()
        running.append(Nginx(folder, sira, cluster))
        return running[-1]

    yield run
    for one in running:
        one.stop()


SEARCHES = ["/_search", "/docs/_search", "/a%2Cb/_search?q=x%2Cy&pretty", "/_msearch", "/docs/_msearch?typed_keys"]
OTHERS = [
    "/",
    "/_bulk",
    "/docs/_bulk?refresh=true",
    "/docs/_doc/a%2Fb",
    "/docs/_doc/_search",
    "/_search/scroll",
    "/docs/_search/template",
    "/_cat/indices?v",
    "/docs/_count",
    "/_snapshot/_search_x",
    "/_async_search",
]


def test_only_searches_go_to_the_proxy_and_each_request_is_what_it_was(before: Callable[[str, str], Nginx]) -> None:
    head = (
        b"POST %s HTTP/1.1\r\nhost: es.example:9200\r\nauthorization: ApiKey a\r\nsecuritytenant: t\r\ncookie: a=b\r\n"
    )
    head += (
        b"opendistro_security_impersonate_as: anna\r\ncontent-type: application/json\r\ncontent-length: 3\r\n\r\n{ }"
    )
    with RawNode(OK) as sira, RawNode(OK) as cluster:
        nginx = before(sira.url, cluster.url)
        for targets, to, other in ((SEARCHES, sira, cluster), (OTHERS, cluster, sira)):
            for target in targets:
                answers = send(nginx.port, head % target.encode())
                assert [a.status for a in answers] == [200], target
                seen = to.seen.pop()
                assert (seen.first, seen.body) == (f"POST {target} HTTP/1.1".encode(), b"{ }")
                for name, value in (
                    (b"host", b"es.example:9200"),
                    (b"authorization", b"ApiKey a"),
                    (b"securitytenant", b"t"),
                    (b"opendistro_security_impersonate_as", b"anna"),
                    (b"cookie", None if to is sira else b"a=b"),
                ):
                    assert seen.header(name) == value, target
                assert not other.seen, target


def test_a_search_with_a_body_is_read_and_a_bulk_need_not_be(before: Callable[[str, str], Nginx]) -> None:
    """Larger than what nginx keeps in memory, with and without its length."""
    body = b"x" * (3 << 20)
    chunked = b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    with RawNode(OK) as sira, RawNode(OK) as cluster:
        nginx = before(sira.url, cluster.url)
        for target, to in ((b"/_search", sira), (b"/_bulk", cluster)):
            for rest in (chunked, b"content-length: %d\r\n\r\n" % len(body) + body):
                assert send(nginx.port, b"POST " + target + b" HTTP/1.1\r\nhost: x\r\n" + rest)[0].status == 200
                assert to.seen.pop().body == body


def test_without_the_proxy_searches_go_to_the_cluster(
    before: Callable[[str, str], Nginx],
    start: Callable[..., Running],
    node_url: str,
    index_name: str,
    tmp_path: Path,
) -> None:
    """It ends and comes back, and every search is answered, the better ones while it is there."""
    fill(node_url, index_name)
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps({"id": text, "answer": a}) + "\n" for text, a in ANSWERS.items()))
    proxy = start(settings(node_url, index_name), "--recorded", str(answers))
    nginx = before(proxy.url, node_url)
    plain = search(node_url, index_name, match(HOT))

    def asked() -> list[Any]:
        several = b"".join(json.dumps(line).encode() + b"\n" for line in ({}, match(HOT)))
        one = search(nginx.url, index_name, match(HOT))
        more = call(f"{nginx.url}/{index_name}/_msearch", "POST", several, content_type="application/x-ndjson")
        assert (one.status, more.status) == (200, 200)
        return [one.ids[0], more.json["responses"][0]["hits"]["hits"][0]["_id"]]

    assert asked() == ["fan", "fan"]
    assert proxy.stop() == 0
    for _ in range(5):
        assert asked() == [plain.ids[0]] * 2
    assert call(f"{nginx.url}/_cat/health").status == 200
    start(settings(node_url, index_name), "--recorded", str(answers), "--listen", f"127.0.0.1:{proxy.port}")
    give_up = time.monotonic() + 20
    while asked() != ["fan", "fan"]:  # it is looked for again after some seconds
        assert time.monotonic() < give_up
        time.sleep(0.2)


@pytest.mark.parametrize("status", [b"502 Bad Gateway", b"504 Gateway Timeout"])
def test_a_proxy_that_reaches_no_cluster_is_gone_round(before: Callable[[str, str], Nginx], status: bytes) -> None:
    with RawNode(b"HTTP/1.1 %s\r\ncontent-length: 0\r\n\r\n" % status) as sira, RawNode(OK) as cluster:
        nginx = before(sira.url, cluster.url)
        request = b"POST /docs/_search HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"
        assert send(nginx.port, request)[0].status == 200
        assert [len(sira.seen), len(cluster.seen)] == [1, 1]
        assert cluster.seen[0].body == b"{}"
