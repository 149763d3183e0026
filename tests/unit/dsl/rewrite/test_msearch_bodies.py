"""An _msearch: its searches are replaced line by line, every other byte stays, and one bad line lets all pass."""

from __future__ import annotations

import json

import pytest

from rewriting_examples import rewritten
from sira_es.dsl.locate import Passed
from sira_es.dsl.msearch import Search, join_msearch, split_msearch

TEXT = b'{"query":{"match":{"title":"laser printer"}}}'
ALL = b'{"query": {"match_all": {}}, "size":1 }'


def searches(body: bytes) -> tuple[Search, ...]:
    found = split_msearch(body)
    assert not isinstance(found, Passed), found
    return found


def test_searches_come_with_their_headers() -> None:
    body = b'{"index":"a,b","preference":"x"}\n' + TEXT + b'\n{"index":["c"]}\n' + ALL + b"\n{}\n" + ALL + b"\n"
    found = searches(body)
    assert [s.index for s in found] == [("a", "b"), ("c",), ()]
    assert [s.line for s in found] == [TEXT, ALL, ALL]
    assert found[0].params == {"index": "a,b", "preference": "x"}


def test_every_other_byte_stays() -> None:
    body = b'\n {"index" : "a"} \n' + TEXT + b"\r\n\n" + ALL + b"\n{}\n" + TEXT + b"\n\n \n"
    found = searches(body)
    assert join_msearch(body, found, {}) == body
    after = rewritten(found[2].line).body
    assert join_msearch(body, found, {2: after}) == after.join(body.rsplit(TEXT, 1))
    assert json.loads(after)["query"]["bool"]["must"] == [json.loads(TEXT)["query"]]


def test_a_blank_header_is_an_empty_one() -> None:
    """searchkit/searchkit#1278, #496: blank lines in an _msearch."""
    assert [dict(s.header) for s in searches(b"{}\n" + ALL + b"\n\n" + TEXT + b"\n")] == [{}, {}]


@pytest.mark.parametrize(
    "body",
    [
        b"{}\n" + TEXT,
        b"{}\n",
        b"{}\n" + TEXT + b"\n{}\n",
        b"{}\n" + TEXT + b"\n{}\n{not json}\n",
        b"{nope}\n" + TEXT + b"\n",
        b"{}\n\n{}\n" + TEXT + b"\n",
        b"{}\n[]\n",
        b'{}\n{"query":"\xff"}\n',
        b"\n\n\n" + TEXT + b"\n",
    ],
)
def test_one_line_that_cannot_be_read_lets_all_pass(body: bytes) -> None:
    assert isinstance(split_msearch(body), Passed)


def test_an_empty_body_passes() -> None:
    assert isinstance(split_msearch(b" \n"), Passed)


@pytest.mark.parametrize(
    "header",
    [
        b'{"indices":["b"]}',
        b'{"index":"a","indices":"b"}',
        b'{"index":[]}',
        b'{"index":""}',
        b'{"index":["a",""]}',
        b'{"index":[1]}',
        b'{"index":null}',
        b'{"index":"a","something_new":true}',
    ],
)
def test_a_header_that_may_say_another_index_is_not_readable(header: bytes) -> None:
    ok = b'{"index":["a","b"],"ignore_unavailable":true,"preference":"_local","routing":"x"}'
    found = searches(b"{}\n" + ALL + b"\n" + header + b"\n" + ALL + b"\n" + ok + b"\n" + ALL + b"\n")
    assert [s.readable for s in found] == [True, False, True]
