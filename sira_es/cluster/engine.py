"""What each engine and version can do: one table, and the few things that must be asked of the cluster itself.

No version is compared anywhere else. What depends on a module or a plugin (scripts, the `english` analyzer) is tried
where it is needed, not derived from a version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from sira_es.errors import ClusterRefused

if TYPE_CHECKING:
    from sira_es.cluster.connect import Cluster

__all__ = ["ClauseLimit", "Clues", "Engine", "clause_limit", "version_of"]

Family = Literal["elasticsearch", "opensearch"]
Version = tuple[int, int, int]

# First version of each family with the capability, and whether it is counted on where the version is unknown.
_TABLE: dict[str, tuple[Version | None, Version | None, bool]] = {
    #                        Elasticsearch  OpenSearch   unknown version
    "point_in_time": (      (7, 10, 0),    (2, 4, 0),   True),
    "stable_slices": (      None,          (2, 4, 0),   False),
    "versioned_media": (    (7, 11, 0),    None,        True),
    "computed_clauses": (   (8, 1, 0),     None,        False),
}  # fmt: skip
_SMALLEST_CLAUSE_LIMIT = 1024
_NO_OPENSEARCH: Version = (7, 0, 0)  # OpenSearch counts from 1, the Elasticsearch versions that work here from 7


@dataclass(frozen=True, slots=True)
class Engine:
    """A product and its version; None where the cluster does not tell it: then only what every version can counts."""

    family: Family
    version: Version | None

    def __str__(self) -> str:
        name = "OpenSearch" if self.family == "opensearch" else "Elasticsearch"
        return f"{name} {'.'.join(map(str, self.version))}" if self.version else f"{name} (version unknown)"

    def _can(self, capability: str) -> bool:
        elasticsearch, opensearch, assumed = _TABLE[capability]
        since = opensearch if self.family == "opensearch" else elasticsearch
        if since is None:
            return False
        return assumed if self.version is None else self.version >= since

    @property
    def can_point_in_time(self) -> bool:
        """Searches over a frozen view of an index."""
        return self._can("point_in_time")

    @property
    def can_stable_slices(self) -> bool:
        """Slices of a point in time by the id of documents, the same in another point in time.

        Elasticsearch slices by position, which changes with every update.
        """
        return self._can("stable_slices")

    @property
    def point_in_time_path(self) -> str:
        return "_search/point_in_time" if self.family == "opensearch" else "_pit"

    @property
    def point_in_time_key(self) -> str:
        """The name of the id in the answer that opens one; the request that closes it takes the same name."""
        return "pit_id" if self.family == "opensearch" else "id"

    def media_type(self, subtype: Literal["json", "x-ndjson"]) -> str:
        """The media type for bodies and answers; Elasticsearch wants to know which version's format is meant.

        Version 8 takes the formats of 7 and 8, version 9 those of 8 and 9, 7.11 and later any.
        """
        if not self._can("versioned_media"):
            return f"application/{subtype}"
        return (
            f"application/vnd.elasticsearch+{subtype};compatible-with={max(8, self.version[0] if self.version else 8)}"
        )


@dataclass(frozen=True, slots=True)
class ClauseLimit:
    """How many clauses a query may have: `count` in the whole tree, or in each `bool` by itself.

    `known` is False where these credentials may not read it.
    """

    count: int
    whole_tree: bool
    known: bool = True


async def clause_limit(cluster: Cluster) -> ClauseLimit:
    """The limit of this cluster where these credentials may read it; otherwise the smallest that the engine may have.

    Elasticsearch 8.1 and later compute 64 * heap in MB / search threads, at least 1,024; others have a setting.
    """
    engine = cluster.engine
    computed = engine._can("computed_clauses")
    try:
        count = await (_computed_limit(cluster) if computed else _limit_setting(cluster))
    except (ClusterRefused, KeyError, TypeError, ValueError, AttributeError):
        count = 0
    tree = engine.family == "opensearch" or computed
    return ClauseLimit(count or _SMALLEST_CLAUSE_LIMIT, tree, known=bool(count))


async def _limit_setting(cluster: Cluster) -> int:
    # Without flat_settings: filter_path matches no key that has dots in it.
    asked = {"include_defaults": "true", "filter_path": "*.indices.query.bool.max_clause_count"}
    answer: dict[str, Any] = await cluster.request("GET", "/_cluster/settings", params=asked)
    levels = [answer[level] for level in ("transient", "persistent", "defaults") if answer.get(level)]
    return int(levels[0]["indices"]["query"]["bool"]["max_clause_count"]) if levels else 0


async def _computed_limit(cluster: Cluster) -> int:
    asked = {"filter_path": "nodes.*.jvm.mem.heap_max_in_bytes,nodes.*.thread_pool.search.size"}
    answer: dict[str, Any] = await cluster.request("GET", "/_nodes/jvm,thread_pool", params=asked)
    limits: list[int] = [
        64 * (node["jvm"]["mem"]["heap_max_in_bytes"] >> 20) // node["thread_pool"]["search"]["size"]
        for node in answer["nodes"].values()
    ]
    return max(min(limits), _SMALLEST_CLAUSE_LIMIT)


@dataclass(slots=True)
class Clues:
    """What the first answers of a cluster tell about it; any of them may be a refusal."""

    headers: dict[str, str] = field(default_factory=dict)
    root: Version | None = None
    distribution: str = ""
    nodes: Version | None = None
    is_cluster: bool = False

    def add(self, path: str, status: int, headers: Mapping[str, str], body: Any) -> None:
        self.headers |= {k: v for k, v in headers.items() if k in {"x-elastic-product", "x-opensearch-version"}}
        if not isinstance(body, dict):
            return
        self.is_cluster |= path == "/_search" and ("took" in body or isinstance(body.get("error"), dict))
        if status == 403 and "is unauthorized for" in str(body.get("error")):  # 7.17 does not name itself in refusals
            self.headers.setdefault("x-elastic-product", "Elasticsearch")
        if path == "/" and status == 200 and isinstance(version := body.get("version"), dict):
            self.root = version_of(version.get("number"))
            self.distribution = str(version.get("distribution") or "")
        if path.startswith("/_nodes") and isinstance(nodes := body.get("nodes"), dict):
            versions = [version_of(node.get("version")) for node in nodes.values() if isinstance(node, dict)]
            self.nodes = next(filter(None, versions), None)

    def engine(self, *, last: bool = False) -> Engine | None:
        """What it is; None while another question could tell more, or (`last`) where it is neither product.

        Every Elasticsearch from 7.14 on names itself in a header, refusals included. OpenSearch gives itself out as
        7.10.2 under `compatibility.override_main_response_version`, hence the nodes have the last word.
        """
        header = version_of(self.headers.get("x-opensearch-version", "").rpartition("/")[2])
        version = self.nodes or header or self.root
        opensearch = self.distribution == "opensearch" or "x-opensearch-version" in self.headers
        if opensearch and (last or (version and version < _NO_OPENSEARCH)):
            return Engine("opensearch", version if version and version < _NO_OPENSEARCH else None)
        if not opensearch and version:
            named = "x-elastic-product" in self.headers or version >= _NO_OPENSEARCH
            return Engine("elasticsearch" if named else "opensearch", version)
        if last and "x-elastic-product" in self.headers:
            return Engine("elasticsearch", None)
        return Engine("opensearch", None) if last and self.is_cluster else None


def version_of(text: object) -> Version | None:
    """`"8.19.7-SNAPSHOT"` -> (8, 19, 7); None for anything that is no version."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", text) if isinstance(text, str) else None
    return (int(match[1]), int(match[2]), int(match[3])) if match else None
