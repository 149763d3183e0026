"""Answers replayed from a file, through the same parser, cleaning and filter as live ones."""

from __future__ import annotations

import gzip
import unicodedata
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import orjson

from sira_es.errors import InputError, ModelError
from sira_es.llm.model import Answer, Prompt

__all__ = ["RecordedAnswers"]


class RecordedAnswers:
    """Answers by the id of the document or query, else by its text: NFC, letter case and white space do not count."""

    name = "recorded"

    def __init__(
        self,
        answers: Mapping[str, str],
        *,
        texts: Mapping[str, str] | None = None,
        origin: str = "the recorded answers",
    ) -> None:
        """`texts` holds further texts, each with the id whose answer is theirs."""
        self._answers = dict(answers)
        self._by_text = {_normal(text): answers[id] for text, id in (texts or {}).items()}  # noqa: A001
        for id, answer in answers.items():  # noqa: A001
            self._by_text.setdefault(_normal(id), answer)
        self._origin = origin

    @classmethod
    def from_file(cls, path: Path | str) -> Self:
        """Read JSON lines `{"id", "answer"}`, gzip by ending. Raises InputError.

        A query's `id` may be its text; where it is not, a key `text` may hold it beside.
        """
        answers: dict[str, str] = {}
        texts: dict[str, str] = {}
        lines: dict[str, int] = {}
        for number, line in _lines(Path(path)):
            id, answer, text = _row(line, f"{path} line {number}")  # noqa: A001
            if id in lines:
                raise InputError(
                    f"{path} line {number}: id '{id[:100]}' stands in line {lines[id]} already; keep one of the two"
                )
            answers[id], lines[id] = answer, number
            if text:
                texts[text] = id
        return cls(answers, texts=texts, origin=str(path))

    def __len__(self) -> int:
        return len(self._answers)

    async def ask(self, prompt: Prompt) -> Answer:
        """The recorded answer. Raises ModelError with reason "not recorded"; no model is asked instead."""
        answer = self._find(prompt)
        if answer is None:
            what = f"{prompt.kind} '{prompt.id or prompt.text[:60]}'"
            raise ModelError(
                f"no answer for {what} in {self._origin}; record one, or ask a model", reason="not recorded"
            )
        return answer

    def known(self, prompts: Sequence[Prompt]) -> list[Answer | None]:
        """The recorded answers to these prompts, None where there is none."""
        return [self._find(prompt) for prompt in prompts]

    def _find(self, prompt: Prompt) -> Answer | None:
        text = self._answers.get(prompt.id) if prompt.id else None
        if text is None:
            text = self._by_text.get(_normal(prompt.text))
        return None if text is None else Answer(text=text, model=self.name, source="recorded")

    async def close(self) -> None:
        """Nothing is open."""


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that hold anything, with their numbers from 1."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line.removeprefix(b"\xef\xbb\xbf")
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or "not a whole gzip file"
        raise InputError(f"cannot read the recorded answers {path}: {why}; check path and file") from None


def _row(line: bytes, place: str) -> tuple[str, str, str]:
    try:
        row: Any = orjson.loads(line)
    except ValueError:
        raise InputError(f'{place} is not JSON; each line is to be {{"id": ..., "answer": ...}}') from None
    if not isinstance(row, dict):
        raise InputError(f'{place} is not an object; each line is to be {{"id": ..., "answer": ...}}')
    id, answer = row.get("id", row.get("_id")), row.get("answer")  # noqa: A001
    if isinstance(id, int) and not isinstance(id, bool):
        id = str(id)  # noqa: A001
    if not isinstance(id, str) or not id.strip():
        raise InputError(f"{place} has no 'id'; it names the document or query, or is the query's text")
    if not isinstance(answer, str):
        raise InputError(
            f"{place} (id '{id[:100]}'): 'answer' is not a text; it is to be what the model returned, as a string"
        )
    text = row.get("text")
    return id, answer, text if isinstance(text, str) else ""


def _normal(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())
