"""What a running node says of itself, over HTTP on loopback."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .engines import Engine
from .place import NodeError

__all__ = ["Identity", "check", "healthy", "identify", "settled"]


@dataclass(frozen=True)
class Identity:
    """Who answers: product, version, process id of the server, loaded plugins."""

    family: str
    version: str
    pid: int
    plugins: frozenset[str]


def _get(url: str, timeout: float) -> tuple[Any, Any] | None:
    """Headers and JSON of a 200 answer; None for any other answer, or none."""
    import http.client
    import urllib.error
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy leads to our loopback
    try:
        with opener.open(url, timeout=timeout) as answer:
            return answer.headers, json.load(answer)
    except urllib.error.HTTPError as refusal:
        refusal.close()
    except (OSError, ValueError, http.client.HTTPException):
        pass
    return None


def healthy(url: str) -> bool:
    """Whether the node has joined a cluster that answers for its health."""
    return _get(f"{url}/_cluster/health", 5) is not None


def settled(url: str, seconds: int = 30) -> None:
    """Waits at most `seconds` for the shards of earlier runs to be open again."""
    _get(f"{url}/_cluster/health?wait_for_status=yellow&timeout={seconds}s", seconds + 5)


def identify(url: str, timeout: float = 5.0) -> Identity | None:
    """Who answers at `url`; None when nobody does, or nobody we know."""
    wanted = "nodes.*.version,nodes.*.process.id,nodes.*.plugins.name"
    answer = _get(f"{url}/_nodes/_local/process,plugins?filter_path={wanted}", timeout)
    if answer is None:
        return None
    headers, body = answer
    try:
        (node,) = body["nodes"].values()
        plugins = frozenset(plugin["name"] for plugin in node.get("plugins", ()))
        family = "elasticsearch" if headers.get("X-Elastic-Product") == "Elasticsearch" else _distribution(url, timeout)
        return Identity(family, node["version"], int(node["process"]["id"]), plugins)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _distribution(url: str, timeout: float) -> str:
    answer = _get(f"{url}/", timeout)
    return str(answer[1]["version"]["distribution"]) if answer else ""


def check(engine: Engine, url: str) -> Identity:
    """The identity of the node at `url`; NodeError unless it is `engine` in its version, with its plugins."""
    found = identify(url)
    if found is None:
        raise NodeError(f"{url} gives no account of itself: look for another program on that port")
    if (found.family, found.version) != (engine.family, engine.version):
        raise NodeError(
            f"{url} answers as {found.family or 'an unknown product'} {found.version}, not as {engine.title}"
        )
    if missing := sorted(set(engine.plugins) - found.plugins):
        raise NodeError(f"{engine.title} at {url} came up without {', '.join(missing)}: see its log")
    return found
