"""A search page of unmodified npm packages in headless Chromium, before a real node or before a proxy."""

from __future__ import annotations

import gzip
import html
import json
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import pytest

from proxy.asking import call

FILES = Path(__file__).parent / "ui"
TEXT = {"type": "text", "analyzer": "english"}
MAPPING = {
    "title": TEXT,
    "text": TEXT,
    "brand": {"type": "text", "fields": {"keyword": {"type": "keyword"}}},
    "price": {"type": "float"},
    "color": {"type": "keyword"},
    "released": {"type": "date"},
    "enriched_terms": TEXT,
}
NAME = "chorus-ecommerce"


@dataclass(frozen=True)
class Page:
    """What stands in the page when it has been searched."""

    dom: str

    @property
    def hits(self) -> dict[str, str]:
        """What the page shows of each hit, by id, in order."""
        _, _, listed = self.dom.partition('<div id="hits">')
        return dict(re.findall(r'<div class="hit" data-id="([^"]+)">(.*?)</div>', listed, re.S))

    @property
    def ids(self) -> list[str]:
        return list(self.hits)

    @property
    def total(self) -> int:
        found = re.search(r'<span class="ais-Stats-text">([\d,]+) results? ', self.dom)
        assert found is not None, self.dom[-3000:]
        return int(found[1].replace(",", ""))

    @property
    def marks(self) -> list[str]:
        return [html.unescape(text) for text in re.findall(r"<mark[^>]*>(.*?)</mark>", self.dom)]

    def facet(self, name: str) -> dict[str, int]:
        """How many hits each value of a facet has."""
        listed = re.split(r'<div id="', self.dom.partition(f'<div id="{name}">')[2])[0]
        pairs = re.findall(
            r'class="ais-RefinementList-labelText">(.*?)</span>.*?RefinementList-count">([\d,]+)<', listed, re.S
        )
        return {html.unescape(value): int(count.replace(",", "")) for value, count in pairs}


class Shop:
    """The page, whose searches go to one address: from its server, or from the browser itself."""

    def __init__(self, folder: Path, chromium: str, searches: str, index: str, *, itself: bool = False) -> None:
        self._folder, self._chromium, self._index = folder, chromium, index
        self._process = subprocess.Popen(
            ["node", "server.mjs"],
            cwd=folder,
            stdout=subprocess.PIPE,
            env={**os.environ, "SEARCH_HOST": searches, "SEARCH_FROM": "page" if itself else "server"},
        )
        assert self._process.stdout is not None
        self._address = f"http://localhost:{int(self._process.stdout.readline())}"

    def page(self, text: str, *, hits: int = 10, **state: Any) -> Page:
        """The page for a text, with what of its state is beside: `page`, `sortBy`, `refinementList[brand][0]`."""
        dom = self._browse("--dump-dom", text, hits, state)
        return Page(re.sub(r"found in \d+ms", "", dom).replace(self._address, ""))

    def picture(self, file: Path, text: str) -> None:
        self._browse(f"--screenshot={file}", text, 10, {})

    def _browse(self, what: str, text: str, hits: int, state: Mapping[str, Any]) -> str:
        values = {f"{self._index}[{_bracketed(key)}": value for key, value in {"query": text, **state}.items()}
        profile = self._folder / f"profile-{secrets.token_hex(4)}"
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
        flags += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
        flags += [f"--user-data-dir={profile}", "--window-size=1000,900", "--virtual-time-budget=10000"]
        address = f"{self._address}/{self._index}?{urlencode({**values, 'hits': hits})}"
        try:
            done = subprocess.run(
                [self._chromium, *flags, what, address], capture_output=True, text=True, timeout=90, check=False
            )
        finally:
            shutil.rmtree(profile, ignore_errors=True)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


def _bracketed(key: str) -> str:
    """page -> page], refinementList[brand][0] -> refinementList][brand][0]."""
    first, bracket, rest = key.partition("[")
    return f"{first}]{bracket}{rest}"


@pytest.fixture(scope="session")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium on this machine")
    return found


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page and its packages, as npm installs them."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("no npm on this machine")
    made = tmp_path_factory.mktemp("page") / "ui"
    shutil.copytree(FILES, made)
    done = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund"],
        cwd=made,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"npm cannot install the packages: {done.stderr.strip()[-200:]}")
    return made


def _collections() -> tuple[Path, Path]:
    collections, recordings = os.environ.get("SIRA_ES_COLLECTIONS"), os.environ.get("SIRA_ES_RECORDINGS")
    if not collections or not recordings:
        pytest.skip(f"SIRA_ES_COLLECTIONS and SIRA_ES_RECORDINGS name no folders with {NAME}")
    return Path(collections, NAME), Path(recordings, NAME)


@pytest.fixture(scope="session")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recorded answers of a large language model, each by the text of its query."""
    collection, recorded = _collections()
    with gzip.open(collection / "queries.jsonl.gz", "rt") as lines:
        texts = {row["_id"]: row["text"] for row in map(json.loads, lines)}
    rows = map(json.loads, (recorded / "queries-test.jsonl").read_text().splitlines())
    by_text = {texts[row["id"]]: row["answer"] for row in rows}
    file = tmp_path_factory.mktemp("answers") / "queries.jsonl"
    file.write_text("".join(json.dumps({"id": text, "answer": a}) + "\n" for text, a in by_text.items()))
    return file


@pytest.fixture(scope="session")
def rated() -> dict[str, dict[str, int]]:
    """How well products fit, 0 to 3, by the text of a query."""
    collection, _ = _collections()
    with gzip.open(collection / "queries.jsonl.gz", "rt") as lines:
        texts = {row["_id"]: row["text"] for row in map(json.loads, lines)}
    found: dict[str, dict[str, int]] = {}
    for line in (collection / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, product, grade = line.split("\t")
        found.setdefault(texts[query], {})[product] = int(grade)
    return found


def products(**more: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    with gzip.open(_collections()[0] / "corpus.jsonl.gz", "rt") as lines:
        for row in map(json.loads, lines):
            meta = row["metadata"]
            source = {
                "title": row["title"],
                "text": row["text"],
                "brand": meta.get("supplier"),
                "price": meta.get("price", 0) / 100,
                "color": meta.get("attr_t_product_colour") or "n/a",
                "released": meta.get("date_released"),
            }
            yield row["_id"], {**source, **more}


def made(node_url: str, documents: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """An index of one shard with these documents."""
    name = f"test-ui-{secrets.token_hex(4)}"
    one = {"number_of_shards": 1, "number_of_replicas": 0}
    assert call(f"{node_url}/{name}", "PUT", {"settings": one, "mappings": {"properties": MAPPING}}).status == 200
    try:
        lines: list[str] = []
        for key, source in documents:
            lines += [json.dumps({"index": {"_id": key}}), json.dumps(source)]
            if len(lines) >= 8000:
                _send(node_url, name, lines)
                lines = []
        _send(node_url, name, lines)
        call(f"{node_url}/{name}/_forcemerge?max_num_segments=1", "POST")
        call(f"{node_url}/{name}/_refresh", "POST")
        yield name
    finally:
        call(f"{node_url}/{name}", "DELETE")


def _send(node_url: str, name: str, lines: list[str]) -> None:
    if lines:
        answer = call(f"{node_url}/{name}/_bulk", "POST", "".join(f"{line}\n" for line in lines).encode())
        assert not answer.json["errors"]


@pytest.fixture(scope="module")
def shop_index(node_url: str) -> Iterator[str]:
    yield from made(node_url, products())
