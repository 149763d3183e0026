"""The one door to the cluster: which engine answers, signed in how, and what its refusals mean.

`connect` finds out product and version, also where `GET /` is refused; `Cluster.request` is the same for all engines.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import orjson

from sira_es.cluster.engine import Clues, Engine
from sira_es.cluster.privileges import missing_privilege
from sira_es.cluster.transport import Answer, ElasticsearchDoor, NoAnswer, OpenSearchDoor, Transport, why_no_answer
from sira_es.errors import ClusterError, ClusterRefused, ClusterUnreachable, UnsupportedError
from sira_es.settings import ClusterSettings

__all__ = ["Cluster", "cause_of", "connect", "expected", "segment", "together"]

Params = Mapping[str, str | int | bool]
R = TypeVar("R")

# Repeating one of these changes nothing on the cluster.
_READS = frozenset({"_search", "_msearch", "_count", "_termvectors", "_mtermvectors", "_explain", "_validate", "_mget"})
_BUSY = frozenset({429, 502, 503, 504})
_PAUSES = (0.1, 0.4)  # seconds before a read is repeated
_SALT = secrets.token_bytes(16)  # an identity can be compared within this process and tells nothing outside it


class Cluster:
    """A cluster, with one set of credentials. `url` names its nodes, without credentials."""

    def __init__(
        self, engine: Engine, transport: Transport, settings: ClusterSettings, sign_in: Mapping[str, str], who: str
    ) -> None:
        self.engine = engine
        self.url = ", ".join(settings.url)
        self._transport = transport
        self._settings = settings
        self._sign_in = {name.lower(): value for name, value in sign_in.items()}
        self._who = who

    def __repr__(self) -> str:
        return f"<Cluster {self.url}: {self.engine}>"

    @property
    def identity(self) -> str:
        """A value that differs between different credentials, for keys of caches in this process."""
        return hashlib.sha256(_SALT + orjson.dumps([self._who, *sorted(self._sign_in.items())])).hexdigest()[:16]

    def as_caller(self, headers: Mapping[str, str]) -> Cluster:
        """The same cluster and connections under somebody else's credentials: `headers` go out in place of ours.

        Raises UnsupportedError where the request would still go out as ourselves: with AWS signatures, or with a client
        certificate and no headers.
        """
        if self._settings.aws or (self._settings.client_cert and not headers):
            way = "cluster.aws" if self._settings.aws else "cluster.client_cert"
            raise UnsupportedError(f"{way} signs in every request: a caller's own rights cannot be used beside it")
        who = "the caller's own credentials" if headers else ""
        return Cluster(self.engine, self._transport, self._settings, headers, who)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Any = None,
        lines: Sequence[Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send JSON (`body`) or a line of JSON each (`lines`; bytes go out as they are), return the JSON of the answer.

        `path` starts with "/"; use `segment` for names in it. What only reads is repeated after a lost connection and
        while the cluster is busy; anything else only where it cannot have arrived. Raises ClusterUnreachable, or
        ClusterRefused for any status of 300 and above, with the error type and reason of the root cause.
        """
        content, kind = None, "json"
        if lines is not None:
            content, kind = b"".join(_line(line) for line in lines), "x-ndjson"
        elif body is not None:
            content = dumps(body)
        sent = {**self._sign_in, "accept": self.engine.media_type("json"), "x-opaque-id": "sira-es", **(headers or {})}
        if content is not None:
            sent["content-type"] = self.engine.media_type("x-ndjson" if kind == "x-ndjson" else "json")
        reads = method in {"GET", "HEAD"} or not _READS.isdisjoint(path.split("/"))
        answer = await _exchange(self._transport, self._settings, (method, path, _query(params), content), sent, reads)
        if answer.status >= 300:
            raise self._refusal(method, path, answer)
        if not answer.content:
            return None
        try:
            return loads(answer.content)
        except ValueError:
            raise ClusterError(f"{method} {path}: the answer of {self.url} is not JSON; check cluster.url") from None

    async def close(self) -> None:
        """Close all connections, also those of the views made with `as_caller`."""
        await self._transport.close()

    def _refusal(self, method: str, path: str, answer: Answer) -> ClusterRefused:
        kind, reason = _error_of(answer)
        what = f"{method} {path}"
        if answer.status == 401:
            if self._who:
                message = f"{self.url} does not accept {self._who} ({reason or 'HTTP 401'}); correct them"
            else:
                message = f"{self.url} asks for credentials; set cluster.api_key, cluster.basic_auth or cluster.bearer"
        elif answer.status == 403 and kind in {"", "security_exception", "authorization_exception"}:
            missing = missing_privilege(reason)
            grant = f"grant the privilege '{missing}'" if missing else "grant what is missing"
            message = f"{what}: not allowed with {self._who or 'no credentials'} ({reason or 'HTTP 403'}); {grant}"
        elif _is_wrong_path(answer):
            message = f"{what}: {reason} (HTTP 400); check cluster.url"
        elif kind == "cluster_block_exception":
            message = f"{what}: {reason} (HTTP {answer.status}); lift the block (index.blocks.*, or the cluster's)"
        elif answer.status == 413:
            message = f"{what}: larger than the cluster takes; raise its http.max_content_length, or send less"
        else:
            message = f"{what}: {reason or 'refused'} ({kind + ', ' if kind else ''}HTTP {answer.status})"
        return ClusterRefused(message, status=answer.status, error_type=kind, reason=reason)


