"""The batch endpoints of the server: files, batches, their life from `validating` to an end, and their misfortunes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

__all__ = ["Batches", "Line"]

ENDS = {"completed", "failed", "expired", "cancelled"}


@dataclass
class Line:
    """How one question of a batch ends: `answer` (as the server would), `missing`, `error`, `expired`, or `says` text."""

    kind: str = "answer"
    content: str = ""
    status: int = 400
    message: str = "planted"


@dataclass
class Batches:
    """What the provider does with batches; a test sets the knobs.

    `polls` is how often a batch is asked about before it ends as `ends` says; None: not before `ends` is let.
    `line` decides about each question by its number in the batch.
    """

    ask: Callable[[Mapping[str, Any]], dict[str, Any]]
    polls: int | None = 1
    ends: str = "completed"
    error: Mapping[str, Any] | None = None
    line: Callable[[int], Line] = lambda number: Line()
    most_lines: int = 50_000
    lists: bool = True
    after_creation: Callable[[], str] = lambda: ""
    """Called when a batch was made and before that is said: "drop" closes the connection instead."""
    files: dict[str, bytes] = field(default_factory=dict)
    made: dict[str, dict[str, Any]] = field(default_factory=dict)
    paid: list[str] = field(default_factory=list)
    """The custom_id of every question that a model answered, in any batch."""
    lists_asked: int = 0
    faults: deque[Any] = field(default_factory=deque)
    """Faults of status for the next looks at a batch."""
    asked_about: dict[str, int] = field(default_factory=dict)
    """How often each batch was looked at."""

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/files", self._upload),
            web.get("/v1/files/{id}/content", self._content),
            web.post("/v1/batches", self._create),
            web.get("/v1/batches", self._list),
            web.get("/v1/batches/{id}", self._retrieve),
        ]

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        given = form["file"]
        assert isinstance(given, web.FileField)
        assert form["purpose"] == "batch"
        name = f"file-{len(self.files)}"
        self.files[name] = given.file.read()
        shown = {"id": name, "object": "file", "bytes": len(self.files[name]), "created_at": int(time.time())}
        return web.json_response({**shown, "filename": given.filename, "purpose": "batch", "status": "processed"})

    async def _content(self, request: web.Request) -> web.StreamResponse:
        content = self.files.get(request.match_info["id"])
        return _missing() if content is None else web.Response(body=content, content_type="application/octet-stream")

    async def _create(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        lines = self.files[asked["input_file_id"]].splitlines()
        name = f"batch_{len(self.made)}"
        self.made[name] = {
            "id": name,
            "object": "batch",
            "endpoint": asked["endpoint"],
            "input_file_id": asked["input_file_id"],
            "completion_window": asked["completion_window"],
            "status": "validating",
            "created_at": int(time.time()),
            "metadata": asked.get("metadata"),
            "request_counts": {"total": len(lines), "completed": 0, "failed": 0},
        }
        if len(lines) > self.most_lines:
            self._end(name, "failed", {"code": "too_many_tasks", "message": f"more than {self.most_lines} lines"})
        if self.after_creation() == "drop" and request.transport:
            request.transport.abort()
        return web.json_response(self.made[name])

    async def _list(self, request: web.Request) -> web.StreamResponse:
        self.lists_asked += 1
        if not self.lists:
            return _missing()
        newest = list(reversed(self.made.values()))
        after = request.query.get("after")
        start = next((i + 1 for i, b in enumerate(newest) if b["id"] == after), 0)
        page = newest[start : start + int(request.query.get("limit", 20))]
        more = start + len(page) < len(newest)
        last = page[-1]["id"] if page else None
        return web.json_response({"object": "list", "data": page, "has_more": more, "last_id": last})

    async def _retrieve(self, request: web.Request) -> web.StreamResponse:
        if self.faults:
            fault = self.faults.popleft()
            return web.json_response({"error": dict(fault.error)}, status=fault.code, headers=dict(fault.headers))
        name = request.match_info["id"]
        if name not in self.made:
            return _missing()
        self.asked_about[name] = self.asked_about.get(name, 0) + 1
        if self.made[name]["status"] not in ENDS:
            self.made[name]["status"] = "in_progress"
            if self.polls is not None and self.asked_about[name] > self.polls:
                self._end(name, self.ends, self.error)
        return web.json_response(self.made[name])

    def _end(self, name: str, status: str, error: Mapping[str, Any] | None) -> None:
        batch = self.made[name]
        batch["status"] = status
        if error is not None:
            batch["errors"] = {"object": "list", "data": [dict(error)]}
        if status == "failed":
            return
        done, failed = [], []
        for number, raw in enumerate(self.files[batch["input_file_id"]].splitlines()):
            asked, line = orjson.loads(raw), self.line(number)
            shown: dict[str, Any] = {"id": f"{name}_{number}", "custom_id": asked["custom_id"], "error": None}
            if line.kind == "answer" or line.kind == "says":
                body = self.ask(asked["body"])
                if line.kind == "says":
                    body["choices"][0]["message"]["content"] = line.content
                self.paid.append(asked["custom_id"])
                done.append({**shown, "response": {"status_code": 200, "request_id": "r", "body": body}})
            elif line.kind == "error":
                said = {"error": {"message": line.message, "code": None, "type": "planted"}}
                failed.append({**shown, "response": {"status_code": line.status, "request_id": "r", "body": said}})
            elif line.kind == "expired":
                cut = {"code": "batch_expired", "message": "This request could not be executed before it expired."}
                failed.append({**shown, "response": None, "error": cut})
        for kind, lines in (("output", list(reversed(done))), ("error", failed)):
            if lines:
                batch[f"{kind}_file_id"] = f"{name}-{kind}"
                self.files[f"{name}-{kind}"] = b"\n".join(orjson.dumps(line) for line in lines) + b"\n"
        batch["request_counts"] = {"total": number + 1, "completed": len(done), "failed": len(failed)}


def _missing() -> web.StreamResponse:
    return web.json_response({"error": {"message": "No such object", "type": "planted"}}, status=404)
