"""The engines' own routing arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sira_es.cluster.routing import default_routing_shards, murmur3, shard_of


@pytest.mark.parametrize(
    ("shards", "routing_shards"), [(1, 1024), (2, 1024), (3, 768), (4, 1024), (5, 640), (1024, 2048)]
)
def test_the_default_number_of_routing_shards(shards: int, routing_shards: int) -> None:
    assert default_routing_shards(shards) == routing_shards


@pytest.mark.parametrize(("shards", "values"), [(3, ["5", "0", "1"]), (5, ["3", "4", "7", "0", "1"])])
def test_values_that_real_nodes_send_to_each_shard(shards: int, values: list[str]) -> None:
    assert [shard_of(value, shards, default_routing_shards(shards)) for value in values] == list(range(shards))


@given(st.text(), st.integers(1, 200))
def test_any_text_reaches_a_shard_that_exists(routing: str, shards: int) -> None:
    assert 0 <= shard_of(routing, shards, default_routing_shards(shards)) < shards


@given(st.text(st.characters(exclude_categories=())))
def test_the_hash_is_a_signed_number_of_32_bits(text: str) -> None:
    assert -(2**31) <= murmur3(text) < 2**31
