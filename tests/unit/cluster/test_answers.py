"""Reading what a cluster says: errors of any shape, JSON of any kind, names in paths."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sira_es.cluster.connect import cause_of, dumps, expected, loads, segment
from sira_es.errors import ClusterError

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ({"type": "a", "reason": "b"}, ("a", "b")),
        ({"type": "outer", "reason": "all shards failed", "root_cause": [{"type": "a", "reason": "b"}]}, ("a", "b")),
        ({"type": "a", "reason": "b", "caused_by": {"reason": "c", "caused_by": {"reason": "d"}}}, ("a", "b: d")),
        ({"type": "a", "reason": "b because c", "caused_by": {"reason": "c"}}, ("a", "b because c")),
        ({"type": "a", "reason": None, "root_cause": []}, ("a", "")),
        ("no handler\nfound", ("", "no handler found")),
        (None, ("", "")),
        ({"type": "a", "reason": "two\nlines"}, ("a", "two lines")),
    ],
)
def test_the_root_cause_of_an_error(error: Any, cause: tuple[str, str]) -> None:
    assert cause_of(error) == cause


@given(JSON)
def test_no_error_of_any_shape_is_more_than_one_line(error: Any) -> None:
    kind, reason = cause_of(error if not isinstance(error, list) else {"root_cause": error})
    assert "\n" not in reason
    assert isinstance(kind, str)


@given(JSON)
def test_json_of_any_kind_goes_out_and_comes_back(value: Any) -> None:
    assert loads(dumps(value)) == value


def test_what_is_no_json_is_a_value_error() -> None:
    for content in (b"", b"<html>", b"\xff\xfe{}", b'{"a":'):
        with pytest.raises(ValueError, match=r".*"):
            loads(content)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("docs", "docs"),
        ("a,b*,-c", "a,b*,-c"),
        ("far:docs", "far:docs"),
        ("<logs-{now/d}>", "%3Clogs-%7Bnow%2Fd%7D%3E"),
        ("../_all?x=y#z", "..%2F_all%3Fx%3Dy%23z"),
        ("größe", "gr%C3%B6%C3%9Fe"),
    ],
)
def test_a_name_cannot_leave_its_place_in_a_path(name: str, path: str) -> None:
    assert segment(name) == path


@pytest.mark.parametrize(
    "broken", [lambda a: a["x"], lambda a: a[0]["x"], lambda a: a["n"]["x"], lambda a: int(a["s"])]
)
def test_an_answer_of_another_shape_is_an_error_of_ours(broken: Any) -> None:
    with (
        pytest.raises(ClusterError, match=r"^counting: the cluster's answer has an unexpected form \("),
        expected("counting"),
    ):
        broken({"n": None, "s": "x"})
