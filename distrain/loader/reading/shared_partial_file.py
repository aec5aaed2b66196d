"""Partial files in shared memory: the processes of a machine fetch each range once."""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import struct
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

from distrain.jobs.devices import SHARED_MEMORY
from distrain.loader.reading.partial_file import PartialFile, Span

_FOLDER = Path(SHARED_MEMORY)
_LEAST_BYTES = 1 << 20  # several ranks rarely read the same smaller row group
_FREE_PART = 0.5  # share of the folder's filesystem that is left free, for other programs
_ATTEMPTS = 20
_PAUSE_S = 0.001
_PATIENCE_S = 2.0  # about how long a slow store takes to send a range
_POLL_S = 0.01
_MARK_BYTES = 8
_MARKS = ".marks"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


def shared_partial_file(
    name: object, num_bytes: int, ranges: Sequence[Span], footer: Span
) -> SharedPartialFile | None:
    """Return a partial file that is shared with other processes of this user on this machine.

    Normally, each of the `ranges` is fetched by only one of the processes; if it takes longer than
    `_PATIENCE_S`, a second process may fetch it, too. The partial file is in shared memory while a
    process refers to it; leftovers of killed processes are removed.

    Returns `None` if the ranges have less than `_LEAST_BYTES` in total, if there is no shared
    memory, if the folder in it belongs to another user, if less than half of the shared memory
    would remain free, or if another process is still removing its partial file after a short wait.

    Args:
        name: Identifies the content: its `repr` must differ if bytes of the file may differ.
        num_bytes: The size of the remote file.
        ranges: The ranges that will be fetched.
        footer: A further range, which each process writes itself.
    """
    if sum(span.num_bytes for span in ranges) < _LEAST_BYTES:
        return None
    identity = repr((name, num_bytes, [tuple(span) for span in ranges]))
    try:
        folder = _own_folder()
        _remove_left(folder)
        path = folder / hashlib.sha256(identity.encode()).hexdigest()
        for _ in range(_ATTEMPTS):
            marks = _open_marks(path)
            if marks is not None:
                return SharedPartialFile(path, marks, num_bytes, ranges, footer)
            time.sleep(_PAUSE_S)
    except OSError:  # full, owned by another user, or missing
        pass
    return None


class SharedPartialFile(PartialFile):
    """A partial file whose ranges are fetched by the processes that refer to it, each range once.

    A second file, the file of marks, has a mark for each fetched range: the inode of the file with
    the bytes, so that a mark is not valid for a file that replaces it. A process has a shared lock
    on the file of marks while it refers to the partial file, and a lock on a mark while it fetches
    the range. The system releases both locks when the process ends, even if it is killed. A process
    that can get the exclusive lock is the last one, and removes the files.
    """

    def __init__(
        self, path: Path, marks: int, num_bytes: int, ranges: Sequence[Span], footer: Span
    ):
        self._marks = marks
        self._places = {span: place for place, span in enumerate(ranges)}
        self._is_patient = True
        self._memory = _SharedMemory(path, marks)
        number = os.fstat(self._memory.number).st_ino
        self._mark = (number % (1 << 8 * _MARK_BYTES)).to_bytes(_MARK_BYTES, "little")
        os.ftruncate(self._memory.number, num_bytes)
        _allocate(self._memory.number, [*ranges, footer])
        self.path = f"/proc/self/fd/{self._memory.number}"

    def bring(self, span: Span, read: Callable[[int, int], bytes]) -> None:
        """Fetch a range, unless another process has fetched it or does so within `_PATIENCE_S`.

        After that time, this process fetches the range, too, and no longer waits for other
        processes.
        """
        place = self._places[span]
        is_mine = self._lock(place)
        try:
            if not self._is_there(place):
                super().bring(span, read)
                os.pwrite(self._marks, self._mark, place * _MARK_BYTES)
        finally:
            if is_mine:
                _lock_mark(self._marks, place, fcntl.F_UNLCK)

    def _lock(self, place: int) -> bool:
        """Lock the mark of a range that is to be fetched; return True if it was locked.

        `place` is the range's number. A range that is fetched already is not locked. If another
        process has the lock, the call waits until the range is fetched, for two seconds at most,
        and then returns False. After one such timeout, later calls do not wait.
        """
        end = time.monotonic() + _PATIENCE_S
        while not self._is_there(place):
            try:
                _lock_mark(self._marks, place, fcntl.F_WRLCK)
                return True
            except BlockingIOError:
                if time.monotonic() > end:
                    self._is_patient = False
            except OSError:  # a kernel without such locks
                self._is_patient = False
            if not self._is_patient:
                return False
            time.sleep(_POLL_S)
        return False

    def _is_there(self, place: int) -> bool:
        return os.pread(self._marks, _MARK_BYTES, place * _MARK_BYTES) == self._mark


