"""Reads a rank's log by the numbers of its bytes, also while the rank prints.

Byte N of a log is the byte that the rank printed after N other bytes, even if some of them were
removed since. The log's file holds the first bytes.
Files beside it (parts), named by the number of their first byte, hold the later bytes. If a rank
prints very much, parts in the middle are removed. Removed bytes are a gap: between two pieces (the
log's file and its parts), or between the last piece and the end of a closed log.

Files are opened relative to their folder without following symbolic links, so that a user who can
write to a run folder cannot make this process read other files.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from distrain.jobs.run_paths import first_byte_of_part, log_end


class LogFiles(Protocol):
    """The files of one rank's log in an object store, or of a job of a service."""

    def sizes(self) -> dict[str, int]: ...

    def read(self, name: str, first: int, num_bytes: int) -> bytes:
        """Read bytes from `first` on, fewer at the end; `FileNotFoundError` if the file is gone."""


Folder = int | LogFiles
"""A file descriptor of the log's folder, or the log's files elsewhere."""

_TRIES = 20  # tries to read a log whose parts are being removed
_END_BYTES = 32
_READ_BYTES = 2**22


@dataclass(frozen=True)
class LogPiece:
    """A file with the bytes `first` to `end - 1` of a log."""

    name: str
    first: int
    end: int


def log_pieces(folder: Folder, log_name: str) -> list[LogPiece]:
    """Return the files of a log such as `rank-0.log`, in order; empty without such a log.

    They are the log's file and its parts.
    """
    sizes = None if isinstance(folder, int) else folder.sizes()
    by_first = {}
    for name in os.listdir(folder) if isinstance(folder, int) else sizes or ():
        first = 0 if name == log_name else first_byte_of_part(name, log_name)
        if first is not None and (size := _size(folder, name, sizes)) is not None:
            by_first[first] = LogPiece(name, first, first + size)
    return [by_first[first] for first in sorted(by_first)]


def log_size(folder: Folder, log_name: str) -> int:
    """Return the number of bytes printed into a log so far, including removed bytes."""
    end = closed_at(folder, log_name)  # read first: a closed log does not grow
    pieces = log_pieces(folder, log_name)
    return max(pieces[-1].end if pieces else 0, end or 0)


def read_bytes(folder: Folder, name: str, offset: int, limit: int) -> bytes:
    """Read up to `limit` bytes from `offset`.

    Returns b"" at the end of the file, or if these bytes of a log were removed (in a gap).
    """
    pieces = log_pieces(folder, name)
    piece = next((piece for piece in pieces if piece.first <= offset < piece.end), None)
    return b"" if piece is None else _read(folder, piece, offset, min(limit, piece.end - offset))


def next_bytes(folder: Folder, log_name: str, offset: int, limit: int) -> tuple[int, bytes]:
    """Return the number of the next byte from `offset` on that exists, and the bytes from there.

    At most `limit` bytes are returned, and none beyond a gap (removed bytes). If `offset` is in a
    gap, the bytes begin after the gap. If there are no more bytes, they are b"", and the number is
    `offset`, or the end of the log after a gap.
    """
    for _ in range(_TRIES - 1):
        with suppress(FileNotFoundError):  # a part was removed after it was listed
            return _next_bytes(folder, log_name, offset, limit)
    return _next_bytes(folder, log_name, offset, limit)


def read_log(path: Path) -> bytes:
    """Read the whole log; where bytes were removed (a gap), it has the text of `gap_note`."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return b"".join(_with_notes(folder, path.name))
    finally:
        os.close(folder)


def gap_note(num_bytes: int) -> bytes:
    """Return the text shown in place of `num_bytes` removed bytes of a log."""
    return f"\n[... distrain left out {num_bytes:,} bytes here ...]\n".encode()


def _with_notes(folder: Folder, log_name: str) -> Iterator[bytes]:
    offset = 0
    while True:
        first, data = next_bytes(folder, log_name, offset, _READ_BYTES)
        if first > offset:
            yield gap_note(first - offset)
        if not data:
            return
        yield data
        offset = first + len(data)


def _next_bytes(folder: Folder, log_name: str, offset: int, limit: int) -> tuple[int, bytes]:
    end = closed_at(folder, log_name) or 0  # read first: a closed log does not grow
    for piece in log_pieces(folder, log_name):
        first = max(offset, piece.first)
        if piece.end > first:
            return first, _read(folder, piece, first, min(limit, piece.end - first))
    return max(offset, end), b""


def closed_at(folder: Folder, log_name: str) -> int | None:
    """Return the size that a closed log has, with removed bytes; `None` for a log that may grow."""
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
    """Read `num_bytes` bytes of a piece from byte `first` of the log on; fewer at its end.

    Raises `FileNotFoundError` if the piece was removed, `OSError` if it is not a plain file.
    """
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