async def connect(
    settings: ClusterSettings, *, caller: Mapping[str, str] | None = None, transport: Transport | None = None
) -> Cluster:
    """Find out which product and version answers, and hold connections to it with the client that fits, or `transport`.

    `caller`: headers of somebody whose credentials may be used to find out, where the settings have none.
    Raises ClusterUnreachable, ClusterRefused for wrong credentials, ClusterError where something else answers there.
    """
    sign_in, who = _credentials(settings)
    given = transport
    transport = given or (OpenSearchDoor(settings) if settings.aws else ElasticsearchDoor(settings))
    try:
        asking = sign_in or caller or {}
        engine = await _detect(Cluster(Engine("opensearch", None), transport, settings, asking, who))
        if engine.family == "opensearch" and not settings.aws and given is None:
            await transport.close()
            transport = OpenSearchDoor(settings)
    except BaseException:
        await transport.close()
        raise
    return Cluster(engine, transport, settings, sign_in, who)


async def _detect(cluster: Cluster) -> Engine:
    """Three questions, each only where the one before was not enough: the root page, the nodes, and any search."""
    clues = Clues()
    questions: tuple[tuple[str, Params], ...] = (
        ("/", {}),
        ("/_nodes/_local", {"filter_path": "nodes.*.version"}),
        ("/_search", {"size": 0}),
    )
    refused = None
    for path, params in questions:
        answer = await _ask(cluster, path, params)
        if answer.status == 403 and any(_error_of(answer)):
            refused = refused or cluster._refusal("GET", path, answer)
        clues.add(path, answer.status, answer.headers, _parsed(answer))
        if engine := clues.engine():
            return engine
    if engine := clues.engine(last=True):
        return engine
    if refused:
        raise refused
    raise ClusterError(f"{cluster.url} answers, but not as Elasticsearch or OpenSearch do; check cluster.url")


async def _ask(cluster: Cluster, path: str, params: Params | None) -> Answer:
    sent = {"accept": "application/json", "x-opaque-id": "sira-es", **cluster._sign_in}
    answer = await _exchange(cluster._transport, cluster._settings, ("GET", path, _query(params), None), sent, True)
    if answer.status == 401 or answer.status in _BUSY or _is_wrong_path(answer):
        raise cluster._refusal("GET", path, answer)
    return answer


def _is_wrong_path(answer: Answer) -> bool:
    """Whether an engine knows no such path: what is before ours, in the URL, is not cut off on the way."""
    return answer.status == 400 and _error_of(answer)[1].startswith("no handler found for uri")


async def _exchange(
    transport: Transport,
    settings: ClusterSettings,
    request: tuple[str, str, str, bytes | None],
    headers: Mapping[str, str],
    reads: bool,
) -> Answer:
    """Send until there is an answer: elsewhere if a node is not reached, and a read again after a loss or if busy."""
    pauses = list(_PAUSES) if reads else []
    unreached, lost = len(settings.url), 1 if reads else 0
    while True:
        try:
            answer = await transport.send(*request, headers)
        except NoAnswer as error:
            if error.sent and lost and not isinstance(error.cause, TimeoutError):
                lost -= 1
                continue
            unreached -= 1
            if not error.sent and unreached:
                continue
            which = "" if error.sent or len(settings.url) == 1 else f"none of {len(settings.url)} nodes answers: "
            raise ClusterUnreachable(which + why_no_answer(error, settings.timeout)) from None
        if answer.status not in _BUSY or not pauses:
            return answer
        await asyncio.sleep(pauses.pop(0))


