"""A model server for each test, and the stage that names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sira_es.settings import LlmStage
from tests.model_server import ModelServer

ANSWER = '{"terms": ["GFM", "strike out text"]}'


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer({"Use tildes around the words": ANSWER}) as running:
        yield running


@pytest.fixture
def stage(server: ModelServer) -> Callable[..., LlmStage]:
    """Settings for the server, with whatever a test changes."""

    def make(**changes: Any) -> LlmStage:
        return LlmStage(**{"model": "openai/small", "api_base": server.api_base, "timeout": 10, **changes})

    return make
