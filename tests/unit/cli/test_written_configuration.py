"""What `init` and `tune` write, read back as a configuration, whatever the names in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sira_es.cli.init import render
from sira_es.cli.tune import block
from sira_es.evaluate.compare import compare
from sira_es.evaluate.tuning import DEFAULT, Tuned
from sira_es.settings import load_settings


def found(**more: Any) -> dict[str, Any]:
    return {
        "url": "http://127.0.0.1:9200",
        "index": "docs",
        "text_fields": ["title", "text"],
        "read_fields": [],
        "analyzers": {"title": "english", "text": "english"},
        "left_out": [],
        "language": "en",
        "description": "",
        **more,
    }


@pytest.mark.parametrize(
    "more",
    [
        {"language": "no"},
        {"language": ""},
        {"text_fields": ["on", "2024"]},
        {"text_fields": ["enriched_terms"], "read_fields": ["a: b", "true"]},
        {"index": "123"},
        {"index": "*logs"},
        {"description": "questions: what, and why # not"},
    ],
)
def test_what_init_writes_reads_back_as_it_was_found(more: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "sira-es.yml"
    given = found(**more)
    file.write_text(render(given), encoding="utf-8")
    written = load_settings(file).index(given["index"])
    for key in ("text_fields", "read_fields", "language", "description"):
        assert getattr(written, key) == given[key]


@pytest.mark.parametrize("index", ["docs", "*logs", "123", "no"])
def test_what_tune_prints_reads_back_under_the_name_of_its_index(index: str) -> None:
    same = compare({"q": 0.5}, {"q": 0.5})
    tuned = Tuned(DEFAULT, 0.5, 0.5, same, same, (), 60, 1)
    printed = yaml.safe_load(block(tuned, {"search": {"enriched_weight": 1.0}}, index, "nDCG@10"))
    assert printed == {"indices": {index: {"search": {"enriched_weight": 1.0}}}}
