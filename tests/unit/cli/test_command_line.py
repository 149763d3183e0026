"""The command line as scripts meet it: what it loads, where it writes, and how it ends."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from sira_es.cli import COMMANDS, cli, run
from sira_es.cli.common import Options, common_options, dollars, print_json, run_async, table
from sira_es.errors import ClusterRefused, ConfigurationError, SpendLimitReached

CLIENTS = {"litellm", "elasticsearch", "elastic_transport", "opensearchpy", "aiohttp", "scipy"}
CONFIGURATION = "indices: {docs: {text_fields: [body]}}\n"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, with none of our variables set."""
    for name in list(os.environ):
        if name.upper().startswith("SIRA_ES__"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def sira_es(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command: exit code, stdout, stderr."""

    def ran(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return ran


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Make a function the command `probe`."""

    def made(function: Callable[..., Any]) -> None:
        module = types.ModuleType("sira_es.cli.probe")
        module.probe = click.command("probe")(function)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "sira_es.cli.probe", module)
        monkeypatch.setitem(COMMANDS, "probe", "for this test")

    return made


def modules_after(code: str) -> set[str]:
    script = f"import json, sys\n{code}\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr))


# What it loads


def test_help_loads_neither_clients_nor_models_nor_settings() -> None:
    loaded = modules_after("from sira_es.cli import run\nassert run(['--help']) == 0")
    assert loaded.isdisjoint(
        CLIENTS | {"pydantic", "yaml", "rich", "orjson", "asyncio", "sira_es.sira", "sira_es.settings"}
    )


def test_the_help_of_every_command_loads_neither_clients_nor_models() -> None:
    loaded = modules_after(
        "from sira_es.cli import COMMANDS, run\nfor name in COMMANDS:\n    assert run([name, '--help']) == 0, name"
    )
    assert loaded.isdisjoint({"litellm", "elasticsearch", "opensearchpy"})


# Help


def test_help_lists_every_command(sira_es: Run) -> None:
    code, out, err = sira_es("--help")
    assert (code, err) == (0, "")
    listed = [line.split()[0] for line in out.partition("Commands:\n")[2].splitlines() if line.startswith("  ")]
    assert [name for name in listed if name in COMMANDS] == sorted(COMMANDS)


def leaves_of(name: str) -> list[tuple[str, click.Command]]:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    if isinstance(found, click.Group):
        return [(f"{name} {sub}", inner) for sub, inner in found.commands.items()]
    return [(name, found)]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_the_common_options_and_an_example(name: str) -> None:
    for path, leaf in leaves_of(name):
        options = {option for p in leaf.params for option in p.opts}
        assert {"--json", "-v", "-q"} <= options, path
        assert ("--url" in options) == (not path.startswith("dev ")), path
        assert ("-c" in options) == (not path.startswith("dev ") and path != "demo"), path
        assert f"sira-es {path}" in (leaf.help or "").partition("Example")[2], path


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_examples_stay_on_their_lines_in_the_help(name: str, sira_es: Run) -> None:
    for path, leaf in leaves_of(name):
        _, out, _ = sira_es(*path.split(), "--help")
        assert "\\b" not in out
        shown = {line.strip() for line in out.splitlines()}
        for line in (leaf.help or "").partition("\b\n")[2].partition("\n\n")[0].splitlines():
            assert line.strip() in shown, path


def test_without_a_command_the_help_goes_to_stderr_and_the_exit_code_is_2(sira_es: Run) -> None:
    code, out, err = sira_es()
    assert (code, out) == (2, "")
    assert err.startswith("Usage: sira-es")


def test_the_version_is_that_of_the_package(sira_es: Run) -> None:
    from sira_es import __version__

    assert sira_es("--version") == (0, f"sira-es, version {__version__}\n", "")


# Wrong use: exit code 2, one line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serch"], "no command 'serch'; did you mean 'search'?"),
        (["enrcih", "--index", "docs"], "no command 'enrcih'; did you mean 'enrich'?"),
        (["xyzzy"], "no command 'xyzzy'; 'sira-es --help' lists the commands"),
        (["--nope"], "No such option '--nope'"),
        (["search", "x", "--ulr", "y"], "search: No such option '--ulr'. Did you mean '--url'?"),
        (["search", "x"], "search: Missing option '--index'."),
        (["search", "--index", "docs"], "search: Missing argument 'TEXT'."),
        (["search", "x", "--index"], "Option '--index' requires an argument."),
        (["search", "x", "--index", "d", "--mode", "y"], "search: Invalid value for '--mode': 'y' is not one of 'recall'"),
        (["search", "x", "--index", "d", "--size", "many"], "search: Invalid value for '--size': 'many' is not a valid int"),
        (["compile", "x", "--index", "docs", "-c", "absent.yml"], "no configuration file absent.yml; 'sira-es init"),
        (["compile", "x", "--index", "docs", "-c", "."], "cannot read .: Is a directory"),
        (["compile", "x", "--index", "docs"], "no index 'docs' in the configuration; run 'sira-es init --index docs' first"),
        (["compile", "x", "--index", "docs", "--url", "nope"], "option: cluster.url: must be an address such as https://"),
        (["proxy", "--listen", "127.0.0.1:²"], "--listen 127.0.0.1:²: give host and port, such as 127.0.0.1:9201"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line_and_exit_code_2(arguments: list[str], said: str, sira_es: Run) -> None:
    code, out, err = sira_es(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"sira-es: {said}")
    assert err.count("\n") == 1


def test_an_unknown_key_is_one_line_and_exit_code_2(folder: Path, sira_es: Run) -> None:
    (folder / "sira-es.yml").write_text("cluster: {ulr: http://es}\n")
    code, out, err = sira_es("status", "--index", "docs")
    assert (code, out, err) == (2, "", "sira-es: sira-es.yml: unknown key 'cluster.ulr'; did you mean 'url'?\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["enrich"],
        ["enrich", "--dry-run"],
        ["enrich", "--undo"],
        ["pipeline", "install"],
        ["pipeline", "remove"],
        ["terms", "list"],
        ["warm", "--queries", "queries.txt"],
        ["tune", "--queries", "queries.tsv", "--qrels", "qrels.tsv"],
        ["eval", "--queries", "queries.tsv", "--qrels", "qrels.tsv"],
    ],
    ids=" ".join,
)
def test_an_index_without_configuration_is_told_before_any_connection(
    arguments: list[str], folder: Path, sira_es: Run
) -> None:
    (folder / "queries.txt").write_text("fan\n")
    (folder / "queries.tsv").write_text("id\ttext\n1\tfan\n")
    (folder / "qrels.tsv").write_text("1 0 a 1\n")
    code, out, err = sira_es(*arguments, "--index", "docs", "--url", "http://127.0.0.1:9", "-q")
    told = "sira-es: no index 'docs' in the configuration; run 'sira-es init --index docs' first\n"
    assert (code, out, err) == (2, "", told)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--report", "absent/r.html"], "cannot write absent/r.html: absent is missing; choose another --report"),
        (["--report", "."], "cannot write .: it is a folder; choose another --report"),
        (["--runs", "queries.tsv"], "cannot write to queries.tsv: File exists; choose another --runs"),
    ],
)
def test_a_report_that_cannot_be_written_is_told_before_any_search(
    arguments: list[str], said: str, folder: Path, sira_es: Run
) -> None:
    (folder / "sira-es.yml").write_text(CONFIGURATION)
    (folder / "queries.tsv").write_text("id\ttext\n1\tfan\n")
    (folder / "qrels.tsv").write_text("1 0 a 1\n")
    common = ["--index", "docs", "--queries", "queries.tsv", "--qrels", "qrels.tsv", "--url", "http://127.0.0.1:9"]
    assert sira_es("eval", *common, *arguments) == (2, "", f"sira-es: {said}\n")


