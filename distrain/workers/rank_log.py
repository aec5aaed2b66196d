"""Writes a rank's output to a log of bounded size: the beginning and the end are kept.

A rank that prints endlessly must not fill the disk, and neither the rank nor its supervisor's event
loop may wait for the disk. If too many bytes wait to be written, some are replaced by a note. The
files are named such that the position of each kept byte in the whole output is known
(`distrain.runs.log_bytes`).
"""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import BinaryIO

from distrain.jobs.run_paths import log_end, log_part
from distrain.runs.log_bytes import gap_note, log_pieces, log_size
from distrain.storage.background import BackgroundWriter, LossyQueue

KEPT_BYTES = 64 * 2**20  # bytes kept of a log's beginning, and as many of its end
WAITING_BYTES = 64 * 2**20  # bytes that may wait for a slow filesystem
TAIL_LINES = 30
TAIL_BYTES = 2**16  # largest size of a rank's last lines
_PARTS = 16  # most parts after the beginning; every gap starts a new part


class BoundedLog:
    """A log on disk whose middle is removed when it becomes too large.

    The first `kept_bytes` are written to the file `path`, the rest to parts beside it, each named
    by the position of its first byte in the whole output. The total size is at most
    `3 * kept_bytes`. Writes are not buffered, so a crash of this process loses nothing. If an
    earlier writer has left files of this log, they are kept, and the log is continued.
    """

    def __init__(self, path: Path, kept_bytes: int = KEPT_BYTES):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._kept_bytes = kept_bytes
        self._next = self._begin()
        self._file: BinaryIO | None = None
        self._room = 0
        if not self._next:
            self._file = path.open("ab", buffering=0)
            self._room = kept_bytes
        self.left_out_bytes = 0

    def write(self, data: bytes) -> None:
        """Write bytes. If that fails, the log has a gap in their place. Never raises."""
        left = memoryview(data)
        while left:
            try:
                if self._file is None or not self._room:
                    self._begin_part()
                written = self._write(left[: self._room])
            except OSError:  # a full disk or a removed folder: the rank must continue
                self._leave_out(len(left))
                return
            left = left[written:]

    def close(self) -> None:
        """Write the file that marks the log's end; never raises."""
        self._close_file()
        with contextlib.suppress(OSError):
            log_end(self._path).write_bytes(b"%d\n" % self._next)

    def _begin(self) -> int:
        log_end(self._path).unlink(missing_ok=True)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return log_size(folder, self._path.name)
        finally:
            os.close(folder)

    def _write(self, data: memoryview) -> int:
        assert self._file is not None
        written = self._file.write(data)
        self._next += written
        self._room -= written
        return written

    def _leave_out(self, num_bytes: int) -> None:
        self._next += num_bytes
        self.left_out_bytes += num_bytes
        self._close_file()

    def _begin_part(self) -> None:
        self._close_file()
        self._remove_parts()
        self._file = log_part(self._path, self._next).open("wb", buffering=0)
        self._room = self._kept_bytes

    def _remove_parts(self) -> None:
        """Make room for a new part: remove empty parts, and the oldest ones.

        The remaining parts have at most `kept_bytes` bytes, and are fewer than `_PARTS`.
        """
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            parts = [p for p in log_pieces(folder, self._path.name) if p.name != self._path.name]
            sizes = sum(part.end - part.first for part in parts)
            for number, part in enumerate(parts):
                size = part.end - part.first
                if size and sizes <= self._kept_bytes and len(parts) - number < _PARTS:
                    continue
                os.unlink(part.name, dir_fd=folder)
                sizes -= size
                self.left_out_bytes += size
        finally:
            os.close(folder)

    def _close_file(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # where a network filesystem reports a full disk
                self._file.close()
            self._file = None


class RankLogWriter:
    """A rank's log, which a background thread writes to the file `path`.

    If more than `WAITING_BYTES` wait to be written, bytes are dropped, and the log has a note about
    them.
    """

    def __init__(self, path: Path, writer: BackgroundWriter):
        self._path = path
        self._writer = writer
        self._inbox = LossyQueue[bytes](writer, WAITING_BYTES, self._take)
        self._file: BoundedLog | None = None
        self._last_bytes = bytearray()
        self.num_bytes = 0  # that the rank has printed

    async def open(self, timeout_s: float) -> None:
        """Open the log. If that takes longer than `timeout_s`, return; output then waits for it.

        Raises `OSError` if the log cannot be opened.
        """
        try:
            await self._writer.answer(self._open, timeout_s)
        except TimeoutError as error:
            if error.errno is not None:  # of the filesystem itself
                raise

    def write(self, data: bytes) -> None:
        """Queue bytes to be written; never raises, never waits."""
        self.num_bytes += len(data)
        self._last_bytes += data[-TAIL_BYTES:]
        del self._last_bytes[:-TAIL_BYTES]
        self._inbox.put(data, len(data))

    @property
    def last_lines(self) -> str:
        """The last `TAIL_LINES` lines of the rank's output, at most their last `TAIL_BYTES`.

        They are kept in memory, so they also contain output that could not be written to the log.
        """
        lines = self._last_bytes.decode(errors="replace").splitlines(keepends=True)
        return "".join(lines[-TAIL_LINES:])

    def printed_since(self, number: int) -> str:
        """Return the output after its first `number` bytes, at most the last `TAIL_BYTES`."""
        return self._last_bytes[self._place_of(number) :].decode(errors="replace")

    def forget_since(self, number: int) -> None:
        """Leave the output after its first `number` bytes out of `last_lines`."""
        del self._last_bytes[self._place_of(number) :]

    def _place_of(self, number: int) -> int:
        return max(0, len(self._last_bytes) - (self.num_bytes - number))

    def close(self) -> None:
        self._writer.do(self._close)

    def _open(self) -> None:
        self._file = BoundedLog(self._path)

    def _take(self, left_out_bytes: int, data: bytes) -> None:
        if self._file is not None:
            note = gap_note(left_out_bytes) if left_out_bytes else b""
            self._file.write(note + data)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class LogPump(asyncio.Protocol):
    """Writes all bytes from a pipe to a log; `ended` is set when the pipe is closed."""

    def __init__(self, log: RankLogWriter):
        self._log = log
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._log.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()
