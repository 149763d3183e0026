"""Running it: figures, log, reload, drain, several processes, a sample of users, a shadow."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.asking import HOT, SLOW, call, match, search, settings
from proxy.running import Running, read_message, send

Start = Callable[..., Running]


def figure(proxy: Running, name: str) -> float:
    page = call(f"{proxy.url}/_sira/metrics").body.decode()
    return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(name))


def until(holds: Callable[[], bool], seconds: float = 20) -> None:
    give_up = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.1)


def test_figures_and_log_tell_outcomes_and_no_text(start: Start, node_url: str, index: str, recorded: str) -> None:
    proxy = start(settings(node_url, index), "--recorded", recorded)
    search(proxy.url, index, match(HOT))
    search(proxy.url, index, match(HOT))
    call(f"{proxy.url}/{index}/_search?q=secretword")
    assert figure(proxy, 'sira_searches_total{outcome="applied"') == 1
    assert figure(proxy, 'sira_searches_total{outcome="cached"') == 1
    assert figure(proxy, 'sira_searches_total{outcome="skipped",reason="query in the URL"}') == 1
    assert figure(proxy, 'sira_stage_seconds_count{stage="upstream"}') == 3
    until(lambda: sum('"kind":"search"' in line for line in proxy.lines) == 3)
    lines = [line for line in proxy.requests if line["kind"] == "search"]
    assert [line["expansion"] for line in lines] == ["applied", "cached", "skipped; reason=query in the URL"]
    assert {line["path"] for line in lines} == {f"/{index}/_search"}
    assert not any("laptop" in line or "secretword" in line for line in proxy.lines)


def test_credentials_in_a_target_that_is_refused_are_not_logged(start: Start, node_url: str) -> None:
    proxy = start({"cluster": {"url": node_url}})
    for target in (b"http://anna:secret@elsewhere.example/a", b"anna:secret@elsewhere.example:443"):
        method = b"GET" if target.startswith(b"http") else b"CONNECT"
        assert send(proxy.port, method + b" " + target + b" HTTP/1.1\r\nhost: x\r\n\r\n")[0].status == 400
    until(lambda: len(proxy.requests) == 2)
    assert not any("secret" in line for line in proxy.lines)


def test_sighup_reads_the_configuration_again_and_a_wrong_one_changes_nothing(
    start: Start, node_url: str, index: str, recorded: str
) -> None:
    proxy = start(settings(node_url, index), "--recorded", recorded)
    content = settings(node_url, index, mode="off")
    proxy.write(content)
    proxy.signal(signal.SIGHUP)
    until(lambda: figure(proxy, 'sira_reloads_total{result="done"}') == 1)
    assert search(proxy.url, index, match(HOT)).expansion == "skipped; reason=off"
    proxy.write({**content, "nonsense": 1})
    proxy.signal(signal.SIGHUP)
    until(lambda: figure(proxy, 'sira_reloads_total{result="failed"}') == 1)
    assert search(proxy.url, index, match(HOT)).expansion == "skipped; reason=off"


def test_sigterm_lets_a_request_end_and_takes_no_new_one(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as node:
        proxy = start({"cluster": {"url": f"http://127.0.0.1:{node.getsockname()[1]}"}})
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as client:
            client.sendall(b"GET /_cat/health HTTP/1.1\r\nhost: x\r\n\r\n")
            upstream, _ = node.accept()
            with upstream, upstream.makefile("rb") as stream:
                read_message(stream)
                proxy.signal(signal.SIGTERM)
                time.sleep(1)
                with pytest.raises(OSError, match="refused"):
                    socket.create_connection(("127.0.0.1", proxy.port), timeout=5)
                upstream.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate")
                with client.makefile("rb") as answer:
                    assert read_message(answer).body == b"late"
        assert proxy.process.wait(30) == 0


def test_several_processes_serve_the_same_and_add_up_their_figures(
    start: Start, node_url: str, index: str, recorded: str
) -> None:
    proxy = start(settings(node_url, index), "--recorded", recorded, "--workers", "2")
    got = [search(proxy.url, index, match(HOT)) for _ in range(20)]
    assert {tuple(g.ids) for g in got} == {tuple(got[0].ids)}
    assert [g.expansion for g in got].count("applied") == 1
    assert figure(proxy, "sira_searches_total") == 20
    assert proxy.stop() == 0


def test_a_process_that_was_killed_leaves_no_requests_under_way_behind(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        proxy = start({"cluster": {"url": f"http://127.0.0.1:{silent.getsockname()[1]}"}}, "--workers", "2")
        with contextlib.ExitStack() as clients:
            for _ in range(4):
                client = clients.enter_context(socket.create_connection(("127.0.0.1", proxy.port)))
                client.sendall(b"GET /_cat/health HTTP/1.1\r\nhost: x\r\n\r\n")
            until(lambda: figure(proxy, "sira_in_flight") == 5)  # with the one that asks
            children = Path(f"/proc/{proxy.process.pid}/task/{proxy.process.pid}/children").read_text()
            for child in children.split():
                os.kill(int(child), signal.SIGKILL)
                proxy.wait_for(f"worker {child} ended")
        until(lambda: figure(proxy, "sira_in_flight") == 1)


def test_figures_tell_which_nodes_answer(start: Start, node_url: str) -> None:
    proxy = start({"cluster": {"url": [node_url, "http://127.0.0.1:1"]}})
    until(lambda: "a node is left out" in "".join(proxy.lines))
    page = call(f"{proxy.url}/_sira/metrics").body.decode()
    assert f'sira_upstream_up{{node="{node_url.removeprefix("http://")}"}} 1.0' in page
    assert 'sira_upstream_up{node="127.0.0.1:1"} 0.0' in page


def test_a_sample_of_users_is_served_and_the_others_have_the_plain_search(
    start: Start, node_url: str, index: str, recorded: str
) -> None:
    proxy = start(settings(node_url, index), "--recorded", recorded, "--sample", "50%")
    first = {k: search(proxy.url, index, match(HOT), X_Sira_Key=f"user {k}").expansion for k in range(12)}
    again = {k: search(proxy.url, index, match(HOT), X_Sira_Key=f"user {k}").expansion for k in range(12)}
    plain = {k for k, e in first.items() if e == "skipped; reason=not in the sample"}
    assert 0 < len(plain) < 12
    assert plain == {k for k, e in again.items() if e == "skipped; reason=not in the sample"}


def test_a_shadow_compares_unseen(start: Start, node_url: str, index: str, recorded: str) -> None:
    proxy = start(settings(node_url, index, mode="recall"), "--recorded", recorded, "--shadow", "100%")
    plain = search(node_url, index, match(HOT))
    got = search(proxy.url, index, match(HOT))
    nothing = search(proxy.url, index, {"query": {"match": {"title": {"query": SLOW + " x", "operator": "and"}}}})
    assert got.ids == plain.ids
    assert got.expansion == nothing.expansion == "skipped; reason=not in the sample"
    file = proxy.state / "shadow.jsonl"
    until(lambda: file.exists() and len(file.read_text().splitlines()) >= 1)
    line = json.loads(file.read_text().splitlines()[0])
    assert 0 < line["rbo"] < 1
    assert line["total_expanded"] > line["total"]
    assert line["rescued"] is False
    assert figure(proxy, "sira_shadow_rbo_count") >= 1
    assert "laptop" not in file.read_text()
    assert not file.stat().st_mode & 0o077


def test_wrong_use_is_one_line(node_url: str, tmp_path: Path) -> None:
    from sira_es.cli import run

    assert run(["proxy", "--listen", "nowhere", "--url", node_url]) == 2
    assert run(["proxy", "--sample", "120%", "--url", node_url]) == 2
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(["proxy", "--listen", f"127.0.0.1:{port}", "--url", node_url]) == 2
