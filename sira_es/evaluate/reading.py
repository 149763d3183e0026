"""Rows of a file: JSON lines, or TSV/CSV with a header; UTF-8, gzip by ending. Every error names file and line."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from sira_es.errors import InputError
from sira_es.evaluate.findings import Tally

__all__ = ["Line", "Row", "as_id", "at", "content", "is_plain", "pick", "read_lines", "read_rows", "rows_of", "whole"]

Line = tuple[int, str]
Row = tuple[int, dict[str, Any]]

_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_FIELD_LIMIT = 2**31 - 1  # one CSV field may hold a long document; the module's own limit is 128 KiB


def at(path: Path, line: int) -> str:
    return f"{path}, line {line}"


def is_plain(path: Path) -> bool:
    """Whether a file has one text a line, by its ending: .txt or .txt.gz."""
    return path.name.endswith((".txt", ".txt.gz"))


def read_lines(path: Path, tally: Tally) -> Iterator[Line]:
    """Yield numbered lines without their ends; notes a byte order mark and Windows line ends.

    Raises InputError where the file cannot be read, is not UTF-8, or is a damaged gzip file.
    """
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                line = raw
                if number == 1:
                    if line.startswith(_UTF16):
                        raise InputError(f"{path}: the text is UTF-16; save it as UTF-8")
                    if line.startswith(_BOM):
                        tally.note("byte order mark, skipped", "line 1")
                        line = line[len(_BOM) :]
                line = line.removesuffix(b"\n")
                if line.endswith(b"\r"):
                    tally.note("lines with Windows line ends, read as plain ones", f"line {number}")
                    line = line[:-1]
                yield number, line.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{at(path, number)}: not UTF-8 text (byte {error.start + 1}); save it as UTF-8") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: not a whole gzip file ({error})") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def content(path: Path, lines: Iterator[Line]) -> tuple[str, Iterator[Line]]:
    """Return the first line that is not blank, and the lines from there on. Raises InputError where there is none."""
    first = next((line for line in lines if line[1].strip()), None)
    if first is None:
        raise InputError(f"{path}: the file is empty")
    return first[1], chain([first], lines)


def read_rows(path: Path, tally: Tally) -> Iterator[Row]:
    """Yield (line number, row) of JSON lines or of a table with a header, whichever the file holds."""
    first, lines = content(path, read_lines(path, tally))
    yield from rows_of(path, first, lines, tally)


def rows_of(path: Path, first: str, lines: Iterable[Line], tally: Tally) -> Iterator[Row]:
    """Read `lines`, of which `first` is the first, as JSON lines if that begins with a brace, else as a table."""
    start = first.lstrip()[:1]
    if start == "[":
        raise InputError(f"{path}: begins with `[`; write one JSON object a line instead of one array")
    return _json_rows(path, lines, tally) if start == "{" else _table_rows(path, first, lines, tally)


def _json_rows(path: Path, lines: Iterable[Line], tally: Tally) -> Iterator[Row]:
    for number, line in lines:
        if not line.strip():
            tally.note("blank lines, skipped", f"line {number}")
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise InputError(f"{at(path, number)}: not JSON: {error}") from None
        if not isinstance(row, dict):
            raise InputError(f"{at(path, number)}: not a JSON object; write one object a line")
        yield number, row


def _table_rows(path: Path, first: str, lines: Iterable[Line], tally: Tally) -> Iterator[Row]:
    delimiter = "\t" if "\t" in first else ";" if ";" in first and "," not in first else ","
    csv.field_size_limit(_FIELD_LIMIT)
    ends: list[int] = [0]  # the number of the line that the reader took last

    def feed() -> Iterator[str]:
        for number, line in lines:
            ends[0] = number
            yield line + "\n"

    # Tab-separated files hold quotation marks as they are; only comma-separated ones quote fields.
    if delimiter == "\t":
        reader = csv.reader(feed(), delimiter=delimiter, quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(feed(), delimiter=delimiter, strict=True)
    try:
        header = [name.strip() for name in next(reader)]
        if len(set(header)) < len(header):
            raise InputError(f"{at(path, ends[0])}: two columns have the same name: {', '.join(header)}")
        start = ends[0] + 1
        for values in reader:
            if len(values) == len(header):
                yield start, dict(zip(header, values, strict=True))
            elif any(value.strip() for value in values):
                raise InputError(f"{at(path, start)}: {len(values)} columns, but the header names {len(header)}")
            else:
                tally.note("blank lines, skipped", f"line {start}")
            start = ends[0] + 1
    except csv.Error as error:
        raise InputError(f"{at(path, ends[0])}: {error}") from None


def _plain(name: str) -> str:
    return name.strip().casefold().replace("-", "_").replace(" ", "_")


def pick(path: Path, line: int, row: Mapping[str, Any], names: Sequence[str], what: str) -> tuple[str, Any]:
    """Return key and value of the first of `names` that the row has (case, `-` and `_` do not matter).

    Raises InputError, saying which names would have done, where it has none.
    """
    keys = {_plain(key): key for key in reversed(list(row))}
    for name in names:
        if name in keys:
            return keys[name], row[keys[name]]
    found = " ".join(", ".join(list(row)[:8]).split()) or "nothing"
    raise InputError(f"{at(path, line)}: no {what}; name it one of {', '.join(names)} (found: {found})")


def as_id(path: Path, line: int, value: object, tally: Tally) -> str:
    """Return an id as text: a whole number is noted and read as text, anything else is an InputError."""
    if isinstance(value, int) and not isinstance(value, bool):
        tally.note("ids that are numbers, read as text", f"line {line}, {value}")
        return str(value)
    if not isinstance(value, str):
        raise InputError(f"{at(path, line)}: the id is {orjson.dumps(value).decode()[:40]}; it must be a text")
    if not value.strip():
        raise InputError(f"{at(path, line)}: the id is empty")
    return value


def whole(value: object) -> int | None:
    """Return a whole number (`2`, `2.0`, as a number or a text), None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None
