"""What is not a search goes through as it comes, both ways, in constant memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp

from sira_es.proxy.downstream import Cut, Downstream
from sira_es.proxy.upstream import Body, Lost, Unreachable, Upstream
from sira_es.proxy.wire import RawHeaders, Request, returned_headers

__all__ = ["pass_through", "stream_answer", "tell"]

SMALL = 65536
"""Answers of at most so many bytes are passed on in one piece."""


async def pass_through(
    upstream: Upstream,
    request: Request,
    client: Downstream,
    *,
    begun: tuple[bytes, AsyncIterator[bytes]] | None = None,
    own: RawHeaders | None = None,
) -> None:
    """Send a request on and its answer back. `begun`: what was read of its body, and the rest; `own`: our headers.

    Raises Unreachable or Lost while nothing was answered, Cut afterwards.
    """
    body: Body = None
    if begun is not None:
        body = lambda: _joined(*begun)  # noqa: E731
    elif request.has_body:
        body = client.chunks
    else:
        client.watch()
    response, node = await upstream.send(request.method, request.target, request.headers, body)
    try:
        await stream_answer(response, client, own or [])
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        if client.started:
            raise Cut from None
        raise Lost(node, error) from None


async def stream_answer(response: aiohttp.ClientResponse, client: Downstream, own: RawHeaders) -> None:
    """An answer as it comes; given back to the pool at its end, closed where it is not wanted to the end."""
    headers = returned_headers(response.raw_headers, own)
    try:
        if (response.content_length or SMALL + 1) <= SMALL:
            await client.answer(response.status, headers, await response.read())
            return
        await client.start(response.status, headers)
        async for part in response.content.iter_any():
            await client.write(part)
        await client.finish()
    finally:
        response.close() if not response.content.is_eof() else response.release()


async def tell(client: Downstream, error: Unreachable | Lost) -> None:
    """Answer with what came of an exchange upstream: 502, or 504 where a node took too long."""
    if isinstance(error, Unreachable):
        await client.refuse(502, "sira_upstream_unreachable", f"no node of the cluster can be reached ({error})")
    elif error.timed_out:
        await client.refuse(504, "sira_upstream_timeout", f"the cluster took too long ({error})")
    else:
        await client.refuse(502, "sira_upstream_lost", f"the connection to the cluster broke ({error})")


async def _joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in rest:
        yield part
