"""Whatever the body: no crash, no error of ours, and what is not rewritten goes on byte for byte."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from captured_requests import FOLDER, captured
from proxy.asking import ANSWERS, HOT, SLOW, call, fill, settings
from proxy.running import RawNode, Running, read_message

TEXTS = (
    HOT,
    SLOW,
    "",
    "x",
    '"laptop gets hot"',
    "a AND b",
    "laptop*",
    "\ud800",
    "日本語のノート",
    "a" * 5000,
    "NaN",
    "\u0000",
)
HITS = b'{"took":1,"timed_out":false,"_shards":{"total":1,"successful":1,"skipped":0,"failed":0},"hits":{"hits":[]}}'
FOUND = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(HITS) + HITS


def a_query(chance: random.Random, depth: int = 0) -> Any:
    """Something of the query language, or nearly."""
    text, field = chance.choice(TEXTS), chance.choice(("title", "text", "kind", "nothing", "title^3", "*"))
    leaves: list[Any] = [
        {"match": {field: text}},
        {
            "match": {
                field: {
                    "query": text,
                    "operator": "and",
                    "fuzziness": "AUTO",
                    "boost": chance.choice((0, -1, 1e400, "2")),
                }
            }
        },
        {
            "multi_match": {
                "query": text,
                "fields": [field, "text"],
                "type": chance.choice(("phrase", "bool_prefix", "best_fields", 3)),
            }
        },
        {"query_string": {"query": text}},
        {"term": {field: text}},
        {"wrapper": {"query": "eyJtYXRjaCI6IHt9fQ=="}},
        {"knn": {"field": "v", "query_vector": [0.1] * 50}},
        {},
        [],
        None,
        chance.random(),
    ]
    if depth > 4 or chance.random() < 0.4:
        return chance.choice(leaves)
    below = [a_query(chance, depth + 1) for _ in range(chance.randint(0, 3))]
    return chance.choice(
        [
            {"bool": {chance.choice(("must", "should", "filter", "must_not")): below}},
            {"bool": {"must": below, "should": below[:1], "minimum_should_match": "75%"}},
            {"dis_max": {"queries": below}},
            {"function_score": {"query": a_query(chance, depth + 1), "boost_mode": "replace"}},
            {"constant_score": {"filter": a_query(chance, depth + 1)}},
            {"nested": {"path": "a", "query": a_query(chance, depth + 1)}},
            {"boosting": {"positive": a_query(chance, depth + 1), "negative": {}, "negative_boost": 0.1}},
            {"bool": a_query(chance, depth + 1)},
        ]
    )


def bodies(chance: random.Random, recorded: list[bytes]) -> Iterator[bytes]:
    while True:
        kind = chance.random()
        if kind < 0.6:
            body = {"query": a_query(chance), "size": chance.choice((0, 10, -1, "3")), "highlight": {"fields": {}}}
            text = json.dumps(
                {k: v for k, v in body.items() if chance.random() < 0.7}, ensure_ascii=chance.random() < 0.5
            )
            made = text.encode(errors="surrogatepass")
        elif kind < 0.75 and recorded:
            made = chance.choice(recorded)
        elif kind < 0.85:
            made = json.dumps({"query": {"match": {"title": HOT}}}).encode()
        else:
            made = chance.choice(
                (
                    b'{"query":' * 10_000,
                    b'{"query":{"bool":{"must":' * 400 + b"1" + b"}}}" * 400,
                    b'{"query":{"match":{"title":"laptop gets hot"}},"query":{"match_all":{}}}',
                    b'{"size":' + b"9" * 5000 + b',"query":{"match":{"title":"slow network"}}}',
                    b'\xef\xbb\xbf{"query":{"match":{"title":"slow network"}}}',
                    b"\xff\xfe\x00{",
                    chance.randbytes(200),
                )
            )
        if chance.random() < 0.3 and made:
            at = chance.randrange(len(made))
            made = (
                made[:at]
                + chance.choice((b"", b'"', b"}", b"\\", b"\xff", b"0", made[at : at + 20] * 2))
                + made[at + 1 :]
            )
        yield made


def several(chance: random.Random, made: Iterator[bytes], index: str) -> bytes:
    """The body of an _msearch, or nearly."""
    heads = (b"{}", b'{"index":"%s"}' % index.encode(), b'{"index":["a","b"]}', b"", b" ", b"{", b'{"preference":"x"}')
    weights = (30, 30, 1, 1, 1, 1, 3)
    lines = []
    for _ in range(chance.randint(1, 4)):
        body = next(made)
        lines += [chance.choices(heads, weights)[0], body if chance.random() < 0.05 else body.replace(b"\n", b" ")]
    return b"\n".join(lines) + chance.choice((b"\n", b"\n", b"\n\n", b"\r\n", b""))


def check(expansion: str, body: bytes, sent: bytes, *, lines: bool) -> None:
    """What goes out is what came, or has other JSON in the place of what was there: all of it, or of some `lines`."""
    if "applied" not in expansion and "cached" not in expansion:
        assert sent == body, (expansion, body)
        return
    before, after = (one.split(b"\n") if lines else [one] for one in (body, sent))
    for one, other in zip(before, after, strict=True):
        assert one == other or json.loads(other, parse_int=float), body


@pytest.mark.parametrize("count", [1000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_generated_bodies(node_url: str, index_name: str, tmp_path: Path, count: int) -> None:
    fill(node_url, index_name)
    chance = random.Random(20260)
    recorded = [c.body for c in captured()] if FOLDER else []
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps({"id": text, "answer": a}) + "\n" for text, a in ANSWERS.items()))
    made = bodies(chance, recorded)
    outcomes: dict[str, int] = {}
    with (
        RawNode(FOUND, relay=node_url) as node,
        Running(tmp_path, settings(node.url, index_name), "--recorded", str(answers)) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as connection,
        connection.makefile("rb") as stream,
    ):
        for _ in range(count):
            kind = chance.choices((b"_search", b"_msearch"), (4, 1))[0]
            body = next(made) if kind == b"_search" else several(chance, made, index_name)
            mode = chance.choice((b"", b"x-sira: recall\r\n", b"x-sira: rescore\r\n", b"x-sira: rescue\r\n"))
            head = b"POST /%s/%s HTTP/1.1\r\nhost: x\r\n%scontent-length: %d\r\n\r\n"
            node.seen.clear()
            connection.sendall(head % (index_name.encode(), kind, mode, len(body)) + body)
            answer = read_message(stream)
            expansion = (answer.header(b"x-sira-expansion") or b"").decode()
            outcomes[expansion] = outcomes.get(expansion, 0) + 1
            assert answer.status == 200, (body, answer)
            assert answer.body == HITS
            check(expansion, body, node.seen[-1].body, lines=kind == b"_msearch")
        assert not any("reason=error" in outcome or "refused" in outcome for outcome in outcomes), proxy.lines[-20:]
        assert not any("unexpected" in line for line in proxy.lines)
        assert outcomes.get("cached", 0) > count / 20, outcomes
        assert sum(n for outcome, n in outcomes.items() if "cached=" in outcome) > count / 200, outcomes
        assert call(f"{proxy.url}/_sira/health").status == 200
