"""A search page whose only change is the address of its cluster: better order, and everything else as before.

The page is Searchkit with the widgets of InstantSearch, as npm has them, in headless Chromium. SIRA_ES_COLLECTIONS and
SIRA_ES_RECORDINGS name the folders of collections and recorded answers. SIRA_ES_PICTURES names a folder for two pictures.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from browser.conftest import Page, Shop, made, products
from proxy.asking import call, settings
from proxy.running import Running

pytestmark = pytest.mark.slow

SPEAKERS = "surround sound speakers"
SPEAKER_SET = "478578"
KEYBOARD = "gaming keyboard"
THE_KEYBOARD = "77023781"
UNKNOWN = "phone case for travellers"
MARKER = "qqenriched"


@pytest.fixture(scope="module")
def direct(folder: Path, chromium: str, node_url: str, shop_index: str) -> Iterator[Shop]:
    with Shop(folder, chromium, node_url, shop_index) as shop:
        yield shop


@pytest.fixture(scope="module")
def proxy(node_url: str, shop_index: str, answers: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    given = settings(node_url, shop_index)
    with Running(tmp_path_factory.mktemp("ui"), given, "--recorded", str(answers)) as running:
        yield running


@pytest.fixture(scope="module")
def through(folder: Path, chromium: str, proxy: Running, shop_index: str) -> Iterator[Shop]:
    with Shop(folder, chromium, proxy.url, shop_index) as shop:
        yield shop


def test_without_expansions_the_page_is_the_same(direct: Shop, through: Shop, proxy: Running) -> None:
    plain = direct.page(UNKNOWN)
    assert len(plain.ids) == 10
    assert through.page(UNKNOWN).dom == plain.dom
    assert [r["path"] for r in proxy.requests if "msearch" in r.get("path", "")]


def check_better(plain: Page, better: Page, rated: dict[str, dict[str, int]]) -> None:
    """The same total and facets for SPEAKERS, and the set that judges rated best among the first three."""
    assert better.total == plain.total
    for name in ("brand", "color"):
        assert better.facet(name) == plain.facet(name)
        assert better.facet(name)
    assert rated[SPEAKERS][SPEAKER_SET] == 3
    assert SPEAKER_SET not in plain.ids
    assert SPEAKER_SET in better.ids[:3]


def test_with_expansions_the_total_and_the_facets_are_the_same_and_the_order_is_better(
    direct: Shop, through: Shop, rated: dict[str, dict[str, int]]
) -> None:
    check_better(direct.page(SPEAKERS), through.page(SPEAKERS), rated)


def test_the_right_product_stood_low_and_now_stands_on_top(
    direct: Shop, through: Shop, rated: dict[str, dict[str, int]]
) -> None:
    plain, better = direct.page(KEYBOARD), through.page(KEYBOARD)
    assert rated[KEYBOARD][THE_KEYBOARD] == 3
    assert plain.ids.index(THE_KEYBOARD) > 4
    assert better.ids[0] == THE_KEYBOARD


def test_pages_share_no_product_and_together_are_all_there_are(direct: Shop, through: Shop) -> None:
    total = direct.page(SPEAKERS).total
    first, second = through.page(SPEAKERS, hits=100), through.page(SPEAKERS, hits=100, page=2)
    assert not set(first.ids) & set(second.ids)
    both = [*direct.page(SPEAKERS, hits=100).ids, *direct.page(SPEAKERS, hits=100, page=2).ids]
    assert sorted([*first.ids, *second.ids]) == sorted(both)
    assert len(both) == total


def test_a_ticked_brand_keeps_the_counts_of_the_facets(direct: Shop, through: Shop) -> None:
    """Each facet has a search of its own within one request, and all of them must agree."""
    ticked = {"refinementList[brand][0]": "Philips"}
    plain, better = direct.page(SPEAKERS, **ticked), through.page(SPEAKERS, **ticked)
    assert better.total == plain.total == plain.facet("brand")["Philips"]
    assert len(plain.facet("brand")) > 1
    for name in ("brand", "color"):
        assert better.facet(name) == plain.facet(name)
    assert better.ids != plain.ids


def test_sorted_by_price_the_page_is_the_same(direct: Shop, through: Shop, shop_index: str) -> None:
    sorted_by = {"sortBy": f"{shop_index}_price_asc"}
    plain = direct.page(SPEAKERS, **sorted_by)
    assert plain.ids != direct.page(SPEAKERS).ids
    assert through.page(SPEAKERS, **sorted_by).dom == plain.dom


def test_with_the_model_dead_the_page_is_the_same_and_comes_at_once(
    folder: Path, chromium: str, node_url: str, shop_index: str, direct: Shop, tmp_path: Path
) -> None:
    given = settings(node_url, shop_index)
    given["llm"] = {"queries": {"model": "openai/x", "api_base": "http://127.0.0.1:9/v1", "api_key": "x"}}
    with Running(tmp_path, given) as proxy, Shop(folder, chromium, proxy.url, shop_index) as shop:
        assert shop.page(SPEAKERS).dom == direct.page(SPEAKERS).dom
        searches = [r for r in proxy.requests if r["path"].endswith("_msearch")]
        assert searches
        assert max(r["ms"] for r in searches) < 1500, searches


def test_nothing_of_ours_is_shown(
    folder: Path,
    chromium: str,
    node_url: str,
    answers: Path,
    tmp_path: Path,
) -> None:
    """Each product looks as it does without us, marks and snippets included, also where documents are enriched."""
    enriched = made(node_url, products(enriched_terms=[MARKER, "speakers"]))
    index = next(enriched)
    try:
        with (
            Running(tmp_path, settings(node_url, index), "--recorded", str(answers)) as proxy,
            Shop(folder, chromium, node_url, index) as direct,
            Shop(folder, chromium, proxy.url, index) as through,
        ):
            better = through.page(SPEAKERS)
            told = call(f"{proxy.url}/_sira/expand?index={index}&q={SPEAKERS.replace(' ', '+')}").body.decode()
            plain = direct.page(SPEAKERS, hits=200)
        assert better.ids != plain.ids[:10]
        assert better.hits == {key: plain.hits[key] for key in better.ids}
        assert better.marks
        own = set(SPEAKERS.split())
        stems = tuple(word.rstrip("s") for word in own)
        assert {m.casefold() for m in better.marks if not m.casefold().startswith(stems)} == set()
        assert "soundbar" in told or "loudspeaker" in told
        assert MARKER not in better.dom
        assert "enriched_terms" not in better.dom
    finally:
        enriched.close()


@pytest.mark.skipif("SIRA_ES_PICTURES" not in os.environ, reason="SIRA_ES_PICTURES names no folder")
def test_pictures(direct: Shop, through: Shop) -> None:
    pictures = Path(os.environ["SIRA_ES_PICTURES"])
    for name, shop in (("direct", direct), ("proxy", through)):
        shop.picture(pictures / f"search-ui-{name}.png", SPEAKERS)
        assert (pictures / f"search-ui-{name}.png").stat().st_size > 10_000
