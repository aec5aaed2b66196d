"""A line in the log for every request, with an id that its answer carries, too."""

import re
import secrets
import time

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = b"x-request-id"
_GOOD_ID = re.compile(rb"[A-Za-z0-9._-]{8,64}")
_QUIET = frozenset({"/livez", "/readyz", "/metrics"})

_log = structlog.stdlib.get_logger("distrain.service.requests")


class RequestLog:
    """Gives each request an id, or takes the caller's, and logs its answer.

    The query is left out: it may hold what users search for. Probes are logged when they fail.
    """

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
