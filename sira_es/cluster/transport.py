"""The two clients, as one: bytes out, status, headers and bytes back, or no answer and why.

The clients give pools of nodes, TLS and sessions. Their own retries, product check, media types and exceptions are left
out: they differ, and repeat what must not be repeated.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from sira_es.errors import ConfigurationError

if TYPE_CHECKING:
    from sira_es.settings import ClusterSettings

__all__ = [
    "Answer",
    "ElasticsearchDoor",
    "NoAnswer",
    "OpenSearchDoor",
    "Transport",
    "fingerprint_of",
    "proxy_of",
    "ssl_context_of",
    "why_no_answer",
]

# Failures are told by our own errors; without a handler of its own Python would print these loggers' warnings too.
for _name in ("elastic_transport", "opensearch"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer, whatever its status; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class NoAnswer(Exception):  # noqa: N818  never leaves this room
    """A node gave no answer. `sent` is False where the request cannot have reached it."""

    def __init__(self, node: str, cause: BaseException) -> None:
        super().__init__(node)
        self.node = node
        self.cause = cause

    @property
    def sent(self) -> bool:
        import aiohttp

        not_connected = aiohttp.ClientConnectorError | aiohttp.ServerFingerprintMismatch | aiohttp.ClientHttpProxyError
        return not isinstance(self.cause, not_connected)


class Transport(Protocol):
    """One exchange with one node of the pool; a node that gave no answer is avoided for a while."""

    async def send(self, method: str, path: str, query: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        """Raises NoAnswer."""

    async def close(self) -> None: ...


class ElasticsearchDoor:
    """Through the Elasticsearch client."""

    def __init__(self, settings: ClusterSettings) -> None:
        from elastic_transport import AiohttpHttpNode
        from elasticsearch import AsyncElasticsearch

        options: dict[str, Any] = {}
        if any(url.startswith("https:") for url in settings.url):
            options["ssl_context"] = ssl_context_of(settings)
            if settings.fingerprint:
                options["ssl_assert_fingerprint"] = fingerprint_of(settings.fingerprint).hex()
        node = _through_proxy(AiohttpHttpNode)
        self._client = AsyncElasticsearch(settings.url, node_class=node, meta_header=False, **options)
        self._timeout = settings.timeout

    async def send(self, method: str, path: str, query: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        from elastic_transport import BaseAsyncNode, HttpHeaders, TransportError

        pool = self._client.transport.node_pool
        node = pool.get()
        if not isinstance(node, BaseAsyncNode):
            raise TypeError(type(node))
        target = f"{path}?{query}" if query else path
        try:
            answer = await node.perform_request(
                method, target, body=body, headers=HttpHeaders(headers), request_timeout=self._timeout
            )
        except TransportError as error:
            pool.mark_dead(node)
            raise NoAnswer(node.base_url, _first(error.errors, error)) from None
        pool.mark_live(node)
        return Answer(answer.meta.status, {k.lower(): v for k, v in answer.meta.headers.items()}, answer.body)

    async def close(self) -> None:
        await self._client.close()


class OpenSearchDoor:
    """Through the OpenSearch client."""

    def __init__(self, settings: ClusterSettings) -> None:
        from opensearchpy import AIOHttpConnection, AsyncHttpConnection, AsyncOpenSearch

        options: dict[str, Any] = {}
        if settings.aws:
            options["http_auth"] = _aws_signer(settings.aws.region, settings.aws.service)
        if any(url.startswith("https:") for url in settings.url):
            options["ssl_context"] = ssl_context_of(settings)
            if settings.fingerprint:
                import aiohttp

                options["ssl_context"] = aiohttp.Fingerprint(fingerprint_of(settings.fingerprint))
        base = _through_proxy(AsyncHttpConnection if settings.aws else AIOHttpConnection)
        # Its own connections turn `Warning` headers into Python warnings, on the caller's screen.
        silent = type("SilentConnection", (base,), {"_raise_warnings": lambda self, headers: None})
        self._client = AsyncOpenSearch(
            [_host(url) for url in settings.url], connection_class=silent, timeout=settings.timeout, **options
        )
        self._opened = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._ready = False

    async def send(self, method: str, path: str, query: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        from opensearchpy.exceptions import ConnectionError as NoConnection

        async with self._opening:
            if not self._ready:  # the client makes its connections when it is entered
                await self._opened.enter_async_context(self._client)
                self._ready = True
        transport = self._client.transport
        node = transport.get_connection()
        target = f"{path}?{query}" if query else path
        try:
            status, found, content = await node.perform_request(
                method, target, body=body, headers=dict(headers), ignore=range(300, 600)
            )
        except NoConnection as error:
            transport.mark_dead(node)
            raise NoAnswer(node.host + node.url_prefix, _first((error.info,), error)) from None
        transport.connection_pool.mark_live(node)
        content = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        return Answer(status, {k.lower(): v for k, v in found.items()}, content)

    async def close(self) -> None:
        await self._opened.aclose()
        if self._ready:  # the client forgets those that its pool holds for dead
            for node in self._client.transport.seed_connections:
                await node.close()


def proxy_of(url: str) -> str | None:
    """The proxy that HTTP_PROXY, HTTPS_PROXY and NO_PROXY name for an address; never one for this machine's own."""
    from ipaddress import ip_address
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        local = ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if local or proxy_bypass(host):
        return None
    found = getproxies().get(parts.scheme) or getproxies().get("all")
    return found if found is None or "://" in found else f"http://{found}"