class _SharedMemory:
    """The descriptors of a partial file's bytes and marks, closed when there is no reference to it.

    The last process also removes the files.
    """

    def __init__(self, path: Path, marks: int):
        self.path = path
        self.marks = marks
        self.number = -1
        self.number = os.open(path, _FLAGS, 0o600)
        _held.add(self)

    def __del__(self) -> None:
        _remove_if_last(self.path, self.marks)
        os.close(self.marks)
        if self.number >= 0:
            os.close(self.number)


_held: weakref.WeakSet[_SharedMemory] = weakref.WeakSet()


@atexit.register
def _remove_held() -> None:
    """Remove, at the end of this process, the partial files to which no other process refers.

    Their descriptors stay open, since daemon threads may still write to them.
    """
    for memory in list(_held):
        _remove_if_last(memory.path, memory.marks)


def _own_folder() -> Path:
    """Return the folder for this user's partial files, created if it is missing.

    Raises an `OSError` if it cannot be created, or if another user owns it or can access it.
    """
    folder = _FOLDER / f"distrain-fetched-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{folder} belongs to another user, or others can access it")
    return folder


def _remove_left(folder: Path) -> None:
    """Remove the partial files to which no process refers: their processes were killed.

    Errors are ignored.
    """
    for marks in folder.glob(f"*{_MARKS}"):
        with contextlib.suppress(OSError):  # another process removes it
            number = os.open(marks, os.O_RDWR | os.O_CLOEXEC)
            _remove_if_last(marks.with_suffix(""), number)
            os.close(number)


def _open_marks(path: Path) -> int | None:
    """Open the file of marks, with a shared lock, and return its descriptor.

    `None` if another process is removing it.
    """
    name = path.with_suffix(_MARKS)
    marks = os.open(name, _FLAGS, 0o600)
    try:
        fcntl.flock(marks, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if _has_name(marks, name):
            return marks
    except BlockingIOError:
        pass
    except BaseException:
        os.close(marks)
        raise
    os.close(marks)
    return None


def _remove_if_last(path: Path, marks: int) -> None:
    """Remove the files of a partial file if no other process refers to it; ignores `OSError`."""
    name = path.with_suffix(_MARKS)
    with contextlib.suppress(OSError):
        fcntl.flock(marks, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _has_name(marks, name):
            # Marks first: if the process is killed in between, no marks of removed bytes are left.
            os.ftruncate(marks, 0)
            path.unlink(missing_ok=True)
            name.unlink()


def _has_name(number: int, name: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(number), os.lstat(name))
    except FileNotFoundError:
        return False


def _lock_mark(marks: int, place: int, kind: int) -> None:
    """Lock or unlock mark number `place` for this file descriptor, without waiting.

    `kind` is `fcntl.F_WRLCK` or `fcntl.F_UNLCK`. Raises an `OSError` if another process holds the
    lock.
    """
    request = struct.pack("hhqqi4x", kind, os.SEEK_SET, place, 1, 0)
    fcntl.fcntl(marks, fcntl.F_OFD_SETLK, request)


def _allocate(number: int, spans: Sequence[Span]) -> None:
    """Allocate memory for spans of a file, so that no later write can fail for lack of space.

    Raises an `OSError` if there is too little.
    """
    wanted = sum(span.num_bytes for span in spans)
    if os.fstat(number).st_blocks * 512 < wanted:
        room = os.fstatvfs(number)
        if room.f_bavail * room.f_frsize - wanted < room.f_blocks * room.f_frsize * _FREE_PART:
            raise OSError(errno.ENOSPC, "too little shared memory")
    for span in spans:
        if span.num_bytes:
            os.posix_fallocate(number, span.begin, span.num_bytes)
