"""What a running node says of itself, over HTTP on loopback."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .engines import Engine
from .place import NodeError

__all__ = ["ADMINISTRATOR", "Identity", "check", "healthy", "identify", "settled"]

ADMINISTRATOR = "admin"  # the user of a node with security


@dataclass(frozen=True)
class Identity:
    """Who answers: product, version, process id of the server, loaded plugins."""

    family: str
    version: str
    pid: int
    plugins: frozenset[str]


def _get(url: str, timeout: float, password: str) -> tuple[Any, Any] | None:
    """Headers and JSON of a 200 answer; None for any other answer, or none."""
    import base64
    import http.client
    import ssl
    import urllib.error
    import urllib.request

    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]  # no proxy leads to our loopback
    if url.startswith("https:"):
        trusting = ssl.create_default_context()
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE  # our own node, on loopback; who it is follows from its process
        handlers.append(urllib.request.HTTPSHandler(context=trusting))
    request = urllib.request.Request(url)  # noqa: S310  http or https: of our own node
    if password:
        credentials = base64.b64encode(f"{ADMINISTRATOR}:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {credentials}")
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout) as answer:
            return answer.headers, json.load(answer)
    except urllib.error.HTTPError as refusal:
        refusal.close()
    except (OSError, ValueError, http.client.HTTPException):
        pass
    return None


def healthy(url: str, password: str = "") -> bool:
    """Whether the node has joined a cluster that answers for its health."""
    return _get(f"{url}/_cluster/health", 5, password) is not None


def settled(url: str, password: str = "", seconds: int = 30) -> None:
    """Waits at most `seconds` for the shards of earlier runs to be open again."""
    _get(f"{url}/_cluster/health?wait_for_status=yellow&timeout={seconds}s", seconds + 5, password)


def identify(url: str, password: str = "", timeout: float = 5.0) -> Identity | None:
    """Who answers at `url`; None when nobody does, or nobody we know."""
    wanted = "nodes.*.version,nodes.*.process.id,nodes.*.plugins.name"
    answer = _get(f"{url}/_nodes/_local/process,plugins?filter_path={wanted}", timeout, password)
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
    answer = _get(f"{url}/", timeout, "")
    return str(answer[1]["version"]["distribution"]) if answer else ""


def check(engine: Engine, url: str, password: str = "") -> Identity:
    """The identity of the node at `url`; NodeError unless it is `engine` in its version, with its plugins."""
    found = identify(url, password)
    if found is None:
        raise NodeError(f"{url} gives no account of itself: look for another program on that port")
    if (found.family, found.version) != (engine.family, engine.version):
        raise NodeError(
            f"{url} answers as {found.family or 'an unknown product'} {found.version}, not as {engine.title}"
        )
    if missing := sorted(set(engine.plugins) - found.plugins):
        raise NodeError(f"{engine.title} at {url} came up without {', '.join(missing)}: see its log")
    return found
