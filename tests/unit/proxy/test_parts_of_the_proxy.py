"""The pure parts: shapes, memory, headers, shares, answers."""

from __future__ import annotations

import gzip
import secrets
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from sira_es.proxy.exchange import UNPACKED, Answer
from sira_es.proxy.memory import LocalMemory, Served, SharedMemory
from sira_es.proxy.options import Options
from sira_es.proxy.outcome import Outcome, told
from sira_es.proxy.planning import sample_key
from sira_es.proxy.shapes import Shapes
from sira_es.proxy.upstream import Node
from sira_es.proxy.wire import BadRequest, Request, returned_headers
from sira_es.vocabulary.model import Expansion, Term, Verdict, Word

BODY = b'{"query": {"match": {"a": {"query": "some words", "boost": 1.5}}}, "size": 10}'


@pytest.mark.parametrize(
    ("other", "known"),
    [
        (BODY.replace(b"some words", b'oth\\"er: x'), True),
        (BODY.replace(b"1.5", b"-2e7").replace(b"10", b"20"), True),
        (BODY.replace(b" ", b""), True),
        (BODY.replace(b"match", b"match_phrase"), False),
        (BODY.replace(b'"a"', b'"b"'), False),
    ],
)
def test_a_refused_shape_is_known_again_whatever_its_texts_and_numbers(other: bytes, known: bool) -> None:
    shapes = Shapes()
    shapes.remember("docs", BODY, "refused")
    assert shapes.refused("docs", other) is known
    assert not shapes.refused("other", other)


def test_a_refused_shape_rests_for_a_minute_and_after_each_further_refusal_longer() -> None:
    now = [0.0]
    shapes = Shapes(clock=lambda: now[0])
    for seconds in (60, 240, 960, 3600, 3600):
        shapes.remember("docs", BODY, "refused")
        shapes.remember("docs", BODY, "refused")  # sent at the same time: the same refusal
        now[0] += seconds - 1
        assert shapes.refused("docs", BODY)
        now[0] += 1
        assert not shapes.refused("docs", BODY)
    shapes.remember("docs", BODY, "taken")
    shapes.remember("docs", BODY, "refused")
    now[0] += 60
    assert not shapes.refused("docs", BODY)


def test_where_the_cluster_may_have_been_busy_a_shape_rests_for_seconds_only() -> None:
    now = [0.0]
    shapes = Shapes(clock=lambda: now[0])
    for _ in range(5):
        shapes.remember("docs", BODY, "unsure")
        assert shapes.refused("docs", BODY)
        now[0] += 5
        assert not shapes.refused("docs", BODY)


def _served() -> Served:
    term = Term("fan", ("fan",), ("fan",), 0.7, 2, True, 1.5, 1.2, Verdict.KEPT, 0.3)
    return Served(Expansion("hot", 18, (Word("hot", ("hot",), 2, 0, True),), (term,)), "partial")


def test_what_was_served_first_stays_for_ten_minutes() -> None:
    now = [0.0]
    memory = LocalMemory(clock=lambda: now[0])
    key = ("", "docs", "hot")
    assert memory.put(key, Served(None, reason="model", failed=True)).failed
    assert memory.put(key, _served()).failed
    now[0] = 599
    assert memory.get(key) == Served(None, reason="model", failed=True)
    now[0] = 600
    assert memory.get(key) is None
    assert memory.put(key, _served()) == _served()


def test_processes_of_one_machine_serve_the_same(tmp_path: Path) -> None:
    one, other = SharedMemory(tmp_path / "served"), SharedMemory(tmp_path / "served")
    key = ("someone", "docs", "hot")
    one.put(key, _served())
    assert other.put(key, Served(None, reason="late", failed=True)) == _served()
    assert other.get(key) == _served()
    assert other.get(("someone else", "docs", "hot")) is None
    one.close()
    other.close()
    assert b"docs" not in (tmp_path / "served").read_bytes()[:1000]


def test_what_processes_share_is_readable_by_nobody_else_and_does_not_only_grow(tmp_path: Path) -> None:
    file, now = tmp_path / "served", [0.0]
    memory = SharedMemory(file, clock=lambda: now[0])
    for _ in range(20):
        for n in range(20):
            memory.put(("", "docs", f"{now[0]} {n}"), _served())
        now[0] += 300
    with closing(sqlite3.connect(file)) as reader:
        assert reader.execute("SELECT count(*) FROM served").fetchone()[0] <= 80
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    memory.close()


def test_a_memory_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    memory = SharedMemory(tmp_path / "file" / "served")
    assert memory.put(("", "docs", "x"), _served()) == _served()
    assert memory.get(("", "docs", "x")) == _served()


