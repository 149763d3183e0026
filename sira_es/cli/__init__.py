"""The command line: one module a command, loaded when it is called."""

from __future__ import annotations

import difflib
import gc
import importlib
import io
import os
import sys
from contextlib import suppress
from typing import Any

import click

from sira_es.errors import SiraError

__all__ = ["main"]

GARBAGE = (20_000, 20, 50)
"""Thresholds of the garbage collector: hardly any garbage is cyclic, and looking for it as usual takes a tenth of the time."""

COMMANDS = {
    "compile": "the one request for a text, as JSON that curl can send",
    "demo": "from nothing to a better search on this machine, with figures",
    "dev": "real nodes on this machine",
    "doctor": "each thing that must hold, and its remedy",
    "enrich": "add search vocabulary to the documents of an index",
    "eval": "figures of the plain and the expanded search, from your judgments",
    "expand": "every proposed word with its statistics, verdict and boost",
    "index": "load a collection into a new index",
    "init": "look at an index and write sira-es.yml",
    "pipeline": "have the cluster drop terms from documents whose text changes",
    "proxy": "stand before the cluster and make searches better on their way",
    "search": "search with one request",
    "status": "how much of an index is enriched, and what it cost",
    "terms": "a person's word over the model's: block, allow, pin",
    "tune": "numbers of the method chosen on your judgments, with held-out figures",
    "warm": "expansions computed ahead, so that serving calls no model",
}


class Commands(click.Group):
    """A group whose commands are imported when called, so that --help stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"sira_es.cli.{cmd_name}")
        command = getattr(module, cmd_name if cmd_name not in {"eval", "compile"} else f"{cmd_name}_")
        assert isinstance(command, click.Command)  # noqa: S101  each module defines its command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean '{near[0]}'?" if near else "'sira-es --help' lists the commands"
            raise click.UsageError(f"no command '{args[0]}'; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sira-es", prog_name="sira-es")
def cli() -> None:
    """Search vocabulary for an existing Elasticsearch or OpenSearch cluster."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong use, 3 some documents failed, 4 a limit, 130 interrupted."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a document may hold what the terminal cannot show
    gc.set_threshold(*GARBAGE)
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; every error becomes one line on stderr."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        result: Any = cli.main(arguments, prog_name="sira-es", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "", err=True)
        return 2
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        command = context.command_path.removeprefix("sira-es").strip() if context else ""
        return _failed(f"{command}: {error.format_message()}" if command else error.format_message(), 2)
    except (click.exceptions.Abort, KeyboardInterrupt):
        return _failed("interrupted; the same command goes on where it stopped", 130)
    except SiraError as error:
        return _failed(str(error), error.exit_code)
    except (BrokenPipeError, SystemExit):  # click ends so where nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except ModuleNotFoundError as error:
        return _failed(f"this command needs the package {error.name}: pip install 'sira-es[proxy]'", 2)
    except Exception as error:
        if {"-v", "--verbose"} & set(arguments):
            raise
        if isinstance(error, OSError) and error.strerror:
            return _failed(f"{error.filename or 'output'}: {error.strerror}", 1)
        return _failed(
            f"unexpected {type(error).__name__}; this is a bug, run again with -v and report what it prints", 1
        )


def _failed(message: str, code: int) -> int:
    with suppress(OSError):  # nobody reads it
        click.echo(f"sira-es: {' '.join(message.split())}", err=True)
    return code
