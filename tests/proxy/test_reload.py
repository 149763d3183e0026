"""SIGHUP: what is taken, what is refused, and what was served in between."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from proxy.asking import HOT, call, match, search, settings
from proxy.running import RawNode, Running

Start = Callable[..., Running]


def reloads(proxy: Running, result: str) -> int:
    page = call(f"{proxy.url}/_sira/metrics").body.decode().splitlines()
    name = f'sira_reloads_total{{result="{result}"}} '
    return sum(int(float(line.removeprefix(name))) for line in page if line.startswith(name))


def reload(proxy: Running, result: str) -> None:
    before = reloads(proxy, result)
    proxy.signal(signal.SIGHUP)
    give_up = time.monotonic() + 20
    while reloads(proxy, result) == before:
        assert time.monotonic() < give_up
        time.sleep(0.05)


def next_line(proxy: Running, after: int) -> str:
    """The one line for people that follows so many lines; it is read by another thread, which may come late."""
    give_up = time.monotonic() + 10
    while not (told := [line for line in proxy.lines[after:] if not line.startswith("{")]):
        assert time.monotonic() < give_up
        time.sleep(0.02)
    (only,) = told
    return only


def test_a_configuration_that_is_gone_or_holds_no_index_any_more_changes_nothing(
    start: Start, node_url: str, index: str, recorded: str
) -> None:
    proxy = start(settings(node_url, index), "--recorded", recorded)
    content = proxy.config.read_text()
    for wrong in (None, "", "# nothing\n", f"cluster: {{url: '{node_url}'}}\nindices: {{}}\n"):
        proxy.config.unlink() if wrong is None else proxy.config.write_text(wrong)
        said = len(proxy.lines)
        reload(proxy, "failed")
        assert "the configuration stays as it was: " in next_line(proxy, said)
        assert search(proxy.url, index, match(HOT)).expansion in {"applied", "cached"}
    proxy.config.write_text(content)
    Path(recorded).rename(f"{recorded}.gone")
    reload(proxy, "failed")
    assert search(proxy.url, index, match(HOT)).expansion in {"applied", "cached"}
    Path(f"{recorded}.gone").rename(recorded)
    reload(proxy, "done")
    assert proxy.wait_for(f"configuration read again: 1 index, the cluster at {node_url}")
    assert not any("nclosed" in line or "Traceback" in line for line in proxy.lines)


def test_a_file_in_the_default_place_that_is_gone_changes_no_cluster(tmp_path: Path) -> None:
    with RawNode() as node:
        file = tmp_path / "sira-es.yml"
        file.write_text(f"cluster: {{url: '{node.url}'}}\n")
        command = [sys.executable, "-m", "sira_es", "proxy", "--listen", "127.0.0.1:0"]
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            line = next(line for line in process.stderr if " in front of " in line)
            url = line.split(" in front of ")[0].removeprefix("sira-es: ")
            assert call(f"{url}/_sira/health/live").status == 200
            for gone in (True, False):
                file.unlink() if gone else file.write_text("")
                process.send_signal(signal.SIGHUP)
                said = next(line for line in process.stderr if not line.startswith("{"))
                assert "the configuration stays as it was: " in said
                assert call(f"{url}/_cat/health").status == 200
            process.terminate()


def test_what_was_served_stays_served_where_the_settings_of_the_index_stay(
    start: Start, node_url: str, index: str, recorded: str
) -> None:
    for workers in ("1", "2"):
        content = settings(node_url, index)
        proxy = start(content, "--recorded", recorded, "--workers", workers)
        assert search(proxy.url, index, match(HOT)).expansion == "applied"
        proxy.write({**content, "indices": {**content["indices"], "another": {"text_fields": ["title"]}}})
        reload(proxy, "done")
        assert {search(proxy.url, index, match(HOT)).expansion for _ in range(6)} == {"cached"}
        content["indices"][index]["text_fields"] = ["title^2", "text"]
        proxy.write(content)
        reload(proxy, "done")
        time.sleep(1)  # for the other process
        assert search(proxy.url, index, match(HOT)).expansion == "applied"
        proxy.stop()
