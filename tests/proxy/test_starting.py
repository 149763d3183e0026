"""What cannot be served ends the start: one line, exit code 2."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from proxy.asking import call
from proxy.running import OK, RawNode, Running

Start = Callable[..., Running]
INDEX = {"docs": {"text_fields": ["title"]}}


def ended(folder: Path, content: dict[str, object], *options: str) -> tuple[int, list[str]]:
    """Exit code and lines of a proxy that does not start."""
    config = folder / "sira-es.yml"
    config.write_text(yaml.safe_dump({"state": str(folder / "state"), **content}))
    command = [sys.executable, "-m", "sira_es", "proxy", "-c", str(config), "--listen", "127.0.0.1:0", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_state_folder_or_recorded_answers_that_cannot_be_used(tmp_path: Path, workers: str) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    model = {"queries": {"model": "openai/tiny", "api_key": "x"}}
    with RawNode() as node:
        base: dict[str, object] = {"cluster": {"url": node.url}, "indices": INDEX}
        unusable = {**base, "llm": model, "state": str(file / "state")}
        for content, options, said in (
            (unusable, (), str(file / "state")),
            (base, ("--recorded", str(tmp_path / "none.jsonl")), "none.jsonl"),
            (base, ("--recorded", str(file)), f"{file} line 1"),
            ({**base, "state": str(file / "state")}, ("--shadow", "5%"), str(file / "state")),
        ):
            code, lines = ended(tmp_path, content, *options, "--workers", workers)
            assert (code, len(lines)) == (2, 1), lines
            assert said in lines[0]


def test_a_key_without_a_certificate(tmp_path: Path) -> None:
    code, lines = ended(tmp_path, {}, "--tls-key", str(tmp_path / "key.pem"))
    assert (code, len(lines)) == (2, 1)
    assert "--tls-cert" in lines[0]


def test_a_model_that_there_is_not_leaves_the_proxy_ready(start: Start) -> None:
    """Searches are served without its words, and one line says so."""
    with RawNode(OK.replace(b"{}", b"")) as node:
        content = {"cluster": {"url": node.url}, "indices": INDEX, "llm": {"queries": {"model": "nobody/tiny"}}}
        proxy = start(content)
        assert call(f"{proxy.url}/_sira/health/ready").status == 200
        assert "model nobody/tiny does not exist there; check the name" in proxy.wait_for("without words")
        assert not any("Traceback" in line for line in proxy.lines)


@pytest.mark.parametrize(("listen", "host"), [("{}", "127.0.0.1"), (":{}", "0.0.0.0"), ("[::1]:{}", "[::1]")])
def test_a_port_alone_is_served_to_this_machine_only(start: Start, listen: str, host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with RawNode() as node:
        proxy = start({"cluster": {"url": node.url}}, "--listen", listen.format(port))
        assert proxy.url == f"http://{host}:{port}"


def test_figures_of_several_processes_leave_no_folder_behind(start: Start) -> None:
    temporary = Path(tempfile.gettempdir())
    before = set(temporary.glob("sira-es-metrics-*"))
    with RawNode() as node:
        proxy = start({"cluster": {"url": node.url}}, "--workers", "2")
        assert call(f"{proxy.url}/_sira/metrics").status == 200
        assert set(temporary.glob("sira-es-metrics-*")) - before
        assert proxy.stop() == 0
    assert not set(temporary.glob("sira-es-metrics-*")) - before
