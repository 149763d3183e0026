"""A page of documents becomes a page of vocabulary: the model proposes, one statistics round trip decides."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sira_es.cluster.statistics import DocumentFrequencies
from sira_es.cluster.target import Target
from sira_es.enrich.text import source_hash, text_values
from sira_es.errors import ModelError
from sira_es.llm.answer import document_proposals, document_questions
from sira_es.llm.model import Answer, AnswerSource, Prompt
from sira_es.llm.prompts import DOCUMENT, QUESTIONS, document_prompt
from sira_es.settings import IndexSettings
from sira_es.vocabulary import HumanTerms, Rules, clean_document, judge_document
from sira_es.vocabulary.model import Phrase, Statistics, Verdict

__all__ = ["Enriched", "PageEnricher"]

FAILURES_IN_A_ROW = 20
_OF_ONE_DOCUMENT = frozenset({"not recorded", "refused", "context length", "unusable answer", "empty answer"})


@dataclass(frozen=True, slots=True)
class Enriched:
    """What one document gets. `fields` holds `enriched_terms` and `sira`, None where it failed, for `reason`.

    `rejected` counts phrases left out, by verdict; `answer` is what was paid for, None where nothing was asked.
    """

    source_hash: str
    fields: Mapping[str, Any] | None
    reason: str = ""
    error: ModelError | None = None
    rejected: Mapping[str, int] = field(default_factory=dict)
    answer: Answer | None = None

    @property
    def terms(self) -> list[str]:
        return list(self.fields["enriched_terms"]) if self.fields else []


@dataclass(frozen=True, slots=True)
class _Cleaned:
    terms: tuple[Phrase, ...] = ()
    questions: tuple[Phrase, ...] = ()
    error: ModelError | None = None


class PageEnricher:
    """Makes the fields of pages of documents of one index; at most `concurrency` questions to the model at a time."""

    def __init__(
        self,
        frequencies: DocumentFrequencies,
        source: AnswerSource,
        target: Target,
        settings: IndexSettings,
        *,
        concurrency: int,
        human: HumanTerms | None = None,
    ) -> None:
        self._frequencies = frequencies
        self._source = source
        self._target = target
        self._settings = settings
        self._names = [name for name, _ in settings.fields]
        self._rules = Rules(**settings.expansion.model_dump())
        self._human = human or HumanTerms()
        self._places = asyncio.Semaphore(concurrency)
        self._failed_in_a_row = 0
        self.broken: ModelError | None = None
        """The last error, once the model failed so often in a row that it is not asked any more."""

    @property
    def recipe(self) -> str:
        """How terms are made now: model and prompt version."""
        return f"{self._source.name}/{QUESTIONS if self._settings.questions else DOCUMENT}"

    def values(self, source: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """The text values of a document's source."""
        return text_values(source, self._names)

    def hash_of(self, source: Mapping[str, Any]) -> str:
        """The hash of a document's text as it is now."""
        return source_hash(self.values(source))

    def prompt(self, doc_id: str, values: Mapping[str, Sequence[str]]) -> Prompt:
        """What the model is asked about a document."""
        return document_prompt(doc_id, values, self._settings.description, questions=self._settings.questions)

    async def enrich(
        self, documents: Sequence[tuple[str, Mapping[str, Any]]], may_ask: Callable[[], bool] = lambda: True
    ) -> list[Enriched]:
        """Enrich documents, given as id and source; the result has their order.

        `may_ask` is asked before each question to the model; where it says no, the document comes back with reason
        `limit`. Raises ClusterError; what the model does wrong fails single documents.
        """
        values = [self.values(source) for _, source in documents]
        answers = await asyncio.gather(
            *(self._ask(doc_id, v, may_ask) for (doc_id, _), v in zip(documents, values, strict=True))
        )
        cleaned = [self._clean(a, v) for a, v in zip(answers, values, strict=True)]
        askable = [p.phrase for c in cleaned for p in c.terms if p.verdict is None]
        unique = list(dict.fromkeys(askable))
        analyses = {}
        documents_n = None
        if unique:
            statistics = await self._frequencies.look_up(
                self._target, unique, fields=self._names, main_field=self._settings.main
            )
            analyses = dict(zip(unique, statistics.analyses, strict=True))
            documents_n = statistics.documents
        results = []
        for value, answer, c in zip(values, answers, cleaned, strict=True):
            own = Statistics(documents_n, tuple(analyses[p.phrase] for p in c.terms if p.verdict is None))
            judged = judge_document(c.terms, own, rules=self._rules, human=self._human)
            judged += judge_document(c.questions, None, rules=self._rules, human=self._human)
            results.append(self._result(value, answer, judged, c.error))
        return results

    async def _ask(
        self, doc_id: str, values: Mapping[str, Sequence[str]], may_ask: Callable[[], bool]
    ) -> Answer | ModelError | None:
        if not any(v.strip() for vs in values.values() for v in vs):
            return None
        async with self._places:
            if not may_ask():
                return ModelError("stopped at a limit", reason="limit")
            if self.broken is not None:
                return self.broken
            try:
                answer = await self._source.ask(self.prompt(doc_id, values))
            except ModelError as error:
                self._failed_in_a_row += error.reason not in _OF_ONE_DOCUMENT
                if self._failed_in_a_row >= FAILURES_IN_A_ROW:
                    self.broken = error
                return error
            self._failed_in_a_row = 0
            return answer

    def _clean(self, answer: Answer | ModelError | None, values: Mapping[str, Sequence[str]]) -> _Cleaned:
        if not isinstance(answer, Answer):
            return _Cleaned(error=answer)
        texts = [v for vs in values.values() for v in vs]
        try:
            terms = clean_document(document_proposals(answer.text), values=texts, allowed=self._human.allow)
            asked = document_questions(answer.text) if self._settings.questions else ()
        except ModelError as error:
            return _Cleaned(error=error)
        return _Cleaned(terms, clean_document(asked, values=texts, allowed=self._human.allow, questions=True))

    def _result(
        self,
        values: Mapping[str, Sequence[str]],
        answer: Answer | ModelError | None,
        phrases: Sequence[Phrase],
        error: ModelError | None,
    ) -> Enriched:
        digest = source_hash(values)
        paid = answer if isinstance(answer, Answer) else None
        if error is not None:
            return Enriched(digest, None, reason=error.reason, error=error, answer=paid)
        if answer is None and not any(values.values()):
            return Enriched(digest, None, reason="no text")
        fields = {
            "enriched_terms": [p.phrase for p in phrases if p.verdict is Verdict.KEPT],
            "sira": {
                "source_hash": digest,
                "recipe": self.recipe,
                "enriched_at": datetime.now(UTC).isoformat(timespec="seconds"),
            },
        }
        rejected = Counter(p.verdict.value for p in phrases if p.verdict not in {None, Verdict.KEPT})
        return Enriched(digest, fields, rejected=dict(rejected), answer=paid)
