"""`/v1/events` and `/v1/jobs/{id}/events`: streams of events; `metrics`: a job's records."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response

from distrain.jobs.api_answers import Records
from distrain.runs.curve_reading import NewRecords, read_new_records
from distrain.runs.run_folder import NotInRun
from distrain.runs.stored.folder import open_job_folder
from distrain.service.access.rules import Action
from distrain.service.api.dependencies import ApiCall, Call, VisibleJob
from distrain.service.api.event_stream import EventFollower
from distrain.service.api.openapi import answers
from distrain.service.api.problems import Problem
from distrain.service.api.streams.server_sent_events import EventStream
from distrain.service.api.streams.stream_state import streams_of

router = APIRouter(tags=["logs, events, files"])

_ANSWER: dict[str, Any] = {
    "description": "The events `job.state`, `job.progress`, `job.deleted`, `reset` and `end`, and "
    "a comment every 15 s.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}
_ANSWER_OF_ALL = _ANSWER | {
    "description": "The events `job.state`, `job.progress`, `job.deleted` and `reset`, and a "
    "comment every 15 s."
}
After = Annotated[
    int | None,
    Query(
        ge=0,
        le=2**62,
        description="The cursor: the id of the last event that the caller received. The stream "
        "continues after it.",
    ),
]
LastEventId = Annotated[
    int | None,
    Header(ge=0, le=2**62, description="The same as `after`, which it overrides."),
]


@router.get(
    "/v1/jobs/{job_id}/events",
    response_class=Response,
    responses=answers("not_found", "rate", others={200: _ANSWER}),
)
async def job_events(
    job: VisibleJob, call: Call, after: After = None, last_event_id: LastEventId = None
) -> Response:
    """Stream the events of a job, from a cursor or from its current state on.

    The last event is `end`, sent when the job has ended or was deleted. If the stream closes
    without `end`, reconnect with the id of the last event. If events after the cursor were deleted,
    or the cursor is above the id of the last event, the stream begins with the event `reset`, whose
    data is the current job.
    """
    return _stream(call, job.id, after if last_event_id is None else last_event_id)


@router.get(
    "/v1/events", response_class=Response, responses=answers("rate", others={200: _ANSWER_OF_ALL})
)
async def events(call: Call, after: After = None, last_event_id: LastEventId = None) -> Response:
    """Stream the events of all jobs that the caller may see, from a cursor or from now on.

    If the stream closes, reconnect with the last id. Without a cursor, the stream begins with an id
    without data, from which to reconnect before the first event. If events after the cursor were
    deleted, or the cursor is above the id of the last event, the stream begins with the event
    `reset`, whose data has the newest 200 jobs as `jobs`.
    """
    call.require(Action.SEE_JOB)
    return _stream(call, None, after if last_event_id is None else last_event_id)


def _stream(call: ApiCall, job_id: str | None, after: int | None) -> Response:
    streams = streams_of(call.request.app)
    release = streams.take(call.caller, call.service.settings.limits.streams_per_token)
    stream = EventFollower(streams.feed, call, job_id)
    return EventStream(stream.frames(after), release)


_READ_BYTES = 4 * 2**20


@router.get("/v1/jobs/{job_id}/metrics", responses=answers("not_found"))
async def job_metrics(
    request: Request,
    job: VisibleJob,
    since: Annotated[
        str | None,
        Query(
            max_length=100,
            description="The `cursor` of the previous response, to get only later records.",
        ),
    ] = None,
    fields: Annotated[
        tuple[str, ...],
        Query(
            max_length=40,
            description="A field of the records; repeat it for several. Default: all fields.",
        ),
    ] = (),
) -> Records:
    """Return the records of a job's training and validation, or those after a cursor.

    The response has about 4 MiB of records at most; if `more` is true, request the rest with its
    `cursor`. If `restart` is true, discard the records of earlier responses.
    """
    work = partial(_read, job.run_dir, since)
    try:
        found = await streams_of(request.app).in_file_thread(work)
    except ValueError as error:
        raise Problem("bad_request", str(error), hint="Begin again without `since`.") from error
    return Records(
        records=[
            {name: value for name, value in record.items() if not fields or name in fields}
            for record in found.records
        ],
        cursor=found.cursor,
        restart=found.restart,
        more=found.more,
        damaged=found.damaged,
    )


def _read(run_dir: str, since: str | None) -> NewRecords:
    try:
        with open_job_folder(run_dir) as folder:
            return read_new_records(folder, since, _READ_BYTES)
    except NotInRun:
        return read_new_records(None, since, _READ_BYTES)
