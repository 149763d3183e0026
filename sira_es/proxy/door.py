"""Our own look-ups, over the connections that requests use: what is known of a node counts for both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import aiohttp

from sira_es.cluster.transport import Answer, NoAnswer
from sira_es.proxy.upstream import Lost, Unreachable, Upstream
from sira_es.settings import ClusterSettings

__all__ = ["Door"]

ELSEWHERE_SECONDS = 5.0
"""How long one node is waited for where there are others; a look-up is repeated there."""


class Door:
    """A `Transport` of `sira_es.cluster`. `upstream` gives the connections, which are not closed with it."""

    def __init__(self, settings: ClusterSettings, upstream: Callable[[], Upstream]) -> None:
        self._upstream = upstream
        self._urls = ", ".join(settings.url)
        self._seconds = min(settings.timeout, ELSEWHERE_SECONDS) if len(settings.url) > 1 else settings.timeout

    async def send(self, method: str, path: str, query: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        """Raises NoAnswer."""
        target = f"{path}?{query}" if query else path
        try:
            async with asyncio.timeout(self._seconds):
                response, _ = await self._upstream().send(method, target, list(headers.items()), body)
                async with response:
                    content = await response.read()
        except (Unreachable, Lost) as error:
            raise NoAnswer(error.node.address, error.cause) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NoAnswer(self._urls, error) from None
        return Answer(response.status, {k.lower(): v for k, v in response.headers.items()}, content)

    async def close(self) -> None:
        """The connections belong to others."""
