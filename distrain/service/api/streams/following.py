"""One stream of server-sent events: where it begins, what it sends, when it ends.

It begins behind a cursor, or with a snapshot: `job.state` where there is no cursor, `reset` where
events behind the cursor were pruned. Events before now come from the store, the rest from the feed.
A job's stream ends with `end` when the job has ended and all its events are sent. Any other end
means that the stream broke: a client comes back with its cursor.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from distrain.service.api.streams.event_feed import EventFeed, FellBehind
from distrain.service.values import Event

PING = KEEPALIVE_COMMENT
SEND_S = 30.0  # how long a client may take in nothing before its stream is cut

_UNGATHERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Proxies must not gather what is to arrive now, nor anybody store it."""


def frame(kind: str, data: Mapping[str, Any], seq: int) -> bytes:
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return format_sse_event(event=kind, data_str=text, id=str(seq))


class LiveResponse(StreamingResponse):
    """An answer that goes on while things happen; who reads nothing for `SEND_S` is cut."""

    def __init__(
        self,
        chunks: AsyncGenerator[bytes],
        headers: Mapping[str, str],
        done: Callable[[], object] = lambda: None,
    ):
        super().__init__(chunks, headers={**headers, **_UNGATHERED})
        self._chunks, self._done = chunks, done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def in_time(message: Message) -> None:
            async with asyncio.timeout(SEND_S):  # `wait_for` would make a task of each
                await send(message)

        try:
            await super().__call__(scope, receive, in_time)
        except TimeoutError:
            return  # without the last chunk: the client sees that the stream broke
        finally:
            self._done()
            await self._chunks.aclose()


class EventStream(LiveResponse):
    media_type = "text/event-stream"

    def __init__(self, frames: AsyncGenerator[bytes], done: Callable[[], object] = lambda: None):
        super().__init__(frames, {}, done)


_PAGE = 500
_FINAL = "final"  # `Phase.FINAL` in an event's body
DELETED = "job.deleted"


class Source(Protocol):
    """The events of a stream and its caller; all but `tells` and `look` is called in threads."""

    job_id: str | None

    def page(self, seq: int, limit: int) -> list[Event]:
        """The events after a number, at least the job's."""

    def is_good(self, cursor: int) -> bool:
        """Whether all events behind the cursor are kept."""

    def snapshot(self) -> Mapping[str, Any]:
        """The job, or the newest jobs, as they are now."""

    async def look(self) -> tuple[bool, bool]:
        """Whether the caller may still see it, and whether the job had ended; asked at times."""

    def ended(self) -> tuple[int, Mapping[str, Any]] | None:
        """The revision and document of an ended job."""

    def tells(self, event: Event) -> bool:
        """Whether an event is for this stream."""

    def document(self, event: Event) -> Mapping[str, Any]:
        """An event's data, the same for all who may see it."""


@dataclass(frozen=True)
class Pace:
    """Seconds between pings, between checks, and until an ended job's last event at most."""

    ping_s: float = 15.0
    check_s: float = 3.0
    last_event_s: float = 1.5


class Stream:
    def __init__(
        self,
        feed: EventFeed,
        source: Source,
        pace: Pace = Pace(),
        clock: Callable[[], float] = time.monotonic,
    ):
        self._feed, self._source, self._pace, self._clock = feed, source, pace, clock
        self._cursor = 0
        self._rev = 0
        self._is_over = False
        self._may_have_ended = True
        self._ended: tuple[int, Mapping[str, Any]] | None = None
        self._ended_s = 0.0

    async def frames(self, after: int | None) -> AsyncGenerator[bytes]:
        async with self._feed.followed():
            yield PING + await self._begin(after)
            while self._cursor < self._feed.position and not self._is_over:
                yield await self._page()
            async for told in self._live():
                yield told

    async def _begin(self, after: int | None) -> bytes:
        source, position = self._source, self._feed.position
        self._cursor = position if after is None else after
        if after is None and source.job_id is None:
            return b""
        if after is not None and await run_in_threadpool(source.is_good, after):
            return b""
        self._cursor = position
        kind = "job.state" if after is None else "reset"
        return frame(kind, await run_in_threadpool(source.snapshot), position)

    async def _page(self) -> bytes:
        target = self._feed.position
        events = await run_in_threadpool(self._source.page, self._cursor, _PAGE)
        told = self._tell(events)
        if len(events) < _PAGE:
            self._cursor = max(self._cursor, target)
        return told

    async def _live(self) -> AsyncIterator[bytes]:
        pinged_s = checked_s = self._clock()
        while not self._feed.stopped:
            if self._may_have_ended:
                await self._look_for_end()
            if end := self._end():
                yield end
                return
            now_s = self._clock()
            due_s = min(pinged_s + self._pace.ping_s, checked_s + self._pace.check_s)
            if self._ended:
                due_s = min(due_s, self._ended_s + self._pace.last_event_s)
            try:
                told = self._tell(await self._feed.after(self._cursor, due_s - now_s))
            except FellBehind:
                return
            now_s = self._clock()
            if not told and now_s >= pinged_s + self._pace.ping_s:
                told = PING
            if told:
                pinged_s = now_s
                yield told
            if now_s >= checked_s + self._pace.check_s:
                checked_s = now_s
                is_allowed, had_ended = await self._source.look()
                if not is_allowed:
                    return
                if had_ended or self._ended:
                    await self._look_for_end()

    def _tell(self, events: list[Event]) -> bytes:
        frames = []
        for event in events:
            self._cursor = event.seq
            if not self._source.tells(event):
                continue
            frames.append(self._feed.framed(event, self._frame))
            if event.job_id == self._source.job_id:
                self._note(event)
        return b"".join(frames)

    def _frame(self, event: Event) -> bytes:
        return frame(event.kind, self._source.document(event), event.seq)

    def _note(self, event: Event) -> None:
        self._rev = max(self._rev, int(event.body.get("rev", 0)))
        if event.kind == DELETED:
            self._is_over, self._ended = True, (0, {"id": event.job_id, "state": "deleted"})
        elif event.body.get("phase") == _FINAL:
            self._may_have_ended = True

    async def _look_for_end(self) -> None:
        """Ask the store: a job that ended may be resumed before anybody hears of the end."""
        self._may_have_ended = False
        if self._is_over or self._source.job_id is None:
            return
        before, self._ended = self._ended, await run_in_threadpool(self._source.ended)
        if before is None:
            self._ended_s = self._clock()

    def _end(self) -> bytes:
        if self._ended is None:
            return b""
        rev, document = self._ended
        is_told = self._rev >= rev or self._clock() >= self._ended_s + self._pace.last_event_s
        return frame("end", document, self._cursor) if is_told or self._is_over else b""
