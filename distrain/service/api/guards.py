"""Request rates, and middleware of all routes: body sizes and audit rows."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from distrain.service.api.problems import Problem
from distrain.service.store.auditing import AuditEntry

CHANGING: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


_MOST_KEPT = 10_000


@dataclass
class RequestRates:
    """Limits each caller's requests per second, with token buckets; not thread-safe.

    A bucket holds the tokens of two seconds, but at least `burst` and at least 1.
    """

    per_s: float
    burst: float = 0.0
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)

    def wait_s(self, caller: str, now_s: float) -> float:
        """Take one token from a caller's bucket; return 0, or the seconds to wait if it is empty.

        `now_s` is the time of a clock that never goes back.
        """
        most = max(1.0, self.burst, 2 * self.per_s)
        left, then_s = self._left.pop(caller, (most, now_s))
        left = min(most, left + (now_s - then_s) * self.per_s)
        enough = left >= 1
        self._left[caller] = (left - 1 if enough else left, now_s)  # the latest caller comes last
        if len(self._left) > _MOST_KEPT:  # the oldest bucket is full again
            del self._left[next(iter(self._left))]
        return 0.0 if enough else (1 - left) / self.per_s


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


@dataclass
class AuditNote:
    """The audit row of a request, filled in by dependencies and routes."""

    user: str = ""
    token_id: str | None = None
    target: str = ""
    # whether there will be a row; false for requests that change nothing
    keep: bool = True
    details: dict[str, Any] = field(default_factory=dict)  # JSON values without secrets
    written: bool = False  # whether the row was written already, in the transaction of the change

    def audit_entry(self, scope: Scope, outcome: str) -> AuditEntry:
        name = getattr(scope.get("route"), "name", str(scope["method"]))
        return AuditEntry(
            user=self.user,
            action=str(name)[:64],
            target=self.target or scope["path"],
            outcome=outcome,
            token_id=self.token_id,
            details=dict(self.details),
        )


# rejections that get a row, per second and user; all callers without a valid token are one user
REFUSALS_PER_S: Final = 0.1


class Audit:
    """Writes an audit row for each request that would change something, before its response.

    There is no row if `AuditNote.keep` was cleared, because the request changes nothing.
    Requests of unknown callers get a row only if they are rejected with the status 401. A
    successful request gets no second row if its row was `written` with the change.

    Rejected requests of a caller beyond `REFUSALS_PER_S` (with bursts of 20) get no row, so that no
    caller can fill the table; the row of the caller's next rejection contains their number. `write`
    is called in a thread; if it fails, the error is logged, and the response is still sent.
    """

    def __init__(self, app: ASGIApp, *, write: Callable[[AuditEntry], object]) -> None:
        self._app, self._write = app, write
        self._rates = RequestRates(REFUSALS_PER_S, burst=20)
        self._left_out: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in CHANGING:
            return await self._app(scope, receive, send)
        note = AuditNote()
        scope.setdefault("state", {}).update(audit=note)

        async def noted(message: Message) -> None:
            starts = message["type"] == "http.response.start"
            # Requests of unknown callers get a row only if they are rejected as such (401).
            keep = note.keep and not (note.written and message.get("status", 500) < 400)
            if starts and keep and (note.user or message["status"] == 401):
                await self._note(scope, note, message["status"])
            await send(message)

        await self._app(scope, receive, noted)

    async def _note(self, scope: Scope, note: AuditNote, status: int) -> None:
        if status >= 400:
            if self._rates.wait_s(note.user, asyncio.get_running_loop().time()):
                self._left_out[note.user] += 1
                return
            if left_out := self._left_out.pop(note.user, 0):
                note.details["refused_before_without_a_row"] = left_out
        audit_entry = note.audit_entry(scope, "ok" if status < 400 else f"refused {status}")
        try:
            await run_in_threadpool(self._write, audit_entry)
        except Exception as error:  # the change is made, so the response must still be sent
            logging.getLogger("distrain.service.api").error(
                "no audit row for %s %s: %s", scope["method"], scope["path"], type(error).__name__
            )
