"""What a machine must offer, and what is said when it does not."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from pathlib import Path

import pytest

from sira_es.devnode import NodeError, ToolMissingError, home, place
from sira_es.errors import ConfigurationError


def make_jdk(folder: Path, version: str, *, tools: tuple[str, ...] = ("java", "javac"), release: bool = True) -> Path:
    (folder / "bin").mkdir(parents=True)
    for tool in tools:
        (folder / "bin" / tool).write_text(f"#!/bin/sh\necho {tool} {version}\n")
        (folder / "bin" / tool).chmod(0o755)
    if release:
        (folder / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.fixture
def jvm(tmp_path: Path) -> Path:
    for version in ("1.8.0_402", "11.0.2", "17.0.15", "21.0.1", "25"):
        make_jdk(tmp_path / "jvm" / f"jdk-{version}", version)
    return tmp_path / "jvm"


@pytest.mark.parametrize(
    ("versions", "feature"), [((17, None), 17), ((18, None), 21), ((21, 23), 21), ((22, None), 25), ((8, 8), 8)]
)
def test_the_lowest_jdk_that_suffices_is_taken(jvm: Path, versions: tuple[int, int | None], feature: int) -> None:
    assert place.find_jdk(versions, environ={}, patterns=[f"{jvm}/*"]).feature == feature


def test_java_home_wins_among_equals(jvm: Path, tmp_path: Path) -> None:
    own = make_jdk(tmp_path / "own", "17.0.1")
    assert place.find_jdk((17, None), environ={"JAVA_HOME": str(own)}, patterns=[f"{jvm}/*"]).folder == own


def test_the_java_of_the_path_is_followed_to_its_jdk(tmp_path: Path) -> None:
    jdk = make_jdk(tmp_path / "jdk", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(jdk / "bin" / "java")
    assert place.find_jdk((17, None), environ={"PATH": str(tmp_path / "bin")}, patterns=[]).folder == jdk.resolve()


def test_a_jdk_without_a_release_file_is_asked_for_its_version(tmp_path: Path) -> None:
    make_jdk(tmp_path / "jdk", "17.0.9", release=False)
    assert place.find_jdk((17, None), environ={}, patterns=[f"{tmp_path}/*"]).feature == 17


def test_a_runtime_without_compiler_is_no_jdk(tmp_path: Path) -> None:
    make_jdk(tmp_path / "jre", "17.0.1", tools=("java",))
    with pytest.raises(ToolMissingError, match="no JDK 17 or newer"):
        place.find_jdk((17, None), environ={}, patterns=[f"{tmp_path}/*"])


def test_a_missing_jdk_is_reported_with_what_was_found_and_the_remedy(jvm: Path) -> None:
    with pytest.raises(ToolMissingError) as missing:
        place.find_jdk((22, 24), environ={}, patterns=[f"{jvm}/*"])
    assert "no JDK from 22 to 24" in str(missing.value)
    assert "found only JDK 11, JDK 17, JDK 21, JDK 25, JDK 8" in str(missing.value)
    assert "install one" in str(missing.value)
    assert "\n" not in str(missing.value)


def test_a_missing_maven_is_reported_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ToolMissingError, match="apt install maven"):
        place.find_maven({"PATH": str(tmp_path)})


def test_maven_is_found_in_its_own_folder(tmp_path: Path) -> None:
    mvn = tmp_path / "bin" / "mvn"
    mvn.parent.mkdir()
    mvn.touch(mode=0o755)
    assert place.find_maven({"PATH": "", "MAVEN_HOME": str(tmp_path)}) == mvn


def test_nodes_are_kept_where_the_user_says() -> None:
    assert home({"SIRA_ES_DEV_HOME": "/somewhere", "XDG_CACHE_HOME": "/cache"}) == Path("/somewhere")


def test_nodes_are_kept_in_the_cache_folder() -> None:
    assert home({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/sira-es/nodes")


def test_without_any_setting_root_keeps_nodes_where_another_account_may_enter() -> None:
    expected = Path("/var/cache") if os.geteuid() == 0 else Path("~/.cache").expanduser()
    assert home({}) == expected / "sira-es" / "nodes"


def test_too_little_free_space_is_an_error_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(NodeError, match=r"disk of .* is full \(\d+ MB free, \d+ MB needed\): free some space"):
        place.check_space(tmp_path, needed=1 << 62)


def test_enough_free_space_is_no_error(tmp_path: Path) -> None:
    place.check_space(tmp_path, needed=1)


@pytest.mark.parametrize(
    ("number", "message"),
    [(errno.ENOSPC, "is full"), (errno.EACCES, "cannot use /x/y"), (errno.ENOTDIR, "cannot use /x/y")],
)
def test_a_failure_to_write_is_one_line_with_a_remedy(number: int, message: str) -> None:
    with pytest.raises(NodeError, match=message) as failure, place.disk_errors_of(Path("/x")):
        raise OSError(number, os.strerror(number), "/x/y")
    assert "SIRA_ES_DEV_HOME" in str(failure.value)


def test_a_taken_port_is_named_with_the_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(NodeError, match=rf"port {port} on 127.0.0.1 is taken .* choose another --port"):
            place.check_port(port)


def test_a_taken_transport_port_is_found_too() -> None:
    port = place.free_port()
    with (
        socket.create_server(("127.0.0.1", port + 100)),
        pytest.raises(NodeError, match=f"port {port + 100} on 127.0.0.1 is taken"),
    ):
        place.check_port(port)


@pytest.mark.parametrize("port", [-1, 65436, 70000])
def test_a_port_that_cannot_be_is_wrong_use(port: int) -> None:
    with pytest.raises(ConfigurationError, match="choose one from 1 to 65435"):
        place.check_port(port)


def test_a_free_port_can_be_used_together_with_its_transport_port() -> None:
    place.check_port(place.free_port())


def test_a_lock_keeps_others_out_also_when_its_holder_deletes_the_file(tmp_path: Path) -> None:
    path, events = tmp_path / ".lock", []

    def work(number: int) -> None:
        with place.locked(path):
            events.append(("in", number))
            time.sleep(0.02)
            events.append(("out", number))
            path.unlink()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [kind for kind, _ in events] == ["in", "out"] * 8
    assert all(events[i][1] == events[i + 1][1] for i in range(0, 16, 2))
