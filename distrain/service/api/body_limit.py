"""Middleware that limits the sizes of request bodies."""

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from distrain.service.api.problems import Problem


class BodyLimit:
    """Rejects bodies above a size as soon as the limit is exceeded."""

    def __init__(self, app: ASGIApp, *, limit_bytes: int) -> None:
        self._app, self._limit_bytes = app, limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        claimed = dict(scope["headers"]).get(b"content-length", b"0")
        if not claimed.isdigit() or int(claimed) > self._limit_bytes:
            return await self._refusal().response(scope["path"])(scope, receive, send)
        read_bytes = 0

        async def counted() -> Message:
            nonlocal read_bytes
            message = await receive()
            read_bytes += len(message.get("body", b""))
            if read_bytes > self._limit_bytes:
                raise HTTPException(413, self._refusal().detail)  # FastAPI re-raises this class
            return message

        await self._app(scope, counted, send)

    def _refusal(self) -> Problem:
        return Problem("too_large", f"the body has more than {self._limit_bytes} bytes")
