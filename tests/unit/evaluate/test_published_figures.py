"""docs/evidence.md says what the measured figures say, and these keep what the default promises."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
RESULTS = sorted((ROOT / "benchmarks" / "evidence" / "results").glob("*.json"))


@pytest.fixture(scope="module")
def figures() -> dict[str, dict[str, Any]]:
    """By engine, what was measured of each collection."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in RESULTS]
    return {result["engine"]: result["collections"] for result in found}


def test_the_page_is_made_of_the_published_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)
    render = importlib.import_module("benchmarks.evidence.page").render
    written = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    assert written == render([json.loads(file.read_text(encoding="utf-8")) for file in RESULTS])
    assert not re.search(r"\b(nan|inf|None)\b", written)


def test_the_default_gains_more_than_a_fifth_on_every_engine_without_a_loser(
    figures: dict[str, dict[str, Any]],
) -> None:
    assert "OpenSearch 2.19.6" in figures
    for engine, collections in figures.items():
        gains = [found["compare"]["expanded"]["nDCG@10"] for found in collections.values()]
        assert len(gains) == 4, engine
        assert sum(gain["relative"] for gain in gains) / 4 >= 0.215, engine
        assert min(gain["relative"] for gain in gains) > 0, engine
        assert max(gain["worse_by_0.1"] for gain in gains) <= 0.06, engine


def test_documents_that_are_not_enriched_yet_do_not_suffer(figures: dict[str, dict[str, Any]]) -> None:
    halves = [found["half"] for found in figures["OpenSearch 2.19.6"].values() if found["half"]]
    assert len(halves) == 2
    for half in halves:
        before, after = half["R@10 of documents that are not enriched"]
        assert after >= before


def test_the_budget_protects_from_answers_that_are_wrong(figures: dict[str, dict[str, Any]]) -> None:
    for found in figures["OpenSearch 2.19.6"].values():
        lost = {
            run: found["compare"][run]["nDCG@10"]["relative"] for run in ("wrong-answers", "wrong-answers-fixed-weight")
        }
        assert lost["wrong-answers-fixed-weight"] < 2 * lost["wrong-answers"] < 0
