"""Reads events once for all streams of a process.

While there are streams, one task queries the store for new events, and keeps the newest in memory.
Each stream has only a cursor, the number of the last event that it has sent, so a slow stream costs
no memory. When the event after a cursor is no longer kept, the stream is closed, and its client
reconnects with the cursor.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.concurrency import run_in_threadpool

from distrain.service.values import Event

EVERY_S = 0.2
KEPT_EVENTS = 5000
_AT_ONCE = 1000
_LONGEST_PAUSE_S = 5.0


class FellBehind(Exception):
    """Raised if the event after a stream's cursor is no longer in memory."""


class EventFeed:
    """Keeps the newest events of the store in memory.

    `read` takes an event's number and a limit, and returns at most that many events after it;
    `last` returns the number of the last event. Both are called in threads.
    """

    def __init__(self, read: Callable[[int, int], list[Event]], last: Callable[[], int]):
        self._read, self._last = read, last
        self._events: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self._followers = 0
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._start = asyncio.Lock()
        self.position = 0
        self.stopped = False

    @asynccontextmanager
    async def followed(self) -> AsyncIterator["EventFeed"]:
        """Read new events during the block; `position` is the number of the last event read.

        The first of several blocks at a time starts the reading, after the newest event at that
        moment; the end of the last block stops it and forgets the events.
        """
        self._followers += 1
        try:
            async with self._start:
                if self._task is None:
                    self.position = await run_in_threadpool(self._last)
                    self._task = asyncio.create_task(self._follow())
            yield self
        finally:
            self._followers -= 1
            if not self._followers and self._task is not None:
                self._task.cancel()
                self._task = None
                self._events.clear()

    async def after(self, seq: int, timeout_s: float) -> list[Event]:
        """Return at most 1000 events after the number `seq`; wait for them at most `timeout_s`.

        Returns [] if there are none, or if the feed was stopped. Raises FellBehind if the first of
        these events is no longer in memory.
        """
        if seq >= self.position:
            news = self._news
            try:
                async with asyncio.timeout(max(timeout_s, 0.0)):
                    await news.wait()
            except TimeoutError:
                return []
        if seq >= self.position or self.stopped:
            return []
        first = self._events[0].seq if self._events else self.position + 1
        if seq + 1 < first:
            raise FellBehind
        # Numbers have no gaps, so the place in the queue is known.
        begin = seq + 1 - first
        return [self._events[n] for n in range(begin, min(begin + _AT_ONCE, len(self._events)))]

    def stop(self) -> None:
        self.stopped = True
        self._news.set()

    async def _follow(self) -> None:
        pause_s = EVERY_S
        while True:
            try:
                events = await run_in_threadpool(self._read, self.position, _AT_ONCE)
            except Exception as error:  # streams stay open, and continue when the database answers
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                logging.getLogger(__name__).warning(
                    "the events cannot be read now: %s", type(error).__name__
                )
            else:
                pause_s = EVERY_S
                self._take(events)
                if len(events) == _AT_ONCE:
                    continue
            await asyncio.sleep(pause_s)

    def _take(self, events: list[Event]) -> None:
        if not events:
            return
        if self._events and events[0].seq != self._events[-1].seq + 1:
            self._events.clear()  # events between them were deleted
        self._events.extend(events)
        self.position = events[-1].seq
        news, self._news = self._news, asyncio.Event()
        news.set()
