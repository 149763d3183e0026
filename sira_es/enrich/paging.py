"""Pages worked on a few at a time, while the next one is read."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing

from sira_es.cluster.scan import Hit

__all__ = ["PAGE", "each_page"]

PAGE = 500
AT_A_TIME = 4
TICK = 5.0  # seconds between reports of progress while a page takes long


async def each_page(
    pages: AsyncGenerator[list[Hit], None],
    handle: Callable[[Sequence[Hit]], Awaitable[None]],
    *,
    is_over: Callable[[], bool],
    on_progress: Callable[[], None],
) -> None:
    """Handle all pages, `AT_A_TIME` together, until `is_over`. What `handle` raises ends it, and the pages beside it."""
    tasks: deque[asyncio.Task[None]] = deque()

    async def one(hits: Sequence[Hit]) -> None:
        await handle(hits)
        on_progress()

    async def tick() -> None:
        while True:
            await asyncio.sleep(TICK)
            on_progress()

    ticker = asyncio.create_task(tick())
    try:
        async with aclosing(pages):
            async for hits in pages:
                tasks.append(asyncio.create_task(one(hits)))
                while len(tasks) >= AT_A_TIME:
                    await tasks.popleft()
                if is_over():
                    break
        while tasks:
            await tasks.popleft()
    finally:
        for task in (ticker, *tasks):
            task.cancel()
        await asyncio.gather(ticker, *tasks, return_exceptions=True)
