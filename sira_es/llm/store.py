"""Every answer is paid for once: a SQLite file, and a source that looks there first.

Reads run where they are called, on the event loop too: a look-up by primary key takes tens of microseconds, less than a
thread would cost, and in WAL mode never waits for a writer. Writes may wait for another process: they run in a thread.
Behind the file there may be a store that other machines share; what it has is then kept in the file, too.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import orjson

from sira_es.errors import ModelError, SiraError
from sira_es.llm.model import OPTIONS, Answer, AnswerSource, Prompt, UselessAnswerError
from sira_es.state import StateFile

__all__ = ["AnswerStore", "NoModel", "SharedStore", "StoredSource", "key_of", "midnight", "share"]

log = logging.getLogger(__name__)

TABLES = """
CREATE TABLE answers (
  key TEXT PRIMARY KEY,
  text TEXT NOT NULL,
  model TEXT NOT NULL,
  prompt_tokens INTEGER NOT NULL,
  completion_tokens INTEGER NOT NULL,
  cost REAL,
  created REAL NOT NULL
);
CREATE INDEX answers_spent ON answers (model, created, cost);
"""
COLUMNS = "key, text, model, prompt_tokens, completion_tokens, cost"
_encoded = json.JSONEncoder(sort_keys=True).encode
_OPTIONS = _encoded(dict(OPTIONS)).encode()


def key_of(name: str, prompt: Prompt) -> str:
    """SHA-256 of what determines an answer, as a JSON array: source name, kind and version of the prompt, messages, options."""
    *before, last = prompt.messages
    digest = _begun(name, prompt.kind, prompt.version, tuple([tuple(m.items()) for m in before])).copy()
    digest.update(b"%s], %s]" % (_encoded_message(last), _OPTIONS))
    return digest.hexdigest()


def _encoded_message(message: Mapping[str, str]) -> bytes:
    """A message as JSON with sorted keys, what is not ASCII escaped."""
    text = message.get("content", "")
    if text.isascii() and "\x7f" not in text and message == {"role": "user", "content": text}:
        return b'{"content": %s, "role": "user"}' % orjson.dumps(text)  # the same bytes, in a third of the time
    return _encoded(dict(message)).encode()


@lru_cache(maxsize=64)
def _begun(name: str, kind: str, version: str, messages: tuple[tuple[tuple[str, str], ...], ...]) -> hashlib._Hash:
    """The digest of all before the last message, which thousands of prompts have in common."""
    listed = _encoded([name, kind, version, [dict(m) for m in messages]]).removesuffix("]]")
    return hashlib.sha256(f"{listed}{', ' if messages else ''}".encode())


def midnight() -> float:
    """When today began, in UTC, as Unix time."""
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()


class AnswerStore:
    """Answers by key in a SQLite file, which any number of processes may share.

    The file and its folder are made where they are missing. Raises ConfigurationError, here and in every method, where
    the file cannot be used: not a database, of a newer version, not writable, disk full.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()  # keeps the writing connection to one thread at a time
        self._file = StateFile(self.path, "the answer store", TABLES)
        with self._file.guarded():
            self._reader = self._file.connect()

    def get(self, key: str) -> Answer | None:
        """The answer with this key, with source "store"."""
        return self.get_many([key]).get(key)

    def get_many(self, keys: Sequence[str]) -> dict[str, Answer]:
        """The known ones of these answers, by key, in one query."""
        query = f"SELECT {COLUMNS} FROM answers WHERE key IN (SELECT value FROM json_each(?))"  # noqa: S608  constants only
        with self._file.guarded():
            rows = self._reader.execute(query, (json.dumps(list(keys)),)).fetchall()
        return {key: Answer(text, model, asked, said, cost, "store") for key, text, model, asked, said, cost in rows}

    def put(self, key: str, answer: Answer) -> None:
        """Keep an answer. The first one of a key stays, so that every process goes on with the same."""
        self.put_many({key: answer})

    def put_many(self, answers: Mapping[str, Answer]) -> None:
        """Keep answers by key, as `put` does, in one transaction."""
        now = time.time()
        rows = [(key, a.text, a.model, a.prompt_tokens, a.completion_tokens, a.cost, now) for key, a in answers.items()]
        with self._lock, self._file.transaction() as connection:
            connection.executemany(
                f"INSERT OR IGNORE INTO answers ({COLUMNS}, created) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                rows,
            )

    def spent_since(self, when: float, model: str) -> float:
        """What the answers of `model` since `when` (Unix time) have cost together, those of unknown price left out."""
        with self._file.guarded():
            row = self._reader.execute(
                "SELECT sum(cost) FROM answers WHERE created >= ? AND model = ?", (when, model)
            ).fetchone()
        return float(row[0] or 0.0)

    def usual_length(self, model: str) -> float | None:
        """The mean number of tokens of the latest answers of a model, None where there are fewer than ten."""
        latest = (
            "SELECT completion_tokens t FROM answers WHERE model = ? AND completion_tokens > 0 "
            "ORDER BY created DESC LIMIT 1000"
        )
        with self._file.guarded():
            count, mean = self._reader.execute(f"SELECT count(*), avg(t) FROM ({latest})", (model,)).fetchone()  # noqa: S608
        return float(mean) if count >= 10 else None

    def close(self) -> None:
        with self._lock:
            self._reader.close()
            self._file.close()


