"""A query's text becomes an Expansion: the model proposes, the live index decides; within a deadline where one is set."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from sira_es.cluster.cache import SingleFlight
from sira_es.cluster.statistics import DocumentFrequencies
from sira_es.cluster.target import Target
from sira_es.errors import ConfigurationError, ModelError
from sira_es.expand.breaker import Breaker
from sira_es.expand.expanded import Expanded
from sira_es.expand.gathered import Gathered
from sira_es.expand.recent import Recent
from sira_es.expand.skip import Skip, skipped, without_words
from sira_es.expand.spelling import question, tells_case
from sira_es.llm.answer import query_proposals
from sira_es.llm.model import Answer, AnswerSource, Prompt
from sira_es.llm.prompts import query_prompt
from sira_es.llm.store import StoredSource
from sira_es.settings import IndexSettings
from sira_es.vocabulary import HumanTerms, Rules, clean_query
from sira_es.vocabulary.model import Analysis, Phrase, Statistics

__all__ = ["Expander"]

GRACE = 0.03
"""Seconds that document frequencies may take where the model has used the deadline up."""

GRACE_FOR_SEVERAL = 0.5
"""The same where several queries are expanded together: answers that came are not lost for those that did not."""

GRACE_WITHOUT_MODEL = 1.0
"""Seconds that they may take where no model is asked: there is no other wait."""

SHORT = 3
"""Letters of words that are likely to be stop words."""

_LATE = "the cluster told no document frequencies in time"
_NOBODY = HumanTerms()

PROBE = "Sample"
"""A capitalised word, to see what an index's analyzer makes of capitals."""


@dataclass(frozen=True, slots=True)
class _Target:
    """What queries are asked of, and how."""

    target: Target
    settings: IndexSettings
    human: HumanTerms
    exact: bool
    restricted: bool
    grace: float = GRACE

    @property
    def fields(self) -> list[str]:
        return [name for name, _ in self.settings.fields]

    @property
    def tag(self) -> tuple[object, ...]:
        """What an expansion that is kept must have been made with."""
        return (self.settings, self.human)

    def key(self, query: tuple[str, str]) -> Hashable:
        return (self.target.name, tuple(i.name for i in self.target.indices), self.exact, self.restricted, query)


@dataclass(frozen=True, slots=True)
class _Proposed:
    """What the model said to one query, cleaned; or why it said nothing."""

    text: str
    answer: Answer | None = None
    phrases: tuple[Phrase, ...] = ()
    problem: str = ""
    skip: Skip | None = None

    @property
    def askable(self) -> list[str]:
        return [p.phrase for p in self.phrases if p.verdict is None]