def _credentials(settings: ClusterSettings) -> tuple[dict[str, str], str]:
    """The header that signs in, and how to call it in a message."""
    if settings.api_key:
        return {"authorization": f"ApiKey {settings.api_key.get_secret_value()}"}, "the credentials of cluster.api_key"
    if settings.bearer:
        return {"authorization": f"Bearer {settings.bearer.get_secret_value()}"}, "the credentials of cluster.bearer"
    if settings.basic_auth:
        encoded = base64.b64encode(settings.basic_auth.get_secret_value().encode()).decode()
        return {"authorization": f"Basic {encoded}"}, "the credentials of cluster.basic_auth"
    if settings.aws:
        return {}, "the AWS credentials of this machine"
    return {}, "the credentials of cluster.client_cert" if settings.client_cert else ""


async def together(*calls: Awaitable[R]) -> list[R]:
    """The results of calls made at the same time. Where one raises, that is raised when the others have ended too."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def segment(name: str) -> str:
    """A name or expression of names as part of a path. Commas, wildcards and `cluster:index` keep their meaning."""
    return quote(name, safe=",*:")


@contextmanager
def expected(what: str) -> Iterator[None]:
    """Reading an answer inside raises ClusterError, not KeyError, where it does not have the form that it should."""
    try:
        yield
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise ClusterError(
            f"{what}: the cluster's answer has an unexpected form ({type(error).__name__}: {error})"
        ) from error


def cause_of(error: Any) -> tuple[str, str]:
    """Type and reason of the root cause of an `error` as engines nest it, and the reason of the deepest `caused_by`."""
    if not isinstance(error, dict):
        return "", _in_one_line(str(error or ""))[:500]
    roots = error.get("root_cause")
    root = roots[0] if isinstance(roots, list) and roots and isinstance(roots[0], dict) else error
    deepest: dict[str, Any] = {"caused_by": error.get("caused_by")}
    while isinstance(deepest.get("caused_by"), dict):
        deepest = deepest["caused_by"]
    kind, reason = str(root.get("type") or ""), str(root.get("reason") or "")
    detail = str(deepest.get("reason") or "")
    if detail and detail not in reason:
        reason = f"{reason}: {detail}" if reason else detail
    return _in_one_line(kind), _in_one_line(reason)[:1000]


def _in_one_line(text: str) -> str:
    """What a cluster said, which may quote half a surrogate pair of a document."""
    return " ".join(text.encode("utf-8", "replace").decode().split())


def loads(content: bytes) -> Any:
    """JSON to values. Raises ValueError. Lone surrogates, which engines store as they get them, are let through."""
    try:
        return orjson.loads(content)
    except ValueError:
        try:
            return json.loads(content.decode("utf-8", "surrogatepass"))
        except RecursionError:
            raise ValueError("nested too deeply") from None


def dumps(value: Any) -> bytes:
    """Values to JSON; what strict UTF-8 cannot hold goes out escaped."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value).encode()


def _line(value: Any) -> bytes:
    return (value if isinstance(value, bytes) else dumps(value)) + b"\n"


def _query(params: Params | None) -> str:
    return urlencode({k: str(v).lower() if isinstance(v, bool) else v for k, v in (params or {}).items()})


def _parsed(answer: Answer) -> Any:
    try:
        return loads(answer.content)
    except ValueError:
        return None


def _error_of(answer: Answer) -> tuple[str, str]:
    parsed = _parsed(answer)
    if isinstance(parsed, dict) and "error" in parsed:
        return cause_of(parsed["error"])
    if isinstance(parsed, dict):
        return "", str(parsed.get("message") or parsed.get("Message") or "")[:500]
    text = answer.content.decode("utf-8", "replace").strip()
    return "", "" if text.startswith("<") else " ".join(text.split())[:200]
