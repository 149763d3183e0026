"""Faults on the wire: the searcher gets an answer, and it is the one to the caller's own bytes."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from cluster.wire import Reply, Seen, Wire
from proxy.asking import ANSWERS, HOT, SLOW, Got, call, fill, match, search, settings
from proxy.running import CUT, OK, RawNode, Running, send
from sira_es.proxy import downstream
from sira_es.proxy.app import Proxy
from sira_es.proxy.options import Options
from sira_es.proxy.server import TARGET
from sira_es.settings import Settings
from tests.model_server import Fault, ModelServer

pytestmark = pytest.mark.anyio
Start = Callable[..., Running]


@pytest.fixture
def index(node_url: str, index_name: str) -> str:
    fill(node_url, index_name)
    return index_name


@pytest.fixture
async def wire(node_url: str, anyio_backend: str) -> AsyncIterator[Wire]:
    async with Wire(node_url) as running:
        yield running


async def ask(url: str, index: str, body: Any, **headers: str) -> Got:
    return await anyio.to_thread.run_sync(lambda: search(url, index, body, **headers))


async def started(start: Start, *arguments: Any) -> Running:
    return await anyio.to_thread.run_sync(lambda: start(*arguments))


DENIED = {"error": {"type": "security_exception", "reason": "no"}, "status": 403}


async def test_where_nothing_can_be_counted_the_callers_own_bytes_go_out(
    start: Start, wire: Wire, index: str, recorded: str
) -> None:
    wire.on(f"/{index}/_msearch", status=403, body=DENIED)
    proxy = await started(start, settings(wire.url, index), "--recorded", recorded)
    got = await ask(proxy.url, index, match(HOT))
    assert (got.status, got.expansion) == (200, "failed; reason=no document frequencies")
    assert [s.body for s in wire.requests(f"/{index}/_search")] == [json.dumps(match(HOT)).encode()]


async def test_where_term_vectors_are_refused_words_are_counted(
    start: Start, wire: Wire, index: str, recorded: str
) -> None:
    wire.on(f"/{index}/_mtermvectors", status=403, body=DENIED)
    proxy = await started(start, settings(wire.url, index), "--recorded", recorded)
    got = await ask(proxy.url, index, match(HOT))
    assert (got.status, got.expansion) == (200, "applied")
    assert wire.count(f"/{index}/_msearch") >= 1


async def test_look_ups_that_hang_hold_no_search_up(start: Start, wire: Wire, index: str, recorded: str) -> None:
    content = settings(wire.url, index)
    content["llm"] = {"queries": {"deadline": "500ms"}}
    proxy = await started(start, content, "--recorded", recorded)
    wire.on(f"/{index}/_msearch", delay=20)
    begun = time.monotonic()
    got = await ask(proxy.url, index, match(HOT))
    assert (got.status, got.expansion) == (200, "failed; reason=too slow")
    assert time.monotonic() - begun < 4
    assert wire.requests(f"/{index}/_search")[-1].body == json.dumps(match(HOT)).encode()


async def test_a_rewritten_body_that_is_refused_is_sent_as_it_came_and_its_shape_not_tried_again(
    start: Start, wire: Wire, index: str, recorded: str
) -> None:
    async def refuse(seen: Seen, forward: Any) -> Reply:
        if b"multi_match" in seen.body and b'"must"' in seen.body:
            return Reply.of(400, {"error": {"type": "too_many_clauses", "reason": "no"}, "status": 400})
        return await forward(seen)  # type: ignore[no-any-return]

    wire.on(f"/{index}/_search", handler=refuse)
    proxy = await started(start, settings(wire.url, index), "--recorded", recorded)
    first = await ask(proxy.url, index, match(HOT))
    assert (first.status, first.expansion) == (200, "failed; reason=refused")
    assert wire.requests(f"/{index}/_search")[-1].body == json.dumps(match(HOT)).encode()
    wire.seen.clear()
    second = await ask(proxy.url, index, match(SLOW))
    assert (second.status, second.expansion) == (200, "skipped; reason=refused before")
    assert wire.count(f"/{index}/_search") == 1


def hits(**more: Any) -> bytes:
    """The answer to a search, in JSON and HTTP."""
    shards = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
    body = {"took": 1, "timed_out": False, "_shards": shards, "hits": {"hits": []}, **more}
    return http(200, json.dumps(body).encode())


def http(status: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize("status", [400, 413, 429, 500, 503])
async def test_what_is_refused_only_when_rewritten_is_sent_once_more_as_it_came(
    start: Start, node_url: str, index: str, recorded: str, status: int
) -> None:
    """A circuit breaker answers 429, and what we add makes a search heavier."""
    no = json.dumps({"error": {"type": "circuit_breaking_exception", "reason": "no"}, "status": status}).encode()
    with RawNode(http(status, no), hits(), relay=node_url) as node:
        proxy = await started(start, settings(node.url, index), "--recorded", recorded)
        got = await ask(proxy.url, index, match(HOT))
        assert (got.status, got.expansion) == (200, "failed; reason=refused")
        assert [json.loads(s.body) == match(HOT) for s in node.seen] == [False, True]
        assert (await ask(proxy.url, index, match(HOT))).expansion == "skipped; reason=refused before"
        figures = await anyio.to_thread.run_sync(lambda: call(f"{proxy.url}/_sira/metrics").body)
        assert b"sira_rewrites_refused_total 1.0" in figures


async def test_a_search_that_only_was_too_much_at_the_moment_is_soon_rewritten_again(
    start: Start, node_url: str, index: str, recorded: str
) -> None:
    with RawNode(http(503, b"{}"), hits(), relay=node_url) as node:
        proxy = await started(start, settings(node.url, index), "--recorded", recorded)
        assert (await ask(proxy.url, index, match(HOT))).expansion == "failed; reason=refused"
        await anyio.sleep(5.5)
        assert (await ask(proxy.url, index, match(HOT))).expansion == "cached"


@pytest.mark.parametrize(
    "answer",
    [
        http(503, b"{}"),
        http(429, b"{}"),
        http(200, b'{"_shards": {"total": 2, "successful": 1, "failed": 1}, "hits": {"hits": []}}'),
    ],
)
async def test_a_cluster_that_can_do_no_more_is_not_asked_twice_for_each_search(
    start: Start, node_url: str, index: str, recorded: str, answer: bytes
) -> None:
    with RawNode(answer, relay=node_url) as node:
        proxy = await started(start, settings(node.url, index), "--recorded", recorded)
        assert (await ask(proxy.url, index, match(HOT))).expansion == "failed; reason=refused"
        for _ in range(3):
            assert (await ask(proxy.url, index, match(HOT))).expansion == "skipped; reason=refused before"
        assert len(node.seen) == 2 + 3


async def test_what_hits_hold_is_taken_for_no_failure(start: Start, node_url: str, index: str, recorded: str) -> None:
    hit = {"_id": "1", "_source": {"error": "x", "status": 400, "_shards": {"total": 3, "failed": 3}}}
    with RawNode(hits(hits={"hits": [hit]}), relay=node_url) as node:
        proxy = await started(start, settings(node.url, index), "--recorded", recorded)
        assert (await ask(proxy.url, index, match(HOT))).expansion == "applied"
        assert len(node.seen) == 1


async def test_a_body_that_is_wrong_by_itself_gets_its_own_error(
    start: Start, node_url: str, index: str, recorded: str
) -> None:
    proxy = await started(start, settings(node_url, index), "--recorded", recorded)
    body = match(HOT, aggs={"a": {"nonsense": {}}})
    plain, got = await ask(node_url, index, body), await ask(proxy.url, index, body)
    assert (got.status, got.json["error"]["type"]) == (400, plain.json["error"]["type"])


async def test_a_shard_that_fails_on_the_rewritten_body_only_does_not_count(
    start: Start, wire: Wire, index: str, recorded: str
) -> None:
    async def fail(seen: Seen, forward: Any) -> Reply:
        reply: Reply = await forward(seen)
        if b'"must"' not in seen.body:
            return reply
        value = reply.json
        value["_shards"].update(failed=1)
        value["hits"]["hits"] = []
        return Reply(200, json.dumps(value).encode(), reply.headers)

    wire.on(f"/{index}/_search", handler=fail)
    proxy = await started(start, settings(wire.url, index), "--recorded", recorded)
    got = await ask(proxy.url, index, match(HOT))
    assert got.expansion == "failed; reason=refused"
    assert got.json["_shards"]["failed"] == 0
    assert got.ids


async def test_a_node_that_dies_in_the_middle_of_an_answer_is_replaced_by_another(
    start: Start, node_url: str, index: str, recorded: str
) -> None:
    with RawNode(b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n{" + CUT) as dying:
        content = settings(node_url, index)
        proxy = await started(start, content, "--recorded", recorded)
        assert (await ask(proxy.url, index, match(HOT))).status == 200
        content["cluster"]["url"] = [dying.url, node_url]
        proxy.write(content)
        import signal

        proxy.signal(signal.SIGHUP)
        await anyio.sleep(1)
        for _ in range(6):
            got = await ask(proxy.url, index, match(HOT))
            assert got.status == 200
            assert got.ids
        assert dying.seen


async def test_a_node_that_cannot_be_reached_is_left_out_and_none_at_all_is_a_502(
    start: Start, node_url: str, index: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        dead = f"http://127.0.0.1:{taken.getsockname()[1]}"
    proxy = await started(start, {"cluster": {"url": [dead, node_url]}})
    bulk = b'{"index":{"_index":"%s"}}\n{"title":"x"}\n' % index.encode()
    for _ in range(4):
        got = await anyio.to_thread.run_sync(lambda: call(f"{proxy.url}/_bulk", "POST", bulk))
        assert got.status == 200
    alone = await started(start, {"cluster": {"url": dead}})
    got = await anyio.to_thread.run_sync(lambda: call(f"{alone.url}/_bulk", "POST", bulk))
    assert (got.status, got.json["error"]["type"]) == (502, "sira_upstream_unreachable")
    assert (await anyio.to_thread.run_sync(lambda: call(f"{alone.url}/_sira/health/live"))).status == 200
    assert (await anyio.to_thread.run_sync(lambda: call(f"{alone.url}/_sira/health/ready"))).status == 503


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    with ModelServer(ANSWERS) as server:
        yield server


async def test_faults_of_the_model_leave_the_search_without_expansions(
    start: Start, node_url: str, index: str, model: ModelServer
) -> None:
    """opensearch-project/ml-commons#4359: never a silent fallback; the header says so."""
    content = settings(node_url, index, model)
    content["llm"]["queries"]["deadline"] = "1s"
    proxy = await started(start, content)
    plain = await ask(node_url, index, match("bag that gets wet"))
    faults = (Fault.status(500), Fault.says("sorry, I cannot"), Fault.hang(), Fault.drop())
    for n, fault in enumerate(faults):
        model.always(fault)
        begun = time.monotonic()
        got = await ask(proxy.url, index, match(f"bag that gets wet {'really ' * n}"))
        assert got.status == 200
        assert got.expansion.startswith("failed; reason="), fault
        assert sorted(got.ids) == sorted(plain.ids)
        assert time.monotonic() - begun < 6
    model.heal()


