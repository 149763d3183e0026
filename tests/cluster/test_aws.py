"""Requests signed for AWS, before a server that checks the signature as AWS does and lets nothing else through."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any
from urllib.parse import quote

import pytest

from cluster.wire import Reply, Seen, Wire
from sira_es.cluster.connect import Cluster, connect
from sira_es.errors import ClusterRefused
from sira_es.settings import ClusterSettings

pytestmark = pytest.mark.anyio
KEY, SECRET = "AKIDEXAMPLE", "planted-aws-secret"


def signature(seen: Seen, secret: str) -> tuple[str, str]:
    """The signature that a request carries, and the one that it should: Signature Version 4, from its description."""
    fields = dict(part.strip().split("=", 1) for part in seen.headers["authorization"].split(" ", 1)[1].split(","))
    _, day, region, service, _ = fields["Credential"].split("/")
    names = fields["SignedHeaders"].split(";")
    pairs = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in seen.query.items())
    canonical = "\n".join(
        [
            seen.method,
            quote(seen.path, safe="/-_.~"),
            "&".join(f"{k}={v}" for k, v in pairs),
            *(f"{name}:{' '.join(seen.headers[name].split())}" for name in names),
            "",
            ";".join(names),
            hashlib.sha256(seen.body).hexdigest(),
        ]
    )
    assert {"host", "x-amz-date"} <= set(names)
    scope = f"{day}/{region}/{service}/aws4_request"
    text = "\n".join(
        ["AWS4-HMAC-SHA256", seen.headers["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()]
    )
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), "sha256").digest()
    return fields["Signature"], hmac.new(key, text.encode(), "sha256").hexdigest()


@pytest.fixture
def amazon(wire: Wire, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Wire:
    """The node behind a check of signatures made with SECRET."""
    if cluster.engine.family != "opensearch":
        pytest.skip("AWS signs for OpenSearch; this node is the other family's")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)

    async def checked(seen: Seen, forward: Any) -> Reply:
        found, expected = signature(seen, SECRET)
        if not hmac.compare_digest(found, expected):
            message = "The request signature we calculated does not match the signature you provided."
            return Reply.of(403, {"message": message})
        if seen.headers.get("x-amz-content-sha256") != hashlib.sha256(seen.body).hexdigest():
            return Reply.of(403, {"message": "x-amz-content-sha256"})
        reply: Reply = await forward(seen)
        return reply

    wire.on(".*", handler=checked)
    return wire


@pytest.mark.parametrize("service", ["es", "aoss"])
async def test_every_kind_of_request_carries_a_signature_that_holds(
    amazon: Wire, index_name: str, service: str
) -> None:
    """[apache/flink-agents#674, #678: Serverless wants the hash of the body in a header]"""
    through = await connect(ClusterSettings(url=amazon.url, aws={"region": "eu-west-1", "service": service}))
    try:
        await through.request("PUT", f"/{index_name}", body={"mappings": {"properties": {"t": {"type": "text"}}}})
        lines = [{"index": {"_index": index_name, "_id": "a b"}}, {"t": "Straße, 東京 & more"}]
        await through.request("POST", "/_bulk", params={"refresh": True}, lines=lines)
        path = f"/{index_name},missing*/_search"
        found = await through.request(
            "POST", path, params={"typed_keys": True}, body={"query": {"match": {"t": "東京"}}}
        )
        assert found["hits"]["total"]["value"] == 1
        assert (await through.request("GET", f"/{index_name}/_doc/a%20b"))["found"]
        await through.request("DELETE", f"/{index_name}")
    finally:
        await through.close()


async def test_a_wrong_secret_is_one_line_without_it(amazon: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"{SECRET}-of-somebody-else")
    with pytest.raises(ClusterRefused) as caught:
        await connect(ClusterSettings(url=amazon.url, aws={"region": "eu-west-1"}))
    text = str(caught.value)
    assert "signature" in text
    assert "the AWS credentials of this machine" in text
    assert "\n" not in text
    assert SECRET not in text
