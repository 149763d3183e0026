"""One line of JSON for each request: what was done and how long it took, never a text, a parameter or a credential."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any, BinaryIO

import orjson
import structlog

__all__ = ["AccessLog"]

FLUSH_SECONDS = 0.1


class AccessLog:
    """Writes to stderr, in one go what comes within a tenth of a second: a write for each line costs more than its request."""

    def __init__(self, stream: BinaryIO | None = None) -> None:
        self._stream = stream or sys.stderr.buffer
        self._waiting: list[bytes] = []
        processors: list[Any] = [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(serializer=lambda event, **_: orjson.dumps(event, default=str)),
        ]
        self._logger = structlog.wrap_logger(
            self, processors=processors, wrapper_class=structlog.BoundLogger, cache_logger_on_first_use=True
        ).bind()

    def line(self, **known: Any) -> None:
        """Note a request."""
        self._logger.info("request", **known)

    def info(self, message: bytes) -> None:
        """Take a finished line from structlog."""
        if not self._waiting:
            asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
        self._waiting.append(message + b"\n")

    def flush(self) -> None:
        """Write what waits; where nobody reads stderr any more, the lines are lost and requests go on."""
        lines, self._waiting = self._waiting, []
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(b"".join(lines))
            self._stream.flush()
