"""Connections to the API: their clients' certificates, and the time and size of their requests."""

import asyncio
import resource
from contextlib import suppress
from functools import cache
from typing import Any, ClassVar

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

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
