"""Pages of documents, with an index that is made up: what is held back of their phrases, and when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from sira_es.cluster.statistics import DocumentFrequencies
from sira_es.cluster.target import Target
from sira_es.enrich import page as pages
from sira_es.enrich.page import NOT_ASKED, UNCOUNTED, PageEnricher
from sira_es.enrich.report import Budget, Limits
from sira_es.enrich.watch import FEWEST_DOCUMENTS
from sira_es.llm.model import Answer, AnswerSource, Prompt
from sira_es.llm.recorded import RecordedAnswers
from sira_es.settings import IndexSettings
from sira_es.vocabulary import Analysis, Statistics, Word

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_PAUSES", (0.0, 0.0, 0.0))


COUNT = 2 * FEWEST_DOCUMENTS
ANSWERS = {str(i): json.dumps({"terms": [f"noise{i}", "best casino"]}) for i in range(COUNT)}
PAGE = [(str(i), {"body": f"fan number {i}"}) for i in range(COUNT)]


class _Index:
    """Stands for the look-ups: texts without any of the phrases; while it `fails` nothing is known."""

    def __init__(self) -> None:
        self.fails = False
        self.fails_times = 0
        self.asked = 0

    async def look_up(self, target: Target, texts: Sequence[str], **fields: Any) -> Statistics:
        self.asked += 1
        self.fails_times -= 1
        df, documents = (None, None) if self.fails or self.fails_times >= 0 else (0, COUNT)
        analyses = [Analysis(text, tuple(Word(w, (w,), df) for w in text.split())) for text in texts]
        return Statistics(documents, tuple(analyses))


def page(index: _Index, source: AnswerSource | None = None, **settings: Any) -> PageEnricher:
    return PageEnricher(
        cast(DocumentFrequencies, index),
        source or RecordedAnswers(ANSWERS),
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


async def test_a_busy_cluster_is_asked_for_its_figures_again() -> None:
    index = _Index()
    index.fails_times = 2
    results = await page(index).enrich(PAGE[:3])
    assert [r.note for r in results] == [""] * 3
    assert index.asked == 3


async def test_a_page_beside_one_that_waits_for_figures_waits_too() -> None:
    index = _Index()
    index.fails_times = 2
    made = page(index)
    results = await asyncio.gather(made.enrich(PAGE[:3]), made.enrich(PAGE[3:6]))
    assert {r.note for pages in results for r in pages} == {""}


async def test_documents_judged_without_figures_are_noted_and_the_next_page_does_not_wait_for_them() -> None:
    index = _Index()
    index.fails = True
    made = page(index)
    assert {r.note for r in await made.enrich(PAGE[:3])} == {UNCOUNTED}
    assert index.asked == 4
    await made.enrich(PAGE[3:6])
    assert index.asked == 5
    index.fails = False
    assert {r.note for r in await made.enrich(PAGE[6:9])} == {""}


async def test_the_parts_of_a_long_document_end_at_a_limit_of_cost() -> None:
    class Priced:
        name = "openai/priced"
        calls = 0

        async def ask(self, prompt: Prompt) -> Answer:
            self.calls += 1
            return Answer(json.dumps({"terms": ["noise"]}), self.name, 100, 10, 1.0)

        async def close(self) -> None:
            """Nothing is open."""

    source = Priced()
    made = page(_Index(), source, chunk_tokens=200)
    long = {"body": " ".join(f"word{i}" for i in range(1000))}
    (result,) = await made.enrich([("long", long)], Budget(Limits(cost=3.0)))
    assert (source.calls, result.reason) == (3, NOT_ASKED)


async def test_where_only_what_was_added_is_searched_nothing_is_held_back() -> None:
    made = page(_Index(), text_fields=["enriched_terms"], read_fields=["body"])
    for _ in range(2):
        assert "best casino" in await terms(made)
