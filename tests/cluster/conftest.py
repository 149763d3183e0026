"""For tests of the cluster room: the wire in front of the node, and clusters connected straight or through it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from cluster.wire import Wire
from sira_es.cluster.connect import Cluster, connect
from sira_es.settings import ClusterSettings


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
