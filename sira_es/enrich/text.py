"""The text of a document: which values its text fields hold, and the hash by which a change of them is seen."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["source_hash", "text_values"]

BETWEEN_VALUES = "\x1f"
BETWEEN_FIELDS = "\x1e"


def text_values(source: Mapping[str, Any], fields: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The values of each text field in a `_source`, in order; objects and arrays are walked, other types left out.

    A multi-field (`title.english`) has its parent's values.
    """
    found: dict[str, tuple[str, ...]] = {}
    for name in fields:
        if isinstance(value := source.get(name), str) and "." not in name:
            found[name] = (value,)
            continue
        values = tuple(_at(source, name.split(".")))
        if not values and "." in name:
            values = tuple(_at(source, name.split(".")[:-1]))
        found[name] = values
    return found


def source_hash(values: Mapping[str, Sequence[str]]) -> str:
    """SHA-256 (hex) of the values in UTF-8, fields in their order: the one that ingest_pipelines/ computes in the cluster.

    It is kept in users' indices: another format would make all their documents stale.
    """
    text = BETWEEN_FIELDS.join(BETWEEN_VALUES.join(v) for v in values.values())
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _at(value: Any, path: Sequence[str]) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _at(item, path)
    elif not path:
        if isinstance(value, str):
            yield value
    elif isinstance(value, Mapping):
        for used in range(1, len(path) + 1):
            key = ".".join(path[:used])
            if key in value:
                yield from _at(value[key], path[used:])
