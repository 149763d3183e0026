"""Answers fetched ahead: how a run ends that cannot go on."""

from __future__ import annotations

import asyncio

import pytest

from sira_es.errors import ClusterUnreachable
from sira_es.expand.warming import warm
from sira_es.llm.model import Answer

pytestmark = pytest.mark.anyio


async def test_when_the_cluster_is_gone_no_further_answer_is_fetched() -> None:
    asked = []

    async def fetch(text: str) -> Answer:
        asked.append(text)
        await asyncio.sleep(0.01)
        if text == "0":
            raise ClusterUnreachable("no answer")
        return Answer(text="{}", model="m")

    with pytest.raises(ClusterUnreachable):
        await warm(fetch, [str(i) for i in range(50)], concurrency=2)
    before = len(asked)
    await asyncio.sleep(0.05)
    assert len(asked) == before
