"""Reads a rank's log, by ranges of bytes, from the files in the job's run folder.

`distrain.runs.log_bytes` describes the files.
"""

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from distrain.backoff import doubled_s
from distrain.client.connection import Call, Connection
from distrain.client.errors import NotFound, ServiceError
from distrain.client.job_calls import job_path, read_job
from distrain.jobs.api_answers import Artifact, Artifacts, Job, parse_time
from distrain.jobs.run_paths import RunPaths
from distrain.runs.log_bytes import closed_at, log_pieces, next_bytes

_POLL_S = (0.6, 1.0)
_RANGE_BYTES = 2**22
_TAIL_BYTES = 2**20
_TAIL_OF_LOGS_S = 60.0  # how long the last bytes of an ended job's log may take to appear
_QUIET_S = 15.0  # if a killed rank has not closed its log, the log is complete after this time


def list_artifacts(connection: Connection, job_id: str, below: str) -> tuple[Artifact, ...]:
    """Return the files in the folder `below` of a job's run folder, sorted by name.

    Files in subfolders are included; "" means all files of the run folder.
    """
    found: list[Artifact] = []
    after = ""
    while True:
        params = {name: v for name, v in (("after", after), ("below", below)) if v}
        call = Call("GET", job_path(job_id, "artifacts"), params=params)
        page = Artifacts.read(connection.document(call))
        found += page.artifacts
        if not page.next_cursor or page.next_cursor == after:
            return tuple(found)
        after = page.next_cursor


def artifact_path(job_id: str, name: str) -> str:
    return job_path(job_id, "artifacts") + "/" + quote(name.lstrip("/"), safe="/")


def logs(
    connection: Connection,
    job_id: str,
    *,
    rank: int,
    attempt: int | None,
    offset: int,
    tail: int | None,
    follows: bool,
) -> Iterator[bytes]:
    """Yield the bytes of a rank's log in an attempt, by default the job's last attempt.

    With `follows`, waits for more bytes until the log is complete; if `attempt` is `None`, the logs
    of later attempts follow. Otherwise, ends after the present bytes. Raises ServiceError if the
    log of an ended job stays incomplete. `offset` and `tail` are those of `Client.logs`.
    """
    later = follows and attempt is None
    found = read_job(connection, job_id)
    while found.attempt == 0 and later and not found.is_final:
        connection.pause(_POLL_S[1])
        found = read_job(connection, job_id)
    log = _Log(connection, job_id, attempt or max(found.attempt, 1), rank, offset)
    if tail is not None:
        if lines := log.last_lines(tail):
            yield lines
        if not follows:
            return
    while True:
        yield from log.all_bytes()
        if follows:
            found = yield from _followed(log)
        while later and found.attempt <= log.attempt and not found.is_final:
            connection.pause(_POLL_S[1])
            found = read_job(connection, job_id)
        if not later or found.attempt <= log.attempt:
            return
        log = _Log(connection, job_id, log.attempt + 1, rank)


def _followed(log: "_Log") -> Generator[bytes, None, Job]:
    """Yield a log's bytes as they are written, until the log is complete; return the job.

    Raises `ServiceError` if the attempt has ended, and no more bytes of the incomplete log arrive
    for `_TAIL_OF_LOGS_S`.
    """
    idle, progress_s = 0, time.monotonic()
    while True:
        found = read_job(log.connection, log.job_id)  # before the bytes, so that none are missed
        for data in log.all_bytes():
            idle, progress_s = 0, time.monotonic()
            yield data
        quiet_s, end = time.monotonic() - progress_s, log.end()
        is_quiet = end is None and _is_quiet(found, log.attempt, quiet_s)
        if is_quiet or (end is not None and log.offset >= end):
            return found
        if (found.is_final or found.attempt > log.attempt) and quiet_s > _TAIL_OF_LOGS_S:
            raise log.incomplete()
        log.connection.pause(doubled_s(_POLL_S[0], idle, _POLL_S[1]))
        idle += 1


def _is_quiet(found: Job, attempt: int, quiet_s: float) -> bool:
    """Return True if a log that its rank has not closed counts as complete.

    A killed rank does not close its log. The log is complete if the attempt is over, and either no
    attempt began or more than `_QUIET_S` have passed since the last byte or the job's end.
    `quiet_s` are the seconds since the last byte.
    """
    ended = parse_time(found.finished_at)
    since_s = (datetime.now(UTC) - ended).total_seconds() if ended else 0.0
    is_over = found.is_final or found.attempt > attempt
    return is_over and (found.attempt == 0 or max(quiet_s, since_s) > _QUIET_S)


@dataclass
class _Log:
    """A rank's log in one attempt, read up to `offset`; its files are `LogFiles`."""

    connection: Connection
    job_id: str
    attempt: int
    rank: int
    offset: int = 0  # of the next byte

    @property
    def path(self) -> Path:
        return RunPaths(Path()).log(self.rank, self.attempt)

    def all_bytes(self) -> Iterator[bytes]:
        """Yield all bytes that exist now, from `offset` on."""
        while data := self.next_bytes():
            yield data

    def next_bytes(self) -> bytes:
        """Return the next bytes; b"" if there are none yet."""
        first, data = next_bytes(self, self.path.name, self.offset, _RANGE_BYTES)
        if data:  # otherwise the last bytes of a closed log may still arrive
            self.offset = first + len(data)
        return data

    def end(self) -> int | None:
        """Return the total number of bytes; `None` until the rank has closed its log."""
        return closed_at(self, self.path.name)

    def last_lines(self, lines: int) -> bytes:
        """Return the last `lines` lines, and set `offset` to the byte after them.

        At most 1 MiB of the log is read, and nothing before bytes that were not kept, so there may
        be fewer lines.
        """
        pieces = [one for one in log_pieces(self, self.path.name) if one.end > one.first]
        found, begin = b"", pieces[-1].end if pieces else 0
        self.offset = begin
        for piece in reversed(pieces):
            size = min(piece.end - piece.first, _TAIL_BYTES - len(found))
            if piece.end < begin or not size or found.count(b"\n") > lines:
                break
            begin = piece.end - size
            found = self.read(piece.name, begin - piece.first, size) + found
        return b"".join(found.splitlines(keepends=True)[-lines:])

    def sizes(self) -> dict[str, int]:
        try:
            files = list_artifacts(self.connection, self.job_id, self.path.parent.as_posix())
        except NotFound:  # the folder does not exist: the attempt has not begun
            return {}
        return {Path(file.name).name: file.size_bytes for file in files}

    def read(self, name: str, first: int, num_bytes: int) -> bytes:
        """Read bytes of a file from `first` on; b"" at its end."""
        headers = {"Range": f"bytes={first}-{first + num_bytes - 1}"}
        path = artifact_path(self.job_id, self.path.with_name(name).as_posix())
        call = Call("GET", path, headers=headers)
        answer = self.connection.request(call)
        if answer.status_code == 404:
            raise FileNotFoundError(name)
        if answer.status_code == 416:
            return b""
        self.connection.check(answer, call)
        is_part = answer.status_code == 206
        return answer.content if is_part else answer.content[first : first + num_bytes]

    def incomplete(self) -> ServiceError:
        return ServiceError(
            f"the log of rank {self.rank}, attempt {self.attempt} of job {self.job_id} is not "
            "complete",
            where={"server": self.connection.address, "read": f"{self.offset} bytes"},
            hint="The job has ended, and its files may not be complete yet: try again.",
            code="incomplete",
        )
