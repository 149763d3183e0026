"""No secret of a configuration is ever shown: not by a command, its log, its errors, its state, nor its command line."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from cluster.security.collection import QUERY, Files, write
from cluster.security.conftest import PASSWORD, Secured
from sira_es.settings import load_settings
from tests.model_server import ModelServer

pytestmark = pytest.mark.slow
MODEL_KEY = "sk-planted-model-key"
SECRETS = (PASSWORD, quote(PASSWORD), "YWRtaW46cGxhbnRlZC1QYTU1LXdvcmQ", MODEL_KEY)  # the third: as it is sent


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return write(tmp_path)


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer({}) as server:
        yield server


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def watched(tmp_path: Path) -> Run:
    """Run a command as a process of its own: exit code, and all that could be seen of it from outside."""

    def run(*arguments: Any, variables: dict[str, str] | None = None) -> tuple[int, str]:
        command = [sys.executable, "-m", "sira_es", *map(str, arguments)]
        output = tmp_path / "output"
        with output.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, **(variables or {})})
            shown = set()
            while process.poll() is None:
                with suppress(OSError):  # it may have ended
                    shown.add(Path(f"/proc/{process.pid}/cmdline").read_bytes().decode())
                time.sleep(0.05)
        return process.returncode, output.read_text("utf-8", "replace") + "".join(shown)

    return run


def test_secrets_stay_where_they_were_written(
    watched: Run, secured: Secured, index_name: str, files: Files, model: ModelServer, tmp_path: Path
) -> None:
    """By `${file:}` and `${NAME}`, through every command, with -v, and where the command fails."""
    (tmp_path / "key").write_text(f"{MODEL_KEY}\n")
    stage = {"model": "openai/recorded", "api_base": model.api_base, "api_key": f"${{file:{tmp_path}/key}}"}
    content = {
        "cluster": {
            "url": secured.url,
            "ca_certs": str(secured.certificates.ca),
            "basic_auth": "admin:${THE_PASSWORD}",
        },
        "llm": {"documents": stage, "queries": stage},
        "state": str(tmp_path / "state"),
        "indices": {index_name: {"text_fields": ["title", "text"], "language": "en"}},
    }
    config = tmp_path / "sira-es.yml"
    config.write_text(yaml.safe_dump(content))
    at = ["--index", index_name, "-c", config, "-v"]
    variables = {"THE_PASSWORD": PASSWORD}
    in_url = secured.url.replace("//", f"//admin:{PASSWORD}@")
    seen = []
    for expected, *arguments in (
        (0, "index", *at, "--documents", files.documents),
        (0, "doctor", *at, "--live"),
        (0, "enrich", *at),
        (0, "status", *at, "--json"),
        (0, "expand", QUERY, *at),
        (0, "search", QUERY, *at, "--json"),
        (0, "eval", *at, "--queries", files.queries, "--qrels", files.qrels, "--json"),
        (0, "enrich", *at, "--undo"),
        (2, "search", QUERY, "--index", "missing", "-c", config, "-v"),
    ):
        code, text = watched(*arguments, variables=variables)
        assert code == expected, text
        seen.append(text)
    for changed in (
        {"basic_auth": f"admin:{PASSWORD}x"},
        {"basic_auth": PASSWORD},
        {"url": in_url + "x"},
        {"url": in_url},
    ):
        wrong = {k: v for k, v in content["cluster"].items() if k != "basic_auth"} | changed
        config.write_text(yaml.safe_dump({**content, "cluster": wrong}))
        code, text = watched("search", QUERY, *at)
        assert (code == 0) == (changed == {"url": in_url}), text
        seen.append(text)
    state = b"".join(f.read_bytes() for f in sorted((tmp_path / "state").rglob("*")) if f.is_file())
    assert state
    seen.append(state.decode("utf-8", "replace"))
    assert [s for s in SECRETS if any(s in text for text in seen)] == []


def test_settings_do_not_show_what_they_hold(secured: Secured, tmp_path: Path) -> None:
    config = tmp_path / "sira-es.yml"
    stage = {"model": "openai/recorded", "api_key": MODEL_KEY}
    cluster = {"url": secured.url.replace("//", f"//admin:{PASSWORD}@")}
    config.write_text(yaml.safe_dump({"cluster": cluster, "llm": {"queries": stage}}))
    settings = load_settings(config)
    shown = repr(settings) + str(settings) + settings.model_dump_json() + repr(settings.model_dump())
    assert [s for s in SECRETS if s in shown] == []


def test_nothing_planted_is_in_the_log_of_the_node(secured: Secured) -> None:
    """A node logs slow or refused requests: none may carry a secret, also of the runs before this test."""
    log = secured.log.read_text("utf-8", "replace")
    assert [s for s in SECRETS if s in log] == []
