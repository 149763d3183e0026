"""Enterprise networks: a forward proxy between us and the cluster or the model, and hosts that are reached without it.

What users ask of every tool of this kind: HTTP_PROXY, HTTPS_PROXY and NO_PROXY, an OpenAI-compatible base URL, another
model for each stage; a private CA (that of the cluster is in test_connect.py). As with Go, this machine's own addresses
go through no proxy.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import os
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cluster.security import certificates
from sira_es.cluster.connect import connect
from sira_es.cluster.transport import proxy_of
from sira_es.errors import ClusterUnreachable
from sira_es.llm.model import Model
from sira_es.llm.prompts import query_prompt
from sira_es.settings import ClusterSettings, LlmStage, Settings
from sira_es.sira import AsyncSira
from tests.model_server import ModelServer

pytestmark = pytest.mark.anyio
NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
FAR = "http://cluster.invalid:9200"  # no name server knows it: only the proxy can


@pytest.fixture(autouse=True)
def no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


class ForwardProxy:
    """Takes requests for any host to one node. Remembers the request lines and the proxy credentials."""

    def __init__(self, node_url: str) -> None:
        self.node = urlsplit(node_url)
        self.lines: list[str] = []
        self.credentials: set[str] = set()
        self.url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            line, *headers = head.split("\r\n")
            self.lines.append(line)
            self.credentials |= {h for h in headers if h.lower().startswith("proxy-authorization")}
            method, url, version = line.split(" ")
            near_reader, near_writer = await asyncio.open_connection(self.node.hostname, self.node.port)
            kept = [h for h in headers if not h.lower().startswith(("proxy-", "connection"))]
            path = url[len(f"{urlsplit(url).scheme}://{urlsplit(url).netloc}") :]
            near_writer.write("\r\n".join([f"{method} {path} {version}", "Connection: close", *kept]).encode("latin-1"))
            length = next((int(h.split(":")[1]) for h in headers if h.lower().startswith("content-length")), 0)
            near_writer.write(await reader.readexactly(length))
            writer.write(await near_reader.read())
            near_writer.close()
            await writer.drain()
        finally:
            writer.close()


@pytest.fixture
async def proxy(node_url: str, anyio_backend: str) -> AsyncIterator[ForwardProxy]:
    running = ForwardProxy(node_url)
    server = await asyncio.start_server(running.handle, "127.0.0.1", 0)
    running.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield running
    server.close()
    await server.wait_closed()


@asynccontextmanager
async def asked(url: str) -> AsyncIterator[int]:
    cluster = await connect(ClusterSettings(url=url, timeout=5))
    try:
        yield (await cluster.request("POST", "/_search", body={"size": 0}))["took"]
    finally:
        await cluster.close()


async def test_the_cluster_is_reached_through_the_proxy(proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    async with asked(FAR) as took:
        assert took >= 0
    assert all(f" {FAR}/" in line for line in proxy.lines)


async def test_a_proxy_that_wants_credentials_gets_them(proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//me:pass%20word@"))
    async with asked(FAR):
        pass
    assert proxy.credentials == {f"Proxy-Authorization: Basic {base64.b64encode(b'me:pass word').decode()}"}


async def test_no_proxy_names_what_is_reached_without_it(proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    monkeypatch.setenv("NO_PROXY", ".invalid,example.org")
    with pytest.raises(ClusterUnreachable, match="host name cannot be resolved"):
        async with asked(FAR):
            pass
    assert proxy.lines == []


async def test_this_machine_is_never_reached_through_a_proxy(
    node_url: str, proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    async with asked(node_url):
        pass
    assert proxy.lines == []


async def test_a_proxy_that_is_down_is_not_gone_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with pytest.raises(ClusterUnreachable):
        async with asked(FAR):
            pass


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://es.example:9200", "http://secure:3128"),
        ("http://es.example:9200/prefix", "http://plain:3128"),
        ("http://localhost:9200", None),
        ("https://[::1]:9200", None),
        ("https://es.internal:9200", None),
    ],
)
async def test_each_scheme_has_its_proxy(url: str, expected: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://secure:3128")
    monkeypatch.setenv("HTTP_PROXY", "plain:3128")
    monkeypatch.setenv("NO_PROXY", "es.internal")
    assert proxy_of(url) == expected


async def test_the_model_is_reached_through_the_proxy_too(proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer({}) as server:
        proxy.node = urlsplit(server.api_base)
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        stage = LlmStage(model="openai/recorded", api_base="http://model.invalid/v1", api_key="none", timeout=20)
        answer = await Model(stage).ask(query_prompt("", "printer", "", "en"))
        assert answer.text
        assert len(server.calls) == 1
    assert proxy.lines == ["POST http://model.invalid/v1/chat/completions HTTP/1.1"]


async def test_each_stage_has_its_own_model_and_address(node_url: str, index_name: str, tmp_path: Path) -> None:
    with ModelServer({}) as documents, ModelServer({}) as queries:
        llm = {
            side: {"model": f"openai/{side}", "api_base": server.api_base, "api_key": "none"}
            for side, server in (("documents", documents), ("queries", queries))
        }
        indices = {index_name: {"text_fields": ["title", "text"], "language": "en"}}
        async with AsyncSira(Settings(cluster={"url": node_url}, llm=llm, state=tmp_path, indices=indices)) as sira:
            await sira.load(index_name, [("1", {"title": "laptop", "text": "it gets hot"})], analyzer="standard")
            await sira.enrich(index_name)
            await sira.expand("hot laptop", index_name, deadline=math.inf)
        assert {c["model"] for c in documents.calls} == {"documents"}
        assert {c["model"] for c in queries.calls} == {"queries"}


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_model_behind_a_private_ca_is_reached_where_the_system_is_told_of_it(
    trusted: bool, tmp_path: Path, node_url: str
) -> None:
    """SSL_CERT_FILE is what a company's machines set for every Python program."""
    files = certificates.make(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(files.node, files.node_key)
    with ModelServer({}, tls=tls) as server:
        stage = {"model": "openai/recorded", "api_base": server.api_base, "api_key": "sk-planted-model-key"}
        config = tmp_path / "sira-es.yml"
        config.write_text(json.dumps({"cluster": {"url": node_url}, "llm": {"queries": stage}}), "utf-8")
        environment = {**os.environ, **({"SSL_CERT_FILE": str(files.ca)} if trusted else {})}
        command = [sys.executable, "-m", "sira_es", "doctor", "-c", str(config), "--live", "--json"]
        run = await asyncio.to_thread(subprocess.run, command, env=environment, capture_output=True, text=True)
    said = " ".join(f"{c['detail']}; {c['remedy']}" for c in json.loads(run.stdout))
    assert ("answered in" in said) == trusted
    assert ("shows a certificate that is not trusted; name the file of your CA" in said) != trusted
    assert len(server.calls) == trusted
