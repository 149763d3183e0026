"""What is refused before anything is fetched or started, and what is known of nodes that do not run."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path

import pytest

from sira_es import devnode
from sira_es.devnode import NodeError, ToolMissingError, node
from sira_es.errors import ConfigurationError


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIRA_ES_DEV_HOME", str(tmp_path / "nodes"))
    return tmp_path / "nodes"


def record(place: Path, instance: str, engine: str) -> None:
    folder = place / "instances" / instance
    folder.mkdir(parents=True)
    content = {"engine": engine, "port": 9999, "settings": {}, "pid": os.getpid()}
    (folder / "node.json").write_text(json.dumps(content))


def test_a_taken_port_is_refused_before_anything_is_fetched(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(NodeError, match="is taken"):
        devnode.up("os2", other.getsockname()[1])
    assert not list((place / "distributions").iterdir())


def test_without_maven_nothing_is_left_half_made(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("MAVEN_HOME", raising=False)
    with pytest.raises(ToolMissingError):
        devnode.up("os2", 0)
    assert not [path for path in (place / "distributions").iterdir() if path.is_dir()]


@pytest.mark.skipif(shutil.which("java") is None, reason="no Java on this machine")
def test_a_failure_of_maven_is_one_line_with_its_reason(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "bin" / "mvn"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho '[ERROR] Could not transfer artifact: Connection refused'\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken.parent}:{os.environ['PATH']}")
    with pytest.raises(
        NodeError, match=r"could not fetch OpenSearch 2\.19\.6: Could not transfer.*; check the network"
    ):
        devnode.up("os2", 0)
    assert not [path for path in (place / "distributions").iterdir() if path.is_dir()]


@pytest.mark.parametrize("name", ["", "../x", "a b", "A", "-a", "x" * 65])
def test_an_instance_name_that_is_no_plain_word_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="instance name"):
        devnode.up("os2", 0, instance=name)


def test_the_name_of_another_engine_is_no_instance_name() -> None:
    with pytest.raises(ConfigurationError, match="another engine"):
        devnode.up("os2", 0, instance="es8")


def test_data_of_another_engine_is_not_opened(place: Path) -> None:
    record(place, "mine", "es8")
    with pytest.raises(ConfigurationError, match=r"holds data of Elasticsearch 8\.19\.7"):
        devnode.up("os2", 0, instance="mine")


def test_a_place_that_is_no_folder_is_one_line(place: Path) -> None:
    place.write_text("a file")
    with pytest.raises(NodeError, match="set SIRA_ES_DEV_HOME"):
        devnode.up("os2", 0)


def test_on_an_empty_machine_every_engine_is_stopped() -> None:
    assert [(line.engine, line.state, line.url, line.pid) for line in devnode.status()] == [
        (name, "stopped", None, None) for name in devnode.ENGINES
    ]


def test_a_record_left_by_a_crash_does_not_make_a_node_run(place: Path) -> None:
    record(place, "os2", "os2")
    assert devnode.status()[0].state == "stopped"
    assert not devnode.down("os2")


def test_a_stopped_instance_is_listed_until_it_is_purged(place: Path) -> None:
    record(place, "second", "os3")
    (place / "instances" / ".second.lock").touch()
    assert [(line.instance, line.engine) for line in devnode.status()[5:]] == [("second", "os3")]
    devnode.down("os3", purge=True, instance="second")
    assert len(devnode.status()) == 5


def test_ending_what_was_never_started_does_nothing(place: Path) -> None:
    assert not devnode.down("es9", purge=True)
    assert not place.exists()


def test_last_words_skip_stack_frames_and_stay_on_one_line(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    log.write_text("first\nException: no\n\tat a.b.C(C.java:1)\nCaused by: disk\n\tat d.E\n\t... 7 more\n\n")
    assert node._last_words(log) == "first | Exception: no | Caused by: disk"


def test_security_is_offered_where_the_server_has_it(place: Path) -> None:
    with pytest.raises(ConfigurationError, match="choose es7, es8 or es9"):
        node.up("os2", password="planted")


def test_the_password_of_a_node_is_in_no_repr_and_in_a_file_of_its_owner_alone(place: Path) -> None:
    instance = node._Instance(place, "secured")
    instance.folder.mkdir(parents=True)
    record = node._Record(devnode.ENGINES["es8"], 9999, {"xpack.security.http.ssl.enabled": "true"}, "planted")
    instance.write(record)
    assert "planted" not in repr(record)
    assert (instance.folder / "node.json").stat().st_mode & 0o077 == 0
    assert instance.read() == record
    assert record.url == "https://127.0.0.1:9999"