class SharedStore(Protocol):
    """Documents under keys that other machines read and write, too. Both methods raise SiraError where it fails."""

    async def read(self, keys: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """What is kept under these keys."""
        ...

    async def write(self, documents: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep documents under their keys; what is there already stays."""
        ...


async def share(shared: SharedStore | None, answers: Mapping[str, Answer]) -> None:
    """Tell a shared store answers by key; where that fails they are kept on this machine alone, which is logged."""
    if shared is None or not answers:
        return
    try:
        await shared.write({key: _document_of(answer) for key, answer in answers.items()})
    except SiraError as error:
        log.warning("%s; %d answers are kept on this machine alone", error, len(answers))


def _document_of(answer: Answer) -> dict[str, Any]:
    """An answer as a shared store keeps it."""
    return {
        "text": answer.text,
        "model": answer.model,
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "cost": answer.cost,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _answer_of(document: Mapping[str, Any]) -> Answer | None:
    """The answer in a document of a shared store, without a cost, as others paid it; None where it holds none."""
    text, model = document.get("text"), document.get("model")
    tokens = [document.get(name) for name in ("prompt_tokens", "completion_tokens")]
    if not isinstance(text, str) or not isinstance(model, str):
        return None
    asked, said = (t if isinstance(t, int) and 0 <= t < 2**31 else 0 for t in tokens)
    return Answer(text, model, asked, said, None, "store")


class NoModel:
    """Stands behind a store where no model may be asked; `name` is that of the model whose answers are kept."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def ask(self, prompt: Prompt) -> Answer:
        raise ModelError(
            "no stored answer, and no model is asked; name one under llm, or use recorded answers", reason="not stored"
        )

    async def close(self) -> None:
        """Nothing is open."""


class StoredSource:
    """A source with a store in front: known answers cost nothing, and equal questions at one time are one call.

    A call goes on when those who wait for it give up, so that what is paid for is kept; but no more than `abandoned`
    such calls at a time: beyond that they are cancelled, lest a model that hangs collects them.
    """

    def __init__(
        self,
        source: AnswerSource,
        store: AnswerStore,
        *,
        usable: Callable[[Prompt, Answer], bool],
        max_cost_per_day: float | None = None,
        left: Callable[[Sequence[str]], Collection[str]] = lambda keys: (),
        abandoned: int = 16,
        shared: SharedStore | None = None,
    ) -> None:
        """Only answers that are `usable` are kept. `max_cost_per_day`: US dollars a day of UTC, over all processes.

        `left` tells which of some keys the source would not answer, as something else is to. `shared` is asked before
        the source is, and told what that answered.
        """
        self.name = source.name
        self._source = source
        self._store = store
        self._usable = usable
        self._limit = max_cost_per_day
        self._left = left
        self._most_abandoned = abandoned
        self._shared = shared
        self._waiting: dict[str, int] = {}
        self._calls: dict[str, asyncio.Task[Answer]] = {}
        self._keeping: set[asyncio.Future[None]] = set()

    async def ask(self, prompt: Prompt, *, on_answer: Callable[[Answer], None] = lambda _: None) -> Answer:
        """The stored answer, else a new one. Raises ModelError: that of the source, or with reason "daily limit".

        `on_answer` is told a new answer once, be it useless, when it arrives, whether or not whoever asked still waits.
        """
        key = key_of(self.name, prompt)
        if known := self._store.get(key):
            return known
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = asyncio.create_task(self._new(key, prompt, on_answer))
            call.add_done_callback(lambda done: self._forget(key, done))
        self._waiting[key] = self._waiting.get(key, 0) + 1
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            if call.cancelled():  # by close(), not by whoever waits
                raise ModelError("the model was closed while it was asked", reason="closed") from None
            raise
        finally:
            self._leave(key, call)

    def known(self, prompts: Sequence[Prompt]) -> list[Answer | None]:
        """The stored answers to these prompts, None where there is none; one query, no call."""
        keys = [key_of(self.name, prompt) for prompt in prompts]
        found = self._store.get_many(keys)
        return [found.get(key) for key in keys]

    async def find(self, prompts: Sequence[Prompt]) -> list[Answer | None]:
        """As `known`; what only the shared store has is taken over. Raises SiraError as that does."""
        keys = [key_of(self.name, prompt) for prompt in prompts]
        found = self._store.get_many(keys)
        if self._shared is not None:
            missing = {key: prompt for key, prompt in zip(keys, prompts, strict=True) if key not in found}
            found |= await self._taken_over(self._shared, missing)
        return [found.get(key) for key in keys]

    def left(self, prompts: Sequence[Prompt]) -> list[bool]:
        """Which of these questions the source would not answer, as something else is to."""
        keys = [key_of(self.name, prompt) for prompt in prompts]
        left = self._left(keys)
        return [key in left for key in keys]

    async def close(self) -> None:
        """End the calls that are under way, and the source; what was answered is kept. The store stays open: it may serve others."""
        calls = list(self._calls.values())
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, *self._keeping, return_exceptions=True)
        await self._source.close()

    async def _new(self, key: str, prompt: Prompt, on_answer: Callable[[Answer], None]) -> Answer:
        if self._shared is not None:
            try:
                taken = await self._taken_over(self._shared, {key: prompt})
            except SiraError as error:
                log.warning("%s; the model is asked instead", error)
                taken = {}
            if key in taken:
                return taken[key]
        if self._limit is not None and self._store.spent_since(midnight(), self.name) >= self._limit:
            raise ModelError(
                f"model {self.name} has reached max_cost_per_day of {self._limit:g}; raise it or wait for tomorrow",
                reason="daily limit",
            )
        try:
            answer = await self._source.ask(prompt)
        except UselessAnswerError as error:
            on_answer(error.answer)
            raise
        try:
            on_answer(answer)
        finally:
            if self._usable(prompt, answer):
                keeping = asyncio.ensure_future(self._keep(key, answer._replace(source="model")))
                self._keeping.add(keeping)
                keeping.add_done_callback(self._keeping.discard)
                await asyncio.shield(keeping)
        return answer

    async def _taken_over(self, shared: SharedStore, missing: Mapping[str, Prompt]) -> dict[str, Answer]:
        """What a shared store has of the answers that are missing here, kept here from now on."""
        read = await shared.read(list(missing)) if missing else {}
        answers = {key: answer for key, document in read.items() if (answer := _answer_of(document))}
        usable = {k: a for k, a in answers.items() if k in missing and self._usable(missing[k], a)}
        if usable:
            await asyncio.to_thread(self._store.put_many, usable)
        return self._store.get_many(list(usable))

    async def _keep(self, key: str, answer: Answer) -> None:
        await asyncio.to_thread(self._store.put, key, answer)
        await share(self._shared, {key: answer})

    def _forget(self, key: str, done: asyncio.Task[Answer]) -> None:
        if self._calls.get(key) is done:
            del self._calls[key]
        if not done.cancelled():
            done.exception()  # looked at, so that asyncio does not report one that nobody waited for

    def _leave(self, key: str, call: asyncio.Task[Answer]) -> None:
        self._waiting[key] -= 1
        if self._waiting[key]:
            return
        del self._waiting[key]
        if not call.done() and sum(1 for k in self._calls if k not in self._waiting) > self._most_abandoned:
            del self._calls[key]
            call.cancel()
