"""The cluster's nodes: one exchange with one of them, and which of them are left out until they answer again."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from sira_es.cluster.transport import NoAnswer, fingerprint_of, proxy_of, ssl_context_of, why_no_answer
from sira_es.errors import ConfigurationError
from sira_es.proxy.downstream import ClientLeft
from sira_es.proxy.wire import Headers
from sira_es.settings import ClusterSettings

__all__ = ["Body", "Lost", "Node", "Unreachable", "Upstream", "tls_of"]

log = logging.getLogger(__name__)

Body = bytes | Callable[[], AsyncIterator[bytes]] | None
"""Bytes, or something that makes a stream of them; it is called again only while nothing of it was taken."""

CONNECT_SECONDS = 5.0
CHECK_SECONDS = 5.0
"""How long after a check of all nodes the next one begins, where there are several."""

ANSWER_SECONDS = 2.0
"""How long a check waits for an answer. Requests wait as long as it takes."""

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
    """No node took the request: it has reached none of them. The message says why, of each; `node` is the last."""

    def __init__(self, causes: list[tuple[Node, BaseException]]) -> None:
        self.node, self.cause = causes[-1]
        super().__init__("; ".join(node.why(cause) for node, cause in causes))


class Lost(Exception):  # noqa: N818
    """A node took the request, and gave no whole answer."""

    def __init__(self, node: Node, cause: BaseException) -> None:
        self.node, self.cause = node, cause
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
        self.address = f"{self._scheme}://{self.name}"
        self.up = True

    def url(self, target: str) -> URL:
        """The address of a request target, which is not looked into: all of it goes out as a path."""
        return URL.build(
            scheme=self._scheme, host=self._host, port=self._port, path=self._prefix + target, encoded=True
        )

    def why(self, cause: BaseException, seconds: float = CONNECT_SECONDS) -> str:
        """One line: what went wrong, and what to do about it."""
        return why_no_answer(NoAnswer(self.address, cause), seconds)

    def failed(self, cause: BaseException, seconds: float = CONNECT_SECONDS) -> None:
        if self.up:
            log.warning("a node is left out for a while: %s", self.why(cause, seconds))
        self.up = False

    def answered(self) -> None:
        if not self.up:
            log.warning("a node answers again: %s", self.name)
        self.up = True


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
        self._watching = asyncio.create_task(self._watch()) if len(self.nodes) > 1 else None

    async def send(
        self, method: str, target: str, headers: Headers, body: Body = None, *, but: Node | None = None
    ) -> tuple[aiohttp.ClientResponse, Node]:
        """Send to a node that is up, and to the next where one cannot be connected to; `but` is taken last.

        Raises Unreachable where none can, Lost where the answer does not begin, ClientLeft where the body does not end.
        """
        causes: list[tuple[Node, BaseException]] = []
        for node in self._order(but):
            data = body() if callable(body) else body
            try:
                response = await self._session.request(
                    method, node.url(target), headers=headers, data=data, allow_redirects=False, proxy=node.proxy
                )
            except _NOT_SENT as error:
                node.failed(error)
                causes.append((node, error))
                continue
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                if isinstance(error.__cause__, ClientLeft):
                    raise error.__cause__ from None
                if not isinstance(error, aiohttp.ServerDisconnectedError):
                    node.failed(error)
                raise Lost(node, error) from None
            node.answered()
            return response, node
        raise Unreachable(causes)

    async def ping(self) -> bool:
        """Whether any node answers now, whatever it says."""
        waiting = {asyncio.create_task(self._check(node)) for node in self.nodes}
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if any(check.result() for check in done):
                    return True
            return False
        finally:
            for check in waiting:
                check.cancel()

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await self._session.close()

    async def check(self) -> None:
        """Find out which nodes answer."""
        await asyncio.gather(*(self._check(node) for node in self.nodes))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await self.check()

    async def _check(self, node: Node) -> bool:
        mark = [("x-opaque-id", "sira-es")]
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                response = await self._session.request(
                    "HEAD", node.url("/"), headers=mark, allow_redirects=False, proxy=node.proxy
                )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            node.failed(error, ANSWER_SECONDS)
            return False
        response.release()
        node.answered()
        return True

    def _order(self, last: Node | None) -> list[Node]:
        if len(self.nodes) == 1:
            return self.nodes
        start = next(self._turn) % len(self.nodes)
        turned = self.nodes[start:] + self.nodes[:start]
        return sorted(turned, key=lambda node: (node is last, not node.up))


def tls_of(settings: ClusterSettings) -> Any:
    """What a connection to the cluster is checked with; True: none has TLS. Raises ConfigurationError."""
    if settings.aws:
        raise ConfigurationError(
            "cluster.aws: the proxy does not sign requests; let a signing proxy stand between it and the cluster"
        )
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
