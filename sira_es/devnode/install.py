"""Distributions: fetched from Maven once, made ready to start, shared by all nodes of one version."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path

from .engines import Engine
from .place import Jdk, NodeError, disk_full, find_maven, locked

__all__ = ["distribution", "source"]

_DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
_SOURCES = {"opensearch": "pom.xml", "elasticsearch": "LiteAnalysisPlugin.java"}


def source(name: str) -> bytes:
    """One of the files beside this module, from a checkout or a wheel."""
    return (resources.files(__package__) / name).read_bytes()


def distribution(engine: Engine, jdk: Jdk, home: Path, progress: Callable[[str], None]) -> Path:
    """The folder of the engine's distribution, fetched if need be; raises NodeError, ToolMissingError, OSError."""
    digest = hashlib.sha256(source(_SOURCES[engine.family])).hexdigest()[:8]
    folder = home / "distributions" / f"{engine.family}-{engine.version}-{digest}"
    with locked(folder.parent / f".{folder.name}.lock"):
        if not folder.is_dir():
            progress(f"fetching {engine.title} with Maven (50-100 MB, once)")
            partial = folder.parent / f".{folder.name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            try:
                (_opensearch if engine.family == "opensearch" else _elasticsearch)(engine, jdk, partial)
                partial.rename(folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return folder


def _opensearch(engine: Engine, jdk: Jdk, folder: Path) -> None:
    (folder / "pom.xml").write_bytes(source("pom.xml"))
    options = ["-f", str(folder / "pom.xml"), f"-Dengine.version={engine.version}", "-DincludeScope=runtime"]
    _maven(
        "copy-dependencies", *options, f"-DoutputDirectory={folder / 'lib'}", jdk=jdk, folder=folder, what=engine.title
    )


def _elasticsearch(engine: Engine, jdk: Jdk, folder: Path) -> None:
    artifact = f"org.elasticsearch.distribution.integ-test-zip:elasticsearch:{engine.version}:zip"
    _maven("copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}", jdk=jdk, folder=folder, what=engine.title)
    archive = folder / f"elasticsearch-{engine.version}.zip"
    _unpack(archive, folder)
    archive.unlink()
    _analysis_plugin(engine, jdk, folder)


def _maven(goal: str, *options: str, jdk: Jdk, folder: Path, what: str) -> None:
    command: list[str | Path] = [find_maven(), "-q", "-B", f"{_DEPENDENCY_PLUGIN}:{goal}", *options]
    environment = os.environ | {"JAVA_HOME": str(jdk.folder)}
    run = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, check=False)  # noqa: S603
    if run.returncode:
        output = (run.stdout + run.stderr).splitlines()
        if any("No space left on device" in line for line in output):
            raise disk_full(folder, "or that of Maven's repository, ~/.m2")
        reason = next((line for line in output if line.startswith("[ERROR]")), (output or ["no message"])[-1])
        raise NodeError(
            f"Maven could not fetch {what}: {reason.removeprefix('[ERROR]').strip()[:300]}; "
            "check the network, the proxy and the mirrors in ~/.m2/settings.xml"
        )


def _unpack(archive: Path, folder: Path) -> None:
    """Unpacks a zip without its top folder, keeping which files are executable."""
    with zipfile.ZipFile(archive) as content:
        for entry in content.infolist():
            inner = entry.filename.partition("/")[2]
            if not inner:
                continue
            entry.filename = inner
            content.extract(entry, folder)
            if mode := entry.external_attr >> 16 & 0o777:
                (folder / inner).chmod(mode)


def _analysis_plugin(engine: Engine, jdk: Jdk, folder: Path) -> None:
    """Compiles the analysis plugin against the server's own jars, for the oldest Java that runs this engine."""
    plugin = folder / "plugins" / "lite-analysis"
    plugin.mkdir(parents=True)
    code = plugin / "LiteAnalysisPlugin.java"
    code.write_bytes(source(code.name))
    classes = plugin / "classes"
    _javac(jdk, ["--release", str(engine.jdk[0]), "-cp", f"{folder / 'lib'}/*", "-d", str(classes), str(code)])
    with zipfile.ZipFile(plugin / "lite-analysis.jar", "w") as jar:
        for file in sorted(classes.rglob("*.class")):
            jar.write(file, file.relative_to(classes).as_posix())
    shutil.rmtree(classes)
    code.unlink()
    descriptor = {
        "name": "lite-analysis",
        "description": "the english analyzer and what the security index needs",
        "version": "1",
        "classname": "LiteAnalysisPlugin",
        "java.version": str(engine.jdk[0]),
        "elasticsearch.version": engine.version,
    }
    lines = "".join(f"{key}={value}\n" for key, value in descriptor.items())
    (plugin / "plugin-descriptor.properties").write_text(lines, "utf-8")


def _javac(jdk: Jdk, arguments: Sequence[str]) -> None:
    command: list[str | Path] = [jdk.javac, *arguments]
    run = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)  # noqa: S603
    if run.returncode:
        reason = next((line for line in run.stderr.splitlines() if "error" in line), "no message")
        raise NodeError(
            f"{jdk.javac} could not compile the analysis plugin: {reason[:300]}; try another JDK (JAVA_HOME)"
        )
