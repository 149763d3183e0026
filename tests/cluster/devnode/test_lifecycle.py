"""A real node comes up, is found again, keeps its data and leaves nothing running. The engine: SIRA_ES_TEST_ENGINE."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from sira_es import devnode
from sira_es.devnode import NodeError, ToolMissingError, node, place, process
from sira_es.errors import ConfigurationError

_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def call(method: str, url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with _open(request, timeout=60) as reply:
        return json.load(reply)


@pytest.fixture
def instance(engine: str) -> Iterator[str]:
    """The name of a node of the test's own; whatever becomes of it is removed."""
    try:
        place.find_jdk(devnode.ENGINES[engine].jdk)
        place.find_maven()
    except ToolMissingError as missing:
        pytest.skip(str(missing))
    name = f"test-life-{os.getpid()}"
    yield name
    devnode.down(engine, purge=True, instance=name)


def processes(instance: str) -> list[int]:
    return process.pids(node._Instance(devnode.home(), instance).mark)


def state(instance: str) -> list[str]:
    return [line.state for line in devnode.status() if line.instance == instance]


def test_a_node_lives_through_up_and_down(engine: str, instance: str) -> None:
    said: list[str] = []
    first = devnode.up(engine, 0, said.append, instance=instance)
    row = devnode.ENGINES[engine]
    assert (first.engine, first.version) == (engine, row.version)
    assert first.pid in processes(instance)
    assert state(instance) == ["running"]
    assert said[-1].startswith(f"{row.title} is ready after")

    analysed = call("POST", f"{first.url}/_analyze", {"analyzer": "english", "text": "The running laptops overheated"})
    assert [token["token"] for token in analysed["tokens"]] == ["run", "laptop", "overh"]
    call("PUT", f"{first.url}/kept/_doc/1?refresh=true", {"text": "stays"})

    assert devnode.up(engine, on_progress=said.append, instance=instance) == first
    assert said[-1] == f"{instance} runs already"
    with pytest.raises(ConfigurationError, match="with other options"):
        devnode.up(engine, 9876, instance=instance)

    assert devnode.down(engine, instance=instance)
    assert processes(instance) == []
    assert state(instance) == ["stopped"]

    again = devnode.up(engine, 0, instance=instance)
    assert call("GET", f"{again.url}/kept/_doc/1")["_source"] == {"text": "stays"}
    devnode.down(engine, purge=True, instance=instance)
    assert processes(instance) == []
    assert not again.folder.exists()
    assert state(instance) == []


def test_a_node_that_was_killed_is_seen_as_stopped_and_starts_again(engine: str, instance: str) -> None:
    killed = devnode.up(engine, 0, instance=instance)
    os.kill(killed.pid, signal.SIGKILL)
    limit = time.monotonic() + 20
    while processes(instance) and time.monotonic() < limit:
        time.sleep(0.1)
    assert state(instance) == ["stopped"]
    assert devnode.up(engine, 0, instance=instance).pid != killed.pid


def test_a_node_that_cannot_start_says_why_and_leaves_nothing_running(engine: str, instance: str) -> None:
    with pytest.raises(NodeError, match=r"ended while starting: .*no\.such\.setting") as failure:
        devnode.up(engine, 0, settings={"no.such.setting": "1"}, instance=instance)
    assert "\n" not in str(failure.value)
    assert processes(instance) == []
