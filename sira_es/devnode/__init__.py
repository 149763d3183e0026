"""Real single nodes on this machine's loopback, made from Maven artifacts: no Docker, no cluster, no root needed.

    node = devnode.up("os2")        # node.url answers; again: the same node
    devnode.status()                # what runs, where
    devnode.down("os2")             # nothing of it runs; its data stays unless purge=True

Distributions and data live in `home()`. For development and tests only: no TLS, no users, loopback alone.
"""

from __future__ import annotations

from .engines import ENGINES, Engine
from .node import NodeStatus, RunningNode, down, status, up
from .place import NodeError, ToolMissingError, home

__all__ = [
    "ENGINES",
    "Engine",
    "NodeError",
    "NodeStatus",
    "RunningNode",
    "ToolMissingError",
    "down",
    "home",
    "status",
    "up",
]
