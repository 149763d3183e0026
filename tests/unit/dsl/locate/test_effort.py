"""What would take long to read passes unread: a process serves many, and reading one body makes all others wait."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable

import pytest

from rewriting_examples import FIELDS, expansion_of, found, passes, shaped
from sira_es.dsl.fields import Fields
from sira_es.dsl.locate import Located, Passed
from sira_es.dsl.msearch import split_msearch
from sira_es.dsl.rewrite import rewrite

LIMIT = 1 << 20
MOST = 700_000
MATCH = '{"match":{"title":"laser printer"}}'
WIDE = Fields(FIELDS.text | {f"field{i}.of.many" for i in range(1000)})


def many(item: str, size: int) -> str:
    return ",".join([item] * max(1, size // (len(item) + 1)))


def among(item: str, size: int) -> str:
    return f'{{"query":{{"bool":{{"must":[{MATCH}],"should":[{many(item, size)}]}}}}}}'


def wrapper(size: int) -> str:
    inside = f'{{"bool":{{"should":[{many("{}", size)}]}}}}'
    return f'{{"wrapper":{{"query":"{base64.b64encode(inside.encode()).decode()}"}}}}'


BODIES = {
    "empty objects": lambda n: among("{}", n),
    "clauses with the text": lambda n: among(MATCH, n),
    "filters": lambda n: among('{"term":{"color":"x"}}', n),
    "scalars after an object": lambda n: among("{}," + many("1", n), 1),
    "ids": lambda n: among(f'{{"terms":{{"color":[{many("1", n)}]}}}}', 1),
    "members": lambda n: among("{" + ",".join(f'"{i}":1' for i in range(n // 10)) + "}", 1),
    "words": lambda n: among(",".join(f'{{"match":{{"title":"w{i % 32}"}}}}' for i in range(n // 27)), 1),
    "a long text": lambda n: among(f'{{"match":{{"title":"{"ab cd " * (n // 6)}"}}}}', 1),
    "long texts": lambda n: among(f'{{"query_string":{{"query":"{"ab (cd) " * 240}","fields":["title"]}}}}', n),
    "a long text that filters": lambda n: among(
        f'{{"bool":{{"filter":{{"match":{{"text":"{"ab " * (n // 3)}"}}}}}}}}', 1
    ),
    "patterns": lambda n: among(
        f'{{"multi_match":{{"query":"x","fields":[{many(chr(34) + "*a*b*c" + chr(34), n)}]}}}}', 1
    ),
    "escaped patterns": lambda n: among(
        f'{{"multi_match":{{"query":"x","fields":[{many(chr(34) + chr(92) + "u002aa" + chr(34), n)}]}}}}', 1
    ),
    "all fields": lambda n: among('{"query_string":{"query":"laser printer"}}', n),
    "a wrapper": lambda n: among(wrapper(n // 2), 1),
    "wrappers": lambda n: among(wrapper(5000), n),
    "aggregations": lambda n: f'{{"query":{MATCH},"aggs":{{"a":[{many("{}", n)}]}}}}',
    "spaces": lambda n: f'{{"query":{MATCH}{" " * n}}}',
    "deep": lambda n: '{"query":' + '{"bool":{"must":' * (n // 16),
}


def effort(work: Callable[[], object]) -> int:
    """How many calls and returns of functions it takes, which no other load on the machine changes: 5 million a second."""
    count = 0

    def one_more(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(one_more)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("kind", BODIES)
def test_no_body_takes_long(kind: str) -> None:
    """Of all sizes: what is just small enough to be read takes longest."""

    def work() -> None:
        where = found(body, fields=WIDE)
        if isinstance(where, Located):
            rewrite(where, {t: expansion_of(t) for t in where.texts}, shaped("full"))

    for size in (30_000, 60_000, 120_000, LIMIT):
        body = BODIES[kind](size).encode()
        assert effort(work) < MOST, size


@pytest.mark.parametrize("body", ["\n" * LIMIT, '{}\n{"query":{}}\n' * (LIMIT // 16), "{}\n" * (LIMIT // 3)])
def test_no_msearch_takes_long_to_split(body: str) -> None:
    assert isinstance(split_msearch(body.encode()), Passed)
    assert effort(lambda: split_msearch(body.encode())) < MOST


def test_an_msearch_counts_as_a_whole() -> None:
    body = f'{{}}\n{{"query":{MATCH}}}\n'.encode()
    assert len(split_msearch(body * 1000)) == 1000  # type: ignore[arg-type]
    assert split_msearch(body * 2000).reason == "takes too long to read"  # type: ignore[union-attr]


def test_long_vectors_and_lists_of_ids_are_no_hindrance() -> None:
    ids = {"terms": {"color": [f"id-{i:032}" for i in range(20_000)]}}
    knn = {"field": "vector", "query_vector": [0.123456789] * 4096, "k": 10}
    body = {"query": {"bool": {"must": [json.loads(MATCH)], "filter": [ids]}}, "knn": knn}
    assert isinstance(found(body), Located)


def test_a_text_that_nobody_types_passes() -> None:
    assert isinstance(found({"query": {"match": {"title": "word " * 399}}}), Located)
    for kind in ({"match": {"title": "word " * 401}}, {"query_string": {"query": "word " * 401}}):
        assert passes({"query": kind}) == "long text"
        assert passes({"query": {"bool": {"must": [json.loads(MATCH)], "should": [kind]}}}) == "long text"


def test_highlights_make_no_large_body_many_times_as_large() -> None:
    large = {"bool": {"must": json.loads(MATCH), "filter": {"term": {"color": "x" * (LIMIT // 4)}}}}
    inner = [{"name": str(i), "highlight": {}} for i in range(10)]
    assert isinstance(found({"query": large, "highlight": {}}), Located)
    body = {"query": large, "collapse": {"field": "color", "inner_hits": inner}}
    assert passes(body) == "takes too long to read"
