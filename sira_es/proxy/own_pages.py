"""What the proxy says of itself: /_sira/health, /_sira/metrics, /_sira/expand."""

from __future__ import annotations

import math
from urllib.parse import parse_qs

import orjson

from sira_es.errors import SiraError
from sira_es.proxy.downstream import Downstream
from sira_es.proxy.metrics import CONTENT_TYPE_LATEST, Metrics
from sira_es.proxy.room import Room
from sira_es.proxy.wire import Request

__all__ = ["PREFIX", "own_page"]

PREFIX = "/_sira/"


async def own_page(room: Room, request: Request, client: Downstream, metrics: Metrics) -> None:
    """Answer a request to a path of ours."""
    path, _, query = request.target.partition("?")
    if request.method not in {"GET", "HEAD"}:
        await client.refuse(405, "sira_method", "only GET here")
    elif path == "/_sira/health/live":
        await _json(client, 200, {"status": "live"})
    elif path in {"/_sira/health", "/_sira/health/ready"}:
        await _health(room, client)
    elif path == "/_sira/metrics":
        for node in room.upstream.nodes:
            metrics.node.labels(node.name).set(float(node.up))
        page = metrics.page()
        headers = [(b"content-type", CONTENT_TYPE_LATEST.encode()), (b"content-length", str(len(page)).encode())]
        await client.answer(200, headers, page)
    elif path == "/_sira/expand":
        await _expand(room, request, client, query)
    else:
        await client.refuse(404, "sira_unknown", f"no such page; there are {PREFIX}health, metrics, expand")


async def _health(room: Room, client: Downstream) -> None:
    up = await room.upstream.ping()
    status = ("ready" if room.prepared else "starting") if up else "the cluster does not answer"
    nodes = {node.name: "up" if node.up else "down" for node in room.upstream.nodes}
    await _json(client, 200 if status == "ready" else 503, {"status": status, "nodes": nodes})


async def _expand(room: Room, request: Request, client: Downstream, query: str) -> None:
    """Why: the expansion of `q` on `index` with everything that is known of each word, as this caller sees the index."""
    given = parse_qs(query)
    index, text = given.get("index", [""])[0], given.get("q", [""])[0]
    if index not in room.settings.indices or not text:
        await client.refuse(400, "sira_expand", "give index=, one that is configured, and q=")
        return
    try:
        known = await room.indices.get(index, request.caller)
        names = [name for name, _ in room.settings.index(index).fields]
        coverage = await (await known.sees.frequencies()).coverage(known.target, names)
        if coverage.documents is None:
            await client.refuse(403, "sira_expand", "these credentials may not search the index")
            return
        never = room.options.online_of(room.settings.index(index)) == "never"
        found = await known.sees.expand_all([text], index, target=known.target, deadline=0 if never else math.inf)
        await _json(client, 200, found[0].to_json())
    except SiraError as error:
        await client.refuse(502, "sira_expand", " ".join(str(error).split()))


async def _json(client: Downstream, status: int, value: object) -> None:
    body = orjson.dumps(value)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await client.answer(status, headers, body)