class Expander:
    """Expands queries against one cluster with one source of answers; None: no model, the text goes out with reach alone.

    With a deadline it serves: what was expanded within the last minutes is given at once and looked at again in the
    background, and a model that misses the deadline several times in a row is not waited for, though still asked.
    """

    def __init__(self, frequencies: DocumentFrequencies, source: AnswerSource | None) -> None:
        self._frequencies = frequencies
        self._source = source
        self._in_time = Breaker(longest=30.0)
        self._recent = Recent()
        self._flight = SingleFlight()
        self._folds: dict[Hashable, bool] = {}

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

        `deadline` is how many seconds this may take; None waits, 0 asks no model and takes what the store knows. An
        answer that comes later still fills the store. `exact` counts instead of reading term vectors; `restricted`: the
        credentials may not see every document. Raises ClusterUnreachable; a model that fails is told in `problem`.
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
        grace = (GRACE if len(queries) == 1 else GRACE_FOR_SEVERAL) if deadline else GRACE_WITHOUT_MODEL
        place = _Target(target, settings, human or _NOBODY, exact, restricted, grace)
        if deadline is None:
            return await self._expand(queries, place, None)
        kept = {q: self._recent.get(place.key(q), place.tag) for q in queries}
        missing = tuple(q for q, found in kept.items() if found is None)
        stale = tuple(q for q, found in kept.items() if found and not found[1])
        if stale:
            self._flight.start(("again", *map(place.key, stale)), lambda: self._keep(stale, place, deadline))
        made: dict[tuple[str, str], Expanded] = {}
        if missing:
            key = (*map(place.key, missing), *map(id, place.tag), deadline > 0)
            made = await self._flight.run(key, lambda: self._keep(missing, place, deadline))
        return [found[0] if (found := kept[q]) else made[q] for q in queries]

    async def fetch(self, text: str, target: Target, settings: IndexSettings) -> Answer | Skip:
        """The model's answer to a query, from now on in the store; or why none is wanted. Raises ModelError."""
        place = _Target(target, settings, _NOBODY, exact=False, restricted=False)
        return await self._answer(("", text), place, None)

    async def close(self) -> None:
        """End what is under way in the background."""
        await self._flight.close()

    async def _keep(
        self, queries: Sequence[tuple[str, str]], place: _Target, deadline: float
    ) -> dict[tuple[str, str], Expanded]:
        found = await self._expand(queries, place, time.monotonic() + deadline)
        for query, expanded in zip(queries, found, strict=True):
            self._recent.put(place.key(query), place.tag, expanded)
        return dict(zip(queries, found, strict=True))

    async def _expand(
        self, queries: Sequence[tuple[str, str]], place: _Target, give_up: float | None
    ) -> list[Expanded]:
        started = time.monotonic()
        proposed = await asyncio.gather(*(self._propose(q, place, give_up) for q in queries))
        found = await self._decide(proposed, place, give_up)
        seconds = time.monotonic() - started
        return [replace(expanded, seconds=seconds) for expanded in found]

    async def _propose(self, query: tuple[str, str], place: _Target, give_up: float | None) -> _Proposed:
        text = query[1]
        try:
            answer = await self._answer(query, place, give_up)
            if isinstance(answer, Skip):
                return _Proposed(text, skip=answer)
            proposals = query_proposals(answer.text)
        except (ModelError, ConfigurationError) as error:  # the store's file may be unusable
            return _Proposed(text, problem=str(error))
        phrases = clean_query(proposals, text=text, language=place.settings.language, allowed=place.human.allow)
        return _Proposed(text, answer, phrases)

    async def _answer(self, query: tuple[str, str], place: _Target, give_up: float | None) -> Answer | Skip:
        text = query[1]
        rules = place.settings.expand_queries
        skip = skipped(text, language=place.settings.language, fields=place.fields, allow=rules.allow, deny=rules.deny)
        if skip is not None:
            return skip
        if self._source is None:
            raise ModelError("no model is configured for queries (llm.queries.model)", reason="no model")
        prompt = await self._prompt(query, place, give_up)
        if await self._leaves_nothing(text, prompt, place, give_up):
            return without_words()
        return await self._ask(prompt, give_up)

    async def _decide(self, proposed: Sequence[_Proposed], place: _Target, give_up: float | None) -> list[Expanded]:
        """What the index says of all phrases, and of what people pinned; nothing is asked where nothing depends on it."""
        asked: list[list[str]] = []
        for p in proposed:
            more = [*p.askable, *(word for word, _ in place.human.pins_of(p.text))]
            asked.append([p.text, *more] if more or (give_up is None and p.skip is None) else [])
        texts = [text for texts in asked for text in texts]
        statistics = await self._look_up(texts, place, give_up) if texts else None
        analyses = iter(statistics.analyses if statistics else ())
        found = []
        for said, own in zip(proposed, asked, strict=True):
            late = bool(own) and statistics is None
            p = replace(said, phrases=(), problem=_LATE) if late else said
            mine = tuple(islice(analyses, len(own))) or (Analysis(p.text, ()),)
            given = replace(statistics, analyses=mine) if statistics and own else Statistics(None, mine, "none")
            if p.answer and given.source != "none" and not mine[0].words:
                p = replace(p, skip=without_words())
            found.append(_expanded(p, Gathered(p.text, p.phrases, given, place.human), place))
        return found

    async def _leaves_nothing(self, text: str, prompt: Prompt, place: _Target, give_up: float | None) -> bool:
        """Whether the analyzer leaves no word of a text, asked before the model is called for it.

        Only of one that may be: of one or two words, or of more without any of four letters.
        """
        words = text.split()
        if (
            (len(words) > 2 and max(map(len, words)) > SHORT)
            or not isinstance(self._source, StoredSource)
            or self._known(prompt)
        ):
            return False
        statistics = await self._look_up([text], place, give_up)
        return statistics is not None and not statistics.analyses[0].words

    async def _prompt(self, query: tuple[str, str], place: _Target, give_up: float | None) -> Prompt:
        query_id, text = query
        fold = tells_case(text) and await self._case_is_lost(place, give_up)
        settings = place.settings
        return query_prompt(query_id, question(text, fold=fold), settings.description, settings.language)

    async def _case_is_lost(self, place: _Target, give_up: float | None) -> bool:
        """Whether the index's analyzer makes capitals small; asked once for each target."""
        key = (place.target.name, place.settings.main, *(i.name for i in place.target.indices))
        if key not in self._folds:
            statistics = await self._look_up([PROBE], place, give_up)
            if statistics is None or statistics.source == "none":
                return False
            tokens = [t for word in statistics.analyses[0].words for t in word.tokens]
            self._folds[key] = bool(tokens) and all(t == t.lower() for t in tokens)
        return self._folds[key]

    def _known(self, prompt: Prompt) -> Answer | None:
        return self._source.known([prompt])[0] if isinstance(self._source, StoredSource) else None

    async def _ask(self, prompt: Prompt, give_up: float | None) -> Answer:
        """The answer of store or model. Raises ModelError, also where it does not come in time."""
        source = self._source
        assert source is not None  # noqa: S101  the caller has looked
        if known := self._known(prompt):
            return known
        wait = _seconds_to(give_up)
        if wait == 0 and isinstance(source, StoredSource):
            raise ModelError("the store has no answer, and no model is asked", reason="not stored")
        waits = wait is None or self._in_time.allows()
        try:
            async with asyncio.timeout(wait if waits else 0):
                answer = await source.ask(prompt)
        except TimeoutError:
            if waits:
                self._in_time.failed()
            why = "gave no answer in time" if waits else "was too slow several times in a row and is not waited for"
            raise ModelError(f"model {source.name} {why}; its answer is kept when it comes", reason="late") from None
        self._in_time.succeeded()
        return answer

    async def _look_up(self, texts: Sequence[str], place: _Target, give_up: float | None) -> Statistics | None:
        """Statistics of texts; None where they do not come in time. What was asked for goes on, for others."""
        try:
            async with asyncio.timeout(_seconds_to(give_up, at_least=place.grace)):
                return await self._frequencies.look_up(
                    place.target,
                    texts,
                    fields=place.fields,
                    main_field=place.settings.main,
                    exact=place.exact,
                    restricted=place.restricted,
                )
        except TimeoutError:
            return None


def _seconds_to(time_: float | None, at_least: float = 0.0) -> float | None:
    return None if time_ is None else max(at_least, time_ - time.monotonic())


def _expanded(proposed: _Proposed, gathered: Gathered, place: _Target) -> Expanded:
    answer = proposed.answer
    return Expanded(
        expansion=gathered.expansion(Rules(**place.settings.expansion.model_dump())),
        gathered=gathered,
        target=place.target.name,
        model=answer.model if answer else "",
        origin=answer.source if answer else "",
        problem=proposed.problem,
        skipped=proposed.skip,
    )
