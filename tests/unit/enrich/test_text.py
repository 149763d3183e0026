"""Which values the text fields of a document hold, and the hash by which a change of them is seen."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sira_es.enrich.text import source_hash, text_values


@pytest.mark.parametrize(
    ("source", "field", "values"),
    [
        ({"title": "Fan"}, "title", ("Fan",)),
        ({"title": ["a", "b"]}, "title", ("a", "b")),
        ({"title": [["a"], ["b", "c"]]}, "title", ("a", "b", "c")),
        ({"book": {"title": "Fan"}}, "book.title", ("Fan",)),
        ({"book.title": "Fan"}, "book.title", ("Fan",)),
        ({"a": {"b.c": "x"}, "a.b": {"c": "y"}}, "a.b.c", ("x", "y")),
        ({"books": [{"title": "a"}, {"title": ["b", "c"]}, {"year": 1}]}, "books.title", ("a", "b", "c")),
        ({"title": ""}, "title", ("",)),
        ({"title": ["a", "a"]}, "title", ("a", "a")),
    ],
)
def test_values_are_found_where_the_engine_finds_them(
    source: dict[str, Any], field: str, values: tuple[str, ...]
) -> None:
    assert text_values(source, [field]) == {field: values}


@pytest.mark.parametrize("value", [None, 5, 1.5, True, {}, [], {"a": "b"}, [None, 3]])
def test_what_is_no_text_is_left_out(value: Any) -> None:
    assert text_values({"title": value}, ["title"]) == {"title": ()}


def test_a_document_without_the_field_has_no_values() -> None:
    assert text_values({"other": "x"}, ["title", "a.b"]) == {"title": (), "a.b": ()}


@pytest.mark.parametrize("source", [{"book": {"title": "Fan"}}, {"book.title": "Fan"}])
def test_a_multi_field_has_the_values_of_its_parent(source: dict[str, Any]) -> None:
    assert text_values(source, ["book.title.english"]) == {"book.title.english": ("Fan",)}


def test_fields_keep_their_order() -> None:
    assert list(text_values({"body": "b", "title": "a"}, ["title", "body"])) == ["title", "body"]


def test_the_hash_of_a_text_never_changes() -> None:
    """It stands in the documents of existing indices: another way to compute it would make all of them stale."""
    joined = "Fan\x1eläuft\x1flaut"
    assert source_hash({"title": ("Fan",), "body": ("läuft", "laut")}) == hashlib.sha256(joined.encode()).hexdigest()


def test_the_hash_depends_on_nothing_but_the_texts() -> None:
    source = {"title": "Fan", "body": "loud", "views": 3}
    assert source_hash(text_values(source, ["title", "body"])) == source_hash(
        text_values({**source, "views": 4, "sira": {"recipe": "x"}, "enriched_terms": ["noise"]}, ["title", "body"])
    )


TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1)
TEXTS = st.lists(st.lists(TEXT, max_size=3).map(tuple), min_size=3, max_size=3)


@given(TEXTS, TEXTS)
def test_hashes_are_equal_exactly_when_texts_are(one: list[tuple[str, ...]], other: list[tuple[str, ...]]) -> None:
    def hashed(values: list[tuple[str, ...]]) -> str:
        return source_hash({f"f{i}": v for i, v in enumerate(values)})

    assert (hashed(one) == hashed(other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": (), "b": ("x",)}, {"a": ("x",), "b": ()}),
        ({"a": ("xy",)}, {"a": ("x", "y")}),
        ({"a": ("x", "y"), "b": ()}, {"a": ("x",), "b": ("y",)}),
        ({"a": ("x", "y")}, {"a": ("y", "x")}),
    ],
)
def test_it_matters_which_value_stands_where(
    one: dict[str, tuple[str, ...]], other: dict[str, tuple[str, ...]]
) -> None:
    assert source_hash(one) != source_hash(other)


def test_a_lone_surrogate_which_engines_store_as_they_get_it_has_a_hash() -> None:
    assert source_hash({"a": ("fan \ud800",)}) != source_hash({"a": ("fan",)})


KEYS = st.sampled_from(["a", "b", "a.b", "b.a"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
)


@given(st.dictionaries(KEYS, JSON))
def test_any_document_has_texts_and_a_hash(source: dict[str, Any]) -> None:
    values = text_values(source, ["a", "a.b", "b.a.b"])
    assert all(isinstance(v, str) for found in values.values() for v in found)
    assert len(source_hash(values)) == 64