async def test_of_many_new_texts_those_are_expanded_that_the_model_knew_in_time(
    start: Start, wire: Wire, index: str
) -> None:
    """Also where the cluster takes its time to look up their words after the last moment for the model."""
    texts = [f"laptop hot {a}{b}" for a in "abcdefghij" for b in "klmnopqrst"]
    wire.on(f"/{index}/_m(termvectors|search)", delay=0.1)
    with ModelServer(dict.fromkeys(texts, ANSWERS[HOT]), latency=0.25) as slow:
        content = settings(wire.url, index, slow)
        content["llm"]["queries"]["deadline"] = "1500ms"
        proxy = await started(start, content)
        body = b"".join(b"{}\n" + json.dumps(match(text)).encode() + b"\n" for text in texts)
        got = await anyio.to_thread.run_sync(lambda: call(f"{proxy.url}/{index}/_msearch", "POST", body))
    told = dict(part.split("=") for part in got.expansion.split(", "))
    assert int(told["applied"]) >= 8
    assert int(told["applied"]) + int(told["failed"]) == 100


async def test_a_client_that_leaves_ends_the_search_upstream(start: Start, wire: Wire, index: str) -> None:
    arrived = anyio.Event()

    async def wait(seen: Seen, forward: Any) -> Reply:
        arrived.set()
        await anyio.sleep(20)
        return Reply(200)

    proxy = await started(start, settings(wire.url, index))
    wire.on(f"/{index}/_search", handler=wait)
    body = json.dumps(match(HOT)).encode()
    with socket.create_connection(("127.0.0.1", proxy.port)) as connection:
        head = f"POST /{index}/_search HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        await arrived.wait()
    await anyio.to_thread.run_sync(lambda: proxy.wait_for('"left":"client"', 10))


