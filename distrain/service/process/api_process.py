"""The process of the API: uvicorn over one socket, with a line in the log for every request."""

import re
import secrets
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from distrain.service.api import make_app
from distrain.service.page import add_pages
from distrain.service.process.connections import ApiConnection, take_all_descriptors
from distrain.service.settings import Settings
from distrain.service.store import open_store

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
