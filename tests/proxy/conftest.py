"""Proxies before a script of a node, and before the real one; an index of a few documents, and recorded answers."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proxy.asking import ANSWERS, call, fill
from proxy.running import Running, proxies


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start proxies; they end with the test."""
    with proxies(tmp_path) as run:
        yield run


@pytest.fixture(scope="module")
def index(node_url: str) -> Iterator[str]:
    name = f"test-{secrets.token_hex(6)}"
    fill(node_url, name)
    yield name
    call(f"{node_url}/{name}", "DELETE")


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    """A file of answers to the texts of proxy.asking."""
    file = tmp_path / "answers.jsonl"
    file.write_text("".join(json.dumps({"id": text, "answer": a}) + "\n" for text, a in ANSWERS.items()))
    return str(file)