# Errors of a command


@pytest.mark.parametrize(
    ("error", "code"),
    [(ConfigurationError("a\n  b"), 2), (ClusterRefused("a b", status=500), 1), (SpendLimitReached("a b"), 4)],
)
def test_an_error_is_one_line_with_its_exit_code(
    error: Exception, code: int, command: Callable[..., None], sira_es: Run
) -> None:
    def fail() -> None:
        raise error

    command(fail)
    assert sira_es("probe") == (code, "", "sira-es: a b\n")


@pytest.mark.parametrize("code", [0, 1, 3, 4])
def test_what_a_command_returns_is_the_exit_code(code: int, command: Callable[..., None], sira_es: Run) -> None:
    command(lambda: code)
    assert sira_es("probe") == (code, "", "")


def test_a_bug_is_one_line_without_what_it_was_about(command: Callable[..., None], sira_es: Run) -> None:
    def fail() -> None:
        raise KeyError("hunter2")

    command(fail)
    code, out, err = sira_es("probe")
    assert (code, out) == (1, "")
    assert err == "sira-es: unexpected KeyError; this is a bug, run again with -v and report what it prints\n"


def test_a_bug_shows_its_traceback_with_v(command: Callable[..., None], sira_es: Run) -> None:
    def fail(options: Options) -> None:
        raise KeyError(options.verbose)

    command(common_options(fail))
    with pytest.raises(KeyError, match="True"):
        sira_es("probe", "-v")


