"""For tests on a node: the wire in front of it, clusters connected straight or through it, and what is searched there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cluster.counting import add, create
from cluster.documents import make_index
from cluster.enriching import BODY, MAPPING, Bench, close_models
from cluster.searching import ANSWER, DOCUMENTS, ENRICHED
from cluster.wire import Wire
from sira_es.cluster.connect import Cluster, connect
from sira_es.settings import ClusterSettings
from tests.model_server import ModelServer


@pytest.fixture
async def wire(node_url: str, anyio_backend: str) -> AsyncIterator[Wire]:
    async with Wire(node_url) as running:
        yield running


@pytest.fixture
async def cluster(node_url: str, anyio_backend: str) -> AsyncIterator[Cluster]:
    """The node, with no wire between."""
    connected = await connect(ClusterSettings(url=[node_url]))
    yield connected
    await connected.close()


@pytest.fixture
async def wired(wire: Wire) -> AsyncIterator[Cluster]:
    """The node through `wire`, whose record starts empty: what was needed to connect is forgotten."""
    connected = await connect(ClusterSettings(url=[wire.url]))
    wire.clear()
    yield connected
    await connected.close()


@pytest.fixture
def model() -> Iterator[ModelServer]:
    """A model that proposes words for queries about hot laptops."""
    with ModelServer(default=ANSWER) as running:
        yield running


@pytest.fixture
async def index(cluster: Cluster, index_name: str) -> str:
    """Six enriched documents, some about hot laptops."""
    await create(cluster, index_name, properties=ENRICHED)
    await add(cluster, index_name, DOCUMENTS)
    return index_name


@pytest.fixture(autouse=True)
async def _models_closed(anyio_backend: str) -> AsyncIterator[None]:
    yield
    await close_models()


@pytest.fixture
async def bench(wired: Cluster, index_name: str, tmp_path: Path) -> Bench:
    """An index with text and price, reached through the wire."""
    await make_index(wired, index_name, mappings=MAPPING, shards=2)
    return Bench(wired, index_name, tmp_path, BODY)
