"""The process of the API: uvicorn over one socket, a log of requests, limits of connections."""

import asyncio
import re
import resource
import secrets
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, ClassVar

import structlog
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from distrain.service.api.app import make_app
from distrain.service.page import add_pages
from distrain.service.settings import Settings
from distrain.service.store.store import open_store

HEAD_S = 20.0  # how long the head of a request may take, or the first to come
HEAD_BYTES = 64 * 2**10  # of a head, at most; parsers collect it in memory, and ever more slowly
REQUEST_BYTES = 4 * 2**20  # of all that comes before an answer; bodies have a limit of their own
_MOST_IDLE = 4096


class ApiConnection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # chosen at run time
    """A connection that is cut where a request does not end; it notes its client's certificate."""

    _head_due: asyncio.TimerHandle | None = None
    _came_bytes = 0  # of the request that is on its way, or at work
    _idle: ClassVar[dict["ApiConnection", None]] = {}  # the oldest first

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_head()
        name = common_name(transport.get_extra_info("peercert"))
        if name:
            self.app: ASGIApp = _told(self.app, name)

    def data_received(self, data: bytes) -> None:
        if self._head_due is None and not self._is_at_work():  # a new request begins
            self._came_bytes = 0
        super().data_received(data)
        self._came_bytes += len(data)
        at_work = self._is_at_work()
        if at_work:
            self._expect_nothing()
        elif self._head_due is None:
            self._expect_head()
        if self._came_bytes > (REQUEST_BYTES if at_work else HEAD_BYTES):
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._expect_nothing()
        super().connection_lost(error)

    def _is_at_work(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not (self.transport.is_closing() or self._is_at_work()):
            self._note_idle()

    def _note_idle(self) -> None:
        self._idle.pop(self, None)
        self._idle[self] = None
        if len(self._idle) > most_idle():
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            oldest.transport.abort()

    def _expect_head(self) -> None:
        self._head_due = self.loop.call_later(HEAD_S, self._end_if_idle)
        self._note_idle()

    def _expect_nothing(self) -> None:
        self._idle.pop(self, None)
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _end_if_idle(self) -> None:
        self._head_due = None
        upgraded = self not in self.connections  # to a WebSocket, which has another protocol
        if not upgraded and not self._is_at_work():
            self.transport.abort()


@cache
def most_idle() -> int:
    """The idle connections that a process keeps: a quarter of its descriptors."""
    return min(_MOST_IDLE, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)


def take_all_descriptors() -> None:
    """Raise this process's limit of open files to its maximum: most have 1,024 before."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def common_name(certificate: Any) -> str | None:
    """The common name of a certificate as `ssl` gives it; `None` without one.

    >>> common_name({"subject": ((("commonName", "proxy"),),)})
    'proxy'
    """
    for part in (certificate or {}).get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return None


def _told(app: ASGIApp, name: str) -> ASGIApp:
    async def with_name(scope: Scope, receive: Receive, send: Send) -> None:
        extensions = {**(scope.get("extensions") or {}), "tls": {"client_cert_name": name}}
        await app({**scope, "extensions": extensions}, receive, send)

    return with_name


HEADER = b"x-request-id"
_GOOD_ID = re.compile(rb"[A-Za-z0-9._-]{8,64}")
_QUIET = frozenset({"/livez", "/readyz", "/metrics"})

_log = structlog.stdlib.get_logger("distrain.service.requests")


class RequestLog:
    """Gives each request an id, or takes the caller's, and logs its answer, without the query."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        given = dict(scope["headers"]).get(HEADER, b"")
        request_id = given if _GOOD_ID.fullmatch(given) else secrets.token_hex(8).encode()
        begun_s, status = time.monotonic(), 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (HEADER, request_id)]
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id.decode()):
            try:
                await self._app(scope, receive, noted)
            finally:
                if scope["path"] not in _QUIET or status >= 400 or not status:
                    await _log.ainfo(
                        "request",
                        method=scope["method"],
                        path=scope["path"],
                        status=status,
                        duration_s=round(time.monotonic() - begun_s, 4),
                    )


GRACE_S = 5  # how long requests that are being answered get when the process ends


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, on_ready: Callable[[], None], on_end: Callable[[], None]
    ):
        super().__init__(config)
        self._on_ready, self._on_end = on_ready, on_end

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Requests that wait for news would be cut off with a 500, which clients do not repeat.
        self._on_end()
        await super().shutdown(sockets)


def run_api(settings: Settings, bound: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT; the socket stays open for others that hold it."""
    take_all_descriptors()
    with open_store(settings, single=False) as store:
        app = make_app(store, settings)
        add_pages(app)

        def let_go() -> None:
            app.state.waiting.stop()
            app.state.streams.stop()

        server = _Server(_config(RequestLog(app), settings), on_ready, let_go)
        with suppress(KeyboardInterrupt):  # uvicorn passes the signal on after it has ended
            server.run(sockets=[bound])


def _config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    tls = settings.listen.tls
    options: dict[str, Any] = {}
    if tls.cert_file is not None:
        options = {"ssl_certfile": str(tls.cert_file), "ssl_keyfile": str(tls.key_file)}
        if tls.ca_file is not None:
            options |= {"ssl_ca_certs": str(tls.ca_file), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return uvicorn.Config(
        app,
        http=ApiConnection,
        log_config=None,
        access_log=False,
        proxy_headers=False,  # who the client is decides about sign-on: no header may say it
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        **options,
    )
