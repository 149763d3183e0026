"""A caller who may not see every document: its expansion rests on what it may see, and shows nothing of the rest."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cluster.security.conftest import PASSWORD, Secured
from sira_es.errors import UnsupportedError
from sira_es.expand import Expanded
from sira_es.settings import LlmSettings, LlmStage, Settings
from sira_es.sira import AsyncSira
from sira_es.vocabulary.model import Verdict
from tests.model_server import ModelServer

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

QUERY = "hot laptop"
ANSWER = {
    "concepts": [{"words": "hot", "need": 0.8, "same": [["dust", 0.6], ["classified", 0.9], ["notebook", 0.5]]}],
    "also": [["fan", 0.5], ["project", 0.7]],
}
OPEN = [
    {"text": "the laptop gets hot from dust in the fan", "group": "open"},
    {"text": "a notebook needs its fan", "group": "open"},
    {"text": "a printer is offline", "group": "open"},
    {"text": "the projector of the room", "group": "open"},
] * 5
# "classified" is in hidden documents alone; "project" and "fan" are frequent there and rare in the open ones.
HIDDEN = [{"text": "classified project, laptop with a fan", "group": "board"}] * 60
MAPPINGS = {"properties": {"text": {"type": "text", "analyzer": "english"}, "group": {"type": "keyword"}}}


@pytest.fixture
def index(secured: Secured, index_name: str) -> str:
    """All documents; `-open` holds the open ones alone."""
    for name, documents in ((index_name, OPEN + HIDDEN), (f"{index_name}-open", OPEN)):
        secured.call(
            "PUT", f"/{name}", {"settings": {"number_of_shards": 2, "number_of_replicas": 0}, "mappings": MAPPINGS}
        )
        lines = [part for i, d in enumerate(documents) for part in ({"index": {"_index": name, "_id": str(i)}}, d)]
        secured.call("POST", "/_bulk?refresh=true", lines=lines)
    return index_name


@pytest.fixture
def caller(secured: Secured, index: str) -> str:
    """A user who sees the open documents, and all of the index that holds nothing else."""
    seen = {"term": {"group": "open"}}
    privileges = ["read", "view_index_metadata", "index", "indices:admin/mapping/put"]
    indices = [{"names": [f"{index}*"], "privileges": privileges, "query": json.dumps(seen)}]
    secured.role("reader-open", {"indices": indices})
    return secured.user("reader-open", "reader-open")


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    file = tmp_path / "answers.jsonl"
    file.write_text(json.dumps({"id": "q", "text": QUERY, "answer": json.dumps(ANSWER)}) + "\n")
    return file


def settings(secured: Secured, index: str, tmp_path: Path, credentials: str, **cluster: Any) -> Settings:
    one = {"text_fields": ["text"], "language": "en"}
    return Settings(
        cluster={"url": secured.url, "ca_certs": str(secured.certificates.ca), "basic_auth": credentials, **cluster},
        state=tmp_path,
        indices={index: one, f"{index}-open": one},
    )


@pytest.fixture
async def ours(
    secured: Secured, index: str, tmp_path: Path, answers: Path, anyio_backend: str
) -> AsyncIterator[AsyncSira]:
    """An administrator's, as a proxy has it."""
    async with AsyncSira(settings(secured, index, tmp_path, f"admin:{PASSWORD}"), query_answers=answers) as sira:
        yield sira


def header(credentials: str) -> dict[str, str]:
    return {"authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}"}


def figures(expanded: Expanded) -> dict[str, tuple[Any, ...]]:
    return {t.word: (t.df, t.verdict, t.boost) for t in expanded.terms}


async def expand(sira: AsyncSira, index: str) -> Expanded:
    return await sira.expand(QUERY, index, deadline=math.inf)


async def test_the_same_terms_as_on_an_index_of_that_callers_documents_alone(
    ours: AsyncSira, index: str, caller: str
) -> None:
    """[opensearch-project/security#1579; elastic/elasticsearch PR #90701: term counts of hidden documents]"""
    theirs = await ours.as_caller(header(caller))
    restricted = await expand(theirs, index)
    alone = await expand(ours, f"{index}-open")
    assert restricted.expansion.documents == alone.expansion.documents == len(OPEN)
    assert figures(restricted) == figures(alone)
    assert restricted.gathered.statistics.source == "counts"


