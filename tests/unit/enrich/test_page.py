"""Pages of documents, with an index that is made up: what is held back of their phrases, and when."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from sira_es.cluster.statistics import DocumentFrequencies
from sira_es.cluster.target import Target
from sira_es.enrich.page import PageEnricher
from sira_es.enrich.watch import FEWEST_DOCUMENTS
from sira_es.llm.recorded import RecordedAnswers
from sira_es.settings import IndexSettings
from sira_es.vocabulary import Analysis, Statistics, Word

pytestmark = pytest.mark.anyio

COUNT = 2 * FEWEST_DOCUMENTS
ANSWERS = {str(i): json.dumps({"terms": [f"noise{i}", "best casino"]}) for i in range(COUNT)}
PAGE = [(str(i), {"body": f"fan number {i}"}) for i in range(COUNT)]


class _Index:
    """Stands for the look-ups: texts without any of the phrases; while it `fails` nothing is known."""

    def __init__(self) -> None:
        self.fails = False

    async def look_up(self, target: Target, texts: Sequence[str], **fields: Any) -> Statistics:
        df, documents = (None, None) if self.fails else (0, COUNT)
        analyses = [Analysis(text, tuple(Word(w, (w,), df) for w in text.split())) for text in texts]
        return Statistics(documents, tuple(analyses))


def page(index: _Index, **settings: Any) -> PageEnricher:
    return PageEnricher(
        cast(DocumentFrequencies, index),
        RecordedAnswers(ANSWERS),
        Target("docs", "index", ()),
        IndexSettings(**({"text_fields": ["body"]} | settings)),
        concurrency=1,
    )


async def terms(made: PageEnricher, documents: Sequence[tuple[str, Mapping[str, Any]]] = PAGE) -> set[str]:
    """All terms of a page."""
    return {term for result in await made.enrich(documents) for term in result.terms}


async def test_what_all_documents_of_a_page_have_is_held_back_on_the_next() -> None:
    made = page(_Index())
    assert "best casino" in await terms(made)
    assert "best casino" not in await terms(made)


async def test_a_page_without_figures_neither_counts_nor_lets_anything_through_for_good() -> None:
    index = _Index()
    made = page(index)
    index.fails = True
    for _ in range(2):
        assert "best casino" in await terms(made)
    assert not made.watch.held
    index.fails = False
    await terms(made)
    assert "best casino" not in await terms(made)
    index.fails = True
    assert "best casino" not in await terms(made)


async def test_where_only_what_was_added_is_searched_nothing_is_held_back() -> None:
    made = page(_Index(), text_fields=["enriched_terms"], read_fields=["body"])
    for _ in range(2):
        assert "best casino" in await terms(made)