async def test_a_client_that_leaves_in_the_middle_of_its_body_sends_no_half_bulk(start: Start) -> None:
    with RawNode(OK) as node:
        proxy = await started(start, {"cluster": {"url": node.url}})
        with socket.create_connection(("127.0.0.1", proxy.port)) as connection:
            connection.sendall(b"POST /_bulk HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
            await anyio.sleep(0.5)
        await anyio.sleep(1)
        assert not node.seen  # it came without its end
        assert send(proxy.port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")[0].status == 200


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_fault_of_a_node(
    start: Start, node_url: str
) -> None:
    nodes = [node_url, node_url.replace("127.0.0.1", "localhost")]
    proxy = await started(start, {"cluster": {"url": nodes}})
    for _ in nodes:
        with socket.create_connection(("127.0.0.1", proxy.port)) as connection:
            connection.sendall(b"POST /_bulk HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\nhello")
            await anyio.sleep(0.5)
    await anyio.to_thread.run_sync(lambda: proxy.wait_for('"left":"client"', 10))
    assert not any("left out" in line for line in proxy.lines)
    figures = await anyio.to_thread.run_sync(lambda: call(f"{proxy.url}/_sira/metrics").body)
    assert b'status="502"' not in figures


@asynccontextmanager
async def in_process(url: str) -> AsyncIterator[Proxy]:
    """A proxy in this process."""
    proxy = Proxy(lambda: Settings.model_validate({"cluster": {"url": url}}), Options(), quiet=True)
    started, over = anyio.Event(), anyio.Event()
    begun = False

    async def next_step() -> None:
        nonlocal begun
        if begun:
            await over.wait()
        begun = True

    async def tell(message: Any) -> None:
        started.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(proxy, {"type": "lifespan"}, next_step, tell)
        await started.wait()
        yield proxy
        over.set()


class Client:
    """One request to a proxy in this process; a body of nine bytes comes, or nothing after the first."""

    def __init__(self, path: bytes, *, whole: bool) -> None:
        self.answers: list[Any] = []
        headers = [(b"host", b"x"), (b"content-length", b"9")]
        self._request = {"type": "http", "http_version": "1.1", "method": "POST", TARGET: path, "headers": headers}
        self._came = [{"type": "http.request", "body": b"{       }"[: 9 if whole else 1], "more_body": not whole}]

    async def ask(self, proxy: Proxy) -> None:
        await proxy(self._request, self._receive, self._take)

    @property
    def statuses(self) -> list[int]:
        return [answer["status"] for answer in self.answers if "status" in answer]

    async def _receive(self) -> Any:
        return self._came.pop() if self._came else await anyio.sleep_forever()

    async def _take(self, message: Any) -> None:
        self.answers.append(message)


@pytest.mark.parametrize("path", [b"/_bulk", b"/docs/_search"])
async def test_a_client_that_stops_in_the_middle_of_its_body_is_told_so(
    monkeypatch: pytest.MonkeyPatch, path: bytes
) -> None:
    monkeypatch.setattr(downstream, "BODY_PAUSE_SECONDS", 0.2)
    client = Client(path, whole=False)
    with RawNode() as node:
        async with in_process(node.url) as proxy:
            await client.ask(proxy)
        assert not node.seen
    assert client.statuses == [408]


@pytest.mark.parametrize("path", [b"/_bulk", b"/docs/_search"])
async def test_a_request_that_does_not_end_before_the_proxy_does_is_told_so(path: bytes) -> None:
    """With a status at which a load balancer asks elsewhere."""
    client = Client(path, whole=True)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with in_process(f"http://127.0.0.1:{silent.getsockname()[1]}") as proxy:
            asking = asyncio.ensure_future(client.ask(proxy))
            await anyio.sleep(0.3)
            asking.cancel()
            await asyncio.wait([asking])
    assert client.statuses == [502]
    assert b"sira_stopped" in client.answers[-1]["body"]


async def test_a_callers_credentials_go_with_our_look_ups_and_others_see_nothing_of_them(
    start: Start, wire: Wire, index: str, recorded: str
) -> None:
    """elastic/kibana#26651: ApiKey, Bearer, Basic and run-as headers are forwarded, also on look-ups of our own."""

    async def sign_in(seen: Seen, forward: Any) -> Reply:
        if seen.headers.get("authorization") not in {"ApiKey anna", "ApiKey ben"}:
            return Reply.of(401, {"error": {"type": "security_exception", "reason": "who?"}, "status": 401})
        return await forward(seen)  # type: ignore[no-any-return]

    wire.on("/.*", handler=sign_in)
    proxy = await started(start, settings(wire.url, index), "--recorded", recorded)
    stranger = await ask(proxy.url, index, match(HOT))
    assert stranger.status == 401
    wire.seen.clear()
    anna = await ask(proxy.url, index, match(HOT), authorization="ApiKey anna", es_security_runas_user="anna")
    assert (anna.status, anna.expansion) == (200, "applied")
    looked_up = [s for s in wire.seen if not s.path.endswith("/_search")]
    ours = [s for s in looked_up if "_msearch" in s.path or "_mtermvectors" in s.path]
    assert ours
    assert {(s.headers.get("authorization"), s.headers.get("es-security-runas-user")) for s in ours} == {
        ("ApiKey anna", "anna")
    }
    assert all(s.headers["x-opaque-id"].startswith("sira-es") for s in ours)
    ben = await ask(proxy.url, index, match(HOT), authorization="ApiKey ben")
    assert ben.expansion == "applied"  # not "cached": what anna may see says nothing of what ben may
    assert not any("anna" in line or "ApiKey" in line or HOT in line for line in proxy.lines)
