"""What is concluded from a cluster's first answers, and what each version can do."""

from __future__ import annotations

from typing import Any

import pytest

from sira_es.cluster.engine import Clues, Engine, version_of

ELASTIC = {"x-elastic-product": "Elasticsearch"}


def concluded(*answers: tuple[str, int, dict[str, str], Any]) -> Engine | None:
    clues = Clues()
    for answer in answers:
        clues.add(*answer)
    return clues.engine(last=len(answers) == 3)


def root(number: str, **version: str) -> dict[str, Any]:
    return {"version": {"number": number, **version}}


REFUSED = ("/", 405, {}, {"error": "no handler"})
NODES_REFUSED = ("/_nodes/_local", 403, {}, {"error": {"type": "security_exception"}})
SEARCHED = ("/_search", 200, {}, {"took": 1})


@pytest.mark.parametrize(
    ("answers", "engine"),
    [
        ([("/", 200, {}, root("2.19.6", distribution="opensearch"))], "OpenSearch 2.19.6"),
        ([("/", 200, ELASTIC, root("8.19.7"))], "Elasticsearch 8.19.7"),
        ([("/", 200, {}, root("7.10.2", build_flavor="oss"))], "Elasticsearch 7.10.2"),
        ([REFUSED, ("/_nodes/_local", 200, {}, {"nodes": {"a": {"version": "2.19.6"}}})], "OpenSearch 2.19.6"),
        ([REFUSED, ("/_nodes/_local", 200, ELASTIC, {"nodes": {"a": {"version": "9.2.0"}}})], "Elasticsearch 9.2.0"),
        ([("/", 405, {"x-opensearch-version": "OpenSearch/3.8.0 (opensearch)"}, None)], None),
        ([REFUSED, NODES_REFUSED, SEARCHED], "OpenSearch (version unknown)"),
        ([REFUSED, NODES_REFUSED, ("/_search", 403, ELASTIC, {})], "Elasticsearch (version unknown)"),
        ([REFUSED, NODES_REFUSED, ("/_search", 404, {}, {"error": "no"})], "None"),
        ([("/", 200, {}, "<html>"), ("/_nodes/_local", 200, {}, []), ("/_search", 200, {}, None)], "None"),
        ([("/", 200, {}, root("7.10.2", distribution="opensearch"))], "None"),
        (
            [("/", 200, {}, root("7.10.2", distribution="opensearch")), NODES_REFUSED, SEARCHED],
            "OpenSearch (version unknown)",
        ),
        ([("/", 200, {}, {"version": "1.2.3"})], "None"),
        ([("/", 200, {}, root("weird"))], "None"),
    ],
)
def test_product_and_version(answers: list[tuple[str, int, dict[str, str], Any]], engine: str | None) -> None:
    if engine is None:  # the header alone is enough
        assert str(concluded(*answers)) == "OpenSearch 3.8.0"
    else:
        assert str(concluded(*answers)) == engine


def test_an_unknown_version_counts_on_points_in_time_but_not_on_what_only_some_versions_can() -> None:
    for engine in (Engine("elasticsearch", None), Engine("opensearch", None)):
        assert engine.can_point_in_time
        assert not engine.can_stable_slices


@pytest.mark.parametrize(
    ("engine", "stable_slices"),
    [
        (Engine("elasticsearch", (7, 17, 29)), False),
        (Engine("elasticsearch", (8, 19, 7)), False),
        (Engine("elasticsearch", (9, 2, 0)), False),
        (Engine("opensearch", (2, 19, 6)), True),
        (Engine("opensearch", (3, 8, 0)), True),
    ],
)
def test_capabilities_seen_on_real_nodes(engine: Engine, stable_slices: bool) -> None:
    assert engine.can_point_in_time
    assert engine.can_stable_slices == stable_slices


@pytest.mark.parametrize(
    ("engine", "media"),
    [
        (Engine("opensearch", (2, 19, 6)), "application/json"),
        (Engine("opensearch", None), "application/json"),
        (Engine("elasticsearch", (7, 10, 2)), "application/json"),
        (Engine("elasticsearch", (7, 17, 29)), "application/vnd.elasticsearch+json;compatible-with=8"),
        (Engine("elasticsearch", None), "application/vnd.elasticsearch+json;compatible-with=8"),
        (Engine("elasticsearch", (9, 2, 0)), "application/vnd.elasticsearch+json;compatible-with=9"),
    ],
)
def test_media_types(engine: Engine, media: str) -> None:
    assert engine.media_type("json") == media


@pytest.mark.parametrize(
    ("text", "version"),
    [("8.19.7", (8, 19, 7)), ("9.0.0-SNAPSHOT", (9, 0, 0)), ("8.1", None), ("", None), (None, None), (8, None)],
)
def test_versions_are_read_from_text(text: object, version: tuple[int, int, int] | None) -> None:
    assert version_of(text) == version
