"""Sends events to one client, as server-sent events.

A cursor is the number of the last event that the client has received. The stream begins after the
cursor, or with a snapshot: `job.state` for one job without a cursor; `reset` if events after the
cursor were deleted, or the cursor is above the last event's number. The stream of all jobs without
a cursor begins with the present cursor, without data, and then has the next events. Past events are
read from the store, new events from the feed. A job's stream ends with `end` and the job's document
when the job has ended. If a stream closes without `end`, the client reconnects with its cursor.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool

from distrain.service.access.rules import Action, may, visible
from distrain.service.api.bodies import documents
from distrain.service.api.dependencies import ApiCall, refresh_caller
from distrain.service.api.problems import Problem
from distrain.service.api.streams.event_feed import EventFeed, FellBehind
from distrain.service.api.streams.server_sent_events import PING, cursor_frame, frame
from distrain.service.decisions.api_values import event_document
from distrain.service.store.listing import JobFilter
from distrain.service.values import Event, Job, Phase

PING_S = 15.0
CHECK_S = 10.0  # between checks of the caller's rights and of the job's end
_PAGE = 500
_SNAPSHOT_JOBS = 200
_DELETED = "job.deleted"


class EventFollower:
    """Streams the events of one job, or of all jobs that the caller may see."""

    def __init__(self, feed: EventFeed, call: ApiCall, job_id: str | None):
        self._feed, self._call, self._store, self._job_id = feed, call, call.store, job_id
        self._cursor = 0
        self._is_deleted = False
        self._may_have_ended = True

    async def frames(self, after: int | None) -> AsyncGenerator[bytes]:
        async with self._feed.followed():
            yield PING + await self._begin(after)
            while self._cursor < self._feed.position and not self._is_deleted:
                yield await self._page()
            async for data in self._live():
                yield data

    async def _begin(self, after: int | None) -> bytes:
        position = self._feed.position
        self._cursor = position if after is None else after
        if after is None and self._job_id is None:
            return cursor_frame(position)
        if after is not None and await run_in_threadpool(self._is_kept, after):
            return b""
        self._cursor = position
        kind = "job.state" if after is None else "reset"
        return frame(kind, await run_in_threadpool(self._snapshot), position)

    def _is_kept(self, cursor: int) -> bool:
        # The last number is queried second, since it only grows.
        return cursor + 1 >= self._store.first_seq() and cursor <= self._store.last_seq()

    def _snapshot(self) -> Mapping[str, Any]:
        if self._job_id is not None:
            return self._documents([self._call.job(self._job_id)])[0]
        wanted = JobFilter(visible=visible(self._call.caller))
        return {"jobs": self._documents(self._store.jobs(wanted, _SNAPSHOT_JOBS))}

    def _documents(self, jobs: list[Job]) -> list[dict[str, Any]]:
        found = documents(self._call.service, jobs)
        return [document.model_dump(mode="json") for document in found]

    async def _page(self) -> bytes:
        target = self._feed.position
        events = await run_in_threadpool(self._stored, self._cursor)
        data = self._framed(events)
        if len(events) < _PAGE:
            self._cursor = max(self._cursor, target)
        return data

    def _stored(self, seq: int) -> list[Event]:
        if self._job_id is None:
            return self._store.events_after(seq, _PAGE)
        return self._store.job_events_after(self._job_id, seq, _PAGE)

    async def _live(self) -> AsyncIterator[bytes]:
        pinged_s = checked_s = time.monotonic()
        while not self._feed.stopped:
            if self._may_have_ended and (end := await run_in_threadpool(self._end)):
                yield end
                return
            self._may_have_ended = False
            now_s = time.monotonic()
            due_s = min(pinged_s + PING_S, checked_s + CHECK_S)
            try:
                data = self._framed(await self._feed.after(self._cursor, due_s - now_s))
            except FellBehind:
                return
            now_s = time.monotonic()
            if not data and now_s >= pinged_s + PING_S:
                data = PING
            if data:
                pinged_s = now_s
                yield data
            if now_s >= checked_s + CHECK_S:
                checked_s = now_s
                try:
                    self._call = await run_in_threadpool(refresh_caller, self._call, self._job_id)
                except Problem:  # the caller may not see it any more
                    return
                self._may_have_ended = True  # its event may be late, or missing

    def _framed(self, events: list[Event]) -> bytes:
        frames = []
        for event in events:
            self._cursor = event.seq
            if self._job_id not in (None, event.job_id):
                continue
            if may(self._call.caller, Action.SEE_JOB, event.project, event.owner):
                frames.append(frame(event.kind, event_document(event), event.seq))
                self._is_deleted |= self._job_id is not None and event.kind == _DELETED
                is_final = event.body.get("phase", Phase.FINAL) == Phase.FINAL
                self._may_have_ended = self._is_deleted or is_final
        return b"".join(frames)

    def _end(self) -> bytes:
        """Return the last frame if the job has ended; it may also have been resumed since."""
        if self._job_id is None:
            return b""
        document: Mapping[str, Any] = {"id": self._job_id, "state": "deleted"}
        if not self._is_deleted:
            job = self._store.job(self._job_id)
            if job is None or job.phase is not Phase.FINAL:
                return b""
            [document] = self._documents([job])
        return frame("end", document, self._cursor)
