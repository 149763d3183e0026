"""Proxies before a script of a node, and before the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.running import Running


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start proxies; they end with the test."""
    running: list[Running] = []

    def run(content: dict[str, Any], *options: str) -> Running:
        folder = tmp_path / f"proxy-{len(running)}"
        folder.mkdir()
        running.append(Running(folder, content, *options))
        return running[-1]

    yield run
    for proxy in running:
        proxy.stop()
