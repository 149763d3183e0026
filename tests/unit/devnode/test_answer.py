"""A node counts as up only when it is the product, the version and the plugins that were asked for."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sira_es.devnode import ENGINES, NodeError, answer

Answers = dict[str, tuple[int, dict[str, str], Any]]


@contextmanager
def serving(answers: Answers) -> Iterator[str]:
    """A server that answers each path (without its query) as told, and 404 otherwise."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = answers.get(self.path.partition("?")[0], (404, {}, {}))
            payload = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(payload))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def node(version: str, plugins: tuple[str, ...]) -> dict[str, Any]:
    return {
        "nodes": {"n1": {"version": version, "process": {"id": 42}, "plugins": [{"name": name} for name in plugins]}}
    }


INFO = "/_nodes/_local/process,plugins"
ELASTIC = {"X-elastic-product": "Elasticsearch"}
ROOT = (200, {}, {"version": {"distribution": "opensearch"}})


def test_the_right_node_is_accepted_and_gives_its_pid() -> None:
    row = ENGINES["os2"]
    with serving({INFO: (200, {}, node(row.version, row.plugins)), "/": ROOT}) as url:
        assert answer.check(row, url).pid == 42


def test_elasticsearch_is_known_by_its_header_though_it_refuses_the_root_path() -> None:
    row = ENGINES["es8"]
    with serving({INFO: (200, ELASTIC, node(row.version, row.plugins)), "/": (405, ELASTIC, {})}) as url:
        assert answer.check(row, url).family == "elasticsearch"


def test_another_version_is_refused() -> None:
    row = ENGINES["os2"]
    with (
        serving({INFO: (200, {}, node("2.4.0", row.plugins)), "/": ROOT}) as url,
        pytest.raises(NodeError, match=r"answers as opensearch 2\.4\.0, not as OpenSearch 2\.19\.6"),
    ):
        answer.check(row, url)


def test_another_product_of_the_same_version_is_refused() -> None:
    row = ENGINES["es8"]
    with (
        serving({INFO: (200, {}, node(row.version, row.plugins)), "/": ROOT}) as url,
        pytest.raises(NodeError, match="answers as opensearch"),
    ):
        answer.check(row, url)


def test_a_missing_plugin_is_named() -> None:
    row = ENGINES["os3"]
    with (
        serving({INFO: (200, {}, node(row.version, row.plugins[1:])), "/": ROOT}) as url,
        pytest.raises(NodeError, match=f"came up without {row.plugins[0]}"),
    ):
        answer.check(row, url)


@pytest.mark.parametrize("body", [b"", b"<html>", [], {}, {"nodes": {}}, {"nodes": {"a": {}}}, {"nodes": {"a": None}}])
def test_an_answer_of_unexpected_shape_is_no_node(body: Any) -> None:
    with serving({INFO: (200, {}, body)}) as url:
        assert answer.identify(url) is None
        with pytest.raises(NodeError, match="gives no account of itself"):
            answer.check(ENGINES["os2"], url)


@pytest.mark.parametrize(("status", "expected"), [(200, True), (503, False), (404, False)])
def test_only_a_good_answer_is_health(status: int, expected: bool) -> None:
    with serving({"/_cluster/health": (status, {}, {"status": "green"})}) as url:
        assert answer.healthy(url) is expected


def test_nobody_there_is_not_healthy(unused: Callable[[], str]) -> None:
    assert not answer.healthy(unused())


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch, unused: Callable[[], str]) -> None:
    monkeypatch.setenv("http_proxy", unused())
    monkeypatch.delenv("no_proxy", raising=False)
    with serving({"/_cluster/health": (200, {}, {})}) as url:
        assert answer.healthy(url)


@pytest.fixture
def unused() -> Callable[[], str]:
    from sira_es.devnode import place

    return lambda: f"http://127.0.0.1:{place.free_port()}"
