"""Finding out who answers, asking it, and saying what is wrong when it does not answer or refuses."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.wire import Wire
from sira_es.cluster.connect import Cluster, cause_of, connect, loads
from sira_es.cluster.engine import clause_limit
from sira_es.errors import ClusterError, ClusterRefused, ClusterUnreachable, ConfigurationError, UnsupportedError
from sira_es.settings import ClusterSettings

pytestmark = pytest.mark.anyio
SECRET = "planted-s3cret"


def test_what_a_cluster_says_of_an_error_can_be_written_down_whatever_it_quotes() -> None:
    kind, reason = cause_of({"type": "a\ud800", "reason": "failed to parse [\udfff]\n"})
    assert f"{kind}: {reason}".encode() == b"a?: failed to parse [?]"


def test_an_answer_that_is_nested_without_end_is_no_json() -> None:
    with pytest.raises(ValueError, match="nested"):
        loads(b"[" * 100_000 + b"]" * 100_000)


@asynccontextmanager
async def connected(**settings: Any) -> AsyncIterator[Cluster]:
    cluster = await connect(ClusterSettings(**settings))
    try:
        yield cluster
    finally:
        await cluster.close()


async def refusal(action: Callable[[], Any]) -> str:
    with pytest.raises((ClusterError, ConfigurationError)) as caught:
        await action()
    text = str(caught.value)
    assert "\n" not in text
    assert SECRET not in text
    assert SECRET not in repr(caught.value)
    return text


# Who answers


async def test_the_product_and_version_are_those_that_the_node_itself_reports(cluster: Cluster) -> None:
    """One install for both families. [domainaware/parsedmarc#296, redhat-performance/cloud-governance#994,
    ResearchHub/researchhub-backend#1945: a client that refuses the other one]
    """
    nodes = await cluster.request("GET", "/_nodes/_local", params={"filter_path": "nodes.*.version"})
    reported = next(iter(nodes["nodes"].values()))["version"]
    assert str(cluster.engine).endswith(f" {reported}")
    assert (cluster.engine.family == "opensearch") == (int(reported.split(".")[0]) < 5)


@pytest.mark.parametrize("status", [403, 404, 405])
async def test_product_and_version_are_found_where_the_root_page_is_refused(
    wire: Wire, cluster: Cluster, status: int
) -> None:
    wire.on("/", status=status, body={"error": "no handler", "status": status})
    async with connected(url=wire.url) as through:
        assert through.engine == cluster.engine
        assert (await through.request("GET", "/_count"))["count"] >= 0


async def test_without_any_cluster_privilege_the_product_is_still_found(wire: Wire, cluster: Cluster) -> None:
    """[AWS OpenSearch Serverless has no `GET /`: opensearch-project/opensearch-hadoop#586, opensearch-ruby#131]"""
    wire.on("/", status=404, body=b"")
    wire.on("/_nodes.*", status=403, body={"error": {"type": "security_exception", "reason": "no"}, "status": 403})
    async with connected(url=wire.url) as through:
        assert through.engine.family == cluster.engine.family


async def test_an_opensearch_that_gives_itself_out_as_7_10_is_asked_for_its_real_version(
    wire: Wire, cluster: Cluster
) -> None:
    body = {"version": {"number": "7.10.2", "distribution": "opensearch"}, "tagline": "x"}
    wire.on("/", status=200, body=body)
    wire.on("/_nodes.*", status=200, body={"nodes": {"a": {"version": "2.19.6"}}})
    async with connected(url=wire.url) as through:
        assert str(through.engine) == "OpenSearch 2.19.6"


@pytest.mark.parametrize(("number", "media"), [("7.17.29", 8), ("8.19.7", 8), ("9.2.0", 9)])
async def test_elasticsearch_gets_media_types_of_its_own_version_in_pairs(wire: Wire, number: str, media: int) -> None:
    """[elastic/elasticsearch-py#2923, elasticsearch-ruby#2665]"""
    product = {"x-elastic-product": "Elasticsearch"}
    wire.on("/", status=200, body={"version": {"number": number}}, headers=product)
    wire.on("/_bulk|/_search", status=200, body={}, headers=product)
    async with connected(url=wire.url) as through:
        assert str(through.engine) == f"Elasticsearch {number}"
        await through.request("POST", "/_search", body={})
        await through.request("POST", "/_bulk", lines=[{}])
    search, bulk = wire.requests("/_search|/_bulk")
    json_type = f"application/vnd.elasticsearch+json;compatible-with={media}"
    assert (search.headers["accept"], search.headers["content-type"]) == (json_type, json_type)
    assert bulk.headers["content-type"] == f"application/vnd.elasticsearch+x-ndjson;compatible-with={media}"


async def test_something_else_at_that_address_is_named_as_such(wire: Wire) -> None:
    wire.on(".*", status=200, body=b"<html>hello</html>", headers={"content-type": "text/html"})
    text = await refusal(lambda: connect(ClusterSettings(url=wire.url)))
    assert text == f"{wire.url} answers, but not as Elasticsearch or OpenSearch do; check cluster.url"


async def test_no_address_is_asked_that_was_not_configured(wire: Wire, node_url: str) -> None:
    """Sniffing would go round the wire to the addresses that the nodes publish."""
    async with connected(url=wire.url) as through:
        for _ in range(3):
            await through.request("GET", "/_count")
    assert wire.count("/_count") == 3
    assert wire.count("/_nodes/_all.*") == 0


# Asking


async def test_json_goes_out_and_comes_in(wired: Cluster, wire: Wire) -> None:
    answer = await wired.request("POST", "/_search", params={"typed_keys": True}, body={"size": 0})
    assert answer["timed_out"] is False
    (seen,) = wire.seen
    assert seen.query == {"typed_keys": "true"}
    assert seen.json == {"size": 0}
    assert seen.headers["x-opaque-id"] == "sira-es"


async def test_lines_go_out_each_on_its_own_with_a_final_newline(wired: Cluster, wire: Wire) -> None:
    answer = await wired.request("POST", "/_msearch", lines=[{}, b'{"size":0}'])
    assert answer["responses"][0]["status"] == 200
    assert wire.seen[0].body == b'{}\n{"size":0}\n'


async def test_text_that_is_not_valid_unicode_goes_both_ways(cluster: Cluster, index_name: str) -> None:
    await cluster.request("PUT", f"/{index_name}/_doc/1", body={"t": "a\ud800b"})
    assert (await cluster.request("GET", f"/{index_name}/_doc/1"))["_source"] == {"t": "a\ud800b"}


async def test_a_path_prefix_in_the_url_is_kept(wire: Wire, node_url: str) -> None:
    wire.on("/es/", status=200, body={"version": {"number": "2.19.6", "distribution": "opensearch"}})
    wire.on("/es/_count", status=200, body={"count": 7})
    async with connected(url=f"{wire.url}/es") as through:
        assert await through.request("GET", "/_count") == {"count": 7}


async def test_another_node_is_asked_where_one_is_down(wire: Wire) -> None:
    async with connected(url=["http://127.0.0.1:1", wire.url]) as through:
        for _ in range(4):
            await through.request("POST", "/_search", body={"size": 0})


# Repeating


async def test_a_read_is_repeated_after_a_lost_connection(wired: Cluster, wire: Wire) -> None:
    wire.on("/_search", drop="before", times=1)
    await wired.request("POST", "/_search", body={"size": 0})
    assert wire.count("/_search") == 2


async def test_a_read_is_repeated_while_the_cluster_is_busy(wired: Cluster, wire: Wire) -> None:
    wire.on("/_search", status=429, body={"error": {"type": "rejected_execution_exception"}}, times=2)
    await wired.request("POST", "/_search", body={"size": 0})
    assert wire.count("/_search") == 3


async def test_a_write_whose_answer_was_lost_is_not_repeated(wired: Cluster, wire: Wire, index_name: str) -> None:
    wire.on(f"/{index_name}/_doc", drop="after", times=1)
    with pytest.raises(ClusterUnreachable, match="closed the connection without an answer"):
        await wired.request("POST", f"/{index_name}/_doc", body={"a": 1})
    await wired.request("POST", f"/{index_name}/_refresh")
    assert (await wired.request("GET", f"/{index_name}/_count"))["count"] == 1


async def test_a_busy_answer_to_a_write_is_handed_on(wired: Cluster, wire: Wire) -> None:
    wire.on("/_bulk", status=503, body={"error": {"type": "busy", "reason": "later"}})
    with pytest.raises(ClusterRefused) as caught:
        await wired.request("POST", "/_bulk", lines=[{}])
    assert (caught.value.status, caught.value.error_type, caught.value.reason) == (503, "busy", "later")
    assert wire.count("/_bulk") == 1


# No answer


async def test_a_port_where_nothing_listens() -> None:
    text = await refusal(lambda: connect(ClusterSettings(url="http://127.0.0.1:1")))
    assert text == "http://127.0.0.1:1: connection refused; check that the cluster runs there, and cluster.url"


async def test_a_host_name_that_does_not_exist() -> None:
    text = await refusal(lambda: connect(ClusterSettings(url=f"http://me:{SECRET}@no-such-host.invalid:9200")))
    assert text == "http://no-such-host.invalid:9200: the host name cannot be resolved; check cluster.url"


async def test_an_answer_that_does_not_come_in_time(wire: Wire) -> None:
    wire.on("/_count", delay=5)
    async with connected(url=wire.url, timeout=0.3) as through:
        started = time.monotonic()
        text = await refusal(lambda: through.request("GET", "/_count"))
    assert time.monotonic() - started < 2
    assert "no answer within 0.3 s" in text
    assert "cluster.timeout" in text


async def test_https_to_a_cluster_without_tls(node_url: str) -> None:
    text = await refusal(lambda: connect(ClusterSettings(url=node_url.replace("http:", "https:"))))
    assert "write http:// in cluster.url" in text


# Refusals


async def test_the_reason_is_that_of_the_root_cause(cluster: Cluster, index_name: str) -> None:
    await cluster.request("PUT", f"/{index_name}", body={"mappings": {"properties": {"t": {"type": "text"}}}})
    body = {"aggs": {"a": {"terms": {"field": "t"}}}}
    with pytest.raises(ClusterRefused) as caught:
        await cluster.request("POST", f"/{index_name}/_search", body=body)
    assert caught.value.status == 400
    assert caught.value.error_type == "illegal_argument_exception"
    assert "[t]" in caught.value.reason
    assert "all shards failed" not in str(caught.value)


async def test_an_error_that_is_only_a_text_is_told(cluster: Cluster) -> None:
    text = await refusal(lambda: cluster.request("POST", "/_count/what"))
    assert text.startswith("POST /_count/what: ")
    assert "HTTP 4" in text


async def test_wrong_credentials_name_the_setting_and_not_the_secret(wire: Wire) -> None:
    body = {"error": {"type": "security_exception", "reason": "unable to authenticate user [me]"}, "status": 401}
    wire.on(".*", status=401, body=body)
    settings = ClusterSettings(url=wire.url.replace("//", f"//me:{SECRET}@"))
    text = await refusal(lambda: connect(settings))
    assert "does not accept the credentials of cluster.basic_auth (unable to authenticate user [me])" in text


async def test_missing_credentials_name_the_settings_that_give_them(wire: Wire) -> None:
    wire.on(".*", status=401, body={"error": {"type": "security_exception", "reason": "missing"}, "status": 401})
    text = await refusal(lambda: connect(ClusterSettings(url=wire.url)))
    assert text == f"{wire.url} asks for credentials; set cluster.api_key, cluster.basic_auth or cluster.bearer"


async def test_a_missing_privilege_is_told_in_the_clusters_own_words(wired: Cluster, wire: Wire) -> None:
    reason = "action [indices:data/write/bulk] is unauthorized for user [me], granted by the index privileges [write]"
    wire.on("/_bulk", status=403, body={"error": {"type": "security_exception", "reason": reason}, "status": 403})
    text = await refusal(lambda: wired.request("POST", "/_bulk", lines=[{}]))
    assert text == f"POST /_bulk: not allowed with no credentials ({reason}); grant the privilege 'index'"


async def test_an_html_page_of_a_gateway_is_not_printed(wired: Cluster, wire: Wire) -> None:
    wire.on("/_cat/health", status=502, body=b"<html>\n<body>Bad Gateway</body></html>")
    assert await refusal(lambda: wired.request("GET", "/_cat/health")) == "GET /_cat/health: refused (HTTP 502)"


# Credentials


@pytest.mark.parametrize(
    ("settings", "header"),
    [
        ({"api_key": SECRET}, f"ApiKey {SECRET}"),
        ({"bearer": SECRET}, f"Bearer {SECRET}"),
        ({"basic_auth": "me:pass:word"}, "Basic bWU6cGFzczp3b3Jk"),
    ],
)
async def test_every_request_is_signed_in(wire: Wire, settings: dict[str, str], header: str) -> None:
    async with connected(url=wire.url, **settings) as through:
        await through.request("GET", "/_count")
        assert SECRET not in repr(through)
        assert SECRET not in through.identity
    assert {seen.headers["authorization"] for seen in wire.seen} == {header}


async def test_a_caller_is_asked_for_under_its_own_credentials_only(wire: Wire) -> None:
    """[elastic/kibana#26651, logstash-filter-elasticsearch#148]"""
    async with connected(url=wire.url, api_key=SECRET) as ours:
        wire.clear()
        await ours.as_caller({"Authorization": "ApiKey theirs"}).request("GET", "/_count")
        await ours.as_caller({}).request("GET", "/_count")
    assert [seen.headers.get("authorization") for seen in wire.seen] == ["ApiKey theirs", None]


async def test_identities_differ_where_credentials_do(wire: Wire) -> None:
    async with connected(url=wire.url, api_key=SECRET) as ours:
        theirs = ours.as_caller({"Authorization": "ApiKey theirs"})
        others = ours.as_caller({"Authorization": "ApiKey others"})
        assert len({ours.identity, theirs.identity, others.identity, ours.as_caller({}).identity}) == 4
        assert theirs.identity == ours.as_caller({"authorization": "ApiKey theirs"}).identity


async def test_a_certificate_cannot_stand_in_for_a_caller_without_credentials(wire: Wire, tmp_path: Path) -> None:
    async with connected(url=wire.url, client_cert=tmp_path / "unused.pem") as ours:
        with pytest.raises(UnsupportedError, match="client_cert signs in every request"):
            ours.as_caller({})


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key in the same file."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is needed to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", "key", "-out", "crt"]
    subprocess.run([*make, *names], cwd=folder, check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_bytes((folder / "crt").read_bytes() + (folder / "key").read_bytes())
    return both


@pytest.fixture
async def tls(node_url: str, certificate: Path, anyio_backend: str) -> AsyncIterator[Wire]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    async with Wire(node_url, tls=context) as running:
        yield running


def fingerprint_of(certificate: Path) -> str:
    command = ["openssl", "x509", "-in", str(certificate), "-noout", "-fingerprint", "-sha256"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip().partition("=")[2]


async def test_an_unknown_certificate_is_refused_with_the_remedy(tls: Wire) -> None:
    text = await refusal(lambda: connect(ClusterSettings(url=tls.url)))
    assert "its certificate is not trusted (self-signed certificate)" in text
    assert "set cluster.ca_certs" in text
    assert tls.seen == []


async def test_a_private_ca_is_trusted_when_named(tls: Wire, certificate: Path) -> None:
    async with connected(url=tls.url, ca_certs=certificate) as through:
        assert (await through.request("GET", "/_count"))["count"] >= 0


async def test_the_right_fingerprint_is_enough(tls: Wire, certificate: Path) -> None:
    async with connected(url=tls.url, fingerprint=fingerprint_of(certificate)) as through:
        assert (await through.request("GET", "/_count"))["count"] >= 0


async def test_a_wrong_fingerprint_is_refused_before_anything_is_sent(tls: Wire) -> None:
    text = await refusal(lambda: connect(ClusterSettings(url=tls.url, fingerprint="ab" * 32, api_key=SECRET)))
    assert "cluster.fingerprint names another" in text
    assert tls.seen == []


async def test_verification_can_be_switched_off(tls: Wire) -> None:
    async with connected(url=tls.url, verify=False) as through:
        assert (await through.request("GET", "/_count"))["count"] >= 0


async def test_http_to_a_cluster_with_tls(tls: Wire) -> None:
    text = await refusal(lambda: connect(ClusterSettings(url=tls.url.replace("https:", "http:"))))
    assert "write https:// in cluster.url" in text


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"ca_certs": "/no/such.pem"}, "cluster.ca_certs: cannot use /no/such.pem: No such file or directory"),
        ({"fingerprint": "12:34"}, "cluster.fingerprint must be the certificate's SHA-256"),
        ({"client_cert": "/no/such.pem"}, "cluster.client_cert: cannot use /no/such.pem"),
        ({"client_cert": "/no/such.pem", "fingerprint": "ab" * 32}, "cluster.fingerprint does not go with"),
    ],
)
async def test_unusable_certificate_settings_are_told_one_by_one(settings: dict[str, str], problem: str) -> None:
    text = await refusal(lambda: connect(ClusterSettings(url="https://127.0.0.1:1", **settings)))
    assert text.startswith(problem)


