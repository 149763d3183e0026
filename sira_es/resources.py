"""Files that come with the package: in a source checkout beside it, in an installed one inside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

__all__ = ["data_file", "filled"]

_PACKAGE = Path(__file__).parent


def data_file(*parts: str) -> Path:
    """The path of a file or folder such as `data_file("mappings", "collection.json")`. Raises FileNotFoundError."""
    for root in (_PACKAGE / "_data", _PACKAGE.parent):
        path = root.joinpath(*parts)
        if path.exists():
            return path
    raise FileNotFoundError(f"{'/'.join(parts)} is missing from this installation of sira-es; install it again")


def filled(*parts: str, **values: Any) -> Any:
    """The JSON of a data file, with each string that is exactly `{name}` replaced by the value of that name.

    Raises KeyError for a name without a value.
    """
    return _fill(orjson.loads(data_file(*parts).read_bytes()), values)


def _fill(node: Any, values: dict[str, Any]) -> Any:
    if isinstance(node, dict):
        return {key: _fill(value, values) for key, value in node.items()}
    if isinstance(node, list):
        return [_fill(value, values) for value in node]
    if isinstance(node, str) and node.startswith("{") and node.endswith("}"):
        return values[node[1:-1]]
    return node
