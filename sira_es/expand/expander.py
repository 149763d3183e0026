"""A query's text becomes an Expansion: the model proposes, the live index decides."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from sira_es.cluster.statistics import DocumentFrequencies
from sira_es.cluster.target import Target
from sira_es.errors import ModelError
from sira_es.llm.answer import query_proposals
from sira_es.llm.model import Answer, AnswerSource
from sira_es.llm.prompts import query_prompt
from sira_es.settings import IndexSettings
from sira_es.vocabulary import HumanTerms, Rules, clean_query, expand
from sira_es.vocabulary.model import Expansion, Phrase, Statistics, Term

__all__ = ["Expanded", "Expander", "Gathered"]


@dataclass(frozen=True, slots=True)
class Gathered:
    """What an expansion is made from: the cleaned phrases, what the index says of them, and what people said."""

    text: str
    phrases: tuple[Phrase, ...]
    statistics: Statistics
    human: HumanTerms

    def expansion(self, rules: Rules) -> Expansion:
        """The expansion under these rules; asks nobody."""
        return expand(self.text, self.phrases, self.statistics, rules=rules, human=self.human)


@dataclass(frozen=True, slots=True)
class Expanded:
    """An expansion and where it comes from.

    `origin` is `store`, `model` or `recorded`, empty where there was no answer; `problem` then says why, in one line.
    """

    expansion: Expansion
    gathered: Gathered
    target: str
    model: str = ""
    origin: str = ""
    problem: str = ""
    seconds: float = 0.0

    @property
    def terms(self) -> tuple[Term, ...]:
        return self.expansion.terms

    def to_json(self) -> dict[str, Any]:
        """The document that `sira-es expand --json` prints."""
        e = self.expansion
        return {
            "text": e.text,
            "target": self.target,
            "documents": e.documents,
            "terms": [_term(t) for t in e.terms],
            "phrases": [_phrase(p) for p in e.phrases],
            "scale": round(e.scale, 6),
            "seconds": round(self.seconds, 3),
            "model": self.model or None,
            "from": self.origin or None,
            **({"problem": self.problem} if self.problem else {}),
        }


@dataclass(frozen=True, slots=True)
class _Proposed:
    """What the model said to one query, cleaned."""

    text: str
    answer: Answer | None
    problem: str
    phrases: tuple[Phrase, ...]

    @property
    def askable(self) -> list[str]:
        return [p.phrase for p in self.phrases if p.verdict is None]


class Expander:
    """Expands queries against one cluster with one source of answers; None: no model, the text goes out with reach alone."""

    def __init__(self, frequencies: DocumentFrequencies, source: AnswerSource | None) -> None:
        self._frequencies = frequencies
        self._source = source

    async def expand(
        self,
        text: str,
        target: Target,
        settings: IndexSettings,
        *,
        query_id: str = "",
        exact: bool = False,
        restricted: bool = False,
        deadline: float | None = None,
        human: HumanTerms | None = None,
    ) -> Expanded:
        """Expand one query.

        `deadline` is how many seconds the model may take; None waits. An answer that comes later still fills the store.
        `exact` asks for counts instead of term vectors; `restricted`: the caller may not see every document. Raises
        ClusterUnreachable; a model that fails is told in `problem`.
        """
        queries = [(query_id, text)]
        found = await self.expand_all(
            queries, target, settings, exact=exact, restricted=restricted, deadline=deadline, human=human
        )
        return found[0]

    async def expand_all(
        self,
        queries: Sequence[tuple[str, str]],
        target: Target,
        settings: IndexSettings,
        *,
        exact: bool = False,
        restricted: bool = False,
        deadline: float | None = None,
        human: HumanTerms | None = None,
    ) -> list[Expanded]:
        """Expand several queries, given as (id, text), with one look-up of all their words; otherwise as `expand`."""
        started = time.monotonic()
        human = human or HumanTerms()
        proposed = await asyncio.gather(*(self._propose(q, settings, deadline, human) for q in queries))
        asked = [[p.text, *p.askable, *(word for word, _ in human.pins_of(p.text))] for p in proposed]
        statistics = await self._frequencies.look_up(
            target,
            [text for texts in asked for text in texts],
            fields=[n for n, _ in settings.fields],
            main_field=settings.main,
            exact=exact,
            restricted=restricted,
        )
        rules = Rules(**settings.expansion.model_dump())
        analyses = iter(statistics.analyses)
        expanded = []
        for proposal, texts in zip(proposed, asked, strict=True):
            own = replace(statistics, analyses=tuple(islice(analyses, len(texts))))
            gathered = Gathered(proposal.text, proposal.phrases, own, human)
            answer = proposal.answer
            expanded.append(
                Expanded(
                    expansion=gathered.expansion(rules),
                    gathered=gathered,
                    target=target.name,
                    model=answer.model if answer else "",
                    origin=answer.source if answer else "",
                    problem=proposal.problem,
                    seconds=time.monotonic() - started,
                )
            )
        return expanded

    async def _propose(
        self, query: tuple[str, str], settings: IndexSettings, deadline: float | None, human: HumanTerms
    ) -> _Proposed:
        query_id, text = query
        answer, problem = await self._ask(text, settings, query_id, deadline)
        phrases: tuple[Phrase, ...] = ()
        if answer is not None:
            try:
                proposals = query_proposals(answer.text)
                phrases = clean_query(proposals, text=text, language=settings.language, allowed=human.allow)
            except ModelError as error:
                problem = str(error)
        return _Proposed(text, answer, problem, phrases)

    async def _ask(
        self, text: str, settings: IndexSettings, query_id: str, deadline: float | None
    ) -> tuple[Answer | None, str]:
        if self._source is None:
            return None, "no model is configured for queries (llm.queries.model)"
        if not text.strip():
            return None, "the query is empty"
        prompt = query_prompt(query_id, text, settings.description, settings.language)
        try:
            return await asyncio.wait_for(self._source.ask(prompt), deadline), ""
        except TimeoutError:
            return None, f"the model gave no answer within {deadline:g} s"
        except ModelError as error:
            return None, str(error)


def _term(term: Term) -> dict[str, Any]:
    margin = None if term.margin is None or not math.isfinite(term.margin) else round(term.margin, 4)
    return {
        "word": term.word,
        "phrases": list(term.phrases),
        "tokens": list(term.tokens),
        "confidence": term.confidence,
        "df": term.df,
        "exact": term.exact,
        "margin": margin,
        "verdict": term.verdict.value,
        "boost": term.boost,
    }


def _phrase(phrase: Phrase) -> dict[str, Any]:
    return {
        "phrase": phrase.phrase,
        "verdict": phrase.verdict.value if phrase.verdict else None,
        "reason": phrase.reason,
        "for": phrase.stands_for,
    }
