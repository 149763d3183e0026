"""Which privilege of a role lets an action happen: what a refusal is missing, in the words that a role is written in.

The roles stand in `roles/`. Elasticsearch names a refused action and every privilege that would do; this picks the
one that our roles use. The security plugin of OpenSearch grants the actions themselves.
"""

from __future__ import annotations

import re

__all__ = ["ENRICHER", "SEARCHER", "missing_privilege"]

SEARCHER = ("read", "view_index_metadata")
ENRICHER = (*SEARCHER, "index", "indices:admin/mapping/put")

# The first that an action begins with.
_BY_ACTION = (
    ("indices:data/read/", "read"),
    ("indices:data/write/", "index"),
    ("indices:admin/mapping/put", "indices:admin/mapping/put"),
    ("indices:admin/mapping/auto_put", "index"),
    ("indices:admin/auto_create", "create_index"),
    ("indices:admin/create", "create_index"),
    ("indices:admin/refresh", "maintenance"),
    ("indices:admin/", "view_index_metadata"),
    ("indices:monitor/settings/get", "view_index_metadata"),
    ("cluster:monitor/", "monitor"),
    ("cluster:admin/ingest/", "manage_ingest_pipelines"),
    ("cluster:admin/component_template/", "manage_index_templates"),
    ("cluster:admin/indices/", "manage_index_templates"),
)


def missing_privilege(reason: str) -> str:
    """The privilege that a refused action needs, as a role names it; empty where the reason names no action.

    `reason` is the engine's own: "action [indices:data/write/bulk[s]] is unauthorized for user [...]", or
    "no permissions for [indices:data/write/bulk] and User [...]".
    """
    if plugin := re.search(r"no permissions for \[([^\]]+)\]", reason):
        return plugin[1]
    found = re.search(r"action \[([^\[\]]+)", reason)
    if not found:
        return ""
    return next((privilege for start, privilege in _BY_ACTION if found[1].startswith(start)), found[1])
