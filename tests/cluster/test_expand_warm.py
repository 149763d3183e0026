"""Answers fetched ahead: progress, cost, limits; and a process without a model that serves them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from cluster.searching import ANSWER, QUERY, settings_for
from sira_es.errors import ConfigurationError
from sira_es.sira import AsyncSira
from tests.model_server import Fault, ModelServer

pytestmark = pytest.mark.anyio

TEXTS = [QUERY, "Why does my laptop get hot", "vpn drops", "fan is loud", "CVE-2021-44228"]


async def test_each_query_is_asked_once_and_then_served_without_a_call(
    node_url: str, index: str, model: ModelServer, tmp_path: Path
) -> None:
    seen = []
    async with AsyncSira(settings_for(node_url, index, tmp_path, model)) as sira:
        report = await sira.warm(index, TEXTS, on_progress=seen.append)
        assert len(model.calls) == 3
        assert (report.new + report.known, report.skipped, report.failed) == (4, {"identifier": 1}, {})
        assert report.tokens > 0
        assert [r.done for r in seen] == [1, 2, 3, 4, 5]
        model.forget()
        again = await sira.warm(index, TEXTS)
        assert (again.known, again.new) == (4, 0)
        assert (await sira.expand(QUERY, index, deadline=0)).origin == "store"
    assert model.calls == []


async def test_failures_are_counted_by_reason_and_asked_again_by_the_next_run(
    node_url: str, index: str, model: ModelServer, tmp_path: Path
) -> None:
    model.next(Fault.status(400), Fault.status(400))
    for expected in ({"bad request": 2}, {}):
        async with AsyncSira(settings_for(node_url, index, tmp_path, model)) as sira:
            report = await sira.warm(index, TEXTS[1:4])
        assert report.failed == expected
    assert report.known + report.new == 3


async def test_the_limit_of_cost_leaves_the_rest_for_later(
    node_url: str, index: str, model: ModelServer, tmp_path: Path
) -> None:
    async with AsyncSira(settings_for(node_url, index, tmp_path, model)) as sira:
        report = await sira.warm(index, TEXTS[1:4], max_cost=0.0)
    assert (report.left, report.new) == (3, 0)
    assert model.calls == []


async def test_what_a_useless_answer_took_counts_as_well(
    node_url: str, index: str, model: ModelServer, tmp_path: Path
) -> None:
    model.next(Fault.says(None), Fault.says("I am a teapot"))
    async with AsyncSira(settings_for(node_url, index, tmp_path, model)) as sira:
        report = await sira.warm(index, TEXTS[1:3])
    assert report.failed == {"empty answer": 1, "unusable answer": 1}
    assert (report.unpriced, report.tokens > 0) == (2, True)


async def test_recorded_answers_are_served_by_a_process_without_a_model(
    node_url: str, index: str, tmp_path: Path
) -> None:
    recorded = tmp_path / "answers.jsonl"
    recorded.write_text(json.dumps({"id": QUERY, "answer": ANSWER}) + "\n")
    settings = settings_for(node_url, index, tmp_path / "state")
    async with AsyncSira(settings, query_answers=recorded) as sira:
        report = await sira.warm(index, [QUERY, "vpn drops"])
        assert (report.new, report.failed, report.tokens) == (1, {"not recorded": 1}, 0)
    async with AsyncSira(settings) as without:
        expanded = await without.expand(QUERY, index)
        assert expanded.origin == "store"
        assert "notebook" in {t.word for t in expanded.expansion.clauses}
        assert (await without.expand("vpn drops", index)).origin == ""


async def test_recorded_answers_are_served_in_the_name_of_the_configured_model(
    node_url: str, index: str, model: ModelServer, tmp_path: Path
) -> None:
    recorded = tmp_path / "answers.jsonl"
    recorded.write_text(json.dumps({"id": QUERY, "answer": ANSWER}) + "\n")
    settings = settings_for(node_url, index, tmp_path / "state", model)
    async with AsyncSira(settings, query_answers=recorded) as sira:
        await sira.warm(index, [QUERY])
    async with AsyncSira(settings) as serving:
        assert (await serving.expand(QUERY, index, deadline=math.inf)).origin == "store"
    assert model.calls == []


async def test_without_model_and_file_there_is_nothing_to_warm_with(node_url: str, index: str, tmp_path: Path) -> None:
    async with AsyncSira(settings_for(node_url, index, tmp_path)) as sira:
        with pytest.raises(ConfigurationError, match="--recorded"):
            await sira.warm(index, [QUERY])
