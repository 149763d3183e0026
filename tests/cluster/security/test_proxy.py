"""The proxy before a cluster with security: everybody is who he is, sees what he may see, and nothing passes between two."""

from __future__ import annotations

import base64
import json
import secrets
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from cluster.security.conftest import PASSWORD, Secured
from cluster.security.test_document_security import ANSWER, MAPPINGS, OPEN, QUERY
from cluster.wire import Wire
from proxy.asking import Got
from proxy.running import Running, proxies
from tests.model_server import ModelServer

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
ADMIN = f"admin:{PASSWORD}"
SECRET = 15
"""In so many documents "classified" occurs, all of them hidden from the reader."""
HIDDEN = [
    *[{"text": "classified project, laptop with a fan", "group": "board"}] * SECRET,
    *[{"text": "a page of the board", "group": "board"}] * 45,
]
SEARCH = {"query": {"match": {"text": QUERY}}, "size": 100}
Start = Callable[..., Running]


@pytest.fixture(scope="module")
def index(secured: Secured) -> Iterator[str]:
    """All documents; `-open` holds the open ones alone."""
    name = f"test-proxy-{secrets.token_hex(4)}"
    names = (name, f"{name}-open")
    for one, documents in zip(names, (OPEN + HIDDEN, OPEN), strict=True):
        shards = {"number_of_shards": 1, "number_of_replicas": 0}
        secured.call("PUT", f"/{one}", {"settings": shards, "mappings": MAPPINGS})
        lines = [part for i, d in enumerate(documents) for part in ({"index": {"_index": one, "_id": str(i)}}, d)]
        secured.call("POST", "/_bulk?refresh=true", lines=lines)
    yield name
    for one in names:
        secured.call("DELETE", f"/{one}")


@pytest.fixture(scope="module")
def reader(secured: Secured, index: str) -> str:
    """A user who sees the open documents alone."""
    privileges = ["read", "view_index_metadata"]
    seen = json.dumps({"term": {"group": "open"}})
    secured.role("proxy-open", {"indices": [{"names": [f"{index}*"], "privileges": privileges, "query": seen}]})
    return secured.user("proxy-open", "proxy-open")


@pytest.fixture(scope="module")
def stranger(secured: Secured) -> str:
    """A user who may search nothing."""
    return secured.user("proxy-stranger")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with proxies(tmp_path) as run:
        yield run


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    file = tmp_path / "answers.jsonl"
    file.write_text(json.dumps({"id": QUERY, "answer": json.dumps(ANSWER)}) + "\n")
    return str(file)


def settings(secured: Secured, index: str, **cluster: Any) -> dict[str, Any]:
    one = {"text_fields": ["text"], "language": "en"}
    trusted = {"url": secured.url, "ca_certs": str(secured.certificates.ca)}
    return {"cluster": {**trusted, **cluster}, "indices": {index: one, f"{index}-open": one}}


