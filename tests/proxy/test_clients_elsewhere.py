"""Official clients of other languages and versions, unmodified, through the proxy: they see what they see at the node itself.

Only the order of the hits of one search is another. Each client does so against a node of its own major version.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.asking import ANSWERS, call, fill, settings
from proxy.running import Running
from sira_es import devnode

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).parent / "clients"
JAVA = "elasticsearch-java"
CLIENTS = [
    ("os2", "@opensearch-project/opensearch", "@opensearch-project/opensearch@2"),
    ("os2", "@opensearch-project/opensearch", "@opensearch-project/opensearch@3"),
    ("es8", "@elastic/elasticsearch", "@elastic/elasticsearch@8"),
    ("es8", "elasticsearch", "elasticsearch>=8,<9"),
    ("es8", JAVA, "co.elastic.clients:elasticsearch-java:8.19.7"),
    ("es9", "@elastic/elasticsearch", "@elastic/elasticsearch@9"),
    ("es9", "elasticsearch", "elasticsearch>=9,<10"),
]


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest) -> Iterator[str]:
    """A node of the engine asked for; those of one engine are tested one after the other."""
    try:
        up = devnode.up(request.param, port=0, instance="clients")
    except devnode.ToolMissingError as missing:
        pytest.skip(str(missing))
    try:
        yield up.url
    finally:
        devnode.down(request.param, instance="clients", purge=True)


@pytest.fixture(scope="module")
def index(node: str) -> str:
    fill(node, "test-clients")
    return "test-clients"


@pytest.fixture(scope="module")
def proxy(node: str, index: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("clients")
    answers = folder / "answers.jsonl"
    answers.write_text("".join(json.dumps({"id": text, "answer": a}) + "\n" for text, a in ANSWERS.items()))
    with Running(folder, settings(node, index), "--recorded", str(answers)) as running:
        yield running


def installed(name: str, package: str, folder: Path) -> list[str]:
    """The command that runs the program of a client, whose package is installed into a folder."""
    if name == JAVA:
        need, project = ("mvn", "java"), folder / "java"
        install = ["mvn", "-q", "-B", "-f", str(project), "compile", "dependency:build-classpath"]
        install.append(f"-Dmdep.outputFile={folder / 'classpath'}")
        shutil.copytree(PROGRAMS / "java", project)
        run = ["java", f"@{folder / 'arguments'}", "Client"]
    elif name.startswith("@"):
        need, install = ("npm", "node"), ["npm", "install", "--no-audit", "--no-fund", package]
        run = ["node", shutil.copy(PROGRAMS / "client.mjs", folder), name]
    else:
        need, install = (), [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder / "lib"), package]
        run = [sys.executable, str(PROGRAMS / "client.py")]
    if missing := [tool for tool in need if shutil.which(tool) is None]:
        pytest.skip(f"no {missing[0]} on this machine")
    done = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        pytest.skip(f"{package} cannot be installed: {(done.stderr or done.stdout).strip()[-300:]}")
    if name == JAVA:
        classes = f"{project / 'target' / 'classes'}:{(folder / 'classpath').read_text().strip()}"
        (folder / "arguments").write_text(f'-cp "{classes}"')
    return run


def saw(command: list[str], url: str, index: str, folder: Path) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(folder / "lib"), "NODE_NO_WARNINGS": "1"}
    done = subprocess.run(
        [*command, url, index], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(("node", "name", "package"), CLIENTS, indirect=["node"], ids=[c[2] for c in CLIENTS])
def test_a_client_does_what_it_does_at_the_node(
    node: str, name: str, package: str, index: str, proxy: Running, tmp_path: Path
) -> None:
    """elastic/elasticsearch-py#1768, #2923: product check and media types pass through."""
    run = installed(name, package, tmp_path)
    direct, through = saw(run, node, index, tmp_path), saw(run, proxy.url, index, tmp_path)
    assert direct["first"] == direct["several"][0] == "hot"
    assert through["first"] == through["several"][0] == "fan"
    assert (through["helped"], through["scrolled"], through["count"]) == (300, 550, 550)
    for seen in (direct, through):
        del seen["first"], seen["several"][0]
    assert through == direct
    assert any(r.get("kind") == "passed" for r in proxy.requests)
    assert call(f"{proxy.url}/{index}/_count").status == 200
