"""The HTTP server: uvicorn, with the request target kept byte for byte and limits on what a client may send."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sira_es.errors import ConfigurationError, SiraError
from sira_es.proxy.downstream import Cut
from sira_es.proxy.metrics import forget

__all__ = ["TARGET", "Tls", "bind", "serve"]

TARGET = "sira.target"
"""The key of the ASGI scope that holds the request target as it came."""

HEADER_BYTES = 65536
HEADER_SECONDS = 60.0
KEEP_ALIVE_SECONDS = 600
DRAIN_SECONDS = 30

log = logging.getLogger(__name__)


class _Joining:
    """A transport that sends what is written within one turn of the event loop at once: head and body in one packet."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._waiting: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._waiting:
            data, self._waiting = b"".join(self._waiting), []
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Protocol(HttpToolsProtocol):
    """Refuses headers that are too large or come too slowly, and a request that may be read in two ways."""

    _timer: asyncio.TimerHandle | None = None
    _size = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_Joining(transport, self.loop))  # type: ignore[arg-type]  # it does what is asked of it

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._size = 0
        self._timer = self.loop.call_later(HEADER_SECONDS, self.timeout_keep_alive_handler)

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        if self._timer is not None:  # else it stands after a chunked body, where nobody before us looks for a header
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_timer()
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]  # a key of our own beside those of ASGI
        scope[TARGET], self.url = self.url, b"/"  # the server need not understand it: we send it on unread
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            while data:
                try:
                    self.parser.feed_data(data)
                    return
                except httptools.HttpParserUpgrade as offered:
                    data = data[offered.args[0] :]
                    self._decline_upgrade()
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _decline_upgrade(self) -> None:
        """Another protocol was offered and is not taken: the parser has left the body out, so a new one goes on there."""
        framing = [h for h in self.headers if h[0] in {b"content-length", b"transfer-encoding"}]
        self.cycle.more_body = bool(framing)
        self.parser = httptools.HttpRequestParser(_Resumed(self, told=bool(framing)))
        if framing:
            head = b"".join(b"%s: %s\r\n" % pair for pair in framing)
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + head + b"\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > HEADER_BYTES:
            raise ValueError  # in a callback of the parser: the connection is answered with 400 and closed

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Resumed:
    """Callbacks of a parser that goes on after the head of a request, which it is told but its protocol knows."""

    def __init__(self, protocol: Protocol, *, told: bool) -> None:
        self._protocol = protocol
        self._told = told
        self.on_body = protocol.on_body
        self.on_message_complete = protocol.on_message_complete

    def on_message_begin(self) -> None:
        if not self._told:
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._told:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._told:
            self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._told:
            self._protocol.on_headers_complete()
        self._told = False


class Tls:
    """Certificate and key with which clients are served."""

    def __init__(self, certificate: Path, key: Path | None) -> None:
        self.certificate, self.key = certificate, key


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ConfigurationError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=4096)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --listen") from None


def serve(make_app: Callable[[], Any], listening: socket.socket, *, workers: int = 1, tls: Tls | None = None) -> int:
    """Serve until SIGTERM or SIGINT, then let requests end. SIGHUP reaches the app of every worker.

    Returns the exit code; raises the SiraError that an app could not start for, its `failure`, and ConfigurationError
    for a certificate that cannot be used.
    """
    if tls is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key)
        except OSError as error:
            raise ConfigurationError(f"--tls-cert: cannot use it with its key ({error}); give PEM files") from None
    if workers == 1:
        return _run(make_app, listening, tls)
    return _Workers(lambda: _run(make_app, listening, tls)).run(workers)


def _run(make_app: Callable[[], Any], listening: socket.socket, tls: Tls | None) -> int:
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    app = make_app()
    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="on",
        proxy_headers=False,
        server_header=False,
        date_header=False,
        access_log=False,
        log_config=None,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
    )
    server = uvicorn.Server(config)
    too_early = False

    def end(*_: object) -> None:
        nonlocal too_early
        if not server.should_exit:  # else all requests have ended, and it only raises once more what it was ended by
            too_early = True
            sys.exit()

    signal.signal(signal.SIGTERM, end)
    with contextlib.suppress(KeyboardInterrupt, SystemExit):  # it exits by itself where the app cannot start
        server.run(sockets=[listening])
    if app.failure is not None:
        raise app.failure
    return 0 if server.started or too_early else 1


def _is_news(record: logging.LogRecord) -> bool:
    """Answers that broke off are in our own log, as is why we cannot start; malformed requests are the client's affair."""
    if record.levelno < logging.ERROR or "startup failed" in record.getMessage():
        return False
    return not (record.exc_info and isinstance(record.exc_info[1], Cut))


class _Workers:
    """Processes that share one listening socket; one that ends unasked is started again."""

    def __init__(self, work: Callable[[], int]) -> None:
        self._work = work
        self._children: set[int] = set()
        self._ending = False

    def run(self, count: int) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        signal.signal(signal.SIGHUP, lambda *_: self._tell(signal.SIGHUP))
        for _ in range(count):
            self._start()
        failed = 0
        while self._children:
            child, status = os.wait()
            self._children.discard(child)
            forget(child)
            if not self._ending:
                failed += 1
                log.error("worker %d ended with status %d", child, os.waitstatus_to_exitcode(status))
                if failed > 10 * count:
                    self._end()
                    return 1
                self._start()
        return 0

    def _start(self) -> None:
        child = os.fork()
        if child:
            self._children.add(child)
            return
        code = 1
        try:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            code = self._work()
        except SiraError as error:
            log.error("%s", error)
        finally:
            os._exit(code)

    def _end(self, *_: object) -> None:
        self._ending = True
        self._tell(signal.SIGTERM)

    def _tell(self, number: int) -> None:
        for child in self._children:
            os.kill(child, number)
