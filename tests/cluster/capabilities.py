"""Tests that an engine cannot run are skipped for what it lacks, as it says itself, never for its name."""

from __future__ import annotations

import re
from urllib.error import HTTPError

import pytest

from sira_es.cluster.connect import Cluster
from sira_es.cluster.engine import clause_limit
from sira_es.errors import ClusterRefused, UnsupportedError

# What nodes say that lack a module or a plugin. One that has all of them never says any of it to these tests.
_LACKS = {
    "no such analysis here": r"Unknown (char_)?filter type|failed to find (char_)?filter|analyzer \[\w+\] has not been"
    r" configured|Unknown tokenizer type|failed to find tokenizer",
    "no such processor here": r"No processor type exists with name",
    "no such field type here": r"No handler for type \[\w+\]",
    "no such mapping here": r"unsupported parameters: +\[subobjects",
    "no such module here": r"(Incorrect HTTP method for|no handler found for) uri \[/_(data_stream|reindex)",
    "no such source here": r"unknown setting \[index\.(derived_source|mapping\.source)",
    "no hidden indices here": r"unknown setting \[index\.hidden",
    "no such query here": r"unknown query \[\w+\]",
}


def what_is_lacking(error: BaseException) -> str:
    """Why a test that ended with this error cannot run on this node; empty where that is not the reason."""
    if isinstance(error, HTTPError):
        reason = error.read().decode("utf-8", "replace")
    elif isinstance(error, ClusterRefused | UnsupportedError):
        reason = str(error)
    else:
        return ""
    lack = next((lack for lack, pattern in _LACKS.items() if re.search(pattern, reason)), "")
    return f"{lack}: {re.sub(r'test-[0-9a-z-]+', '...', reason)[:160]}" if lack else ""


async def counts_clauses_of_the_whole_tree(cluster: Cluster) -> None:
    """Skip the test unless this engine counts clauses in the whole tree, up to 1,024."""
    limit = await clause_limit(cluster)
    if not limit.whole_tree or limit.count != 1024:
        where = "in the whole query" if limit.whole_tree else "in each bool"
        pytest.skip(f"the limit here is {limit.count} clauses {where}, not 1024 in the whole query")
