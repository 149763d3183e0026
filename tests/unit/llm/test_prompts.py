"""What a model is shown."""

from __future__ import annotations

import pytest

from sira_es.llm.prompts import document_prompt, query_prompt


def test_the_document_alone_is_the_user_message() -> None:
    prompt = document_prompt("d1", {"title": ["A", "B"], "body": ["C"]}, "internal articles")
    assert prompt.messages[1] == {"role": "user", "content": "title: A\ntitle: B\nbody: C"}
    assert (prompt.kind, prompt.id, prompt.text) == ("document", "d1", "title: A\ntitle: B\nbody: C")


@pytest.mark.parametrize(
    ("prompt", "version", "asks_for"),
    [
        (document_prompt("", "x", "internal articles"), "document_v1", '{"terms": ["...", "..."]}'),
        (
            document_prompt("", "x", "internal articles", questions=True),
            "document_v2_questions",
            '"questions": ["...", "..."]',
        ),
        (query_prompt("", "x", "internal articles"), "query_v2", '"concepts": [{"words": "...", "need": 0.9'),
    ],
)
def test_the_system_message_describes_the_collection_and_the_answer(prompt, version: str, asks_for: str) -> None:
    system = prompt.messages[0]["content"]
    assert prompt.version == version
    assert "collection: internal articles. " in system
    assert asks_for in system
    assert "{description}" not in system


def test_a_description_is_one_line_and_need_not_be_there() -> None:
    assert "collection: two lines. " in query_prompt("", "x", " two\nlines. ").messages[0]["content"]
    assert "collection: documents of all kinds. " in document_prompt("", "x").messages[0]["content"]


def test_the_language_of_the_documents_stands_with_the_description() -> None:
    assert "collection: FAQ (language: de). " in query_prompt("", "x", "FAQ", "de").messages[0]["content"]


def test_braces_in_description_and_text_stay_as_they_are() -> None:
    prompt = query_prompt("", "{description} {x}", "a {y} b")
    assert "collection: a {y} b. " in prompt.messages[0]["content"]
    assert prompt.messages[1]["content"] == "{description} {x}"


def test_half_a_surrogate_pair_in_a_document_is_replaced() -> None:
    assert document_prompt("", "a\ud800b").messages[1]["content"] == "a?b"
