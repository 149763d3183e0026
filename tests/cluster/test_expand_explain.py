"""Every word and every hit can be explained, and nothing is told that the caller could not count."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.counting import add, create
from cluster.searching import DOCUMENTS, ENRICHED, QUERY, settings_for
from sira_es.cluster.connect import Cluster
from sira_es.sira import AsyncSira
from tests.model_server import ModelServer

pytestmark = pytest.mark.anyio


@pytest.fixture
async def index(cluster: Cluster, index_name: str) -> str:
    await create(cluster, index_name, properties={**ENRICHED, "owner": {"type": "keyword"}})
    await add(cluster, index_name, DOCUMENTS)
    return index_name


@pytest.fixture
async def sira(node_url: str, index: str, model: ModelServer, tmp_path: Path) -> AsyncIterator[AsyncSira]:
    async with AsyncSira(settings_for(node_url, index, tmp_path, model)) as made:
        yield made


async def test_each_word_has_a_line_with_what_was_said_known_and_decided(sira: AsyncSira, index: str) -> None:
    lines = (await sira.expand(QUERY, index, deadline=math.inf)).explain()
    assert any(line.startswith("notebook [notebook] (p 0.80") and "in 2 of 6 documents" in line for line in lines)
    assert any("unheard" in line and "absent (no document has it)" in line for line in lines)
    assert any(line.startswith("laptop ") and "present" in line and "lifted" in line for line in lines)


@pytest.mark.parametrize("mode", ["recall", "rerank", "rescore"])
async def test_contributions_of_the_clauses_add_up_to_the_score(sira: AsyncSira, index: str, mode: str) -> None:
    result = await sira.search(QUERY, index, mode=mode, deadline=math.inf)  # type: ignore[arg-type]
    parts = await sira.contributions(index, result)
    for hit in result.hits:
        assert sum(p["score"] for p in parts[hit.index, hit.id]) == pytest.approx(hit.score, rel=1e-3)


async def test_why_not_names_rank_score_and_the_words_that_are_lacking(sira: AsyncSira, index: str) -> None:
    result = await sira.search(QUERY, index, deadline=math.inf)
    place = [h.id for h in result.hits].index("3")
    why = await sira.why_not(index, result, "3")
    assert (why.found, why.rank, why.enriched) == (True, place + 1, True)
    assert why.score == pytest.approx(result.hits[place].score, rel=1e-3)
    scores = dict(why.parts)
    assert scores["notebook"] is not None
    assert scores["fan"] is None
    assert "lacks" in why.reason
    assert json.loads(json.dumps(why.to_json()))["reason"] == why.reason


async def test_why_not_says_that_a_document_does_not_match(sira: AsyncSira, index: str) -> None:
    result = await sira.search(QUERY, index, deadline=math.inf)
    why = await sira.why_not(index, result, "4")
    assert (why.found, why.score, why.rank) == (True, None, None)
    assert "does not match" in why.reason


async def test_why_not_tells_a_filter_of_the_callers_own_search(sira: AsyncSira, index: str) -> None:
    body = {"query": {"bool": {"must": [{"match": {"text": QUERY}}], "filter": [{"term": {"owner": "a"}}]}}}
    result = await sira.search(QUERY, index, body=body, deadline=math.inf)
    why = await sira.why_not(index, result, "0")
    assert why.score is None
    assert dict(why.parts)["original query"] is None


async def test_why_not_of_a_missing_document(sira: AsyncSira, index: str) -> None:
    result = await sira.search(QUERY, index, deadline=math.inf)
    why = await sira.why_not(index, result, "no such id")
    assert why.found is False
    assert "no document" in why.reason


async def test_a_word_of_hidden_documents_alone_is_absent_in_everything_that_is_told(
    cluster: Cluster, index: str, node_url: str, model: ModelServer, tmp_path: Path
) -> None:
    """elastic/elasticsearch#90701: users could still learn about terms that only exist in documents hidden from them."""
    await add(cluster, index, [{"title": "secret merger", "text": "merger with unheard", "owner": "b"}], _id="hidden")
    alias = {"add": {"index": index, "alias": f"{index}-a", "filter": {"bool": {"must_not": {"term": {"owner": "b"}}}}}}
    await cluster.request("POST", "/_aliases", body={"actions": [alias]})
    seen = f"{index}-a"
    async with AsyncSira(settings_for(node_url, seen, tmp_path, model)) as sira:
        expanded = await sira.expand(QUERY, seen, deadline=math.inf)
        result = await sira.search(QUERY, seen, deadline=math.inf)
        why = await sira.why_not(seen, result, "hidden")
    term = next(t for t in expanded.terms if t.word == "unheard")
    assert (term.df, term.verdict, expanded.expansion.documents) == (0, "absent", len(DOCUMENTS))
    assert any("unheard" in line and "0 of 6" in line for line in expanded.explain())
    assert why.found is False


async def test_document_security_has_every_word_counted(
    wire: object, cluster: Cluster, index: str, node_url: str, model: ModelServer, tmp_path: Path
) -> None:
    """opensearch-project/security#1579: term vectors see documents that the caller may not."""
    settings = settings_for(node_url, index, tmp_path, model)
    secured = settings.model_copy(update={"cluster": settings.cluster.model_copy(update={"document_security": True})})
    async with AsyncSira(secured) as sira:
        expanded = await sira.expand(QUERY, index, deadline=math.inf)
        assert expanded.gathered.statistics.source == "counts"
        caller = await sira.as_caller({"authorization": "Basic dXNlcjpwYXNz"})
        assert (await caller.expand(QUERY, index, deadline=math.inf)).gathered.statistics.source == "counts"
    async with AsyncSira(settings) as sira:
        assert (await sira.expand(QUERY, index, deadline=math.inf)).gathered.statistics.source == "term_vectors"
        caller = await sira.as_caller({"authorization": "Basic dXNlcjpwYXNz"})
        assert (await caller.expand(QUERY, index, deadline=math.inf)).gathered.statistics.source == "counts"
