"""Routing values that together reach every shard of an index once: nothing else sends `_mtermvectors` to a shard."""

from __future__ import annotations

from collections.abc import Iterable

from sira_es.cluster.connect import Cluster, expected, segment, together

__all__ = ["default_routing_shards", "murmur3", "routing_values", "shard_of"]

_MASK = 0xFFFFFFFF
_BATCH = 8


async def routing_values(cluster: Cluster, index: str, shards: int) -> tuple[str, ...]:
    """One routing value for each of `shards` shards, in no particular order, checked with the cluster.

    The values for an index that was made with its present number of shards are computed. Where they do not fit (split
    or shrunk indices), values are tried until all shards are reached; empty if that does not come about.
    """
    if shards == 1:
        return ("0",)
    table = {shard_of(str(i), shards, default_routing_shards(shards)): str(i) for i in range(shards * 64, -1, -1)}
    values = tuple(table[shard] for shard in sorted(table))
    if len(await _reached(cluster, index, values)) == shards:
        return values
    found: dict[int, str] = {}
    for start in range(0, shards * 40, _BATCH):
        tried = [str(i) for i in range(start, start + _BATCH)]
        for value, reached in zip(tried, await together(*(_reached(cluster, index, [v]) for v in tried)), strict=True):
            for shard in reached:
                found.setdefault(shard, value)
        if len(found) == shards:
            return tuple(found[shard] for shard in sorted(found))
    return ()


async def _reached(cluster: Cluster, index: str, values: Iterable[str]) -> set[int]:
    params = {"routing": ",".join(values), "filter_path": "shards.shard"}
    answer = await cluster.request("GET", f"/{segment(index)}/_search_shards", params=params)
    with expected(f"the shards of '{index}'"):
        return {group[0]["shard"] for group in answer["shards"] if group}


def default_routing_shards(shards: int) -> int:
    """`number_of_routing_shards` of an index made with `shards`: doubled while it stays within 1,024, at least once."""
    bits = (shards - 1).bit_length()
    return shards << max(1, 10 - bits)


def shard_of(routing: str, shards: int, routing_shards: int) -> int:
    """The shard that a routing value reaches, as the engines compute it."""
    return murmur3(routing) % routing_shards // (routing_shards // shards)


def murmur3(key: str) -> int:
    """MurmurHash3 (x86, 32 bits, seed 0, signed) of the UTF-16 code units of `key`."""
    data = key.encode("utf-16-le", "surrogatepass")
    length = len(data)
    whole = length - length % 4
    state = 0
    for i in range(0, whole, 4):
        state = (_rotate(state ^ _mix(int.from_bytes(data[i : i + 4], "little")), 13) * 5 + 0xE6546B64) & _MASK
    if length > whole:
        state ^= _mix(int.from_bytes(data[whole:], "little"))
    state ^= length
    state ^= state >> 16
    state = (state * 0x85EBCA6B) & _MASK
    state ^= state >> 13
    state = (state * 0xC2B2AE35) & _MASK
    state ^= state >> 16
    return state - (1 << 32) if state & 0x80000000 else state


def _mix(block: int) -> int:
    return (_rotate((block * 0xCC9E2D51) & _MASK, 15) * 0x1B873593) & _MASK


def _rotate(value: int, by: int) -> int:
    return ((value << by) | (value >> (32 - by))) & _MASK
