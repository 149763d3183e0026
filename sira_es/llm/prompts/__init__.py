"""The texts that models are asked with, and the prompts made of them.

Each text is a file whose name is its version. It is part of what determines an answer: a changed text gets a new name.
The instruction is the system message; the document or query alone is the user message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Literal

from sira_es.llm.model import Prompt

__all__ = ["COLLECTION", "DOCUMENT", "QUERY", "QUESTIONS", "collection_prompt", "document_prompt", "query_prompt"]

DOCUMENT = "document_v1"
QUESTIONS = "document_v2_questions"
QUERY = "query_v2"

COLLECTION = "collection_v1"

NO_DESCRIPTION = "documents of all kinds"


def document_prompt(
    id: str,  # noqa: A002  what documents and queries call it
    values: Mapping[str, Sequence[str]] | str,
    description: str = "",
    *,
    questions: bool = False,
) -> Prompt:
    """Ask for the search phrases that a document lacks; `questions` asks for short questions it answers as well.

    `values` are its text fields, each with its values, in the order in which they are shown; or one text.
    """
    text = (
        values
        if isinstance(values, str)
        else "\n".join(f"{name}: {value}" for name, held in values.items() for value in held)
    )
    return _prompt("document", QUESTIONS if questions else DOCUMENT, id, text, description)


def query_prompt(id: str, text: str, description: str = "", language: str = "") -> Prompt:  # noqa: A002
    """Ask for the vocabulary of the documents that answer a query. `language` is that of the documents, where known."""
    described = f"{description or NO_DESCRIPTION} (language: {language})" if language else description
    return _prompt("query", QUERY, id, text, described)


def collection_prompt(sample: Sequence[Mapping[str, Any]]) -> Prompt:
    """Ask for a one-line description of a collection, from sources of some of its documents."""
    shown = [" ".join(_encodable(repr(dict(source))).split())[:400] for source in sample[:20]]
    return _prompt("document", COLLECTION, "", "\n".join(shown), "")


def _prompt(kind: Literal["document", "query"], version: str, id: str, text: str, description: str) -> Prompt:  # noqa: A002
    text = _encodable(text)
    messages = ({"role": "system", "content": _instruction(version, description)}, {"role": "user", "content": text})
    return Prompt(kind=kind, version=version, messages=messages, id=id, text=text)


@lru_cache(maxsize=64)
def _instruction(version: str, description: str) -> str:
    """The system message: that of thousands of documents."""
    described = " ".join(_encodable(description).split()).rstrip(".") or NO_DESCRIPTION
    return _text(version).replace("{description}", described)


@cache
def _text(version: str) -> str:
    return files(__package__).joinpath(f"{version}.txt").read_text(encoding="utf-8").strip()


def _encodable(text: str) -> str:
    """The text without halves of surrogate pairs, which no request could carry."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
