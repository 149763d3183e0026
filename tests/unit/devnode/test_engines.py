"""The table of engines, and what repeats it elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sira_es.devnode import ENGINES, Engine
from sira_es.devnode.engines import engine_named
from sira_es.errors import ConfigurationError

DOCKER = Path(__file__).parents[3] / "docker"


def test_an_unknown_engine_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"'es6'.*os2, os3, es7, es8, es9"):
        engine_named("es6")


def test_all_engines_can_run_at_once() -> None:
    ports = [port for row in ENGINES.values() for port in (row.port, row.port + 100)]
    assert len(set(ports)) == len(ports)


@pytest.mark.parametrize("row", ENGINES.values(), ids=lambda row: row.name)
def test_the_compose_file_of_an_engine_has_its_version_and_port(row: Engine) -> None:
    compose = yaml.safe_load((DOCKER / f"compose-{row.family}{row.version.partition('.')[0]}.yml").read_text("utf-8"))
    node = compose["services"]["node"]
    assert node["image"].endswith(f"/{row.family}:{row.version}")
    assert node["ports"] == [f"127.0.0.1:{row.port}:9200"]