def test_callers_with_different_credentials_are_told_apart_and_not_named() -> None:
    def identity(*headers: tuple[bytes, bytes]) -> str:
        return Request("GET", b"/", list(headers), "").caller.identity

    given = [
        identity(),
        identity((b"authorization", b"Basic YTpi")),
        identity((b"authorization", b"Basic YTpj")),
        identity((b"authorization", b"Basic YTpi"), (b"es-security-runas-user", b"u")),
        identity((b"x-proxy-user", b"u"), (b"x-forwarded-for", b"10.0.0.1")),
        identity((b"x-proxy-user", b"u"), (b"x-proxy-ext-team", b"1"), (b"x-proxy-ext-site", b"2")),
        identity((b"x-proxy-user", b"u"), (b"x-proxy-ext-team", b"2"), (b"x-proxy-ext-site", b"1")),
        identity((b"authorization", b"Bearer a"), (b"es-client-authentication", b"SharedSecret b")),
    ]
    assert len(set(given)) == len(given)
    assert given[0] == ""
    assert not any("YTp" in g for g in given)
    assert identity((b"accept", b"x")) == ""


def test_what_decides_on_the_documents_a_caller_sees_goes_with_look_ups_of_ours() -> None:
    """A JWT realm wants to know the client, too; document-level security of OpenSearch may go by attributes."""
    signs_in = {"authorization": "Bearer a", "es-client-authentication": "SharedSecret b", "x-proxy-ext-team": "1"}
    raw = [(b"x-opaque-id", b"c"), *((name.encode(), value.encode()) for name, value in signs_in.items())]
    assert Request("GET", b"/", raw, "").caller.headers == signs_in


@pytest.mark.parametrize("name", [b"authorization", b"es-client-authentication", b"x-proxy-ext-team"])
def test_a_header_that_signs_in_is_neither_hop_by_hop_nor_given_twice(name: bytes) -> None:
    with pytest.raises(BadRequest):
        Request("GET", b"/", [(b"connection", b"close, " + name.title()), (name, b"x")], "")
    with pytest.raises(BadRequest):
        Request("GET", b"/", [(name, b"x"), (name, b"y")], "")


def test_answers_lose_only_what_belongs_to_one_connection() -> None:
    raw = [(b"Connection", b"close"), (b"X-Elastic-Product", b"Elasticsearch"), (b"Transfer-Encoding", b"chunked")]
    assert returned_headers(raw, [(b"x", b"y")]) == [(b"X-Elastic-Product", b"Elasticsearch"), (b"x", b"y")]


def test_a_share_of_users_is_the_same_every_time_and_about_that_large() -> None:
    options = Options(sample=0.1)
    served = {f"user {i}" for i in range(5000) if options.serves(f"user {i}")}
    assert served == {f"user {i}" for i in range(5000) if Options(sample=0.1).serves(f"user {i}")}
    assert 400 < len(served) < 600
    assert served <= {f"user {i}" for i in range(5000) if Options(sample=0.3).serves(f"user {i}")}


def test_a_sample_goes_by_key_then_sign_in_then_address_and_never_by_cookie() -> None:
    def key(*headers: tuple[bytes, bytes]) -> str:
        return sample_key(Request("GET", b"/", [(b"cookie", secrets.token_bytes(4).hex().encode()), *headers], "::1"))

    address, sign_in = (b"x-forwarded-for", b"10.0.0.1, 10.0.0.9"), (b"authorization", b"Basic YTpi")
    assert key() == "::1"
    assert key(address) == "10.0.0.1"
    assert key(address, sign_in) == "Basic YTpi"
    assert key(address, sign_in, (b"x-sira-key", b"u7")) == "u7"


def test_beside_a_shadow_nobody_is_served_but_the_sample() -> None:
    assert Options().serves("anyone")
    assert not Options(shadow=0.05).serves("anyone")
    assert Options(shadow=0.05, sample=1.0).serves("anyone")


def test_one_search_tells_its_outcome_several_how_many_of_each() -> None:
    assert told([Outcome("skipped", "no text")]) == "skipped; reason=no text"
    assert told([Outcome("applied"), Outcome("failed", "x"), Outcome("applied")]) == "applied=2, failed=1"


def test_two_processes_that_start_at_once_share_what_they_serve(tmp_path: Path) -> None:
    key, served = ("", "docs", "text"), Served(None, reason="x")
    both = threading.Barrier(2)

    def process(first: bool, file: Path) -> Served | None:
        both.wait()
        memory = SharedMemory(file)
        both.wait()
        if first:
            memory.put(key, served)
        both.wait()
        with closing(memory):
            return memory.get(key)

    with ThreadPoolExecutor(2) as pool:
        for number in range(200):
            file = tmp_path / str(number)
            found = list(pool.map(process, (True, False), (file, file)))
            assert found == [served, served], number


def test_an_answer_that_is_far_longer_than_it_came_is_not_read() -> None:
    node = Node("http://node")
    headers = ((b"content-encoding", b"gzip"),)
    assert Answer(200, headers, gzip.compress(b"x" * 1000), node).whole == b"x" * 1000
    assert Answer(200, headers, gzip.compress(b"x" * (UNPACKED + 1)), node).whole is None
