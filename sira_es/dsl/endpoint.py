"""Which requests are searches that may be rewritten, by method and target alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl, unquote

__all__ = ["Endpoint", "endpoint"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A search: its kind, the index expression of the path (empty: none given), the decoded parameters of the URL."""

    kind: Literal["search", "msearch", "count"]
    index: str
    params: Mapping[str, str]


def endpoint(method: str, target: str) -> Endpoint | None:
    """The search that a request is; None for everything else (templates, async searches, scroll pages, SQL, by_query).

    A count is a search of size 0, and says so in its parameters.
    """
    path, _, query = target.partition("?")
    parts = path.strip("/").split("/")
    if method not in {"GET", "POST"} or len(parts) > 2:
        return None
    index = unquote(parts[0]) if len(parts) == 2 else ""
    params = dict(parse_qsl(query.replace(";", "&"), keep_blank_values=True))  # as engines separate them
    if index.startswith("_") and index != "_all":
        return None
    match parts[-1]:
        case "_search":
            return Endpoint("search", index, params)
        case "_msearch":
            return Endpoint("msearch", index, params)
        case "_count":
            return Endpoint("count", index, {**params, "size": "0"})
    return None
