"""What every test may ask for: a real node, and an index name of its own on it.

SIRA_ES_TEST_URL names a running node; without it the node of SIRA_ES_TEST_ENGINE (os2) is started for the session.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

# Where a run decides about a change (CI is set), the same examples every time and no limit on their time.
settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")

# A shell ignores SIGINT for what it runs in the background, and whatever is started from there would ignore it too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A proxy of the environment must not stand between a test and a node on loopback.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A test that a node refuses for a module that it lacks is skipped, with the node's own words."""
    outcome = yield
    from cluster.capabilities import what_is_lacking

    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed and call.excinfo is not None and (lack := what_is_lacking(call.excinfo.value)):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {lack}")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def engine() -> str:
    """The row of devnode.ENGINES that this session tests on."""
    return os.environ.get("SIRA_ES_TEST_ENGINE", "os2")


@pytest.fixture(scope="session")
def node_url(engine: str) -> Iterator[str]:
    """The address of a real node: the given one, else one that lives as long as the session."""
    if url := os.environ.get("SIRA_ES_TEST_URL"):
        yield url.rstrip("/")
        return
    yield from started(engine, f"test-{engine}-{os.getpid()}")


def started(engine: str, instance: str, **options: Any) -> Iterator[str]:
    """The address of a node of its own; skips the test where a tool for it is missing."""
    from sira_es import devnode

    try:
        node = devnode.up(engine, port=0, instance=instance, **options)
    except devnode.ToolMissingError as missing:
        pytest.skip(str(missing))
    try:
        yield node.url
    finally:
        devnode.down(engine, instance=instance, purge=True)


@pytest.fixture
def index_name(node_url: str) -> Iterator[str]:
    """A fresh name; every index whose name begins with it is deleted after the test."""
    name = f"test-{secrets.token_hex(6)}"
    yield name
    listing = f"{node_url}/_cat/indices/{name}*?h=index&format=json&expand_wildcards=all"
    with _open(listing, timeout=30) as answer:
        found = [row["index"] for row in json.load(answer)]
    for index in found:  # by full names: Elasticsearch 8 and later refuse to delete by wildcard
        request = urllib.request.Request(f"{node_url}/{index}", method="DELETE")
        _open(request, timeout=30).close()
