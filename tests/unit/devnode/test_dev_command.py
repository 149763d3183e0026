"""`sira-es dev`: data on stdout, everything else on stderr."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from sira_es import devnode
from sira_es.cli.dev import dev


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIRA_ES_DEV_HOME", str(tmp_path / "nodes"))


def test_status_lists_every_engine_as_json() -> None:
    result = CliRunner().invoke(dev, ["status", "--json"])
    assert json.loads(result.stdout) == [
        {"engine": row.name, "instance": row.name, "state": "stopped", "url": None, "version": row.version, "pid": None}
        for row in devnode.ENGINES.values()
    ]


def test_status_is_a_table_for_a_person() -> None:
    head, *lines = CliRunner().invoke(dev, ["status"]).stdout.splitlines()
    assert head.split() == ["node", "state", "product", "version", "url", "pid"]
    assert lines[0].split() == ["os2", "stopped", "opensearch", devnode.ENGINES["os2"].version, "-", "-"]
    assert len(lines) == 5


def test_status_of_one_engine_is_one_line() -> None:
    assert len(json.loads(CliRunner().invoke(dev, ["status", "--engine", "es9", "--json"]).stdout)) == 1


def test_down_without_a_node_says_so_on_stderr_alone() -> None:
    result = CliRunner().invoke(dev, ["down"])
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "nothing was running\n")


def test_quiet_down_says_nothing() -> None:
    assert CliRunner().invoke(dev, ["down", "-q"]).output == ""


@pytest.mark.parametrize("arguments", [["up", "--engine", "es6"], ["up", "--port", "70000"], ["down", "--port", "1"]])
def test_wrong_use_exits_with_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(dev, arguments).exit_code == 2
