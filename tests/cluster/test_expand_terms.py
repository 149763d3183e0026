"""Words under human control: read by processes that run, stronger than the model in both directions, and exported."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.counting import add, create
from cluster.searching import DOCUMENTS, ENGLISH, QUERY, settings_for
from sira_es.cluster.connect import Cluster
from sira_es.cluster.statistics import DocumentFrequencies
from sira_es.cluster.target import describe
from sira_es.enrich.page import PageEnricher
from sira_es.expand import solr_synonyms
from sira_es.llm.recorded import RecordedAnswers
from sira_es.sira import AsyncSira
from sira_es.vocabulary.model import Verdict
from tests.model_server import ModelServer

pytestmark = pytest.mark.anyio


@pytest.fixture
async def sira(node_url: str, index: str, model: ModelServer, tmp_path: Path) -> AsyncIterator[AsyncSira]:
    async with AsyncSira(settings_for(node_url, index, tmp_path / "state", model)) as made:
        yield made


async def verdicts(sira: AsyncSira, index: str, text: str = QUERY, deadline: float = math.inf) -> dict[str, Verdict]:
    return {t.word: t.verdict for t in (await sira.expand(text, index, deadline=deadline)).terms}


async def test_a_blocked_word_is_not_searched_for_though_the_model_says_it(sira: AsyncSira, index: str) -> None:
    assert (await verdicts(sira, index))["notebook"] is Verdict.KEPT
    sira.terms.add(index, "block", ["Notebook"])
    assert (await verdicts(sira, index))["notebook"] is Verdict.BLOCKED
    result = await sira.search(QUERY, index, deadline=math.inf)
    assert "notebook" not in json.dumps(result.request)


async def test_a_blocked_phrase_leaves_its_words_alone(sira: AsyncSira, index: str) -> None:
    sira.terms.add(index, "block", ["thermal throttling"])
    expanded = await sira.expand(QUERY, index, deadline=math.inf)
    assert {p.phrase: p.verdict for p in expanded.expansion.phrases}["thermal throttling"] is Verdict.BLOCKED


async def test_an_allowed_word_is_searched_for_though_it_is_common(sira: AsyncSira, index: str) -> None:
    sira.settings.index(index)  # "notebook" is in 2 of 6 documents
    common = sira.settings.model_copy(
        update={"indices": {index: sira.settings.index(index).model_copy(update={"expansion": _max_df(0.1)})}}
    )
    async with AsyncSira(common) as strict:
        assert (await verdicts(strict, index))["notebook"] is Verdict.COMMON
        strict.terms.add(index, "allow", ["notebook"])
        assert (await verdicts(strict, index))["notebook"] is Verdict.KEPT


def _max_df(value: float) -> Any:
    from sira_es.settings import ExpansionSettings

    return ExpansionSettings(max_df=value)


async def test_a_pinned_word_is_searched_for_with_its_boost_model_or_not(
    sira: AsyncSira, index: str, node_url: str, tmp_path: Path
) -> None:
    sira.terms.add(index, "pin", ["tunnel"], query="Why does my  LAPTOP get hot", boost=0.25)
    assert (await verdicts(sira, index))["tunnel"] is Verdict.PINNED
    async with AsyncSira(settings_for(node_url, index, tmp_path / "state")) as without_model:
        result = await without_model.search(QUERY, index)
        assert result.expansion is not None
        assert [(t.word, t.boost) for t in result.expansion.expansion.clauses] == [("tunnel", 0.25)]
        assert "2" in {h.id for h in result.hits}


async def test_a_change_by_another_process_is_seen_by_the_next_query(
    sira: AsyncSira, index: str, node_url: str, tmp_path: Path
) -> None:
    config = tmp_path / "sira-es.yml"
    config.write_text(
        yaml.safe_dump(
            {
                "cluster": {"url": node_url},
                "state": str(tmp_path / "state"),
                "indices": {index: {"text_fields": ["title", "text"]}},
            }
        )
    )

    def terms(*arguments: str) -> str:
        command = [sys.executable, "-m", "sira_es", "terms", *arguments, "--index", index, "-c", str(config)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert (await verdicts(sira, index, deadline=5))["notebook"] is Verdict.KEPT
    terms("block", "notebook")
    assert (await verdicts(sira, index, deadline=5))["notebook"] is Verdict.BLOCKED
    terms("block", "notebook", "--remove")
    assert (await verdicts(sira, index, deadline=5))["notebook"] is Verdict.KEPT
    terms("pin", "tunnel", "--query", QUERY, "--boost", "0.3")
    assert (await verdicts(sira, index, deadline=5))["tunnel"] is Verdict.PINNED
    assert json.loads(terms("list", "--json")) == [{"kind": "pin", "word": "tunnel", "query": QUERY, "boost": 0.3}]


async def test_blocked_words_are_not_written_to_documents(sira: AsyncSira, index: str, cluster: Cluster) -> None:
    sira.terms.add(index, "block", ["casino"])
    page = PageEnricher(
        DocumentFrequencies(cluster),
        RecordedAnswers({"1": '{"terms": ["free casino", "cooler"]}'}),
        await describe(cluster, index, ["title", "text"]),
        sira.settings.index(index),
        concurrency=1,
        human=sira.terms.human(index),
    )
    bare = {key: DOCUMENTS[1][key] for key in ("title", "text")}
    (enriched,) = await page.enrich([("1", bare)])
    assert enriched.terms == ["cooler"]


async def test_pins_exported_as_synonyms_work_in_a_synonym_filter(
    sira: AsyncSira, index: str, cluster: Cluster
) -> None:
    sira.terms.add(index, "pin", ["thermal throttling", "overheating"], query="laptop hot", boost=0.4)
    sira.terms.add(index, "pin", ["c#, f#", "a=>b"], query="languages, all", boost=0.4)
    rules = solr_synonyms(sira.terms.rules(index)).splitlines()
    analysis = {
        "filter": {"pins": {"type": "synonym_graph", "synonyms": rules}},
        "analyzer": {"with_pins": {"tokenizer": "whitespace", "filter": ["lowercase", "pins"]}},
    }
    name = f"{index}-synonyms"
    await create(
        cluster,
        name,
        properties={"text": {**ENGLISH, "analyzer": "whitespace", "search_analyzer": "with_pins"}},
        settings={"analysis": analysis},
    )
    await add(
        cluster,
        name,
        [{"text": "thermal throttling"}, {"text": "overheating"}, {"text": "hot laptop"}, {"text": "c#, f#"}],
    )

    async def found(text: str) -> set[str]:
        body = {"query": {"match": {"text": {"query": text, "auto_generate_synonyms_phrase_query": False}}}}
        answer = await cluster.request("POST", f"/{name}/_search", body=body)
        return {h["_id"] for h in answer["hits"]["hits"]}

    assert await found("laptop hot") == {"0", "1", "2"}
    assert await found("all about it") == set()
