"""The cluster and end-to-end tests on each engine, one node at a time, and the table of what came of it: docs/engines.md.

    python -m tests.matrix                  all engines, then the table
    python -m tests.matrix es8 os3          these, the table with the last results of the others
    python -m tests.matrix --table          the table alone

Results are kept as JUnit files in build/matrix, beside all that the tests printed and logged, which is searched for the
secrets that they plant. Exit code 1 where a test failed on any engine of the table, or a secret was found.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from sira_es import devnode

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "build" / "matrix"
TABLE = ROOT / "docs" / "engines.md"
RUNS = {"": ("-m", "not slow", "tests/cluster", "tests/end_to_end"), "-slow": ("-m", "slow", "tests/cluster")}
INSTANCE = "matrix"
SECRETS = ("planted-Pa55-word", "planted-s3cret", "sk-planted-model-key", "sk-planted-secret", "planted-aws-secret")


@dataclass
class Cell:
    """What came of a feature's tests on one engine."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


def run(engine: str) -> None:
    """Run the suites on a fresh node of one engine; their outcomes are in its JUnit files."""
    instance = f"{INSTANCE}-{engine}"
    node = devnode.up(engine, 0, lambda line: print(line, flush=True), instance=instance)  # noqa: T201
    environment = {**os.environ, "SIRA_ES_TEST_ENGINE": engine, "SIRA_ES_TEST_URL": node.url}
    RESULTS.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--log-level=DEBUG", "-p", "no:cacheprovider"]
    try:
        for suffix, arguments in RUNS.items():
            report = RESULTS / f"{engine}{suffix}.xml"
            whole = [*command, f"--junitxml={report}", *arguments]
            with report.with_suffix(".log").open("wb") as output:
                subprocess.run(whole, cwd=ROOT, env=environment, stdout=output, stderr=output, check=False)
    finally:
        devnode.down(engine, purge=True, instance=instance)


def read(engine: str) -> dict[str, Cell] | None:
    """Cells of one engine by test module; None where it was never run."""
    reports = [report for suffix in RUNS if (report := RESULTS / f"{engine}{suffix}.xml").exists()]
    if not reports:
        return None
    cells: dict[str, Cell] = defaultdict(Cell)
    for case in (case for report in reports for case in ElementTree.parse(report).iter("testcase")):
        cell = cells[module_of(case.get("classname", ""))]
        name = case.get("name", "")
        problem = case.find("failure") if case.find("failure") is not None else case.find("error")
        skipped = case.find("skipped")
        if problem is not None:
            cell.failed.append(name)
        elif skipped is not None:
            cell.skipped[reason_of(skipped.get("message", ""))].append(name)
        else:
            cell.passed += 1
    return cells


def secrets_shown(engine: str) -> list[str]:
    """Lines of what the tests printed and logged with a planted secret; the names of tests, which have some, aside."""
    found = []
    for suffix in RUNS:
        log = RESULTS / f"{engine}{suffix}.log"
        for line in log.read_text("utf-8", "replace").splitlines() if log.exists() else ():
            named = line.startswith(("PASSED ", "FAILED ", "ERROR ", "SKIPPED ", "____"))
            if not named and any(secret in line for secret in SECRETS):
                found.append(f"{engine}: {line[:200]}")
    return found


def module_of(classname: str) -> str:
    """`tests.cluster.test_scan` or `cluster.test_scan` -> `tests/cluster/test_scan.py`"""
    parts = classname.split(".")
    return "/".join(parts if parts[0] == "tests" else ["tests", *parts]) + ".py"


def reason_of(message: str) -> str:
    """Why a test was skipped, without the random names of indices in it."""
    words = message.split()
    return " ".join("..." if "test-" in word else word for word in words)


def feature(module: str) -> str:
    """What a module's tests are about: the first sentence of its docstring."""
    text = ast.get_docstring(ast.parse((ROOT / module).read_text("utf-8"))) or module
    return " ".join(text.split("\n\n")[0].split()).rstrip(".").replace("|", "\\|")


def table(found: dict[str, dict[str, Cell]]) -> str:
    """The page: a row for each feature, a column for each engine, the reasons of what is absent below."""
    modules = sorted({module for cells in found.values() for module in cells if (ROOT / module).exists()})
    titles = [devnode.ENGINES[e].title for e in found]
    notes: dict[str, int] = {}
    lines = [
        "# Engines",
        "",
        "Made by `python -m tests.matrix` from its last run: the tests of each feature on a real node of each engine.",
        'A number counts the tests that passed. "not on this engine" refers to the reasons below the table.',
        "",
        f"| feature | {' | '.join(titles)} |",
        f"|---|{'---|' * len(titles)}",
    ]
    for module in modules:
        cells = [shown(cells.get(module), notes) for cells in found.values()]
        lines.append(f"| {feature(module)} (`{module.removeprefix('tests/')}`) | {' | '.join(cells)} |")
    lines += ["", "Not on this engine, because:", ""]
    lines += [f"{number}. {reason}" for reason, number in notes.items()]
    return "\n".join(lines) + "\n"


def shown(cell: Cell | None, notes: dict[str, int]) -> str:
    if cell is None:
        return "not run"
    if cell.failed:
        return f"**FAILED**: {', '.join(cell.failed)}"
    absent = [
        f"{len(names)} not on this engine [{notes.setdefault(why, len(notes) + 1)}]"
        for why, names in cell.skipped.items()
    ]
    return ", ".join([f"passed {cell.passed}", *absent] if cell.passed else absent)


def main(arguments: list[str]) -> int:
    named = [a for a in arguments if a != "--table"]
    for engine in [] if "--table" in arguments else named or list(devnode.ENGINES):
        run(engine)
    found = {engine: cells for engine in devnode.ENGINES if (cells := read(engine)) is not None}
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(table(found), "utf-8")
    failures = [f"{e}: {m}: {name}" for e, cells in found.items() for m, c in cells.items() for name in c.failed]
    failures += [line for engine in found for line in secrets_shown(engine)]
    missing = [engine for engine in devnode.ENGINES if engine not in found]
    print("\n".join([*failures, f"{TABLE}: {len(failures)} failures"] + [f"never run: {e}" for e in missing]))  # noqa: T201
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
