"""What a mapping says: which fields hold words, which hold pieces of words, and what a pattern names."""

from __future__ import annotations

from typing import Any

import pytest

from sira_es.dsl.fields import Fields, fields_of

MAPPING = {
    "properties": {
        "title": {
            "type": "text",
            "fields": {
                "keyword": {"type": "keyword"},
                "grams": {"type": "text", "analyzer": "my_grams"},
                "sayt": {"type": "search_as_you_type"},
            },
        },
        "meta": {"properties": {"note": {"type": "text"}}},
        "comments": {"type": "nested", "properties": {"body": {"type": "text"}}},
        "stored_only": {"type": "text", "index": False},
        "price": {"type": "float"},
        "headline": {"type": "alias", "path": "title"},
        "log": {"type": "match_only_text"},
    }
}
SETTINGS = {
    "index": {
        "query": {"default_field": ["title", "meta.*"]},
        "analysis": {
            "analyzer": {"my_grams": {"tokenizer": "standard", "filter": ["lowercase", "cut"]}},
            "filter": {"cut": {"type": "edge_ngram", "min_gram": "2"}},
        },
    }
}


def test_text_fields_are_those_that_are_analysed_into_words() -> None:
    assert fields_of(MAPPING, SETTINGS).text == {"title", "meta.note", "headline", "log"}


def test_n_gram_and_search_as_you_type_fields_are_told_apart() -> None:
    sayt = {"title.sayt", "title.sayt._2gram", "title.sayt._3gram", "title.sayt._index_prefix"}
    assert fields_of(MAPPING, SETTINGS).prefix == {"title.grams", *sayt}


def test_fields_below_nested_are_not_there() -> None:
    fields = fields_of(MAPPING, SETTINGS)
    assert "comments.body" not in fields.text | fields.prefix | fields.other


def test_default_field_is_the_configured_one_or_all() -> None:
    assert fields_of(MAPPING, SETTINGS).default == ("title", "meta.*")
    assert fields_of(MAPPING).default == ("*",)


@pytest.mark.parametrize("tokenizer", ["ngram", "edge_ngram", "edgeNGram"])
def test_an_analyzer_may_cut_by_its_tokenizer(tokenizer: str) -> None:
    settings = {"analysis": {"analyzer": {"a": {"tokenizer": tokenizer}}}}
    mapping = {"properties": {"f": {"type": "text", "analyzer": "a"}}}
    assert fields_of(mapping, settings).prefix == {"f"}


@pytest.mark.parametrize(
    "settings", [{"index": []}, {"analysis": 5}, {"analysis": {"analyzer": {"a": {"filter": [{"type": "ngram"}]}}}}]
)
def test_settings_of_an_unexpected_shape_say_nothing(settings: dict[str, Any]) -> None:
    assert fields_of({"properties": {"f": {"type": "text", "analyzer": "a"}, "g": 5}}, settings).text == {"f"}


FIELDS = Fields(frozenset({"title", "text", "text.en"}), other=frozenset({"title.keyword"}))


def test_weights_and_patterns_are_resolved() -> None:
    assert FIELDS.resolve(["title^3", "text*"]) == {"title": 3, "text": 1, "text.en": 1}


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*", {"title", "text", "text.en", "title.keyword"}),
        ("t*t*e", {"title"}),
        ("ti*e", {"title"}),
        ("*t*", {"title", "text", "text.en", "title.keyword"}),
        ("text*text", set()),
        ("text**", {"text", "text.en"}),
        ("*.*", {"text.en", "title.keyword"}),
        ("*" * 5000 + "q", set()),
        ("*t" * 5000 + "q", set()),
    ],
)
def test_a_star_stands_for_any_characters(pattern: str, names: set[str]) -> None:
    assert set(FIELDS.resolve([pattern])) == names


def test_the_highest_weight_counts_where_a_field_is_named_twice() -> None:
    assert FIELDS.resolve(["title^3", "t*^2", "title"])["title"] == 3


def test_unknown_fields_and_weights_that_are_no_numbers_are_left_out() -> None:
    assert FIELDS.resolve(["nope", "title^much", "text^"]) == {}


def test_a_field_that_the_request_maps_for_itself_is_not_text() -> None:
    assert FIELDS.without(["title"]).text == {"text", "text.en"}
    assert FIELDS.without(["nope"]) is FIELDS
