"""A page without a server of its own: the browser sends its searches to the cluster, or with one address changed to a proxy.

The browser asks first whether it may (CORS): the cluster decides, and the proxy passes the question and the answer. The
page is that of test_search_ui.py, which says what its folders are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from browser.conftest import Shop, made, products
from browser.test_search_ui import KEYBOARD, SPEAKERS, THE_KEYBOARD, UNKNOWN, check_better
from proxy.asking import call, settings
from proxy.running import Running
from tests.conftest import started

pytestmark = pytest.mark.slow

CORS = {"http.cors.enabled": "true", "http.cors.allow-origin": r"/http:\/\/localhost:\d+/"}


@pytest.fixture(scope="module")
def node_url(engine: str) -> Iterator[str]:
    """A node that lets pages of this machine ask it."""
    yield from started(engine, f"test-cors-{os.getpid()}", settings=CORS)


@pytest.fixture(scope="module")
def index(node_url: str) -> Iterator[str]:
    yield from made(node_url, products())


@pytest.fixture(scope="module")
def direct(folder: Path, chromium: str, node_url: str, index: str) -> Iterator[Shop]:
    with Shop(folder, chromium, node_url, index, itself=True) as shop:
        yield shop


@pytest.fixture(scope="module")
def proxy(node_url: str, index: str, answers: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("ui"), settings(node_url, index), "--recorded", str(answers)) as running:
        yield running


@pytest.fixture(scope="module")
def through(folder: Path, chromium: str, proxy: Running, index: str) -> Iterator[Shop]:
    with Shop(folder, chromium, proxy.url, index, itself=True) as shop:
        yield shop


def test_the_page_shows_the_same_total_and_facets_in_a_better_order(
    direct: Shop, through: Shop, proxy: Running, rated: dict[str, dict[str, int]]
) -> None:
    """searchkit/searchkit#607, elastic/search-ui#704: nothing but HTTP is needed, and a preflight passes."""
    plain, better = direct.page(SPEAKERS), through.page(SPEAKERS)
    assert plain.total > 100
    check_better(plain, better, rated)
    asked = [(r["method"], r["kind"]) for r in proxy.requests if r["path"] == "/_msearch"]
    assert asked[0] == ("OPTIONS", "passed")
    assert ("POST", "msearch") in asked


def test_the_right_product_stood_low_and_now_stands_on_top(direct: Shop, through: Shop) -> None:
    assert direct.page(KEYBOARD).ids.index(THE_KEYBOARD) > 4
    assert through.page(KEYBOARD).ids[0] == THE_KEYBOARD


def test_without_expansions_the_page_is_the_same(direct: Shop, through: Shop) -> None:
    plain = direct.page(UNKNOWN)
    assert len(plain.ids) == 10
    assert through.page(UNKNOWN).dom == plain.dom


def test_who_may_ask_is_for_the_cluster_to_say(node_url: str, proxy: Running) -> None:
    """elastic/search-ui#795: each answer to a preflight is the cluster's own, and none of ours is shown to pages."""
    wanted = {"access_control_request_method": "POST", "access_control_request_headers": "content-type"}
    for origin in ("http://localhost:1234", "http://evil.example"):
        plain, got = (call(f"{u}/_msearch", "OPTIONS", origin=origin, **wanted) for u in (node_url, proxy.url))
        assert (got.status, got.body) == (plain.status, plain.body)
        theirs = {k: v for k, v in plain.headers.items() if k.startswith("access-control")}
        assert {k: v for k, v in got.headers.items() if k.startswith("access-control")} == theirs
        assert bool(theirs.get("access-control-allow-origin")) == ("localhost" in origin)
