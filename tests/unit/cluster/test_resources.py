"""The files that come with the package."""

from __future__ import annotations

import pytest

from sira_es.resources import data_file, filled


def test_the_mapping_of_our_fields_is_filled_in_with_analyzers() -> None:
    mapping = filled("mappings", "enriched_terms.json", analyzer="a", search_analyzer="s")
    assert mapping["properties"]["enriched_terms"] == {"type": "text", "analyzer": "a", "search_analyzer": "s"}
    assert set(mapping["properties"]) == {"enriched_terms", "sira"}
    assert set(mapping["properties"]["sira"]["properties"]) == {"source_hash", "recipe", "enriched_at"}


def test_a_placeholder_without_a_value_is_an_error() -> None:
    with pytest.raises(KeyError, match="search_analyzer"):
        filled("mappings", "enriched_terms.json", analyzer="a")


def test_a_file_that_is_not_there_says_what_to_do() -> None:
    with pytest.raises(FileNotFoundError, match=r"mappings/none.json is missing .* install it again"):
        data_file("mappings", "none.json")
