"""The cluster's nodes: one exchange with one of them, and which of them are avoided for a while."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from sira_es.cluster.transport import NoAnswer, fingerprint_of, proxy_of, ssl_context_of, why_no_answer
from sira_es.errors import ConfigurationError
from sira_es.proxy.wire import Headers
from sira_es.settings import ClusterSettings

__all__ = ["Body", "Lost", "Node", "Unreachable", "Upstream", "tls_of"]

log = logging.getLogger(__name__)

Body = bytes | Callable[[], AsyncIterator[bytes]] | None
"""Bytes, or something that makes a stream of them; it is called again only while nothing of it was taken."""

CONNECT_SECONDS = 5.0
_PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
"""For how many seconds a node is avoided after so many failures in a row."""

_NOT_SENT = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.ServerFingerprintMismatch,
    aiohttp.ClientHttpProxyError,
)
_LEFT_UNREAD = frozenset({400, 413, 431})
"""With these a node also answers what it could not read; it may take nothing more over that connection, unannounced."""

_OWN_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class Unreachable(Exception):  # noqa: N818
    """No node took the request: it has reached none of them. The message says why, of each."""


class Lost(Exception):  # noqa: N818
    """A node took the request, and gave no whole answer."""

    def __init__(self, node: Node, cause: BaseException) -> None:
        self.node = node
        self.timed_out = isinstance(cause, TimeoutError)
        super().__init__(node.name if self.timed_out else node.why(cause))


class Node:
    """One address of the cluster. `name` is host and port; `proxy` the forward proxy that the environment names for it."""

    def __init__(self, url: str) -> None:
        parts = URL(url)
        self._scheme, self._host, self._port = parts.scheme, parts.host or "", parts.port
        self._prefix = parts.raw_path.rstrip("/")
        self.name = f"{self._host}:{self._port}"
        self.proxy = proxy_of(url)
        self.failures = 0
        self.avoided_until = 0.0

    def url(self, target: str) -> URL:
        """The address of a request target, which is not looked into: all of it goes out as a path."""
        return URL.build(
            scheme=self._scheme, host=self._host, port=self._port, path=self._prefix + target, encoded=True
        )

    @property
    def up(self) -> bool:
        return time.monotonic() >= self.avoided_until

    def why(self, cause: BaseException) -> str:
        """One line: what went wrong, and what to do about it."""
        return why_no_answer(NoAnswer(f"{self._scheme}://{self.name}", cause), CONNECT_SECONDS)

    def failed(self, cause: BaseException) -> None:
        if not self.failures:
            log.warning("a node is left out for a while: %s", self.why(cause))
        pause = _PAUSES[min(self.failures, len(_PAUSES) - 1)]
        self.failures += 1
        self.avoided_until = time.monotonic() + pause

    def answered(self) -> None:
        self.failures, self.avoided_until = 0, 0.0


class _Connection(ResponseHandler):
    """Does not go back to the pool after an answer to what the node may not have read."""

    def feed_data(self, data: Any, size: int = 0) -> None:
        if data[0].code in _LEFT_UNREAD:
            self.force_close()  # before anybody is told of the answer: a short one is given back at once
        super().feed_data(data, size)


class Upstream:
    """Connections to all nodes. Made on the running event loop; raises ConfigurationError."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.nodes = [Node(url) for url in settings.url]
        self._turn = itertools.count()
        tls = tls_of(settings)
        connector = aiohttp.TCPConnector(limit=0, ssl=tls, socket_factory=_socket, keepalive_timeout=30.0)
        connector._factory = functools.partial(_Connection, asyncio.get_running_loop())  # type: ignore[assignment]
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=_OWN_HEADERS,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            max_line_size=65536,
            max_field_size=65536,
        )
        self._session._retry_connection = False  # it would repeat a PUT or DELETE after a lost connection

    async def send(
        self, method: str, target: str, headers: Headers, body: Body = None, *, but: Node | None = None
    ) -> tuple[aiohttp.ClientResponse, Node]:
        """Send to a node that is up, and to the next where one cannot be connected to; `but` is taken last.

        Raises Unreachable where none can, Lost where the answer does not begin.
        """
        reasons = []
        for node in self._order(but):
            data = body() if callable(body) else body
            try:
                response = await self._session.request(
                    method, node.url(target), headers=headers, data=data, allow_redirects=False, proxy=node.proxy
                )
            except _NOT_SENT as error:
                node.failed(error)
                reasons.append(node.why(error))
                continue
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                if not isinstance(error, aiohttp.ServerDisconnectedError):
                    node.failed(error)
                raise Lost(node, error) from None
            node.answered()
            return response, node
        raise Unreachable("; ".join(reasons))

    async def ping(self, seconds: float = 2.0) -> bool:
        """Whether any node answers now, whatever it says."""
        try:
            response, _ = await asyncio.wait_for(self.send("HEAD", "/", [("x-opaque-id", "sira-es")]), seconds)
        except (Unreachable, Lost, TimeoutError):
            return False
        response.release()
        return True

    async def close(self) -> None:
        await self._session.close()

    def _order(self, last: Node | None) -> list[Node]:
        if len(self.nodes) == 1:
            return self.nodes
        start = next(self._turn) % len(self.nodes)
        turned = self.nodes[start:] + self.nodes[:start]
        return sorted(turned, key=lambda node: (node is last, node.avoided_until if not node.up else 0.0))


def tls_of(settings: ClusterSettings) -> Any:
    """What a connection to the cluster is checked with; True: none has TLS. Raises ConfigurationError."""
    if settings.aws:
        raise ConfigurationError("cluster.aws: the proxy does not sign requests; put it behind a signing one")
    if not any(url.startswith("https:") for url in settings.url):
        return True
    context = ssl_context_of(settings)
    return aiohttp.Fingerprint(fingerprint_of(settings.fingerprint)) if settings.fingerprint else context


def _socket(address: Any) -> socket.socket:
    """A socket on which a host that has vanished is noticed, though requests may take as long as they like."""
    made = socket.socket(address[0], address[1], address[2])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, seconds in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 20), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made
