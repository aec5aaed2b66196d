"""`/v1/events` and `/v1/jobs/{id}/events`: what happens, as server-sent events."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import Response

from distrain.service.access import Action, may, visible
from distrain.service.api.answers import answers
from distrain.service.api.dependencies import ApiCall, Call, VisibleJob, look_again
from distrain.service.api.documents import contacts, job_document
from distrain.service.api.problems import Problem
from distrain.service.api.streams import EventStream, Stream, streams_of
from distrain.service.decide import event_document
from distrain.service.store import JobFilter
from distrain.service.values import Event, Job, Phase

router = APIRouter(tags=["logs, events, files"])

_SNAPSHOT_JOBS = 200
_ANSWER: dict[str, Any] = {
    "description": "`job.state`, `job.progress`, `job.deleted`, `reset`, `end`; a ping every 15 s.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}
After = Annotated[
    int | None, Query(ge=0, le=2**62, description="The id of the last event that was seen.")
]
LastEventId = Annotated[str | None, Header(description="The same, and it comes first.")]


@router.get(
    "/v1/jobs/{job_id}/events",
    response_class=Response,
    responses=answers("not_found", others={200: _ANSWER}),
)
async def job_events(
    job: VisibleJob, call: Call, after: After = None, last_event_id: LastEventId = None
) -> Response:
    """The events of a job, from a cursor on or from the present state.

    `end` comes when the job has ended; a stream that closes without it broke: come back with the
    last id. `reset` has the job as it is now: events behind the cursor are gone.
    """
    return _stream(call, job.id, _cursor(after, last_event_id))


@router.get("/v1/events", response_class=Response, responses=answers(others={200: _ANSWER}))
async def events(call: Call, after: After = None, last_event_id: LastEventId = None) -> Response:
    """The events of all jobs that the caller may see, from a cursor or from now on; without an end.

    `reset` has the newest jobs as they are now: events behind the cursor are gone.
    """
    call.require(Action.SEE_JOB)
    return _stream(call, None, _cursor(after, last_event_id))


def _stream(call: ApiCall, job_id: str | None, after: int | None) -> Response:
    streams = streams_of(call.request.app)
    release = streams.take(call.caller, call.service.settings.limits.streams_per_token)
    stream = Stream(streams.feed, _Source(call, job_id))
    return EventStream(stream.frames(after), release)


def _cursor(after: int | None, last_event_id: str | None) -> int | None:
    if not last_event_id:
        return after
    if not (last_event_id.isascii() and last_event_id.isdecimal() and len(last_event_id) < 19):
        raise Problem("bad_request", "Last-Event-ID is none of this service's ids")
    return int(last_event_id)


class _Source:
    """The events of a job, or of all jobs, that a caller may see."""

    def __init__(self, call: ApiCall, job_id: str | None):
        self.job_id = job_id
        self._call, self._store = call, call.store

    def page(self, seq: int, limit: int) -> list[Event]:
        if self.job_id is None:
            return self._store.events_after(seq, limit)
        return self._store.job_events_after(self.job_id, seq, limit)

    def is_good(self, cursor: int) -> bool:
        # The last one is asked for second: it only grows.
        return cursor + 1 >= self._store.first_seq() and cursor <= self._store.last_seq()

    def snapshot(self) -> Mapping[str, Any]:
        if self.job_id is not None:
            return self._document(self._call.job(self.job_id))
        wanted = JobFilter(visible=visible(self._call.caller))
        jobs = self._store.jobs(wanted, _SNAPSHOT_JOBS)
        return {"jobs": [self._document(job) for job in jobs]}

    async def look(self) -> tuple[bool, bool]:
        try:
            caller, job = await look_again(self._call, self.job_id)
        except Problem:
            return False, False
        self._call = replace(self._call, caller=caller)
        return True, job is not None and job.phase is Phase.FINAL

    def ended(self) -> tuple[int, Mapping[str, Any]] | None:
        job = None if self.job_id is None else self._store.job(self.job_id)
        if job is None or job.phase is not Phase.FINAL:
            return None
        return job.rev, self._document(job)

    def tells(self, event: Event) -> bool:
        if self.job_id not in (None, event.job_id):
            return False
        return may(self._call.caller, Action.SEE_JOB, event.project, event.owner)

    def document(self, event: Event) -> Mapping[str, Any]:
        return event_document(event)

    def _document(self, job: Job) -> dict[str, Any]:
        contact_s = contacts(self._store).get(job.cluster)
        return job_document(job, self._call.service.now_s(), contact_s).model_dump(mode="json")
