"""A body is read only to locate: every value with its place, and nothing that cannot be read gets through."""

from __future__ import annotations

import json

import pytest

from sira_es.dsl.spans import MAX_DEPTH, Malformed, Node, scan


def test_every_value_stands_where_its_place_says() -> None:
    text = ' { "a" : [ {"b": "x\\u00e9"} , {} ], "c":-1.50e3 ,"d":{"e":null}}\n'

    def check(node: Node) -> None:
        assert json.loads(text[node.start : node.end]) == node.plain()
        for below in [*(node.members or {}).values(), *(node.items or [])]:
            check(below)

    check(scan(text))


def test_numbers_of_any_size_are_read() -> None:
    root = scan('{"a":' + "9" * 5000 + ',"b":1e999,"c":[' + "1" * 5000 + "]}")
    assert root.members is not None
    assert root.members["b"].value == float("inf")


def test_arrays_of_scalars_are_one_value() -> None:
    root = scan('{"vector":[0.1, 2, 3]}')
    assert root.get("vector") is not None
    assert root.plain() == {"vector": [0.1, 2.0, 3.0]}
    assert root.members is not None
    assert root.members["vector"].items is None


def test_only_the_members_named_are_followed() -> None:
    root = scan('{"query":{"a":{}},"aggs":{"a":1,"a":2}}', follow={"query"})
    assert root.members is not None
    assert root.members["query"].members is not None
    assert root.members["aggs"].members is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "null",
        "[]",
        '"a"',
        "{",
        "{}{}",
        "{} x",
        '{"a"}',
        '{"a":}',
        '{"a":1,}',
        '{,"a":1}',
        "{a:1}",
        "{'a':1}",
        '{"a":[1,]}',
        '{"a":[{},]}',
        '{"a":[{} {}]}',
        '{"a":[{}',
        '{"a":NaN}',
        '{"a":-Infinity}',
        '{"a":[Infinity]}',
        '{"a":01}',
        '{"a":+1}',
        '{"a":.5}',
        '{"a":"\x01"}',
        '{"a":"\\x"}',
        '{"a":"b}',
        '{"a":tru}',
        '{"a" 1}',
        '{"a":{"b":1 "c":2}}',
        "\ufeff{}",
        '{/* a comment */"a":1}',
    ],
)
def test_what_is_not_one_json_object_is_malformed(text: str) -> None:
    with pytest.raises(Malformed, match="not"):
        scan(text)


def test_a_key_given_twice_is_malformed() -> None:
    with pytest.raises(Malformed, match="duplicate key"):
        scan('{"a":{"b":1,"b":2}}')


def test_the_same_key_spelled_with_an_escape_is_given_twice() -> None:
    with pytest.raises(Malformed, match="duplicate key"):
        scan('{"a":1,"\\u0061":2}')


@pytest.mark.parametrize("opening", ['{"a":', '{"a":[', "[", '{"a":[1,['])
def test_deep_nesting_is_malformed_and_never_a_crash(opening: str) -> None:
    with pytest.raises(Malformed, match=r"not|deep"):
        scan('{"q":' + opening * 1_500)


def test_objects_as_deep_as_the_limit_are_read() -> None:
    levels = MAX_DEPTH - 1
    assert scan('{"a":' * levels + "{}" + "}" * levels).members is not None
    with pytest.raises(Malformed, match="nested too deep"):
        scan('{"a":' * (levels + 1) + "{}" + "}" * (levels + 1))
