"""Tests that an engine cannot run are skipped for what it lacks, as it says itself, never for its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sira_es.cluster.connect import Cluster
from sira_es.cluster.engine import clause_limit
from sira_es.errors import ClusterRefused


@contextmanager
def skipped_where(lack: str, *reasons: str) -> Iterator[None]:
    """Skip the test where the cluster refuses what is done inside for one of these reasons."""
    try:
        yield
    except ClusterRefused as error:
        if not any(reason in error.reason for reason in reasons):
            raise
        pytest.skip(f"{lack}: {error.reason[:120]}")


async def counts_clauses_of_the_whole_tree(cluster: Cluster) -> None:
    """Skip the test unless this engine counts clauses in the whole tree, up to 1,024."""
    limit = await clause_limit(cluster)
    if not limit.whole_tree or limit.count != 1024:
        where = "in the whole query" if limit.whole_tree else "in each bool"
        pytest.skip(f"the limit here is {limit.count} clauses {where}, not 1024 in the whole query")
