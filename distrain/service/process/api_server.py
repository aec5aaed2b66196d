"""The API's server: runs uvicorn on one socket, and logs requests."""

import re
import resource
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI
from starlette.types import Message, Receive, Scope, Send

from distrain.errors import on_sigterm
from distrain.service.api.app import make_app
from distrain.service.page import add_pages
from distrain.service.settings import Settings
from distrain.service.store.store import Store

GRACE_S = 5  # the time for open requests to finish when the process ends


class ApiServer(uvicorn.Server):
    """The server of the API and the web page; calls `on_ready` when it accepts requests."""

    def __init__(self, store: Store, settings: Settings, on_ready: Callable[[], None]):
        take_all_descriptors()  # first: the app limits its streams by the number of open files
        self.app = make_app(store, settings)
        add_pages(self.app)
        super().__init__(uvicorn.Config(RequestLog(self.app), **_options(settings)))
        self._on_ready = on_ready

    def serve_on(self, bound: socket.socket) -> None:
        """Serve on the listening socket `bound` until SIGTERM, SIGINT or `end`."""
        # uvicorn raises the signal that ended it once more after its end.
        with on_sigterm(self.handle_exit), suppress(KeyboardInterrupt):
            self.run(sockets=[bound])

    def end(self) -> None:
        """End `serve_on`; any thread may call it."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Otherwise requests that wait for events would be cut off with a 500.
        self.app.state.streams.stop()
        await super().shutdown(sockets)


def _options(settings: Settings) -> dict[str, Any]:
    options: dict[str, Any] = {
        "log_config": None,
        "access_log": False,
        "proxy_headers": False,  # sign-on trusts the peer's address, which no header may set
        "server_header": False,
        "timeout_graceful_shutdown": GRACE_S,
    }
    tls = settings.listen.tls
    if tls.cert_file is not None:
        options |= {"ssl_certfile": str(tls.cert_file), "ssl_keyfile": str(tls.key_file)}
    return options


def take_all_descriptors() -> None:
    """Raise this process's limit of open files to its maximum; the usual default is 1,024.

    Does nothing if the system does not allow it.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


HEADER = b"x-request-id"
_GOOD_ID = re.compile(rb"[A-Za-z0-9._-]{8,64}")
_QUIET = frozenset({"/livez", "/readyz", "/metrics"})

_log = structlog.stdlib.get_logger("distrain.service.requests")


class RequestLog:
    """Gives each request an id, or keeps the caller's; logs and counts each response.

    It is outside of the application `app`, so that answers to unexpected errors have an id, too.
    The log has the method, the path without the query, the status, the duration, the caller, the id
    of the token and the address. If a proxy on the Unix socket may name users, it may also name the
    client's address, in the last entry of `X-Forwarded-For`. Successful requests of `_QUIET` paths
    are not logged.
    """

    def __init__(self, app: FastAPI):
        self._app, self._metrics = app, app.state.streams.metrics
        self._has_trusted_proxy = app.state.parts.settings.sign_on is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        given = dict(scope["headers"]).get(HEADER, b"")
        request_id = given if _GOOD_ID.fullmatch(given) else secrets.token_hex(8).encode()
        begun_s, status, streams = time.monotonic(), 0, False
        scope.setdefault("state", {})

        async def noted(message: Message) -> None:
            nonlocal status, streams
            if message["type"] == "http.response.start":
                status, headers = message["status"], message.get("headers", ())
                streams = dict(headers).get(b"content-type", b"").startswith(b"text/event-stream")
                message["headers"] = [*headers, (HEADER, request_id)]
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id.decode()):
            try:
                await self._app(scope, receive, noted)
            finally:
                self._note(scope, status, time.monotonic() - begun_s, streams=streams)

    def _note(self, scope: Scope, status: int, took_s: float, *, streams: bool) -> None:
        """Count and log a request; `status` is 0 if there was no response."""
        route = getattr(scope.get("route"), "path", "none")
        self._metrics.count(route, scope["method"], status or 500, took_s, streams=streams)
        if scope["path"] in _QUIET and 0 < status < 400:
            return
        _log.info(
            "request",
            method=scope["method"],
            path=scope["path"],
            status=status,
            duration_s=round(took_s, 4),
            user=scope["state"].get("user", ""),  # the API adds it, and the token's id
            token_id=scope["state"].get("token_id", ""),
            address=self._address(scope),
        )

    def _address(self, scope: Scope) -> str:
        if client := scope.get("client"):
            return str(client[0])
        headers: dict[bytes, bytes] = dict(scope["headers"]) if self._has_trusted_proxy else {}
        return headers.get(b"x-forwarded-for", b"").rpartition(b",")[2].strip().decode("latin-1")
