"""Every way to sign in, on a node with security and TLS of a private authority; wrong ones are one line with the remedy."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from cluster.security.conftest import PASSWORD, Secured
from cluster.wire import Wire
from sira_es.cluster.connect import connect
from sira_es.errors import ClusterError, ConfigurationError
from sira_es.settings import ClusterSettings

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def user_of(settings: ClusterSettings) -> str:
    """Who the node says that we are."""
    cluster = await connect(settings)
    try:
        return str((await cluster.request("GET", "/_security/_authenticate"))["username"])
    finally:
        await cluster.close()


async def refusal(settings: ClusterSettings) -> str:
    with pytest.raises((ClusterError, ConfigurationError)) as caught:
        await user_of(settings)
    text = str(caught.value)
    assert "\n" not in text
    assert "planted" not in text + repr(caught.value)
    return text


async def test_user_and_password(secured: Secured) -> None:
    assert await user_of(secured.settings(basic_auth=secured.user("jo", "superuser"))) == "jo"


async def test_user_and_password_in_the_url(secured: Secured) -> None:
    settings = secured.settings(url=secured.url.replace("//", f"//admin:{PASSWORD}@"))
    assert await user_of(settings) == "admin"
    assert PASSWORD not in repr(settings) + str(settings.url)


async def test_an_api_key(secured: Secured) -> None:
    key = secured.call("POST", "/_security/api_key", {"name": "ours"})
    encoded = key.get("encoded") or _encoded(f"{key['id']}:{key['api_key']}")  # 7.17 may not encode it
    assert await user_of(secured.settings(api_key=encoded)) == "admin"


async def test_a_bearer_token(secured: Secured) -> None:
    grant = {"grant_type": "password", "username": "admin", "password": PASSWORD}
    token = secured.call("POST", "/_security/oauth2/token", grant)["access_token"]
    assert await user_of(secured.settings(bearer=token)) == "admin"


async def test_a_client_certificate(secured: Secured) -> None:
    mapping = {"roles": ["superuser"], "enabled": True, "rules": {"field": {"username": "cert-user"}}}
    secured.call("PUT", "/_security/role_mapping/certificates", mapping)
    files = secured.certificates
    assert await user_of(secured.settings(client_cert=files.client, client_key=files.client_key)) == "cert-user"


async def test_a_fingerprint_in_place_of_the_authority(secured: Secured) -> None:
    settings = ClusterSettings(
        url=secured.url, fingerprint=secured.certificates.fingerprint, basic_auth=f"admin:{PASSWORD}"
    )
    assert await user_of(settings) == "admin"


@pytest.mark.parametrize("way", ["basic_auth", "api_key", "bearer"])
async def test_wrong_credentials_are_told_by_their_setting(secured: Secured, way: str) -> None:
    wrong = {
        "basic_auth": "admin:planted-wrong",
        "api_key": _encoded("planted:wrong"),
        "bearer": "planted-wrong",
    }[way]
    text = await refusal(secured.settings(**{way: wrong}))
    assert text.startswith(f"{secured.url} does not accept the credentials of cluster.{way} (")
    assert text.endswith("; correct them")


async def test_no_credentials_at_all(secured: Secured) -> None:
    text = await refusal(secured.settings())
    assert text == f"{secured.url} asks for credentials; set cluster.api_key, cluster.basic_auth or cluster.bearer"


async def test_a_client_certificate_of_another_authority(secured: Secured) -> None:
    files = secured.certificates
    text = await refusal(secured.settings(client_cert=files.stranger, client_key=files.stranger_key))
    assert text.startswith(f"{secured.url} does not accept the certificate of cluster.client_cert")


async def test_a_key_that_is_not_that_of_the_certificate(secured: Secured) -> None:
    files = secured.certificates
    text = await refusal(secured.settings(client_cert=files.client, client_key=files.stranger_key))
    assert text.startswith("cluster.client_cert: cannot use ")
    assert "PEM files that match" in text


async def test_an_authority_that_is_not_known(secured: Secured) -> None:
    text = await refusal(ClusterSettings(url=secured.url, basic_auth=f"admin:{PASSWORD}"))
    assert "its certificate is not trusted" in text
    assert "set cluster.ca_certs" in text


async def test_a_wrong_fingerprint(secured: Secured) -> None:
    text = await refusal(ClusterSettings(url=secured.url, fingerprint="12" * 32, basic_auth=f"admin:{PASSWORD}"))
    assert "cluster.fingerprint names another" in text


async def test_one_node_of_several_is_down(secured: Secured) -> None:
    settings = secured.settings(url=["https://127.0.0.1:1", secured.url], basic_auth=f"admin:{PASSWORD}")
    for _ in range(3):
        assert await user_of(settings) == "admin"


async def test_a_path_prefix_of_a_gateway(secured: Secured) -> None:
    """A gateway that serves the cluster below a path: the prefix is part of every request."""
    async with Wire(secured.url) as gateway:

        async def stripped(seen: Any, forward: Callable[[Any], Any]) -> Any:
            return await gateway.forward_to(seen, seen.path.removeprefix("/search/es"))

        gateway.on("/search/es/.*", handler=stripped)
        settings = ClusterSettings(url=f"{gateway.url}/search/es", basic_auth=f"admin:{PASSWORD}")
        assert await user_of(settings) == "admin"
        assert all(seen.path.startswith("/search/es/") for seen in gateway.seen)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
