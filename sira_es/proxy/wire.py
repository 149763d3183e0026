"""One request as it came, what of its headers goes on, and what of the answer's goes back."""

from __future__ import annotations

import copy
import hashlib
import secrets
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

__all__ = ["BadRequest", "Caller", "Request", "returned_headers"]

Headers = list[tuple[str, str]]
RawHeaders = list[tuple[bytes, bytes]]

_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization"
    b" te trailer transfer-encoding upgrade http2-settings".split()
)
_NOT_FORWARDED = _HOP_BY_HOP | {b"host", b"expect", b"x-sira", b"x-sira-key"}
_NOT_RETURNED = _HOP_BY_HOP | {b"x-sira-expansion"}

# What decides on which documents a caller may see. It goes out with our own look-ups, in place of our credentials.
_SIGN_IN = (
    "authorization",
    "es-client-authentication",
    "es-secondary-authorization",
    "es-security-runas-user",
    "opendistro_security_impersonate_as",
    "opensearch_security_impersonate_as",
    "securitytenant",
    "x-proxy-user",
    "x-proxy-roles",
    "cookie",
)
_ATTRIBUTE = b"x-proxy-ext-"
"""How headers begin that tell more of who asks; a user may see the documents of one tenant, or team."""

_SINGLE = frozenset(name.encode() for name in _SIGN_IN if name != "cookie") | {b"host"}
"""What may be given once: of several the cluster might take another than we do. A cookie may come in parts (RFC 9113)."""

_KEPT = frozenset(name.encode() for name in _SIGN_IN) | {b"content-length", b"content-type", b"content-encoding"}
_SALT = secrets.token_bytes(16)  # an identity tells nothing outside this process and its children


class BadRequest(Exception):  # noqa: N818  it is the client's
    """The request is not forwarded; the message says why, and is the answer."""


@dataclass(frozen=True)
class Caller:
    """Who asks: the headers that sign in, and a key for caches that tells different ones apart."""

    headers: Mapping[str, str]

    @cached_property
    def identity(self) -> str:
        """Empty for somebody without credentials."""
        if not self.headers:
            return ""
        signed = "\n".join(f"{name}:{value}" for name, value in self.headers.items())
        return hashlib.blake2b(signed.encode(), key=_SALT, digest_size=16).hexdigest()

    @property
    def signs_requests(self) -> bool:
        """The credentials are a signature over the body (AWS): another body would be refused."""
        return self.headers.get("authorization", "").startswith("AWS4-")


class Request:
    """A request's line and headers; `target` is the request target byte for byte. Raises BadRequest.

    `raw` are the headers with names in lower case, as ASGI servers give them.
    """

    def __init__(self, method: str, target: bytes, raw: RawHeaders, client: str) -> None:
        self.method = method
        self.client = client
        try:
            self.target = target.decode()
            self._headers = [(name.decode("ascii"), value.decode()) for name, value in _forwarded(raw)]
        except UnicodeDecodeError:
            raise BadRequest("the request target and headers must be UTF-8") from None
        if not (target.startswith(b"/") or (target == b"*" and method == "OPTIONS")):
            raise BadRequest("the request target must be a path; this is not a forward proxy")
        self._raw = raw

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    def header(self, name: bytes) -> str | None:
        """The value of a header, the last where there are several."""
        found = [value for key, value in self._raw if key == name]
        return found[-1].decode("latin-1").strip() if found else None

    @property
    def has_body(self) -> bool:
        return any(key in {b"content-length", b"transfer-encoding"} for key, _ in self._raw)

    @property
    def headers(self) -> Headers:
        """What goes on: all but hop-by-hop headers and ours, in the order sent."""
        return self._headers

    def headers_for(self, body: bytes) -> Headers:
        """The same for another body, which goes out uncompressed and with its length."""
        kept = [h for h in self._headers if h[0] not in {"content-length", "content-encoding"}]
        return [*kept, ("content-length", str(len(body)))]

    def marked(self, mark: str) -> Request:
        """The same, told apart by X-Opaque-Id in what the cluster logs."""
        other = copy.copy(self)
        other._headers = [*(h for h in self._headers if h[0] != "x-opaque-id"), ("x-opaque-id", mark)]
        return other

    @cached_property
    def caller(self) -> Caller:
        given = dict(self._headers)
        if "cookie" in given:
            given["cookie"] = "; ".join(value for name, value in self._headers if name == "cookie")
        names = [name for name in _SIGN_IN if name in given]
        names += sorted(name for name in given if name.startswith(_ATTRIBUTE.decode()))
        if "x-proxy-user" in given and "x-forwarded-for" in given:
            names.append("x-forwarded-for")  # proxy authentication trusts the first by the second
        return Caller({name: given[name] for name in names})


def _forwarded(raw: RawHeaders) -> RawHeaders:
    named: set[bytes] = set()
    single: set[bytes] = set()
    for name, value in raw:
        if name == b"connection":
            named |= {token.strip().lower() for token in value.split(b",")}
        elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
            raise BadRequest("no transfer encoding but chunked is understood")
        elif name in _SINGLE or name.startswith(_ATTRIBUTE):
            if name in single:
                raise BadRequest(f"there is more than one {name.decode().title()} header")
            single.add(name)
    if named & _KEPT or any(name.startswith(_ATTRIBUTE) for name in named):
        raise BadRequest("the Connection header names a header that must reach the cluster")
    left_out = _NOT_FORWARDED | named if named else _NOT_FORWARDED
    return [(name, value) for name, value in raw if name not in left_out]


def returned_headers(raw: Iterable[tuple[bytes, bytes]], own: Iterable[tuple[bytes, bytes]] = ()) -> RawHeaders:
    """The headers of an answer that go back to the client, and ours."""
    return [(name, value) for name, value in raw if name.lower() not in _NOT_RETURNED] + list(own)


def inflated(body: bytes, limit: int) -> bytes | None:
    """A gzip or deflate body without its compression; None where it is none, more follows it, or it is longer than `limit`."""
    reader = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        found = reader.decompress(body, limit)
    except zlib.error:
        return None
    return found if reader.eof and not reader.unused_data else None
