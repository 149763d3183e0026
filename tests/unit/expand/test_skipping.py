"""When a query is not expanded: each rule, what it leaves alone, and the configuration's word over it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sira_es.errors import ConfigurationError
from sira_es.expand.skip import LONGEST, Why, skipped
from sira_es.settings import load_settings

IDENTIFIERS = [
    "CVE-2021-44228", "cve-2021-44228", "ORA-00942", "KB5005565", "WH-1000XM4", "SKU 4711-AB-99", "JIRA-1234",
    "ticket INC0012345", "GH-1234 GH-1235", "order no. 100234", "#12345", "E11000", "a1b2c3d4e5",
    "0x80070057", "error 0x80070057", "ERR_CONNECTION_REFUSED", "STATUS_ACCESS_DENIED", "NS_ERROR_NET_RESET",
    "+49 30 1234567", "(030) 123-4567", "tel. 030/1234567", "info@example.org", "https://example.org/a?b=c",
    "www.example.org", "192.168.10.17", "d41d8cd98f00b204e9800998ecf8427e", "550e8400-e29b-41d4-a716-446655440000",
    "9780306406157", "978-0-306-40615-7",
]  # fmt: skip
QUESTIONS = [
    "COVID-19", "mp3", "windows10", "es2015", "python3.11", "SHA-256", "utf-8", "log4j", "2021", "iphone 13",
    "ipad air 2", "x86_64", "office365", "i18n", "h264", "3d printer", "deadbeef", "defaced", "C++", "AC/DC",
    'blue "screen" of death', "CVE-2021-44228 log4j exploit", "US", "error when saving", "phone", "order number",
    "IT OR HR", "HOW DO I AND WHY", "git log --oneline", "foo:bar", "std::vector", "10:30", "what is *args", "error: no space",
    "rm -rf", "vitamin b12", "boeing 747", "B2B", "Nikon D850", "jet flow -dash experimental papers", "c", "日本",
    "search AND", "x^2", "2*3", "a~b", "not now", "and or", "€ sign", "well-known",
]  # fmt: skip
OPERATORS = [
    "-gaming laptop",
    "laptop !gaming",
    "laptop || notebook",
    "laptop && notebook",
    "laptop AND fan", "laptop OR notebook", "NOT laptop", "laptop NOT fan", "jaguar -car", "+laptop fan", '+"hot laptop" fan',
    "lapt*", "laptop~", "laptop~2", "laptop^2 fan", '"hot laptop"~3 fan', "[2019 TO 2021]", "title:laptop", "text:(a b)",
    'brand:"acme corp"', "brand:[1 TO 2]",
]  # fmt: skip


@pytest.mark.parametrize("text", IDENTIFIERS)
def test_an_identifier_is_looked_up_as_it_stands(text: str) -> None:
    """elastic/kibana#282451: a look-up by an exact id is not a question."""
    found = skipped(text)
    assert found is not None
    assert (found.why, found.bare) == (Why.IDENTIFIER, False)


@pytest.mark.parametrize("text", QUESTIONS)
def test_what_merely_looks_a_little_like_one_is_expanded(text: str) -> None:
    assert skipped(text, fields=("title", "text")) is None


@pytest.mark.parametrize("text", OPERATORS)
def test_operators_of_a_query_language_are_respected(text: str) -> None:
    found = skipped(text, fields=("title", "text"))
    assert found is not None
    assert (found.why, found.bare) == (Why.OPERATORS, True)


@pytest.mark.parametrize("text", ['"hot laptop"', "“hot laptop”", "„hot laptop“", " «hot laptop» "])
def test_a_text_all_in_quotes_is_exactly_what_is_wanted(text: str) -> None:
    found = skipped(text)
    assert found is not None
    assert (found.why, found.bare) == (Why.QUOTED, True)


@pytest.mark.parametrize("text", ["", "  ", "?!", '""', "***", "\x00"])
def test_nothing_is_not_expanded(text: str) -> None:
    assert skipped(text).why is Why.EMPTY  # type: ignore[union-attr]


def test_a_whole_document_is_not_expanded() -> None:
    assert skipped("word " * (LONGEST // 5)) is None
    assert skipped("word " * (LONGEST // 5 + 1)).why is Why.LONG  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "language", "skip"),
    [
        ("ноутбук греется", "en", True),
        ("ноутбук греется", "ru", False),
        ("ноутбук греется", "uk-UA", False),
        ("ноутбук греется", "", False),
        ("笔记本电脑", "ja", False),
        ("laptop overheats", "ru", False),
        ("ноутбук Lenovo", "en", False),
        ("ε δ proof", "en", False),
    ],
)
def test_a_query_in_a_script_that_the_index_does_not_use_is_not_expanded(text: str, language: str, skip: bool) -> None:
    found = skipped(text, language=language)
    assert (found is not None and found.why is Why.LANGUAGE) is skip


def test_the_configuration_allows_what_a_rule_would_skip() -> None:
    assert skipped("WH-1000XM4", allow=["wh-.*"]) is None
    assert skipped("my WH-1000XM4", allow=["wh-.*"]) is None
    assert skipped("CVE-2021-44228", allow=["wh-.*"]) is not None


def test_the_configuration_denies_before_it_allows() -> None:
    found = skipped("price of a laptop", allow=[".*"], deny=["price of .*"])
    assert found is not None
    assert (found.why, found.bare) == (Why.DENIED, False)
    assert "price of .*" in found.reason
    assert skipped("the price of a laptop", deny=["price of .*"]) is None


def test_a_rule_that_is_no_regular_expression_is_a_wrong_configuration() -> None:
    with pytest.raises(ConfigurationError, match=r"expand_queries.deny.*'\('.*regular expression"):
        load_settings(indices={"docs": {"text_fields": ["text"], "expand_queries": {"deny": ["("]}}})


@given(st.text(max_size=80))
def test_any_text_is_decided_upon_and_white_space_does_not_matter(text: str) -> None:
    found = skipped(text, language="en", fields=("title", "a.b"))
    assert found == skipped(f"  {text}\n", language="en", fields=("title", "a.b"))
    assert found is None or found.reason


@given(st.lists(st.sampled_from(["how", "why", "is", "the", "laptop", "hot", "fan", "noise"]), min_size=1, max_size=12))
def test_plain_words_are_always_expanded(words: list[str]) -> None:
    assert skipped(" ".join(words), language="en", fields=("title", "text")) is None
