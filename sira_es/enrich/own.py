"""Which documents have our two fields from us, and which have fields of their own with the same names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sira_es.cluster.target import ENRICHED, SIRA

__all__ = ["is_ours", "own_field"]


def is_ours(source: Mapping[str, Any]) -> bool:
    """Whether a `_source` has an object `sira` as we write it: with a source hash and a recipe, both strings."""
    made = source.get(SIRA)
    return isinstance(made, Mapping) and all(isinstance(made.get(key), str) for key in ("source_hash", "recipe"))


def own_field(source: Mapping[str, Any]) -> str:
    """The name of a field of the document's own where one of ours would go; empty where there is none.

    Such a document is neither written nor undone. A null is none: that is what an undoing without scripts leaves; nor is
    an empty object, which OpenSearch shows in every document where it derives the source from the mapping.
    """
    if is_ours(source):
        return ""
    held = [key for key, value in source.items() if value is not None and value != {}]
    return next((n for n in (SIRA, ENRICHED) if any(key == n or key.startswith(f"{n}.") for key in held)), "")
