"""`/v1/events` and `/v1/jobs/{id}/events`: what happens, as server-sent events."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import Response

from distrain.service.access import Action
from distrain.service.api.answers import answers
from distrain.service.api.dependencies import ApiCall, Call, VisibleJob
from distrain.service.api.following import EventFollower
from distrain.service.api.problems import Problem
from distrain.service.api.streams import EventStream, streams_of

router = APIRouter(tags=["logs, events, files"])

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
    stream = EventFollower(streams.feed, call, job_id)
    return EventStream(stream.frames(after), release)


def _cursor(after: int | None, last_event_id: str | None) -> int | None:
    if not last_event_id:
        return after
    if not (last_event_id.isascii() and last_event_id.isdecimal() and len(last_event_id) < 19):
        raise Problem("bad_request", "Last-Event-ID is none of this service's ids")
    return int(last_event_id)
