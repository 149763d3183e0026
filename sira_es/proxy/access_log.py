"""One line of JSON for each request: what was done and how long it took, never a text, a parameter or a credential."""

from __future__ import annotations

import sys
from typing import Any

import orjson
import structlog

__all__ = ["access_log"]


def access_log() -> Any:
    """The log, on stderr."""
    return structlog.wrap_logger(
        structlog.BytesLogger(sys.stderr.buffer),
        processors=[
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(serializer=lambda event, **_: orjson.dumps(event, default=str)),
        ],
        wrapper_class=structlog.BoundLogger,
        cache_logger_on_first_use=True,
    )