async def test_what_is_hidden_is_not_shown(ours: AsyncSira, index: str, caller: str) -> None:
    """A word of hidden documents alone looks like one that nobody ever wrote."""
    theirs = await expand(await ours.as_caller(header(caller)), index)
    found = figures(theirs)
    assert found["classified"][:2] == (0, Verdict.ABSENT)
    assert found["project"][0] == 0
    numbers = set(re.findall(r"(?<![.\d])\d+(?![.\d])", json.dumps(theirs.to_json())))
    assert numbers.isdisjoint({str(len(HIDDEN)), str(len(OPEN) + len(HIDDEN))})


@pytest.mark.parametrize("first", ["ours", "theirs"])
async def test_nothing_is_remembered_for_somebody_else(ours: AsyncSira, index: str, caller: str, first: str) -> None:
    views = {"ours": ours, "theirs": await ours.as_caller(header(caller))}
    order = [first, *(name for name in views if name != first)]
    documents = {}
    for name in [*order, *order]:
        documents[name] = (await expand(views[name], index)).expansion.documents
    assert documents == {"ours": len(OPEN + HIDDEN), "theirs": len(OPEN)}


async def test_two_callers_at_the_same_time_share_nothing(ours: AsyncSira, index: str, caller: str) -> None:
    theirs = await ours.as_caller(header(caller))
    found = await asyncio.gather(*(expand(view, index) for view in (ours, theirs) * 4))
    assert [f.expansion.documents for f in found] == [len(OPEN + HIDDEN), len(OPEN)] * 4


async def test_credentials_of_our_own_that_see_a_part_are_declared(
    secured: Secured, index: str, caller: str, tmp_path: Path, answers: Path
) -> None:
    """`cluster.document_security: true`; unset, our own credentials count as seeing everything."""
    chosen = settings(secured, index, tmp_path, caller, document_security=True)
    async with AsyncSira(chosen, query_answers=answers) as sira:
        found = await expand(sira, index)
        hits = (await sira.search(QUERY, index, size=100, deadline=math.inf)).hits
    assert found.gathered.statistics.source == "counts"
    assert figures(found)["classified"][0] == 0
    assert hits
    assert {h.source["group"] for h in hits} == {"open"}


async def test_callers_are_told_to_see_everything(secured: Secured, index: str, tmp_path: Path, answers: Path) -> None:
    """`cluster.document_security: false`: term vectors are right for every caller, and quicker."""
    chosen = settings(secured, index, tmp_path, f"admin:{PASSWORD}", document_security=False)
    async with AsyncSira(chosen, query_answers=answers) as sira:
        theirs = await sira.as_caller(header(f"admin:{PASSWORD}"))
        assert (await expand(theirs, index)).gathered.statistics.source == "term_vectors"


@pytest.mark.parametrize("sign_in", ["user", "API key"])
@pytest.mark.parametrize("security", ["documents", "fields"])
async def test_enrichment_is_refused_before_it_costs_anything(
    secured: Secured, index: str, tmp_path: Path, security: str, sign_in: str
) -> None:
    """A role with document- or field-level security may not update, whatever its privileges.

    [elastic/elasticsearch PR #64426]
    """
    granted: dict[str, Any] = {
        "names": [f"{index}*"],
        "privileges": ["read", "view_index_metadata", "index", "indices:admin/mapping/put"],
    }
    if security == "documents":
        granted["query"] = json.dumps({"match_all": {}})
    else:
        granted["field_security"] = {"grant": ["text", "enriched_terms", "sira*"]}
    secured.role("partial", {"indices": [granted]})
    chosen = settings(secured, index, tmp_path, secured.user("partial", "partial"))
    if sign_in == "API key":
        made = secured.call(
            "POST", "/_security/api_key", {"name": index, "role_descriptors": {"partial": {"indices": [granted]}}}
        )
        chosen = chosen.model_copy(update={"cluster": secured.settings(api_key=made["encoded"])})
    with ModelServer() as server:
        stage = LlmStage(model="openai/test", api_base=server.api_base, api_key="none")
        chosen = chosen.model_copy(update={"llm": LlmSettings(documents=stage)})
        async with AsyncSira(chosen) as sira:
            for way in (sira.enrich(index), sira.enrich(index, batch=True), sira.follow(index), sira.plan(index)):
                with pytest.raises(UnsupportedError, match="without document- and field-level security") as caught:
                    await way
                assert "\n" not in str(caught.value)
        assert (server.calls, server.batches.made) == ([], {})
    mapped = secured.call("GET", f"/{index}/_mapping")[index]["mappings"]["properties"]
    assert "enriched_terms" not in mapped
