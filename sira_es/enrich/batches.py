"""Answers by the batch: all that this does is fill the store, from which an ordinary run then reads them.

A batch is noted before it is submitted, and bears a token. Of one whose submission was interrupted the provider's list
tells whether it is there. So a run that was killed at any point goes on with the batches that are out, and pays no
question twice.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sira_es.enrich.job import Enrichment
from sira_es.enrich.ledger import address
from sira_es.enrich.notes import Noted, Notes
from sira_es.enrich.page import NOT_ASKED
from sira_es.enrich.report import Budget, EnrichReport, Limits, Progress
from sira_es.errors import ConfigurationError, ModelError
from sira_es.llm.answer import is_usable
from sira_es.llm.batch import Batch, BatchModel, Reply
from sira_es.llm.model import OPTIONS, Answer, AnswerSource, Prompt
from sira_es.llm.store import AnswerStore, SharedStore, key_of, share
from sira_es.settings import LlmStage

__all__ = ["BatchedSource", "Batching", "owner_of"]

LINES = 20_000
BYTES = 64 * 2**20
"""Of a file: far below the limits of providers (50,000 lines, 200 MB), so that little memory is needed."""

MARGIN = 1.15
"""What the price of an answer may be more than expected, before a limit of cost is passed."""

LONGEST_PAUSE = 60.0
_OPEN = frozenset({"server error", "unreachable", "timeout", "bad answer"})
"""Errors after which a submission may have arrived all the same."""

_PASSES = _OPEN | {"rate limit"}


class BatchedSource:
    """A source that does not ask what is out in a batch, and without a `model` nothing at all.

    Raises ModelError with reason `NOT_ASKED` for those, or with the reason for which a batch could not answer.
    """

    def __init__(self, stage: LlmStage, notes: Callable[[], Notes | None], model: AnswerSource | None = None) -> None:
        self.name = stage.model or ""
        self._owner = owner_of(stage)
        self._notes = notes
        self._model = model

    def left(self, keys: Sequence[str]) -> set[str]:
        """Those of these questions that are not asked here: what is out in a batch, or goes into the next."""
        notes = self._notes()
        states = notes.states(self._owner, keys) if notes else {}
        otherwise = "" if self._model is None else "asked here"
        return {key for key in keys if not states.get(key, otherwise)}

    async def ask(self, prompt: Prompt) -> Answer:
        notes, key = self._notes(), key_of(self.name, prompt)
        reason = notes.states(self._owner, [key]).get(key) if notes else None
        if self._model is not None and reason != "":
            return await self._model.ask(prompt)
        raise ModelError(f"model {self.name}: {reason or 'a batch is to answer'}", reason=reason or NOT_ASKED)

    async def close(self) -> None:
        if self._model is not None:
            await self._model.close()


def owner_of(stage: LlmStage) -> str:
    """Whose batches those of a model are: an answer depends on text and model alone, so any run with it collects them."""
    return f"{stage.model} {address(stage.api_base)}" if stage.api_base else stage.model or ""


@dataclass
class Batching:
    """An enrichment whose answers are made in batches.

    The `job` has a source that asks no model: the `store`, and a `BatchedSource`. `say` is told what a person should
    know; `most_cost`, in US dollars, is a limit beside `limits`. `pause` is the first of the pauses, in seconds, between
    two looks at what is out; `settle` how old a submission without an outcome must be before the provider's list is
    believed. `shared` is told the answers, too.
    """

    job: Enrichment
    model: BatchModel
    store: AnswerStore
    notes: Notes
    owner: str
    limits: Limits = field(default_factory=Limits)
    most_cost: float | None = None
    say: Callable[[str], None] = lambda _: None
    lines: int = LINES
    size: int = BYTES
    pause: float = 2.0
    settle: float = 60.0
    shared: SharedStore | None = None

    def __post_init__(self) -> None:
        self._budget = Budget(self.limits)
        self._query: Mapping[str, Any] | None = None
        self._part = (0, 1)

    async def run(
        self,
        *,
        query: Mapping[str, Any] | None = None,
        part: tuple[int, int] = (0, 1),
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> EnrichReport:
        """Fill the store, then enrich from it; parameters as in `Enrichment.run`.

        Everything that was paid is written, also where a limit ends this. Raises ClusterError, ConfigurationError, and
        ModelError where the provider refuses.
        """
        self._query, self._part = query, part
        await self._fill()
        hit, self._budget.hit = self._budget.hit, ""
        self._budget.limits = Limits(documents=self.limits.documents)
        report = await self.job.run(self._budget, query=query, part=part, on_progress=on_progress)
        return replace(report, stopped=hit or report.stopped)

    async def _fill(self) -> None:
        """Go on with what is out, submit what no answer is stored of, and wait. A limit that was reached is in the budget."""
        await self.model.prepare()
        if self.most_cost is not None and self.model.price(1, 1) is None:
            raise ConfigurationError(
                f"no price is known for {self.model.name}, so a limit of cost cannot be kept; use --max-docs instead"
            )
        guessed = self.store.usual_length(self.model.name) is None
        with self.notes.submitting():
            self.notes.forget_ended(self.owner)
            await self._find_lost()
            await self._submit()
        await self._wait()
        if self._budget.hit == "cost" and guessed and self.store.usual_length(self.model.name) is not None:
            self._budget.hit = ""  # now that the length of an answer is known, more may be asked for the money
            with self.notes.submitting():
                await self._submit()
            await self._wait()

    # What is out

    async def _find_lost(self) -> None:
        """Of batches whose submission was interrupted, find out whether they are there."""
        for file in self.notes.path.parent.glob("batch-*.jsonl"):
            file.unlink(missing_ok=True)
        for noted in self.notes.open(self.owner):
            if noted.id:
                continue
            age = time.time() - noted.created
            if (rest := self.settle - age) > 0:
                self.say(f"a submission was cut off; whether it arrived is known in {rest:.0f} s")
                await asyncio.sleep(rest)
            found = await self.model.find(noted.token, noted.created)
            if found is None:
                self.notes.forget(noted.token)
            else:
                self.notes.submitted(noted.token, found)

    async def _wait(self) -> None:
        """Collect every batch that is out, when it has ended; until then, or until the time is up."""
        pause, told = self.pause, ""
        while out := self._submitted():
            answered = 0
            for noted in out:
                try:
                    batch = await self.model.look(noted.id)
                    answered += batch.answered
                    if batch.rest:
                        await self._collect(noted, batch)
                except ModelError as error:
                    if error.reason not in _PASSES:
                        raise
                    self.say(f"{error}; trying again")
            if not (out := self._submitted()):
                return
            left = self._budget.seconds_left()
            if left <= 0:
                self._budget.hit = self._budget.hit or "time"
                return
            questions = sum(noted.questions for noted in out)
            line = f"batches with {questions} questions are out ({len(out)}), {answered} answered"
            if line != told:
                told = line
                self.say(f"{line}; interrupt whenever you like, the same command goes on with them")
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 1.5, LONGEST_PAUSE)

    def _submitted(self) -> list[Noted]:
        """What is out; not what another process is about to submit."""
        return [noted for noted in self.notes.open(self.owner) if noted.id]

    async def _collect(self, noted: Noted, batch: Batch) -> None:
        if batch.error:
            self.say(f"batch {batch.id} failed: {batch.error}")
        async with aclosing(self.model.replies(batch)) as pages:
            async for replies in pages:
                kept = await asyncio.to_thread(self._keep, noted, replies)
                await share(self.shared, kept)
        self.notes.end(noted.token, batch.rest)

    def _keep(self, noted: Noted, replies: Sequence[Reply]) -> dict[str, Answer]:
        """Store answers, then note that they are; a question that was not asked, or is answered already, does not count.

        Returns those that were stored.
        """
        out = self.notes.out_in(noted.token, [reply.key for reply in replies])
        asked = {reply.key: reply for reply in reversed(replies) if reply.key in out}
        outcomes = {key: reply.reason for key, reply in asked.items()}
        kept = {}
        for key, reply in asked.items():
            if reply.answer is not None and is_usable(reply.answer.text, "document"):
                kept[key] = reply.answer
            elif reply.answer is not None:
                outcomes[key] = reply.reason or "unusable answer"
        self.store.put_many(kept)
        for key in self.notes.settle(noted.token, outcomes):
            if (answer := asked[key].answer) is not None:
                self.job.book(self._budget, answer)
        return kept

    # What goes out

    async def _submit(self) -> None:
        """Submit what is neither stored nor noted, file by file, until a limit of cost would be passed."""
        room, length = self._room(), self.store.usual_length(self.model.name)
        if length is None:  # an answer of a model that thinks first may be as long as it is allowed
            length = float(OPTIONS["max_tokens"])
        file = _File(self.notes.path.parent)
        try:
            left = math.inf if self.limits.documents is None else self.limits.documents
            async with aclosing(self.job.unanswered(query=self._query, part=self._part)) as pages:
                async for page in pages:
                    asked = page[: round(min(left, len(page)))]
                    left -= len(asked)
                    for key, prompt in self._new([p for prompts in asked for p in prompts], file.keys):
                        cost = self._expected(prompt, length)
                        if room is not None and file.cost + cost > room:
                            self._budget.hit = "cost"
                            break
                        line = self.model.line(key, prompt)
                        if file.keys and (len(file.keys) >= self.lines or file.size + len(line) > self.size):
                            await self._send(file)
                            room = None if room is None else room - file.cost
                            file = _File(self.notes.path.parent)
                        file.add(key, line, cost)
                    if len(asked) < len(page):
                        self._budget.hit = self._budget.hit or "documents"
                    if self._budget.hit:
                        break
            await self._send(file)
        finally:
            file.remove()

    def _room(self) -> float | None:
        """What may still be spent, in US dollars, when all that is out is paid; None without a limit."""
        if self.most_cost is None:
            return None
        return self.most_cost - self._budget.cost - sum(noted.cost for noted in self.notes.open(self.owner))

    def _new(self, prompts: Sequence[Prompt], begun: Collection[str]) -> list[tuple[str, Prompt]]:
        """The questions that are neither noted nor in the file that was `begun`, each once."""
        keyed = {key_of(self.model.name, prompt): prompt for prompt in prompts}
        known = self.notes.states(self.owner, list(keyed)).keys() | begun
        return [(key, prompt) for key, prompt in keyed.items() if key not in known]

    def _expected(self, prompt: Prompt, length: float) -> float:
        return (self.model.price(self.model.tokens(prompt), round(length)) or 0.0) * MARGIN

    async def _send(self, file: _File) -> None:
        if not file.keys:
            return
        self.notes.begin(self.owner, file.token, list(file.keys), file.cost)
        try:
            batch_id = await self.model.submit(file.close(), file.token)
        except ModelError as error:
            if error.reason not in _OPEN:
                self.notes.forget(file.token)
            raise
        self.notes.submitted(file.token, batch_id)
        file.remove()


class _File:
    """The lines of a batch to be, on disk; `cost` is what they are expected to cost together.

    Raises ConfigurationError where they cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.token = secrets.token_hex(16)
        self.keys: set[str] = set()
        self.size = 0
        self.cost = 0.0
        self._path = folder / f"batch-{self.token}.jsonl"
        with self._guarded():
            self._path.touch(mode=0o600)  # it holds texts of documents
            self._file = self._path.open("wb")

    def add(self, key: str, line: bytes, cost: float) -> None:
        with self._guarded():
            self._file.write(line)
        self.keys.add(key)
        self.size += len(line)
        self.cost += cost

    def close(self) -> Path:
        with self._guarded():
            self._file.close()
        return self._path

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
        with suppress(OSError):  # it cannot write what it still holds: that was told, and is not needed
            self._file.close()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigurationError(
                f"cannot write {self._path}: {error.strerror or error}; make room there, or name another folder with `state`"
            ) from None
