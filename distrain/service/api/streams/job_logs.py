"""A rank's log of a job: read from files, in threads of their own, once for all its followers.

Per log one task reads new bytes while anybody follows, and keeps the last ones. A follower has only
the number of its next byte, and takes kept bytes from there. A slow or late one, whose next byte is
not kept, reads the file itself until it has caught up, and holds nobody up. So does each follower
where there is more to say than bytes: at a gap, at the end of a closed log, and where the file
cannot be read.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from distrain.runs.log_bytes import (
    LogFiles,
    LogSlice,
    log_extent,
    log_modified_s,
    read_log_slice,
    read_log_tail,
)
from distrain.runs.run_folder import NotInRun
from distrain.runs.stored.folder import open_run_folder
from distrain.service.values import Job, Phase

QUIET_S = 15.0  # after this long a log without an end mark, of a killed writer, is whole


_Log = tuple[int | LogFiles, str]  # a folder and the name in it


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
    try:
        with _opened(place) as (folder, name):
            end, is_closed = log_extent(folder, name)
    except NotInRun:
        return False
    return end > 0 or is_closed


def read(place: LogPlace, offset: int, limit: int, job: Job, now_s: float) -> LogPart:
    """Up to `limit` bytes from an offset on; raises BeyondLog, OSError."""
    return _part(place, job, now_s, lambda log: read_log_slice(*log, offset, limit))


def read_new(place: LogPlace, offset: int, limit: int) -> LogSlice:
    """The same bytes without `is_complete`; raises BeyondLog, OSError."""
    try:
        with _opened(place) as (folder, name):
            return read_log_slice(folder, name, offset, limit)
    except NotInRun:
        return LogSlice(b"", 0, 0, 0, False)


def read_tail(place: LogPlace, lines: int, limit: int, job: Job, now_s: float) -> LogPart:
    """The last lines, at most `limit` bytes; raises OSError: it cannot be read."""
    return _part(place, job, now_s, lambda log: read_log_tail(*log, limit, lines))


def _part(place: LogPlace, job: Job, now_s: float, read: Callable[[_Log], LogSlice]) -> LogPart:
    try:
        with _opened(place) as log:
            piece = read(log)
            return LogPart(piece, _is_complete(piece, log, place, job, now_s))
    except NotInRun:
        return _nothing(job, place, now_s)


@contextmanager
def _opened(place: LogPlace) -> Iterator[_Log]:
    with open_run_folder(place.run_dir) as run:
        folder, name = run.log_files(place.rank, place.attempt)
    try:
        yield folder, name
    finally:
        os.close(folder) if isinstance(folder, int) else folder.close()


def _is_complete(piece: LogSlice, log: _Log, place: LogPlace, job: Job, now_s: float) -> bool:
    if piece.is_closed or piece.next < piece.end:
        return piece.is_last
    if not _has_ended(job, place.attempt):
        return False
    modified_s = log_modified_s(*log)
    return now_s - max(modified_s or 0.0, job.finished_at_s or 0.0) >= QUIET_S


def _nothing(job: Job, place: LogPlace, now_s: float) -> LogPart:
    ended = _has_ended(job, place.attempt)
    never_ran = job.attempt == 0  # no rank is there that could still write
    is_complete = ended and (never_ran or now_s - (job.finished_at_s or 0.0) >= QUIET_S)
    return LogPart(LogSlice(b"", 0, 0, 0, is_complete), is_complete)


def _has_ended(job: Job, attempt: int) -> bool:
    return job.phase is Phase.FINAL or attempt < max(job.attempt, job.first_attempt)


EVERY_S = 0.2
KEPT_BYTES = 2**20
KEPT_CHUNKS = 64
READ_BYTES = 2**18

Read = Callable[[LogPlace, int, int], Awaitable[LogSlice]]


@dataclass
class SharedLog:
    first: int  # the number of the first byte that is kept
    end: int  # of the byte behind the last one
    chunks: deque[bytes] = field(default_factory=deque)
    followers: int = 0
    begun: int = 0  # looks at the file until now
    done: int = 0  # those that have ended
    # whether the last one found bytes, or that there are no more, and nothing else
    is_plain: bool = True
    news: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    async def after(self, offset: int, limit: int, within_s: float) -> bytes | None:
        """Bytes from a number on, once there are any within that time; `None`: read the file."""
        before = self.begun
        try:
            async with asyncio.timeout(max(within_s, 0.0)):
                while not self.first <= offset < self.end:
                    # What was seen before the call may have changed since.
                    is_seen_now = self.done > before
                    if offset < self.first or (is_seen_now and not self.is_plain):
                        return None
                    await self.news.wait()
        except TimeoutError:
            return b""
        return self._from(offset)[:limit]

    def keep(self, found: LogSlice) -> None:
        """Keep what was read behind `end`, and wake the waiting followers."""
        if found.first != self.end:  # behind a gap: those before it read for themselves
            self.chunks.clear()
            self.first = found.first
        if found.data:
            self.chunks.append(found.data)
        self.end = found.next
        while self.end - self.first > KEPT_BYTES or len(self.chunks) > KEPT_CHUNKS:
            self.first += len(self.chunks.popleft())
        self.is_plain = not (found.gaps or found.is_closed)
        if found.data:
            self.tell()

    def tell(self) -> None:
        news, self.news = self.news, asyncio.Event()
        news.set()

    def _from(self, offset: int) -> bytes:
        begin = self.end
        for chunk in reversed(self.chunks):
            begin -= len(chunk)
            if begin <= offset:
                return chunk[offset - begin :]
        raise AssertionError("the byte is kept")


class SharedLogs:
    """The followed logs; `read` gives up to so many bytes of a log from a number on."""

    def __init__(self, read: Read, every_s: float = EVERY_S):
        self._read, self._every_s = read, every_s
        self._logs: dict[LogPlace, SharedLog] = {}

    @asynccontextmanager
    async def followed(self, place: LogPlace, offset: int) -> AsyncIterator[SharedLog]:
        """Share a log in the block; the first follower begins at `offset`."""
        log = self._logs.setdefault(place, SharedLog(offset, offset))
        log.followers += 1
        try:
            if log.task is None:
                log.task = asyncio.create_task(self._follow(place, log))
            yield log
        finally:
            log.followers -= 1
            if not log.followers:
                self._logs.pop(place, None)
                if log.task is not None:
                    log.task.cancel()

    async def _follow(self, place: LogPlace, log: SharedLog) -> None:
        while True:
            is_more = False
            log.begun += 1
            try:
                found = await self._read(place, log.end, READ_BYTES)
            except Exception:  # whoever waits reads the file, and meets the error
                log.is_plain = False
            else:
                is_more = found.next < found.end
                log.keep(found)
            log.done += 1
            if not log.is_plain:
                log.tell()
            if not is_more:
                await asyncio.sleep(self._every_s)
