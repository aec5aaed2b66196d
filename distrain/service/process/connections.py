"""Connections to the API: who is at their other end, and how long a request may take to come."""

import asyncio
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEAD_S = 20.0
"""How long the head of a request may take, from its first byte or from the connection on."""


class Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # chosen at run time
    """A connection that is ended where a request's head does not come.

    Tells applications whose certificate a client has shown, as the ASGI extension `tls` does.
    """

    _head_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """A client has connected."""
        super().connection_made(transport)
        self._expect_head()
        name = common_name(transport.get_extra_info("peercert"))
        if name:
            self.app: ASGIApp = _told(self.app, name)

    def data_received(self, data: bytes) -> None:
        """Bytes have come: of a head, of a body, or of several requests."""
        super().data_received(data)
        if self._is_at_work():
            self._expect_nothing()
        elif self._head_due is None:
            self._expect_head()

    def connection_lost(self, error: Exception | None) -> None:
        """It has ended."""
        self._expect_nothing()
        super().connection_lost(error)

    def _is_at_work(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_head(self) -> None:
        self._head_due = self.loop.call_later(HEAD_S, self._end_if_idle)

    def _expect_nothing(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _end_if_idle(self) -> None:
        self._head_due = None
        upgraded = self not in self.connections  # to a WebSocket, which has another protocol
        if not upgraded and not self._is_at_work():
            self.transport.abort()


def common_name(certificate: Any) -> str | None:
    """The common name of a certificate as `ssl` gives it; `None` where there is none.

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
