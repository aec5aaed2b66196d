"""A rank's log of a job, read for the API: pure files, in threads of their own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from distrain.runs import (
    LogFiles,
    LogSlice,
    NotInRun,
    log_extent,
    log_modified_s,
    open_run_folder,
    read_log_slice,
    read_log_tail,
)
from distrain.service.values import Job, Phase

QUIET_S = 15.0
"""A log whose writer was killed has no end mark: it is taken for whole after this long."""


@dataclass(frozen=True)
class LogPlace:
    """A rank's log; its file stays where the rank writes it."""

    run_dir: str
    attempt: int
    rank: int


@dataclass(frozen=True)
class LogPart:
    slice: LogSlice
    is_complete: bool  # whether the log is whole, and these are its last bytes


def last_attempt(job: Job) -> int:
    """The attempt whose log is shown where none is named."""
    if job.attempt:
        return job.attempt
    try:
        with open_run_folder(job.run_dir) as folder:
            attempts = folder.attempts()
    except NotInRun:
        attempts = ()
    return attempts[-1] if attempts else job.first_attempt


def exists(place: LogPlace) -> bool:
    """Whether the rank has printed anything, or could have."""
    extent = look(place)
    return extent[0] > 0 or extent[1]


def look(place: LogPlace) -> tuple[int, bool]:
    try:
        with _opened(place) as (folder, name):
            return log_extent(folder, name)
    except NotInRun:
        return 0, False


def read(place: LogPlace, offset: int, limit: int, job: Job, now_s: float) -> LogPart:
    """Up to `limit` bytes from an offset on; raises BeyondLog, OSError."""
    try:
        with _opened(place) as (folder, name):
            found = read_log_slice(folder, name, offset, limit)
            return LogPart(found, _is_complete(found, folder, name, place, job, now_s))
    except NotInRun:
        return _nothing(job, place, now_s)


def read_new(place: LogPlace, offset: int, limit: int) -> LogSlice:
    """The same bytes without `is_complete`; raises BeyondLog, OSError."""
    try:
        with _opened(place) as (folder, name):
            return read_log_slice(folder, name, offset, limit)
    except NotInRun:
        return LogSlice(b"", 0, 0, 0, False)


def read_tail(place: LogPlace, lines: int, limit: int, job: Job, now_s: float) -> LogPart:
    """The last lines, at most `limit` bytes; raises OSError: it cannot be read."""
    try:
        with _opened(place) as (folder, name):
            found = read_log_tail(folder, name, limit, lines)
            return LogPart(found, _is_complete(found, folder, name, place, job, now_s))
    except NotInRun:
        return _nothing(job, place, now_s)


@contextmanager
def _opened(place: LogPlace) -> Iterator[tuple[int | LogFiles, str]]:
    with open_run_folder(place.run_dir) as run:
        folder, name = run.log_files(place.rank, place.attempt)
    try:
        yield folder, name
    finally:
        os.close(folder) if isinstance(folder, int) else folder.close()


def _is_complete(
    found: LogSlice, folder: int | LogFiles, name: str, place: LogPlace, job: Job, now_s: float
) -> bool:
    if found.is_closed or found.next < found.end:
        return found.is_last
    if not _has_ended(job, place.attempt):
        return False
    modified_s = log_modified_s(folder, name)
    return now_s - max(modified_s or 0.0, job.finished_at_s or 0.0) >= QUIET_S


def _nothing(job: Job, place: LogPlace, now_s: float) -> LogPart:
    ended = _has_ended(job, place.attempt)
    never_ran = job.attempt == 0  # no rank is there that could still write
    is_complete = ended and (never_ran or now_s - (job.finished_at_s or 0.0) >= QUIET_S)
    return LogPart(LogSlice(b"", 0, 0, 0, is_complete), is_complete)


def _has_ended(job: Job, attempt: int) -> bool:
    return job.phase is Phase.FINAL or attempt < max(job.attempt, job.first_attempt)
