"""A query's text becomes an Expansion: the model proposes, the live index decides."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from typing import Any

from sira_es.cluster.statistics import DocumentFrequencies
from sira_es.cluster.target import Target
from sira_es.errors import ModelError
from sira_es.llm.answer import query_proposals
from sira_es.llm.model import Answer, AnswerSource
from sira_es.llm.prompts import query_prompt
from sira_es.settings import IndexSettings
from sira_es.vocabulary import HumanTerms, Rules, clean_query, expand
from sira_es.vocabulary.model import Expansion, Phrase, Term

__all__ = ["Expanded", "Expander"]


@dataclass(frozen=True, slots=True)
class Expanded:
    """An expansion and where it comes from.

    `origin` is `store`, `model` or `recorded`, empty where there was no answer; `problem` then says why, in one line.
    """

    expansion: Expansion
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
        deadline: float | None = None,
        human: HumanTerms | None = None,
    ) -> Expanded:
        """Expand one query.

        `deadline` is how many seconds the model may take; None waits. An answer that comes later still fills the store.
        `exact` asks for counts instead of term vectors. Raises ClusterUnreachable; a model that fails is told in `problem`.
        """
        started = time.monotonic()
        human = human or HumanTerms()
        answer, problem = await self._ask(text, settings, query_id, deadline)
        phrases: tuple[Phrase, ...] = ()
        if answer is not None:
            try:
                proposals = query_proposals(answer.text)
                phrases = clean_query(proposals, text=text, language=settings.language, allowed=human.allow)
            except ModelError as error:
                problem = str(error)
        askable = [p.phrase for p in phrases if p.verdict is None]
        pinned = [word for word, _ in human.pins_of(text)]
        statistics = await self._frequencies.look_up(
            target,
            [text, *askable, *pinned],
            fields=[n for n, _ in settings.fields],
            main_field=settings.main,
            exact=exact,
        )
        rules = Rules(**settings.expansion.model_dump())
        return Expanded(
            expansion=expand(text, phrases, statistics, rules=rules, human=human),
            target=target.name,
            model=answer.model if answer else "",
            origin=answer.source if answer else "",
            problem=problem,
            seconds=time.monotonic() - started,
        )

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
