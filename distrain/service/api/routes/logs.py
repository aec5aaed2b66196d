"""`/v1/jobs/{id}/logs`: what a rank printed, by the numbers of its bytes."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from distrain.errors import DistrainError
from distrain.runs.log_bytes import BeyondLog, LogSlice
from distrain.service.api.answers import answers
from distrain.service.api.dependencies import ApiCall, Call, VisibleJob, look_again
from distrain.service.api.problems import Problem, not_found
from distrain.service.api.streams.job_logs import (
    LogPart,
    LogPlace,
    SharedLog,
    exists,
    last_attempt,
    read,
    read_tail,
)
from distrain.service.api.streams.server_sent_events import LiveResponse
from distrain.service.api.streams.stream_state import PLAIN, ApiStreams, streams_of
from distrain.service.values import Job

router = APIRouter(tags=["logs, events, files"])

_BIG = 2**62
_CHECK_S = 3.0
_text: dict[str, Any] = {"schema": {"type": "string"}}
_ANSWER: dict[str, Any] = {
    "description": "Bytes as they were printed, up to the next gap; empty: none yet, or no more.",
    "content": {"text/plain": {"schema": {"type": "string", "format": "binary"}}},
    "headers": {
        "X-Offset": {**_text, "description": "The number of the first byte."},
        "X-Next-Offset": {**_text, "description": "The `offset` with which to go on."},
        "X-Complete": {**_text, "description": "`true`: the rank has ended, and this is the end."},
        "X-Gap": {**_text, "description": "`A-B`: nobody kept the bytes from A up to B."},
        "X-Attempt": {**_text, "description": "The attempt whose log it is."},
    },
}


@router.get(
    "/v1/jobs/{job_id}/logs",
    response_class=Response,
    responses=answers("not_found", "range", others={200: _ANSWER}),
)
async def job_logs(
    job: VisibleJob,
    call: Call,
    attempt: Annotated[int | None, Query(ge=1, le=10**6, description="Default: the last.")] = None,
    rank: Annotated[int, Query(ge=0, le=10**6)] = 0,
    offset: Annotated[int | None, Query(ge=0, le=_BIG, description="The first byte.")] = None,
    limit: Annotated[int, Query(ge=1, description="Bytes; at most 4 MiB.")] = 2**20,
    tail: Annotated[
        int | None, Query(ge=1, le=10**6, description="The last lines instead of an offset.")
    ] = None,
    wait_s: Annotated[
        float, Query(ge=0, le=30, description="How long to wait for bytes where there are none.")
    ] = 0.0,
    follow: Annotated[
        bool, Query(description="Whether more bytes are sent in the same answer as they come.")
    ] = False,
) -> Response:
    """The output of a rank. A byte keeps its number for ever.

    Go on at `X-Next-Offset` until `X-Complete` is `true`. If an answer breaks off, go on behind the
    bytes that came, from `X-Offset`.

    With `follow` an answer without `X-Next-Offset` goes on while the rank prints. It ends where
    nothing comes for `wait_s`, at a gap, with the log and with the service: go on behind its bytes.
    """
    if tail is not None and (follow or offset is not None):
        raise Problem("bad_request", "`tail` excludes `offset` and `follow`")
    streams, service = streams_of(call.request.app), call.service
    place = await streams.in_file_thread(partial(_place, job, attempt, rank))
    most = min(limit, service.settings.limits.log_read_bytes)
    if tail is not None:
        part = await _read(streams, partial(read_tail, place, tail, most, job, service.now_s()))
    else:
        reading = _Reading(call, job, place, offset or 0, most, wait_s, service.clock())
        part = await reading.part()
        if follow and part.slice.data and not (part.is_complete or part.slice.gaps):
            return _followed(reading, part)
    return Response(part.slice.data, headers=PLAIN | _headers(part, place))


@dataclass
class _Reading:
    call: ApiCall
    job: Job
    place: LogPlace
    offset: int
    limit: int
    wait_s: float
    checked_s: float

    @property
    def streams(self) -> ApiStreams:
        return streams_of(self.call.request.app)

    def clock(self) -> float:
        return self.call.service.clock()

    async def part(self) -> LogPart:
        """The next bytes; waits where there are none."""
        until_s = self.clock() + self.wait_s
        part = await self._read()
        if self._says(part, until_s):
            return part
        async with self.streams.logs.followed(self.place, part.slice.end) as log:
            return await self._next(log, until_s)

    async def _next(self, log: SharedLog, until_s: float) -> LogPart:
        """The next bytes, from the shared log where it has them."""
        while True:
            within_s = min(until_s - self.clock(), _CHECK_S)
            data = await log.after(self.offset, self.limit, within_s)
            await self._check_at_times()
            if data:
                end = self.offset + len(data)
                return LogPart(LogSlice(data, self.offset, end, end, False), False)
            part = await self._read()
            if self._says(part, until_s):
                return part

    async def _read(self) -> LogPart:
        now_s = self.call.service.now_s()
        work = partial(read, self.place, self.offset, self.limit, self.job, now_s)
        return await _read(self.streams, work)

    def _says(self, part: LogPart, until_s: float) -> bool:
        """Whether a part is an answer: it has something, or the time is over."""
        is_over = self.clock() >= until_s or self.streams.feed.stopped
        return bool(part.slice.data or part.slice.gaps) or part.is_complete or is_over

    async def _check_at_times(self) -> None:
        """Refuse a caller who may no longer see the job: they get no more of its log."""
        if self.clock() - self.checked_s < _CHECK_S:
            return
        self.checked_s = self.clock()
        _, job = await look_again(self.call, self.job.id)
        self.job = job or self.job

    async def chunks(self, part: LogPart) -> AsyncGenerator[bytes]:
        """A part's bytes, and all that follow without a gap."""
        async with self.streams.logs.followed(self.place, part.slice.end) as log:
            while part.slice.data and not part.slice.gaps:
                yield part.slice.data
                if part.is_complete or self.streams.feed.stopped:
                    return
                self.offset = part.slice.next
                try:
                    await self._check_at_times()
                    part = await self._next(log, self.clock() + self.wait_s)
                except (Problem, DistrainError):
                    return  # its status is sent: the client's next request is told what is wrong


