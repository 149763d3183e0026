"""The official clients, unmodified, through the proxy: each does what it does against the node itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.asking import ANSWERS, HOT, call, fill, match, settings
from proxy.running import Running

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::Warning")


@pytest.fixture(scope="module")
def index(node_url: str) -> Iterator[str]:
    name = "test-clients"
    call(f"{node_url}/{name}", "DELETE")
    fill(node_url, name)
    yield name
    call(f"{node_url}/{name}", "DELETE")


@pytest.fixture(scope="module")
def proxy(node_url: str, index: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("clients")
    answers = folder / "answers.jsonl"
    answers.write_text("".join(json.dumps({"id": text, "answer": a}) + "\n" for text, a in ANSWERS.items()))
    with Running(folder, settings(node_url, index), "--recorded", str(answers)) as running:
        yield running


def use(client: Any, helpers: Any, index: str) -> None:
    """Index, get, bulk, search, msearch, scroll, count, a helper that scans, delete."""
    other = f"{index}-made"
    client.options(ignore_status=404).indices.delete(index=other) if hasattr(client, "options") else None
    client.index(index=other, id="1", body={"title": "x"}, refresh=True)
    assert client.get(index=other, id="1")["_source"] == {"title": "x"}
    actions = [{"_index": other, "_id": str(i), "_source": {"title": f"y {i}"}} for i in range(250)]
    assert helpers.bulk(client, actions, refresh=True)[0] == 250
    found = client.search(index=index, body=match(HOT))
    assert found["hits"]["hits"][0]["_id"] == "fan"
    several = client.msearch(body=[{"index": index}, match(HOT), {"index": other}, {"query": {"match_all": {}}}])
    assert several["responses"][0]["hits"]["hits"][0]["_id"] == "fan"
    assert several["responses"][1]["hits"]["total"]["value"] == 250
    page = client.search(index=other, body={"query": {"match_all": {}}, "size": 100}, scroll="1m")
    assert len(client.scroll(scroll_id=page["_scroll_id"], scroll="1m")["hits"]["hits"]) == 100
    client.clear_scroll(scroll_id=page["_scroll_id"])
    assert len(list(helpers.scan(client, index=other))) == 250
    assert client.count(index=other)["count"] == 250
    assert client.indices.exists(index=other)
    client.indices.delete(index=other)
    assert not client.indices.exists(index=other)


def test_opensearch_py(proxy: Running, node_url: str, index: str, engine: str) -> None:
    from opensearchpy import OpenSearch, helpers

    if not engine.startswith("os"):
        pytest.skip("the client of the other product")
    with OpenSearch(proxy.url) as client:
        use(client, helpers, index)
        made = client.create_pit(index=index, keep_alive="1m")
        page = client.search(body={**match(HOT), "pit": {"id": made["pit_id"]}})
        assert page["hits"]["total"]["value"] > 0
        client.delete_pit(body={"pit_id": [made["pit_id"]]})


def test_elasticsearch_py(proxy: Running, node_url: str, index: str, engine: str) -> None:
    """elastic/elasticsearch-py#1768, #2923: product check and versioned media types pass through."""
    from elasticsearch import Elasticsearch, helpers

    if not engine.startswith("es"):
        pytest.skip("the client of the other product")
    with Elasticsearch(proxy.url) as client:
        use(client, helpers, index)
        made = client.open_point_in_time(index=index, keep_alive="1m")
        page = client.search(pit={"id": made["id"]}, query=match(HOT)["query"])
        assert page["hits"]["total"]["value"] > 0
        client.close_point_in_time(id=made["id"])
