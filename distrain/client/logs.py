"""Reads a rank's log, by ranges of bytes, from the files in the job's run folder.

A log is a file that only grows. Of a very long log, only the beginning and the last parts are kept.
Each part is a file named by the offset of its first byte. Once the rank has closed its log, another
file contains the total number of bytes.
"""

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from urllib.parse import quote

from distrain.backoff import doubled_s
from distrain.client.connection import Call, Connection
from distrain.client.errors import NotFound, ServiceError
from distrain.client.job_calls import job_path, read_job
from distrain.jobs.api_answers import Artifact, Artifacts, Job, parse_time
from distrain.jobs.run_paths import RunPaths, first_byte_of_part, log_end

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
        data = log.look_for_bytes()
        while data:
            idle, progress_s = 0, time.monotonic()
            yield data
            data = log.next_bytes()
        quiet_s = time.monotonic() - progress_s
        if log.is_whole or (log.end is None and _is_quiet(found, log.attempt, quiet_s)):
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
    """A rank's log in one attempt, read up to `offset`."""

    connection: Connection
    job_id: str
    attempt: int
    rank: int
    offset: int = 0  # of the next byte
    end: int | None = None  # the total number of bytes; `None` until the rank has closed its log
    _parts: list[tuple[int, Artifact]] = field(default_factory=list)  # with their first offsets

    @property
    def path(self) -> Path:
        return RunPaths(Path()).log(self.rank, self.attempt)

    @property
    def is_whole(self) -> bool:
        return self.end is not None and self.offset >= self.end

    def all_bytes(self) -> Iterator[bytes]:
        """Yield all bytes that exist now, from `offset` on."""
        while data := self.next_bytes() or self.look_for_bytes():
            yield data

    def next_bytes(self) -> bytes:
        """Return the next bytes of the parts that were listed last; b"" if there are none yet.

        Parts that were read completely, or are gone, are dropped from the list, except the last
        part, which may grow.
        """
        while self._parts:
            first, file = self._parts[0]
            self.offset = max(self.offset, first)
            data = self._read(file.name, self.offset - first, _RANGE_BYTES)
            if data or len(self._parts) == 1:
                self.offset += len(data)
                return data
            self._parts.pop(0)
        return b""

    def look_for_bytes(self) -> bytes:
        """List the parts again, check whether the log is closed, and return the next bytes."""
        self._look()
        return self.next_bytes()

    def last_lines(self, lines: int) -> bytes:
        """Return the last `lines` lines, and set `offset` to the byte after them.

        At most 1 MiB of a part of the log is read, and nothing before bytes that were not kept, so
        there may be fewer lines.
        """
        self.offset = 0
        self._look()
        parts, self._parts = self._parts, self._parts[-1:]
        for first, file in self._parts:
            self.offset = first + file.size_bytes
        found, begin = b"", self.offset
        for first, file in reversed(parts):
            if first + file.size_bytes < begin:
                break
            skipped = max(0, file.size_bytes - _TAIL_BYTES)
            tail, begin = self._read(file.name, skipped, file.size_bytes - skipped), first
            found = tail + found
            if len(tail) < file.size_bytes or found.count(b"\n") > lines:
                break
        return b"".join(found.splitlines(keepends=True)[-lines:])

    def _look(self) -> None:
        """Set `_parts` to the log's parts, beginning with the one that contains byte `offset`.

        The service lists them. If the rank has closed the log, also sets `end` to the log's size.
        Changes nothing while the attempt has no folder.
        """
        try:
            files = list_artifacts(self.connection, self.job_id, self.path.parent.as_posix())
        except NotFound:  # the folder does not exist: the attempt has not begun
            return
        end = log_end(self.path).as_posix()
        if self.end is None and any(file.name == end for file in files):
            text = self._read(end, 0, 100).decode("ascii", "replace")
            self.end = int(text) if text.strip().isdigit() else None
        firsts = [(first_byte(file.name, self.path.name), file) for file in files]
        parts = sorted(((n, file) for n, file in firsts if n is not None), key=itemgetter(0))
        earlier = sum(first <= self.offset for first, _ in parts)
        self._parts = parts[max(0, earlier - 1) :]

    def _read(self, name: str, begin: int, size: int) -> bytes:
        """Return at most `size` bytes of a file from `begin`; b"" at its end or if it is gone."""
        headers = {"Range": f"bytes={begin}-{begin + size - 1}"}
        call = Call("GET", artifact_path(self.job_id, name), headers=headers)
        answer = self.connection.request(call)
        if answer.status_code in (404, 416):
            return b""
        self.connection.check(answer, call)
        is_part = answer.status_code == 206
        return answer.content if is_part else answer.content[begin : begin + size]

    def incomplete(self) -> ServiceError:
        return ServiceError(
            f"the log of rank {self.rank}, attempt {self.attempt} of job {self.job_id} is not "
            "complete",
            where={"server": self.connection.address, "read": f"{self.offset} bytes"},
            hint="The job has ended, and its files may not be complete yet: try again.",
            code="incomplete",
        )


def first_byte(name: str, log_name: str) -> int | None:
    """Return where in a log the file `name` begins, in bytes; `None` for a file of another log.

    >>> first_byte("logs/attempt-1/rank-0.log", "rank-0.log")
    0
    >>> first_byte("logs/attempt-1/rank-0.log.from-100", "rank-0.log")
    100
    """
    file = Path(name).name
    return 0 if file == log_name else first_byte_of_part(file, log_name)
