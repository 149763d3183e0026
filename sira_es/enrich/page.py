"""A page of documents becomes a page of vocabulary: the model proposes, one statistics round trip decides."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, zip_longest
from types import MappingProxyType
from typing import Any, NamedTuple

from sira_es.cluster.statistics import DocumentFrequencies
from sira_es.cluster.target import Target
from sira_es.enrich.own import own_field
from sira_es.enrich.reading import DEFAULT_CHUNK_TOKENS, Reading, read
from sira_es.enrich.report import Budget
from sira_es.enrich.text import source_hash, text_values
from sira_es.enrich.watch import Watch
from sira_es.errors import ModelError
from sira_es.llm.answer import document_proposals, document_questions
from sira_es.llm.batch import BATCH_REASONS
from sira_es.llm.model import Answer, AnswerSource, Prompt
from sira_es.llm.prompts import DOCUMENT, QUESTIONS, document_prompt
from sira_es.llm.recorded import RecordedAnswers
from sira_es.llm.store import StoredSource
from sira_es.settings import IndexSettings
from sira_es.vocabulary import HumanTerms, Rules, clean_document, judge_document
from sira_es.vocabulary.model import Analysis, Phrase, Proposal, Statistics, Verdict

__all__ = ["GIVES_ORDERS", "IN_PART", "NOT_ASKED", "OWN_FIELD", "UNCOUNTED", "Enriched", "PageEnricher"]

FAILURES_IN_A_ROW = 20
MOST_OF_ORDERS = 3
"""Phrases kept of a document whose text gives orders to language models."""

GIVES_ORDERS = "its text gives orders to language models"
IN_PART = "read in part"
OWN_FIELD = "has a field of its own named"
NOT_ASKED = "not asked"
UNCOUNTED = "judged without document frequencies"
_PAUSES = (0.5, 2.0, 8.0)
"""Seconds before each further look-up of figures that a busy cluster did not give."""

_NONSENSE = frozenset({"unusable answer", "empty answer"})
_OF_ONE_DOCUMENT = (
    frozenset({"not recorded", "not stored", "refused", "context length", NOT_ASKED}) | _NONSENSE | BATCH_REASONS
)


class Enriched(NamedTuple):
    """What one document gets. `fields` holds `enriched_terms` and `sira`, None where there is nothing, for `reason`.

    `skipped`: there was nothing to read. `note` says what is unusual about a document that was enriched. `rejected`
    counts phrases left out, by verdict.
    """

    source_hash: str
    fields: Mapping[str, Any] | None
    reason: str = ""
    error: ModelError | None = None
    skipped: bool = False
    note: str = ""
    rejected: Mapping[str, int] = MappingProxyType({})

    @property
    def terms(self) -> list[str]:
        return list(self.fields["enriched_terms"]) if self.fields else []


@dataclass(slots=True)
class _Document:
    """A document on its way: what was read of it, the prompts, and what comes of them."""

    id: str
    hash: str
    reading: Reading
    prompts: tuple[Prompt, ...]
    error: ModelError | None = None
    terms: tuple[Phrase, ...] = ()
    questions: tuple[Phrase, ...] = ()
    judged: tuple[Phrase, ...] = ()
    uncounted: bool = False

    @property
    def is_answered(self) -> bool:
        return self.error is None and not self.reading.reason


class PageEnricher:
    """Makes the fields of pages of documents of one index; at most `concurrency` questions to the model at a time.

    `watch` sees the kept terms of all pages, and may hold some back.
    """

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
        self._searched = [name for name, _ in settings.fields]
        self.fields = settings.read
        """What is read of a document: the text fields, and those that are only read."""
        usual = f"{source.name}/{QUESTIONS if settings.questions else DOCUMENT}"
        chunks = settings.chunk_tokens
        self.recipe = usual if chunks == DEFAULT_CHUNK_TOKENS else f"{usual}/{chunks}"
        """How terms are made: model, prompt version, and the size of chunks where it is not the usual one."""
        self._rules = Rules(**settings.expansion.model_dump())
        self._human = human or HumanTerms()
        self._places = asyncio.Semaphore(concurrency)
        self._failed_in_a_row = 0
        self._counts = True  # whether the cluster gave all figures the last time
        self.watch = Watch(allowed=self._human.allow)
        self.broken: ModelError | None = None
        """The last error, once the model failed so often in a row that it is not asked any more."""
        self.proven = False
        """Whether the model ever gave a usable answer; until then nonsense, too, is a failure of the model."""

    @property
    def allowed(self) -> frozenset[str]:
        """What people allow, which is never held back."""
        return self._human.allow

    def hash_of(self, source: Mapping[str, Any]) -> str:
        """The hash of the texts of a document: those that are searched, and those that are only read."""
        return source_hash(text_values(source, self.fields))

    def prompts(self, doc_id: str, source: Mapping[str, Any]) -> tuple[Prompt, ...]:
        """What the model is asked about a document: one prompt a part, none where there is nothing to read."""
        return self._prepared(doc_id, source).prompts

    async def known(self, prompts: Sequence[Prompt]) -> list[Answer | None]:
        """Stored or recorded answers, in one query a store; None where there is none."""
        if isinstance(self._source, StoredSource):
            return await self._source.find(prompts)
        if isinstance(self._source, RecordedAnswers):
            return self._source.known(prompts)
        return [None] * len(prompts)

    def left(self, prompts: Sequence[Prompt]) -> list[bool]:
        """Which of these questions are not asked here, because a batch is to answer them."""
        if isinstance(self._source, StoredSource):
            return self._source.left(prompts)
        return [False] * len(prompts)

    @property
    def recorded(self) -> bool:
        """Whether answers come from a file, and no model is asked."""
        return isinstance(self._source, RecordedAnswers)

    async def enrich(
        self, documents: Sequence[tuple[str, Mapping[str, Any]]], budget: Budget | None = None
    ) -> list[Enriched]:
        """Enrich documents, given as id and source; the result has their order.

        A document that the model was not asked about, at a limit or once it is broken, comes back with reason `NOT_ASKED`.
        Raises ClusterError; what the model does wrong fails single documents.
        """
        budget = budget or Budget()
        prepared = [self._prepared(*document) for document in documents]
        for document, answers in zip(prepared, await self._answered(prepared, budget), strict=True):
            self._clean(document, answers)
        unique = list(dict.fromkeys([p.phrase for d in prepared for p in d.terms if p.verdict is None]))
        known: dict[str, Analysis] = {}
        total = None
        if unique:
            statistics = await self._statistics(unique)
            known = dict(zip(unique, statistics.analyses, strict=True))
            # Where only enriched_terms is searched, how common a word is depends on what was enriched before: no say.
            total = None if self._settings.pattern else statistics.documents
        if total:
            self.watch.learn(known.values(), total)
        self.watch.look()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        asked = not self._counts and not self._settings.pattern
        uncounted = {p for p, a in known.items() if _is_uncounted(a)} if asked else set()
        for d in prepared:
            own = Statistics(total, tuple([known[p.phrase] for p in d.terms if p.verdict is None]))
            d.judged = self._judged(d, own)
            d.uncounted = bool(uncounted) and not uncounted.isdisjoint(_kept(d.judged))
        if total or not unique:  # where nothing tells what the texts are about, what is kept tells nothing either
            self.watch.note([_kept(d.judged) for d in prepared if d.is_answered])
        return [self._result(d, self._less_held(d), now) for d in prepared]

    async def _statistics(self, phrases: Sequence[str]) -> Statistics:
        """What the index says of phrases. A busy cluster is asked again, unless that was of no use the last time."""
        fields, main = self._searched, self._settings.main
        found = await self._frequencies.look_up(self._target, phrases, fields=fields, main_field=main)
        for pause in _PAUSES if self._counts else ():
            if not any(map(_is_uncounted, found.analyses)):
                break
            await asyncio.sleep(pause)
            found = await self._frequencies.look_up(self._target, phrases, fields=fields, main_field=main)
        self._counts = not any(map(_is_uncounted, found.analyses))
        return found

    def _prepared(self, doc_id: str, source: Mapping[str, Any]) -> _Document:
        values = text_values(source, self.fields)
        settings = self._settings
        if name := own_field(source):
            return _Document(doc_id, source_hash(values), Reading((), (), reason=f"{OWN_FIELD} {name}"), ())
        reading = read(values, chunk_tokens=settings.chunk_tokens, unsearched=len(settings.read_fields))
        description, questions = settings.description, settings.questions
        prompts = tuple([document_prompt(doc_id, part, description, questions=questions) for part in reading.parts])
        return _Document(doc_id, source_hash(values), reading, prompts)

    async def _answered(self, documents: Sequence[_Document], budget: Budget) -> list[tuple[Answer, ...] | ModelError]:
        """The answers to all prompts of each document, or why there are none; what is stored costs no task."""
        stored = iter(await self.known([p for d in documents for p in d.prompts]))
        results: list[tuple[Answer, ...] | ModelError] = []
        waiting = []
        for place, document in enumerate(documents):
            known = [next(stored) for _ in document.prompts]
            if all(known):
                admitted = not known or budget.admits()
                results.append(tuple(a for a in known if a) if admitted else _not_asked())
                self.proven = self.proven or bool(known)
            elif any(self.left([p for p, a in zip(document.prompts, known, strict=True) if a is None])):
                results.append(_not_asked())
            else:
                results.append(())
                waiting.append((place, document))
        asking = [asyncio.create_task(self._ask(document, budget)) for _, document in waiting]
        try:
            asked = await asyncio.gather(*asking)
        finally:
            for task in asking:  # where one raised, nobody waits for the others
                task.cancel()
        for (place, _), answer in zip(waiting, asked, strict=True):
            results[place] = answer
        return results

    async def _ask(self, document: _Document, budget: Budget) -> tuple[Answer, ...] | ModelError:
        async with self._places:
            if self.broken is not None or not budget.admits():
                return _not_asked()
            answers: list[Answer] = []
            for prompt in document.prompts:
                if answers and (self.broken is not None or budget.over()):
                    return _not_asked()
                end = budget.begin()
                try:
                    answer = await self._answer(prompt, end)
                    document_proposals(answer.text)  # raises where it is nonsense
                except ModelError as error:
                    self._failed(error)
                    return error
                finally:
                    end(None)
                self._failed_in_a_row, self.proven = 0, True
                answers.append(answer)
            return tuple(answers)

    async def _answer(self, prompt: Prompt, end: Callable[[Answer | None], None]) -> Answer:
        """The answer, which `end` is told as soon as it is there: at Ctrl-C nobody may wait for it any more."""
        if isinstance(self._source, StoredSource):
            return await self._source.ask(prompt, on_answer=end)
        answer = await self._source.ask(prompt)
        end(answer)
        return answer

    def _failed(self, error: ModelError) -> None:
        of_the_model = error.reason not in _OF_ONE_DOCUMENT or (error.reason in _NONSENSE and not self.proven)
        self._failed_in_a_row += of_the_model
        if self._failed_in_a_row >= FAILURES_IN_A_ROW:
            self.broken = error

    def is_of_the_run(self, result: Enriched) -> bool:
        """Whether a document has no outcome of its own: it was not asked about, or failed as all do on a broken model."""
        return result.reason == NOT_ASKED or (
            self.broken is not None and result.error is not None and result.error.reason not in _OF_ONE_DOCUMENT
        )

    def _clean(self, document: _Document, answers: tuple[Answer, ...] | ModelError) -> None:
        """Give a document what its answers propose, or the error in place of them."""
        if isinstance(answers, ModelError):
            document.error = answers
            return
        texts, allowed = document.reading.texts, self._human.allow
        try:
            terms = _in_turn([document_proposals(a.text) for a in answers])
            questions = _in_turn([document_questions(a.text) for a in answers]) if self._settings.questions else ()
        except ModelError as error:
            document.error = error
            return
        document.terms = clean_document(terms, values=texts, allowed=allowed)
        if questions:
            document.questions = clean_document(questions, values=texts, allowed=allowed, questions=True)

    def _judged(self, document: _Document, statistics: Statistics) -> tuple[Phrase, ...]:
        """The phrases and questions with their verdicts."""
        judged = judge_document(document.terms, statistics, rules=self._rules, human=self._human)
        if document.questions:
            judged += judge_document(document.questions, None, rules=self._rules, human=self._human)
        return judged

    def _less_held(self, document: _Document) -> Sequence[Phrase]:
        """Judged phrases, less what is held back."""
        if not self.watch.is_holding and not document.reading.gives_orders:
            return document.judged
        kept = 0
        result = []
        for phrase in document.judged:
            held = self._held_back(phrase, document, kept) if phrase.verdict is Verdict.KEPT else phrase
            kept += held.verdict is Verdict.KEPT
            result.append(held)
        return result

    def _held_back(self, phrase: Phrase, document: _Document, kept: int) -> Phrase:
        """A kept phrase, or why it is held back after all; `kept` of the document have been kept before."""
        if self.watch.holds(phrase.phrase):
            return phrase.judged(Verdict.BLOCKED, "in the terms of too many documents")
        if document.reading.gives_orders and kept >= MOST_OF_ORDERS:
            return phrase.judged(Verdict.CAPPED, GIVES_ORDERS)
        return phrase

    def _result(self, document: _Document, phrases: Sequence[Phrase], now: str) -> Enriched:
        error, reading = document.error, document.reading
        if error is not None:
            return Enriched(document.hash, None, reason=error.reason, error=error)
        if reading.reason:
            return Enriched(document.hash, None, reason=reading.reason, skipped=True)
        fields = {
            "enriched_terms": _kept(phrases),
            "sira": {"source_hash": document.hash, "recipe": self.recipe, "enriched_at": now},
        }
        rejected = [p.verdict.value for p in phrases if p.verdict is not None and p.verdict is not Verdict.KEPT]
        note = f"{IN_PART}: {reading.coverage:.0%}" if reading.coverage < 1 else ""
        note = UNCOUNTED if document.uncounted else note
        note = GIVES_ORDERS if reading.gives_orders else note
        return Enriched(document.hash, fields, note=note, rejected=dict(Counter(rejected)) if rejected else {})


def _is_uncounted(analysis: Analysis) -> bool:
    return None in [word.df for word in analysis.words]


def _kept(phrases: Sequence[Phrase]) -> list[str]:
    return [p.phrase for p in phrases if p.verdict is Verdict.KEPT]


def _not_asked() -> ModelError:
    return ModelError("the run was stopped before", reason=NOT_ASKED)


def _in_turn(answers: Sequence[Sequence[Proposal]]) -> Sequence[Proposal]:
    """The proposals of all parts of a document, the first of each before the second of any."""
    if len(answers) == 1:
        return answers[0]
    return [p for p in chain.from_iterable(zip_longest(*answers)) if p is not None]
