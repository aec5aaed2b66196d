"""Reads byte ranges of a rank's log, also while the rank prints.

Byte N of a log is always the N-th byte that was printed. The log's file holds the first bytes.
Parts beside it, named by their first byte, hold the later ones. If a rank prints very much, parts
in the middle are removed. Removed bytes are a gap: between two pieces, or after the last piece of
a log that was closed later.

Files are opened relative to their folder without following symbolic links, so that a user who can
write to a run folder cannot make this process read other files.
"""

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from distrain.jobs.run_paths import first_byte_of_part, log_end


class LogFiles(Protocol):
    """The files of one rank's log in an object store."""

    def sizes(self) -> dict[str, int]: ...

    def read(self, name: str, first: int, num_bytes: int) -> bytes:
        """Read bytes of a file, fewer at its end; raise `FileNotFoundError` if it is gone."""

    def close(self) -> None: ...


Folder = int | LogFiles
"""A file descriptor of the log's folder, or the log's files in an object store."""

_TRIES = 20  # tries to read a log whose parts are being removed
_END_BYTES = 32


@dataclass(frozen=True)
class LogPiece:
    name: str
    first: int
    end: int


@dataclass(frozen=True)
class LogSlice:
    data: bytes  # the bytes, with a note in the place of each gap
    first: int  # the first byte's number
    next: int  # the number of the next byte to read
    end: int  # the end of the log so far
    is_closed: bool  # whether the log ends at `end` for good
    # requested bytes that are in a gap, as (first, end)
    gaps: tuple[tuple[int, int], ...] = ()

    @property
    def is_last(self) -> bool:
        """Whether the log has no more bytes, now or later."""
        return self.is_closed and self.next >= self.end


class BeyondLog(ValueError):
    def __init__(self, offset: int, end: int):
        self.end = end
        super().__init__(f"byte {offset:,} is beyond the log's end, {end:,}")


def log_pieces(folder: Folder, log_name: str) -> list[LogPiece]:
    """Return the pieces of a log such as `rank-0.log` in order; empty without such a log."""
    sizes = None if isinstance(folder, int) else folder.sizes()
    by_first = {}
    for name in os.listdir(folder) if isinstance(folder, int) else sizes or ():
        first = 0 if name == log_name else first_byte_of_part(name, log_name)
        if first is not None and (size := _size(folder, name, sizes)) is not None:
            by_first[first] = LogPiece(name, first, first + size)
    return [by_first[first] for first in sorted(by_first)]


def log_extent(folder: Folder, log_name: str) -> tuple[int, bool]:
    """Return the current end of a log, and whether the log is closed."""
    _, end, is_closed = _look(folder, log_name)
    return end, is_closed


def read_log_slice(folder: Folder, log_name: str, offset: int, limit: int) -> LogSlice:
    """Read up to `limit` bytes from `offset`, up to the next gap; `BeyondLog` beyond the end.

    If `offset` is in a gap, the slice begins after it. An empty slice: nothing more was printed
    yet.
    """
    return _retried(lambda: _slice(folder, log_name, offset, limit))


def size_of(folder: Folder, name: str) -> int:
    """Return the size of a file without gaps; 0 if it does not exist."""
    return max((piece.end for piece in log_pieces(folder, name)), default=0)


def read_bytes(folder: Folder, name: str, offset: int, limit: int) -> bytes:
    """Read up to `limit` bytes from `offset` of a file without gaps; b"" at its end."""
    pieces = log_pieces(folder, name)
    piece = next((piece for piece in pieces if piece.first <= offset < piece.end), None)
    return b"" if piece is None else _read(folder, piece, offset, min(limit, piece.end - offset))


def read_log_tail(folder: Folder, log_name: str, limit: int, lines: int | None = None) -> LogSlice:
    """Read the last `limit` bytes, or the last lines within them; notes replace gaps."""
    return _retried(lambda: _tail(folder, log_name, limit, lines))


def _retried(read: Callable[[], LogSlice]) -> LogSlice:
    """Retry if a part was removed after it was listed."""
    for _ in range(_TRIES - 1):
        with suppress(FileNotFoundError):
            return read()
    return read()


def read_log(path: Path) -> bytes:
    """Read all remaining bytes of a log, with notes in the place of gaps."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        end, _ = log_extent(folder, path.name)
        return read_log_tail(folder, path.name, max(end, 1)).data
    finally:
        os.close(folder)


def gap_note(num_bytes: int) -> bytes:
    return f"\n[... distrain left out {num_bytes:,} bytes here ...]\n".encode()


def _slice(folder: Folder, log_name: str, offset: int, limit: int) -> LogSlice:
    pieces, end, is_closed = _look(folder, log_name)
    if offset > end:
        raise BeyondLog(offset, end)
    piece = next((piece for piece in pieces if piece.end > max(offset, piece.first)), None)
    first = end if piece is None else max(offset, piece.first)
    data = b"" if piece is None else _read(folder, piece, first, min(limit, piece.end - first))
    gaps = ((offset, first),) if first > offset else ()
    return LogSlice(data, first, first + len(data), end, is_closed, gaps)


def _tail(folder: Folder, log_name: str, limit: int, lines: int | None) -> LogSlice:
    pieces, end, is_closed = _look(folder, log_name)
    parts: list[bytes] = []
    gaps: list[tuple[int, int]] = []
    first, left, wanted = end, limit, lines
    for piece in reversed(pieces):
        if not left or wanted == 0:
            break
        if piece.end < first:
            gaps.insert(0, (piece.end, first))
            parts.append(gap_note(first - piece.end))
        begin = max(piece.first, piece.end - left)
        data = _read(folder, piece, begin, piece.end - begin)
        if wanted is not None:
            cut, wanted = _last_lines(data, wanted, at_end=piece.end == end)
            data, begin = data[cut:], begin + cut
        parts.append(data)
        first, left = begin, left - len(data)
    return LogSlice(b"".join(reversed(parts)), first, end, end, is_closed, tuple(gaps))


def _last_lines(data: bytes, wanted: int, *, at_end: bool) -> tuple[int, int]:
    """Return the offset of the last lines, and how many lines are still missing."""
    at = len(data) - (at_end and data.endswith(b"\n"))
    while wanted:
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return 0, wanted
        wanted -= 1
    return at + 1, 0


def _look(folder: Folder, log_name: str) -> tuple[Sequence[LogPiece], int, bool]:
    closed_at = _closed_at(folder, log_name)  # read first: a closed log does not grow
    pieces = log_pieces(folder, log_name)
    end = max(pieces[-1].end if pieces else 0, closed_at or 0)
    return pieces, end, closed_at is not None


def _closed_at(folder: Folder, log_name: str) -> int | None:
    name = log_end(Path(log_name)).name
    try:
        text = _read(folder, LogPiece(name, 0, _END_BYTES), 0, _END_BYTES)
    except FileNotFoundError:
        return None
    return int(text) if text.strip().isdigit() else None


def _size(folder: Folder, name: str, sizes: Mapping[str, int] | None) -> int | None:
    if not isinstance(folder, int):
        return (sizes or {}).get(name)
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _read(folder: Folder, piece: LogPiece, first: int, num_bytes: int) -> bytes:
    if not isinstance(folder, int):
        return folder.read(piece.name, first - piece.first, num_bytes)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(piece.name, flags, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(f"{piece.name} is not a plain file")
        parts, at = [], first - piece.first
        while num_bytes and (data := os.pread(file, num_bytes, at)):
            parts.append(data)
            at, num_bytes = at + len(data), num_bytes - len(data)
        return b"".join(parts)
    finally:
        os.close(file)
