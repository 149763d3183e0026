"""Which documents have our two fields from us, and which have fields of their own with the same names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sira_es.cluster.target import ENRICHED, SIRA

__all__ = ["is_ours", "own_field"]


_OURS = (SIRA, ENRICHED)
_NOTHING: tuple[Any, ...] = (None, {})


def is_ours(source: Mapping[str, Any]) -> bool:
    """Whether a `_source` has an object `sira` as we write it: with a source hash and a recipe, both strings."""
    made = source.get(SIRA)
    return isinstance(made, Mapping) and all(isinstance(made.get(key), str) for key in ("source_hash", "recipe"))


def own_field(source: Mapping[str, Any]) -> str:
    """The name of a field of the document's own where one of ours would go; empty where there is none.

    Such a document is neither written nor undone. A null is none: that is what an undoing without scripts leaves; nor is
    an empty object, which OpenSearch shows in every document where it derives the source from the mapping.
    """
    held = [key.partition(".")[0] for key, value in source.items() if key.startswith(_OURS) and value not in _NOTHING]
    if not held or is_ours(source):
        return ""
    return next((name for name in _OURS if name in held), "")
