"""Queries that are not expanded: no model is called, the reason is told, and reach stays where it should."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.searching import QUERY, settings_for
from sira_es.dsl.compile import original_query
from sira_es.sira import AsyncSira
from tests.model_server import ModelServer

pytestmark = pytest.mark.anyio


@pytest.fixture
async def sira(node_url: str, index: str, model: ModelServer, tmp_path: Path) -> AsyncIterator[AsyncSira]:
    rules = {"expand_queries": {"allow": ["wh-.*"], "deny": ["price of .*"]}}
    async with AsyncSira(settings_for(node_url, index, tmp_path, model, of_index=rules)) as made:
        yield made


@pytest.mark.parametrize(
    ("text", "why", "reach"),
    [
        ("CVE-2021-44228", "identifier", True),
        ("info@example.org", "identifier", True),
        ("error 0x80070057", "identifier", True),
        ('"hot laptop"', "quoted", False),
        ("laptop AND fan", "operators", False),
        ("title:laptop", "operators", False),
        ("???", "empty", True),
        ("laptop " * 200, "too long", True),
        ("the", "stop words", True),
        ("to be", "stop words", True),
        ("горячий ноутбук", "language", True),
        ("price of a laptop", "denied", True),
    ],
)
async def test_no_model_is_called_and_the_reason_is_told(
    sira: AsyncSira, index: str, model: ModelServer, text: str, why: str, reach: bool
) -> None:
    result = await sira.search(text, index, deadline=math.inf)
    assert model.calls == []
    assert result.expansion is not None
    assert result.expansion.skipped is not None
    assert result.expansion.to_json()["skipped"]["why"] == result.expansion.skipped.why == why
    assert result.expansion.problem == ""
    plain = original_query(text, await sira.shape(index))
    assert result.request["query"] == plain or reach
    assert ("enriched_terms" in str(result.request["query"])) is reach


async def test_an_empty_query_is_searched_for_without_reach_or_model(sira: AsyncSira, index: str) -> None:
    assert (await sira.search("", index)).hits == ()


async def test_a_rule_of_the_configuration_lets_an_identifier_be_expanded(
    sira: AsyncSira, index: str, model: ModelServer
) -> None:
    assert (await sira.expand("WH-1000XM4", index, deadline=math.inf)).origin == "model"
    assert len(model.calls) == 1


@pytest.mark.parametrize("text", ["WH-1000XM4", "WH-1000XM5", "wh-1000xm4"])
async def test_the_document_with_the_identifier_stays_first(
    node_url: str, index: str, model: ModelServer, tmp_path: Path, text: str
) -> None:
    """elastic/kibana#282451: look-ups by an exact id fell from 100 % to 40 % right at rank 1."""
    async with AsyncSira(settings_for(node_url, index, tmp_path, model)) as sira:
        plain = await sira.search(text, index, sides="baseline")
        found = await sira.search(text, index, deadline=math.inf)
    assert found.hits[0].id == plain.hits[0].id == str(3 + int(text[-1]) - 3)
    assert model.calls == []


async def test_a_pin_stands_whatever_the_query_looks_like(sira: AsyncSira, index: str, model: ModelServer) -> None:
    sira.terms.add(index, "pin", ["headset"], query="CVE-2021-44228", boost=0.4)
    expanded = await sira.expand("CVE-2021-44228", index)
    assert [(t.word, t.boost) for t in expanded.expansion.clauses] == [("headset", 0.4)]
    assert model.calls == []


async def test_a_question_is_expanded(sira: AsyncSira, index: str) -> None:
    expanded = await sira.expand(QUERY, index, deadline=math.inf)
    assert expanded.skipped is None
    assert "notebook" in {t.word for t in expanded.expansion.clauses}
