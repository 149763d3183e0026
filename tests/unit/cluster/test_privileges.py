"""A refusal of either family names the privilege that a role of ours would hold."""

from __future__ import annotations

import pytest

from sira_es.cluster.engine import Clues
from sira_es.cluster.privileges import missing_privilege

UNAUTHORIZED = (
    "action [{}] is unauthorized for user [jo] with effective roles [r] on indices [docs], "
    "this action is granted by the index privileges [a,b]"
)


@pytest.mark.parametrize(
    ("action", "privilege"),
    [
        ("indices:data/read/search", "read"),
        ("indices:data/read/open_point_in_time", "read"),
        ("indices:data/write/bulk[s]", "index"),
        ("indices:admin/mapping/put", "indices:admin/mapping/put"),
        ("indices:admin/mappings/get", "view_index_metadata"),
        ("indices:monitor/settings/get", "view_index_metadata"),
        ("indices:admin/create", "create_index"),
        ("indices:admin/auto_create", "create_index"),
        ("indices:admin/refresh", "maintenance"),
        ("cluster:monitor/nodes/info", "monitor"),
        ("cluster:admin/component_template/put", "manage_index_templates"),
        ("cluster:admin/something/else", "cluster:admin/something/else"),
    ],
)
def test_elasticsearch_names_an_action(action: str, privilege: str) -> None:
    assert missing_privilege(UNAUTHORIZED.format(action)) == privilege


def test_the_plugin_of_opensearch_grants_the_action_itself() -> None:
    reason = "no permissions for [indices:data/write/update] and User [name=jo, backend_roles=[], requestedTenant=null]"
    assert missing_privilege(reason) == "indices:data/write/update"


def test_another_refusal_names_none() -> None:
    assert missing_privilege("the disk is full") == ""


def test_an_elasticsearch_that_refuses_everything_is_known_by_its_words() -> None:
    """7.17 does not name itself in the headers of a refusal."""
    clues = Clues()
    body = {"error": {"type": "security_exception", "reason": UNAUTHORIZED.format("indices:data/read/search")}}
    clues.add("/_search", 403, {}, body)
    engine = clues.engine(last=True)
    assert engine is not None
    assert str(engine) == "Elasticsearch (version unknown)"
