"""What a rank prints, kept within bounds: the beginning, the end, and a note of what lay between.

A rank that prints a gigabyte must not fill the disk, and neither it nor its supervisor's event loop
may wait for the disk: whatever cannot be written, or not in time, is dropped and counted.
"""

import asyncio
import contextlib
from pathlib import Path
from typing import BinaryIO

from distrain.background import BackgroundWriter, Inbox
from distrain.run_paths import recent_parts

KEPT_BYTES = 8 * 2**20
"""What is kept of a log's beginning, and as much of its end."""

WAITING_BYTES = 8 * 2**20
"""What may wait for a filesystem that is slow, or hangs."""

TAIL_LINES = 30
TAIL_BYTES = 2**16
"""What a rank's last words may be at most; a line may be of any length."""


class BoundedLog:
    """A log file that keeps the first and the last bytes written to it.

    The beginning goes straight to the file. What follows goes to two files beside it in turn, so
    that it is on disk even if this process is killed; `close` joins the three.

    `kept_bytes` of the beginning are kept, and of the end; what an earlier writer left stays.
    """

    def __init__(self, path: Path, kept_bytes: int = KEPT_BYTES):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._kept_bytes = kept_bytes
        self._file: BinaryIO = path.open("ab", buffering=0)
        self._head_room = kept_bytes
        self._in_recent = 0
        self.left_out_bytes = 0

    def write(self, data: bytes) -> None:
        """Take in what was printed; never raises."""
        head, rest = data[: self._head_room], data[self._head_room :]
        self._head_room -= len(head)
        if head:
            self._append(head)
        for start in range(0, len(rest), self._kept_bytes):
            self._append_recent(rest[start : start + self._kept_bytes])

    def close(self) -> None:
        """Put the end after the beginning; never raises."""
        with contextlib.suppress(OSError):  # where a network filesystem reports a full disk
            self._file.close()
        recent, older = recent_parts(self._path)
        with contextlib.suppress(OSError):
            end = b"".join(part.read_bytes() for part in (older, recent) if part.exists())
            if end:
                self.left_out_bytes += max(0, len(end) - self._kept_bytes)
                with self._path.open("ab") as log:
                    log.write(_note(self.left_out_bytes) + end[-self._kept_bytes :])
        for part in (recent, older):
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)

    def _append_recent(self, data: bytes) -> None:
        if self._in_recent == 0 or self._in_recent + len(data) > self._kept_bytes:
            try:
                self._begin_part()
            except OSError:
                self.left_out_bytes += len(data)
                return
        self._in_recent += len(data)
        self._append(data)

    def _begin_part(self) -> None:
        recent, older = recent_parts(self._path)
        if self._in_recent:
            self.left_out_bytes += older.stat().st_size if older.exists() else 0
            recent.replace(older)
            self._in_recent = 0
        part = recent.open("wb", buffering=0)
        self._file.close()
        self._file = part

    def _append(self, data: bytes) -> None:
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError:  # a full disk, a folder that vanished: the rank goes on
            self.left_out_bytes += len(data)


class RankLog:
    """A rank's log as its supervisor's event loop sees it: written by a thread, in order.

    At most `waiting_bytes` wait to be written; then the oldest of them is left out, with a note.
    """

    def __init__(
        self,
        path: Path,
        writer: BackgroundWriter,
        kept_bytes: int = KEPT_BYTES,
        waiting_bytes: int = WAITING_BYTES,
    ):
        self._path = path
        self._kept_bytes = kept_bytes
        self._writer = writer
        self._inbox = Inbox[bytes](writer, waiting_bytes, self._take)
        self._file: BoundedLog | None = None
        self._error: OSError | None = None
        self._words = bytearray()

    async def open(self, within_s: float) -> None:
        """Open it; if that takes longer, go on: what is printed waits.

        Raises:
            OSError: It cannot be opened.
        """
        self._writer.do(self._open)
        await self._writer.done(within_s)
        if self._error is not None:
            raise self._error

    def write(self, data: bytes) -> None:
        """Take in what was printed; never raises, never waits."""
        self._words += data[-TAIL_BYTES:]
        del self._words[:-TAIL_BYTES]
        self._inbox.put(data, len(data))

    @property
    def last_words(self) -> str:
        """The last lines printed."""
        lines = self._words.decode(errors="replace").splitlines(keepends=True)
        return "".join(lines[-TAIL_LINES:])

    def close(self) -> None:
        """Have it closed when all is written."""
        self._writer.do(self._close)

    def _open(self) -> None:
        try:
            self._file = BoundedLog(self._path, self._kept_bytes)
        except OSError as error:
            self._error = error

    def _take(self, _: int, left_out_bytes: int, data: bytes) -> None:
        if self._file is not None:
            self._file.write(_note(left_out_bytes) + data)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class LogPump(asyncio.Protocol):
    """Carries what comes out of a pipe to a log."""

    def __init__(self, log: RankLog):
        self._log = log
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """The rank printed something."""
        self._log.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody holds the pipe's other end any more, or it was closed here."""
        self.ended.set()


def _note(left_out_bytes: int) -> bytes:
    if not left_out_bytes:
        return b""
    return f"\n[... distrain left out {left_out_bytes:,} bytes here ...]\n".encode()
