"""Whatever is typed, and whatever a model says: never a refusal, never query syntax, nothing lost."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any, get_args

import pytest

from cluster.counting import add, create
from cluster.searching import DOCUMENTS, ENRICHED, settings_for
from sira_es.cluster.connect import Cluster
from sira_es.dsl.compile import Mode
from sira_es.sira import AsyncSira

pytestmark = pytest.mark.anyio

PIECES = [
    "C++", "AC/DC", "(1+1)=2", "NOT", "AND", "OR", "foo:bar", '"', "\\", "'", "😀", "👩‍👩‍👧", "שלום", "\u202eabc\u202c", "عالم",
    "\x00", "\x07", "\ufeff", "\ufffe", "\ud800", "\udfff", "{", "}", "[a TO b]", "^2", "~3", "*", "?", "/re.*/", "<>", "&&", "||",
    "!", "title:*", "_exists_:text", "{{query}}", "${jndi:ldap://x}", "%s", "../..", "\n", "\t", "\u2028", "ﬁ", "İ", "ß", "x" * 300,
    "laptop", "hot fan", "東京大学", "É", "e\u0301", "1e400", "-0", "null", "the", "word " * 60, "k" * 10_000,
]  # fmt: skip


def nasty(draw: random.Random, most: int) -> str:
    pieces = draw.choices(PIECES, k=draw.randint(0, most))
    pieces += [
        "".join(
            chr(draw.choice([draw.randrange(0x80), draw.randrange(0x3000), draw.randrange(0x110000)])) for _ in range(4)
        )
    ]
    return draw.choice(["", " "]).join(pieces)


async def test_two_hundred_hostile_queries_with_hostile_words_are_all_answered(
    cluster: Cluster, index_name: str, node_url: str, tmp_path: Path
) -> None:
    """elastic/elasticsearch#21288, #9153, #23990: reserved characters in generated text blew up the search."""
    await create(cluster, index_name, properties=ENRICHED, shards=2)
    await add(cluster, index_name, DOCUMENTS)
    draw = random.Random(20_240_601)
    queries = {f"q{i}": nasty(draw, 6) for i in range(200)}
    recorded = tmp_path / "answers.jsonl"
    with recorded.open("w") as file:
        for query_id in queries:
            said = {
                "concepts": [{"words": nasty(draw, 2), "need": 0.9, "same": [[nasty(draw, 2), 0.8]]}],
                "also": [[nasty(draw, 3), draw.random()] for _ in range(8)],
            }
            file.write(json.dumps({"id": query_id, "answer": json.dumps(said)}) + "\n")
    lines: list[Any] = []
    expanded, clauses = 0, 0
    async with AsyncSira(settings_for(node_url, index_name, tmp_path / "state"), query_answers=recorded) as sira:
        for query_id, text in queries.items():
            for mode in get_args(Mode):
                request, found = await sira.compile(text, index_name, mode=mode, query_id=query_id, deadline=math.inf)
                assert "query_string" not in json.dumps(request)
                lines += [{}, {**request, "size": 3}]
            assert found is not None
            assert not found.problem
            expanded += bool(found.origin)
            clauses += len(found.expansion.clauses)
    responses = []
    for start in range(0, len(lines), 60):
        answer = await cluster.request("POST", f"/{index_name}/_msearch", lines=lines[start : start + 60])
        responses += answer["responses"]
    assert [r["status"] for r in responses] == [200] * 600
    assert all(r["_shards"]["failed"] == 0 for r in responses)
    assert expanded > 100
    assert clauses > 20


async def test_no_hit_of_the_original_is_lost_to_an_expansion(
    cluster: Cluster, index_name: str, node_url: str, tmp_path: Path
) -> None:
    """elastic/elasticsearch#97396: expansions inside the original clause lost hits; beside it they cannot."""
    await create(cluster, index_name, properties=ENRICHED)
    await add(cluster, index_name, DOCUMENTS)
    recorded = tmp_path / "answers.jsonl"
    draw = random.Random(7)
    words = "laptop notebook fan noise hot heat vpn tunnel connection lost headphones throttling".split()  # noqa: SIM905
    queries = [" ".join(draw.choices(words, k=draw.randint(1, 5))) for _ in range(40)]
    with recorded.open("w") as file:
        for i in range(40):
            file.write(json.dumps({"id": f"q{i}", "answer": json.dumps({"terms": draw.choices(words, k=6)})}) + "\n")
    async with AsyncSira(settings_for(node_url, index_name, tmp_path / "state"), query_answers=recorded) as sira:
        for i, text in enumerate(queries):
            plain = await sira.search(text, index_name, sides="baseline", size=50)
            for mode in get_args(Mode):
                found = await sira.search(text, index_name, mode=mode, size=50, query_id=f"q{i}", deadline=math.inf)
                ids = {h.id for h in found.hits}
                assert {h.id for h in plain.hits} <= ids
                if mode != "recall":
                    assert found.total == plain.total
