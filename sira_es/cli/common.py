"""What the commands share: their common options, where output goes, and the event loop."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import math
import re
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson
import yaml

from sira_es.settings import Settings, load_settings

__all__ = [
    "Limit",
    "Options",
    "common_options",
    "dollars",
    "flow",
    "output_options",
    "print_json",
    "recorded_option",
    "run_async",
    "say",
    "table",
    "url_options",
]

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Options:
    """The options that commands share."""

    config: Path | None
    url: str | None
    json: bool
    verbose: bool
    quiet: bool

    def settings(self, **options: Any) -> Settings:
        """The configuration with this call's options on top."""
        return load_settings(self.config, **{"cluster.url": self.url, **options})

    def say(self, text: str) -> None:
        """Tell a person something, on stderr; nothing with -q."""
        if not self.quiet:
            say(text)


_CONFIG = click.option("-c", "--config", type=click.Path(path_type=Path), help="Configuration [sira-es.yml].")
_URL = click.option("--url", help="Cluster address, instead of the configured one.")
_OUTPUT = (
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
    click.option("-v", "--verbose", is_flag=True, help="Say more."),
    click.option("-q", "--quiet", is_flag=True, help="Say nothing but results and errors."),
)


def common_options(command: F) -> F:
    """Add -c, --url, --json, -v and -q; the command gets them as its first argument, an Options."""
    return _with_options(command, _CONFIG, _URL, *_OUTPUT)


def url_options(command: F) -> F:
    """The same without -c, for a command that has a configuration of its own."""
    return _with_options(command, _URL, *_OUTPUT)


def output_options(command: F) -> F:
    """The same without -c and --url, for a command that uses no cluster of the caller's."""
    return _with_options(command, *_OUTPUT)


def _with_options(command: F, *options: Callable[[F], F]) -> F:
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        config: Path | None = None,
        url: str | None = None,
        as_json: bool,
        verbose: bool,
        quiet: bool,
        **kwargs: Any,
    ) -> Any:
        if verbose:
            logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(name)s: %(message)s")
        return command(Options(config, url, as_json, verbose, quiet), *args, **kwargs)

    # click joins the lines of a paragraph unless it begins so; examples are to be copied
    wrapped.__doc__ = re.sub(r"^( *)(?=Example:)", "\\1\b\n\\1", command.__doc__ or "", flags=re.MULTILINE)
    found: Any = wrapped
    for option in reversed(options):
        found = option(found)
    return found  # type: ignore[no-any-return]  # click keeps the signature in its own way


def recorded_option(command: F) -> F:
    """Add --recorded FILE."""
    return click.option(
        "--recorded",
        type=click.Path(path_type=Path),
        help="Recorded answers (JSON lines with id and answer); no model is called.",
    )(command)


def run_async(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a command's coroutine to its end; Ctrl-C or SIGTERM cancels it and waits for its clean-up."""
    whole = _until_terminated(coroutine)
    try:
        return asyncio.run(whole)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        for each in (whole, coroutine):  # where Ctrl-C comes before they began, Python would warn of it
            each.close()


async def _until_terminated(coroutine: Coroutine[Any, Any, R]) -> R:
    task = asyncio.current_task()
    if task is not None and threading.current_thread() is threading.main_thread():
        with suppress(NotImplementedError):  # Windows
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await coroutine


def print_json(value: Any) -> None:
    """One JSON document on stdout, UTF-8 whatever the terminal's encoding; what that cannot hold is escaped."""
    try:
        text = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_INDENT_2, default=str)
    except TypeError:  # a lone surrogate, of a document or of the command line
        text = json.dumps(value, indent=2, default=str).encode()
    click.echo(text)


def dollars(cost: float, calls: int) -> str:
    """What calls have cost, for people. Where no price is known nothing is added up."""
    return "unknown price" if calls and not cost else f"${cost:.4f}"


class Limit(click.FloatRange):
    """A number from 0 on. Not NaN, which float() takes and nothing ever reaches."""

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        return self.fail(f"{value} is not a number", param, ctx) if math.isnan(number) else number


def say(text: str) -> None:
    """A line on stderr. What is done goes on where nobody reads it any more."""
    with suppress(OSError):
        click.echo(text, err=True)


def table(rows: list[list[str]], head: list[str]) -> None:
    """A plain table on stdout, columns aligned, numbers to the right."""
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        cells = [c.rjust(w) if _is_number(c) else c.ljust(w) for c, w in zip(row, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())


def _is_number(cell: str) -> bool:
    return cell.translate(str.maketrans("", "", ".-+% ")).isdigit()


def flow(value: str | list[str]) -> str:
    """A value on one line of YAML, quoted where it would be read as something else: `no`, `on`, 2024."""
    return yaml.safe_dump(value, width=10_000, default_flow_style=True).splitlines()[0]
