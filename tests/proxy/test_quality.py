"""Through the proxy the ranking is that of `sira-es search --mode rerank`, to the last digit of every score."""

from __future__ import annotations

import gzip
import json
import secrets
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from proxy.asking import call, search
from proxy.running import Running
from sira_es.cli import run
from sira_es.resources import data_file
from sira_es.settings import load_settings
from sira_es.sira import Sira

FAQ = data_file("examples", "stackfaq")


@pytest.fixture(scope="module")
def index(node_url: str) -> Iterator[str]:
    name = f"test-faq-{secrets.token_hex(4)}"
    assert run(["index", "--index", name, "--documents", str(FAQ / "corpus.jsonl.gz"), "--url", node_url, "-q"]) == 0
    yield name
    call(f"{node_url}/{name}", "DELETE")


def original(text: str) -> dict[str, Any]:
    return {
        "query": {"multi_match": {"query": text, "fields": ["title", "text"], "type": "cross_fields"}},
        "size": 10,
        "_source": False,
    }


def test_the_same_ranking_as_the_command_line(node_url: str, index: str, tmp_path: Path) -> None:
    answers = FAQ / "recorded" / "queries.jsonl.gz"
    with gzip.open(answers, "rt") as lines:
        texts = [json.loads(line)["text"] for line in islice(lines, 150)]
    content = {"cluster": {"url": node_url}, "indices": {index: {"text_fields": ["title", "text"]}}}
    moved = 0
    with (
        Running(tmp_path, content, "--recorded", str(answers)) as proxy,
        Sira(load_settings(proxy.config), query_answers=answers) as sira,
    ):
        for text in texts:
            body = original(text)
            through = search(proxy.url, index, body).json["hits"]
            direct = sira.search(text, index, mode="rerank", body=body)
            assert [(h["_id"], h["_score"]) for h in through["hits"]] == [(h.id, h.score) for h in direct.hits], text
            plain = search(node_url, index, body).json["hits"]
            assert through["total"] == plain["total"]
            moved += [h["_id"] for h in through["hits"]] != [h["_id"] for h in plain["hits"]]
    assert moved > len(texts) / 2
