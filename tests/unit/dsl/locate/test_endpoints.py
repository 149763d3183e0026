"""Which requests are searches that may be rewritten, by method and target alone."""

from __future__ import annotations

import pytest

from sira_es.dsl.endpoint import Endpoint, endpoint


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/_search", Endpoint("search", "", {})),
        ("/shop/_search", Endpoint("search", "shop", {})),
        ("/shop,faq*/_search?size=5&sort=a%3Aasc", Endpoint("search", "shop,faq*", {"size": "5", "sort": "a:asc"})),
        ("/%3Clogs-%7Bnow%7D%3E/_search?explain", Endpoint("search", "<logs-{now}>", {"explain": ""})),
        ("/shop/_search?pretty;explain=true&x=%3B", Endpoint("search", "shop", {"pretty": "", "explain": "true", "x": ";"})),
        ("/_all/_search", Endpoint("search", "_all", {})),
        ("/shop/_msearch?", Endpoint("msearch", "shop", {})),
        ("/shop/_count", Endpoint("count", "shop", {"size": "0"})),
    ],
)  # fmt: skip
def test_searches_are_known_by_their_path(target: str, expected: Endpoint) -> None:
    assert endpoint("POST", target) == endpoint("GET", target) == expected


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/shop",
        "/shop/_doc/1",
        "/_search/scroll",
        "/shop/_search/template",
        "/_msearch/template",
        "/shop/_search/point_in_time",
        "/shop/_async_search",
        "/_sql",
        "/_query",
        "/_plugins/_ppl",
        "/shop/_update_by_query",
        "/shop/_delete_by_query",
        "/shop/_explain/1",
        "/shop/_validate/query",
        "/shop/product/_search",
        "/_cat/_count",
        "/_application/_search",
    ],
)
def test_everything_else_is_left_alone(target: str) -> None:
    assert endpoint("POST", target) is None


@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD", "OPTIONS"])
def test_other_methods_are_left_alone(method: str) -> None:
    assert endpoint(method, "/shop/_search") is None