# Its limits


async def test_the_clause_limit_of_an_open_node_is_read(cluster: Cluster) -> None:
    limit = await clause_limit(cluster)
    assert limit.known
    assert limit.count >= 1024


# AWS


async def test_requests_are_signed_for_aws(wire: Wire, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """[apache/flink-agents#674: Serverless wants x-amz-content-sha256]"""
    if cluster.engine.family != "opensearch":
        pytest.skip("Amazon signs for OpenSearch")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    async with connected(url=wire.url, aws={"region": "eu-west-1", "service": "aoss"}) as through:
        await through.request("POST", "/_search", params={"typed_keys": True}, body={"size": 0})
        with pytest.raises(UnsupportedError, match=r"cluster.aws signs in every request"):
            through.as_caller({"authorization": "theirs"})
    for seen in wire.seen:
        assert seen.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
        assert "/eu-west-1/aoss/" in seen.headers["authorization"]
        assert "x-amz-content-sha256" in seen.headers
    assert SECRET not in str([seen.headers for seen in wire.seen])


async def test_missing_aws_credentials_say_where_they_may_come_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    text = await refusal(lambda: connect(ClusterSettings(url="https://127.0.0.1:1", aws={"region": "eu-west-1"})))
    assert text.startswith("cluster.aws: no AWS credentials; set AWS_PROFILE")