def test_a_file_that_cannot_be_written_is_told(command: Callable[..., None], sira_es: Run) -> None:
    command(lambda: Path("/no/such/folder/x").write_text("x"))
    assert sira_es("probe") == (1, "", "sira-es: /no/such/folder/x: No such file or directory\n")


def test_an_unreachable_cluster_is_one_line_without_the_password(folder: Path, sira_es: Run) -> None:
    (folder / "sira-es.yml").write_text(CONFIGURATION)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    code, out, err = sira_es("search", "x", "--index", "docs", "--url", f"http://elastic:hunter2@{address}")
    assert (code, out) == (1, "")
    assert address in err
    assert err.count("\n") == 1
    assert "hunter2" not in err


# Streams and signals


def process(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sira_es", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_says_how_to_go_on_and_ends_with_130(how: signal.Signals, folder: Path) -> None:
    """SIGTERM is how a container or a batch system ends a run."""
    (folder / "sira-es.yml").write_text(CONFIGURATION)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with process("status", "--index", "docs", "--url", url, stdout=subprocess.PIPE) as waiting:
            silent.settimeout(60)
            connection, _ = silent.accept()
            waiting.send_signal(how)
            out, err = waiting.communicate(timeout=60)
            connection.close()
    assert (waiting.returncode, out) == (130, "")
    assert err.strip() == "sira-es: interrupted; the same command goes on where it stopped"


def test_a_reader_that_has_gone_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with process("--help", stdout=writing) as writer:
        os.close(writing)
        _, err = writer.communicate(timeout=60)
    assert (writer.returncode, err) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_told() -> None:
    with Path("/dev/full").open("w") as full, process("--help", stdout=full) as writer:
        _, err = writer.communicate(timeout=60)
    assert (writer.returncode, err) == (1, "sira-es: output: No space left on device\n")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_utf_8_whatever_the_terminal_says(encoding: str) -> None:
    code = "from sira_es.cli.common import print_json; print_json({'word': '日本 é'})"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment)
    assert done.stdout.decode("utf-8") == '{\n  "word": "日本 é"\n}\n'


def test_json_escapes_what_utf_8_cannot_hold(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"word": "a\ud800", "n": 1})
    out = capsys.readouterr().out
    assert "\\ud800" in out
    assert json.loads(out) == {"word": "a\ud800", "n": 1}


def test_text_shows_what_a_terminal_cannot_as_an_escape(folder: Path) -> None:
    code = "import sys; from sira_es.cli import main, COMMANDS; COMMANDS['demo'] = 'é 日'; main(['--help'])"
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment)
    assert b"\xe9 \\u65e5" in done.stdout


def test_q_silences_what_is_told_and_not_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    Options(None, None, json=False, verbose=False, quiet=True).say("told")
    Options(None, None, json=False, verbose=False, quiet=False).say("told aloud")
    assert capsys.readouterr() == ("", "told aloud\n")


def test_a_table_has_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    table([["fan", "12", "+3.5%"], ["overheat", "3", "-"]], ["word", "df", "gain"])
    assert capsys.readouterr().out == "word      df  gain\nfan       12  +3.5%\noverheat   3  -\n"


def test_a_command_whose_packages_are_not_installed_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "sira-es.yml"
    config.write_text("indices: {docs: {text_fields: [text]}}")
    for module in [m for m in sys.modules if m.startswith("sira_es.proxy")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert run(["proxy", "-c", str(config)]) == 2
    assert capsys.readouterr().err == (
        "sira-es: this command needs the package uvicorn: pip install 'sira-es[proxy]'\n"
    )


def test_command_that_is_interrupted_before_it_began_leaves_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(coroutine: object) -> None:
        raise KeyboardInterrupt

    async def nothing() -> None:
        """Is not begun."""

    monkeypatch.setattr(asyncio, "run", interrupted)
    coroutine = nothing()
    with pytest.raises(KeyboardInterrupt):
        run_async(coroutine)
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


@pytest.mark.parametrize(
    ("cost", "calls", "told"), [(0.0, 0, "$0.0000"), (0.25, 3, "$0.2500"), (0.0, 3, "unknown price")]
)
def test_calls_without_a_price_are_not_told_to_be_free(cost: float, calls: int, told: str) -> None:
    assert dollars(cost, calls) == told