def ask(secured: Secured, url: str, path: str, body: Any = None, user: str = "", **headers: str) -> Got:
    """One request to the node or to a proxy, with nothing of ours; refusals too."""
    sent = {"content-type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    if user:
        sent["authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{url}{path}", data, sent, method="GET" if body is None else "POST")
    context = ssl.create_default_context(cafile=str(secured.certificates.ca))
    handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)]
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=60) as answer:
            return Got(answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Got(error.code, {k.lower(): v for k, v in error.headers.items()}, error.read())


def bare(got: Got) -> tuple[int, dict[str, str], bytes]:
    other = {"x-sira-expansion", "server-timing", "connection"}
    return got.status, {k: v for k, v in got.headers.items() if k not in other}, got.body


async def test_a_caller_searches_with_his_own_credentials(
    secured: Secured, index: str, reader: str, start: Start, recorded: str
) -> None:
    """elastic/kibana#26651: the proxy has none of its own, and each caller finds what he finds at the cluster."""
    proxy = start(settings(secured, index), "--recorded", recorded)
    for user, total in ((ADMIN, None), (reader, {"open"})):
        plain = ask(secured, secured.url, f"/{index}/_search", SEARCH, user)
        better = ask(secured, proxy.url, f"/{index}/_search", SEARCH, user)
        assert (better.status, better.expansion) == (200, "applied")
        assert better.json["hits"]["total"] == plain.json["hits"]["total"]
        assert sorted(better.ids) == sorted(plain.ids)
        groups = {h["_source"]["group"] for h in better.json["hits"]["hits"]}
        assert total is None or groups == total
    assert not any(PASSWORD in line or reader in line or "Basic" in line for line in proxy.lines)


async def test_credentials_that_are_wrong_or_lacking_get_the_clusters_own_answer(
    secured: Secured, index: str, start: Start, recorded: str
) -> None:
    """elastic/logstash-filter-elasticsearch#148: also where the proxy has credentials, they are lent to nobody."""
    own = start(settings(secured, index, basic_auth=ADMIN), "--recorded", recorded)
    none = start(settings(secured, index), "--recorded", recorded)
    for path, body in ((f"/{index}/_search", SEARCH), (f"/{index}/_doc/1", None), ("/_cat/indices", None)):
        for user in ("admin:planted-wrong", ""):
            plain = ask(secured, secured.url, path, body, user)
            assert plain.status == 401
            assert "www-authenticate" in plain.headers
            for proxy in (own, none):
                assert bare(ask(secured, proxy.url, path, body, user)) == bare(plain)


async def test_who_may_not_search_the_index_gets_the_clusters_own_answer_and_no_model_is_asked(
    secured: Secured, index: str, stranger: str, start: Start
) -> None:
    with ModelServer({QUERY: json.dumps(ANSWER)}) as model:
        content = settings(secured, index, basic_auth=ADMIN)
        content["llm"] = {"queries": {"model": "openai/tiny", "api_base": model.api_base, "api_key": "x"}}
        proxy = start(content)
        plain = ask(secured, secured.url, f"/{index}/_search", SEARCH, stranger)
        assert plain.status == 403
        assert bare(ask(secured, proxy.url, f"/{index}/_search", SEARCH, stranger)) == bare(plain)
        assert ask(secured, proxy.url, f"/_sira/expand?index={index}&q=hot+laptop", None, stranger).status != 200
        assert not model.calls


async def test_what_others_wrote_makes_no_expansion_for_who_may_not_see_it(
    secured: Secured, index: str, reader: str, start: Start, recorded: str
) -> None:
    """opensearch-project/security#1579, elastic/elasticsearch#90701: words, figures and bytes are those of his documents."""
    for own in ({}, {"basic_auth": ADMIN}):
        proxy = start(settings(secured, index, **own), "--recorded", recorded)
        page = f"/_sira/expand?index={index}&q=hot+laptop"
        hidden = ask(secured, proxy.url, page, None, reader)
        alone = ask(secured, proxy.url, page.replace(index, f"{index}-open"), None, ADMIN)
        everything = ask(secured, proxy.url, page, None, ADMIN)

        def figures(got: Got) -> dict[str, tuple[Any, ...]]:
            return {t["word"]: (t["df"], t["verdict"], t["boost"]) for t in got.json["terms"]}

        assert figures(hidden) == figures(alone)
        assert figures(hidden)["classified"][0] == 0
        assert figures(everything)["classified"][0] == SECRET


@pytest.fixture
async def wire(secured: Secured, anyio_backend: str) -> AsyncIterator[Wire]:
    async with Wire(secured.url) as running:
        yield running


@pytest.mark.parametrize("first", ["admin", "reader"])
async def test_nothing_that_is_remembered_is_shared(
    secured: Secured, index: str, reader: str, start: Start, recorded: str, wire: Wire, first: str
) -> None:
    """The same text of two callers, whoever comes first: each search is made from what its caller may see."""
    content = settings(secured, index)
    content["cluster"] = {"url": wire.url}
    proxy = await anyio.to_thread.run_sync(lambda: start(content, "--recorded", recorded))
    order = [("admin", ADMIN), ("reader", reader)]
    sent: dict[str, bytes] = {}
    for state in ("applied", "cached"):
        for name, user in order if first == "admin" else order[::-1]:
            wire.clear()
            got = await anyio.to_thread.run_sync(
                lambda user=user: ask(secured, proxy.url, f"/{index}/_search", SEARCH, user)
            )
            assert got.expansion == state, name
            sent[name] = wire.requests(f"/{index}/_search")[-1].body
    assert b"classified" in sent["admin"]
    assert b"classified" not in sent["reader"]
    assert b"notebook" in sent["reader"]


async def test_keys_tokens_and_run_as_pass_and_decide_what_is_seen(
    secured: Secured, index: str, reader: str, start: Start, recorded: str
) -> None:
    """elastic/kibana#26651: ApiKey, Bearer and run-as headers, also on look-ups of our own."""
    proxy = start(settings(secured, index), "--recorded", recorded)
    name, _, password = reader.partition(":")
    key = secured.call("POST", "/_security/api_key", {"name": "ours"})
    grant = {"grant_type": "password", "username": name, "password": password}
    token = secured.call("POST", "/_security/oauth2/token", grant)["access_token"]
    encoded = base64.b64encode(f"{key['id']}:{key['api_key']}".encode()).decode()
    cases: list[tuple[dict[str, str], str, set[str]]] = [
        ({"authorization": f"ApiKey {encoded}"}, "", {"open", "board"}),
        ({"authorization": f"Bearer {token}"}, "", {"open"}),
        ({"es_security_runas_user": name}, ADMIN, {"open"}),
    ]
    for headers, user, groups in cases:
        got = ask(secured, proxy.url, f"/{index}/_search", SEARCH, user, **headers)
        assert (got.status, got.expansion) == (200, "applied")
        assert {h["_source"]["group"] for h in got.json["hits"]["hits"]} == groups


async def test_a_certificate_of_the_proxy_signs_in_who_has_no_credentials_and_nobody_else(
    secured: Secured, index: str, reader: str, start: Start, recorded: str
) -> None:
    mapping = {"roles": ["superuser"], "enabled": True, "rules": {"field": {"username": "cert-user"}}}
    secured.call("PUT", "/_security/role_mapping/certificates", mapping)
    files = secured.certificates
    certificate = {"client_cert": str(files.client), "client_key": str(files.client_key)}
    proxy = start(settings(secured, index, **certificate), "--recorded", recorded)
    found = {
        user: {
            h["_source"]["group"]
            for h in ask(secured, proxy.url, f"/{index}/_search", SEARCH, user).json["hits"]["hits"]
        }
        for user in ("", reader)
    }
    assert found == {"": {"open", "board"}, reader: {"open"}}
    assert ask(secured, proxy.url, f"/{index}/_search", SEARCH, "admin:planted-wrong").status == 401


async def test_a_cluster_whose_authority_is_another_is_a_502_that_says_so(
    secured: Secured, index: str, start: Start
) -> None:
    proxy = start({"cluster": {"url": secured.url, "ca_certs": str(secured.certificates.stranger)}})
    got = ask(secured, proxy.url, f"/{index}/_search", SEARCH, ADMIN)
    assert (got.status, got.json["error"]["type"]) == (502, "sira_upstream_unreachable")
    assert "its certificate is not trusted" in got.json["error"]["reason"]
    known = start({"cluster": {"url": secured.url, "fingerprint": secured.certificates.fingerprint}})
    assert ask(secured, known.url, f"/{index}/_search", SEARCH, ADMIN).status == 200