def _through_proxy(base: type) -> type:
    """A client's connection class whose sessions go through the proxy of the environment, if it names one.

    The clients have no option for it, but for one that would sign in with the credentials of ~/.netrc as well.
    """
    import inspect

    def route(self: Any) -> None:
        self.session._default_proxy = proxy_of(getattr(self, "base_url", None) or self.host)

    async def open_later(self: Any) -> None:
        await create(self)
        route(self)

    def open_now(self: Any) -> None:
        create(self)
        route(self)

    create: Any = base._create_aiohttp_session  # type: ignore[attr-defined]
    opening = open_later if inspect.iscoroutinefunction(create) else open_now
    return type(base.__name__, (base,), {create.__name__: opening})


def why_no_answer(error: NoAnswer, timeout: float) -> str:
    """One line: what went wrong with which node, and what to do about it."""
    import aiohttp

    cause, node = error.cause, error.node
    https = node.startswith("https:")
    if isinstance(cause, TimeoutError):
        return (
            f"{node} gave no answer within {timeout:g} s; check cluster.url and the network, or raise cluster.timeout"
        )
    if isinstance(cause, aiohttp.ServerFingerprintMismatch):
        return f"{node} shows a certificate with the fingerprint {cause.got.hex()}; cluster.fingerprint names another"
    if isinstance(cause, aiohttp.ClientConnectorCertificateError | ssl.SSLCertVerificationError):
        reason = (
            getattr(getattr(cause, "certificate_error", cause), "verify_message", "") or "certificate verify failed"
        )
        hint = "set cluster.ca_certs to the file of the CA that signed it, or cluster.fingerprint"
        return f"{node}: its certificate is not trusted ({reason}); {hint}"
    if re.search("ALERT.*(CERTIFICATE|UNKNOWN_CA)", str(cause)):  # the node ended TLS over ours, or over its absence
        return f"{node} does not accept the certificate of cluster.client_cert; give one that its CA has signed"
    if isinstance(cause, aiohttp.ClientSSLError | ssl.SSLError):
        return f"{node}: no TLS connection could be made; if the cluster has no TLS, write http:// in cluster.url"
    if isinstance(cause, aiohttp.ClientHttpProxyError):
        return f"{node}: the forward proxy answers {cause.status}; check HTTPS_PROXY and NO_PROXY"
    if isinstance(cause, aiohttp.ClientProxyConnectionError):
        return f"{node}: no connection to the forward proxy; check HTTP_PROXY, HTTPS_PROXY and NO_PROXY"
    if isinstance(cause, aiohttp.ClientConnectorDNSError):
        return f"{node}: the host name cannot be resolved; check cluster.url"
    if isinstance(cause, aiohttp.ClientConnectorError):
        reason = "connection refused" if isinstance(cause.os_error, ConnectionRefusedError) else "no connection"
        return f"{node}: {reason}; check that the cluster runs there, and cluster.url"
    if isinstance(cause, aiohttp.ServerDisconnectedError | ConnectionResetError):
        hint = "it may be overloaded" if https else "if the cluster has TLS, write https:// in cluster.url"
        return f"{node} closed the connection without an answer; {hint}"
    return f"{node} broke off: {' '.join(str(cause).split())[:200] or type(cause).__name__}; try again"


def _first(causes: Any, error: BaseException) -> BaseException:
    return next((c for c in causes if isinstance(c, BaseException)), error)


def _host(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    https = parts.scheme == "https"
    return {
        "host": parts.hostname,
        "port": parts.port or (443 if https else 80),
        "use_ssl": https,
        "url_prefix": parts.path.strip("/"),
    }


def ssl_context_of(settings: ClusterSettings) -> ssl.SSLContext:
    """TLS as configured; with a fingerprint the certificate is for the connection to check. Raises ConfigurationError."""
    if settings.fingerprint and settings.client_cert:
        raise ConfigurationError("cluster.fingerprint does not go with cluster.client_cert; use cluster.ca_certs")
    try:
        context = ssl.create_default_context(cafile=settings.ca_certs)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or "not a certificate"
        raise ConfigurationError(
            f"cluster.ca_certs: cannot use {settings.ca_certs}: {reason}; give a PEM file"
        ) from None
    if settings.fingerprint or not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.client_cert:
        try:
            context.load_cert_chain(settings.client_cert, settings.client_key)
        except (OSError, ssl.SSLError):
            raise ConfigurationError(
                f"cluster.client_cert: cannot use {settings.client_cert} with its key; give PEM files that match"
            ) from None
    return context


def fingerprint_of(text: str) -> bytes:
    """The SHA-256 of a certificate, from hexadecimal digits with or without colons. Raises ConfigurationError."""
    try:
        value = bytes.fromhex(text.replace(":", ""))
    except ValueError:
        value = b""
    if len(value) != 32:
        raise ConfigurationError("cluster.fingerprint must be the certificate's SHA-256: 64 hexadecimal digits")
    return value


def _aws_signer(region: str, service: str) -> Any:
    from opensearchpy import AWSV4SignerAsyncAuth

    try:
        from botocore.session import get_session
    except ImportError:
        raise ConfigurationError("cluster.aws needs the package botocore: pip install 'sira-es[aws]'") from None
    credentials = get_session().get_credentials()
    if credentials is None:
        raise ConfigurationError("cluster.aws: no AWS credentials; set AWS_PROFILE, AWS_ACCESS_KEY_ID or use a role")
    return AWSV4SignerAsyncAuth(credentials, region, service)