def _followed(reading: _Reading, part: LogPart) -> Response:
    most = reading.call.service.settings.limits.streams_per_token
    release = reading.streams.take(reading.call.caller, most)
    headers = _headers(part, reading.place)
    del headers["X-Next-Offset"], headers["X-Complete"]  # nobody knows them yet
    return LiveResponse(reading.chunks(part), PLAIN | headers, release)


async def _read(streams: ApiStreams, work: partial[LogPart]) -> LogPart:
    try:
        return await streams.in_file_thread(work)
    except BeyondLog as error:
        raise Problem(
            "range",
            str(error),
            hint="Go on at X-Next-Offset of the answer before.",
            extra_headers={"Content-Range": f"bytes */{error.end}"},
        ) from error


def _place(job: Job, attempt: int | None, rank: int) -> LogPlace:
    known = max(job.attempt, job.first_attempt)
    place = LogPlace(job.run_dir, attempt or last_attempt(job), rank)
    if (rank >= job.num_ranks or place.attempt > known) and not exists(place):
        raise not_found(f"log of attempt {place.attempt}, rank {rank}")
    return place


def _headers(part: LogPart, place: LogPlace) -> dict[str, str]:
    found = {
        "X-Offset": str(part.slice.first),
        "X-Next-Offset": str(part.slice.next),
        "X-Complete": "true" if part.is_complete else "false",
        "X-Attempt": str(place.attempt),
    }
    if part.slice.gaps:
        found["X-Gap"] = ", ".join(f"{first}-{end}" for first, end in part.slice.gaps)
    return found
