"""A folder of files with a limited total size, shared by processes.

A writer, which adds a file or frees space, has a lock on `.lock`. A reader has no lock, and must
expect files to disappear. `.bytes` contains an upper bound of the files' total size, so that a
writer need not list all files. When that bound reaches the limit, the files with the oldest access
times are removed. `touch` sets the access time, also on filesystems that do not record it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

_LEFTOVER_AGE_S = 3600.0
_PARTIAL = ".partial-"
# More space is freed than one file needs, so that not every new file requires a list of all files.
_KEPT_SHARE = 0.95


class BoundedFolder:
    """A folder whose files have at most `max_bytes` in total.

    Only files with one of the `suffixes` are counted and removed.
    """

    def __init__(self, path: Path, max_bytes: int, suffixes: tuple[str, ...]):
        self.path = path
        self.max_bytes = max_bytes
        self._suffixes = suffixes

    @contextlib.contextmanager
    def partial_file(self) -> Iterator[Path]:
        """Return a context with a path for a temporary file in the folder.

        The folder is created if it is missing. If the file exists at the end of the context, it is
        removed.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        partial = self.path / f"{_PARTIAL}{uuid.uuid4().hex}"
        try:
            yield partial
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)

    def add(self, partial: Path, name: str) -> int | None:
        """Rename a file to its final name, and remove other files if the limit requires it.

        Returns:
            The number of removed files; `None` if the file was not added, since the name exists or
            the file exceeds the limit.
        """
        size = partial.stat().st_size
        final = self.path / name
        if size > self.max_bytes:
            return None
        with self._locked():
            if final.exists():
                return None
            total, removed = self._known_total(), 0
            if total is None or total + size > self.max_bytes:
                total, removed = self._make_room(size)
            # The bound is written before the rename: a process that dies in between leaves too high
            # a bound, which is corrected when space is freed.
            (self.path / ".bytes").write_text(str(total + size))
            partial.rename(final)
            return removed

    def remove(self, name: str, inode: int | None = None) -> None:
        """Remove a file if it exists and, if an inode is given, has that inode. Ignores errors."""
        final = self.path / name
        with contextlib.suppress(OSError), self._locked():
            if inode is None or final.stat().st_ino == inode:
                final.unlink()

    def touch(self, name: str) -> None:
        path = self.path / name
        with contextlib.suppress(OSError):  # removed, or owned by another user
            os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)  # unlocks

    def _known_total(self) -> int | None:
        try:
            return int((self.path / ".bytes").read_text())
        except (OSError, ValueError):  # it does not exist yet, or is incomplete
            return None

    def _make_room(self, size: int) -> tuple[int, int]:
        """Remove the least recently used files, so that `size` more bytes fit.

        If files must be removed, the folder keeps at most `_KEPT_SHARE` of its maximum size,
        including the new bytes. Returns the remaining bytes and the number of removed files.
        """
        files = self._files()
        total = sum(file_bytes for _, _, file_bytes in files)
        if total + size <= self.max_bytes:
            return total, 0
        goal = max(min(int(self.max_bytes * _KEPT_SHARE), self.max_bytes) - size, 0)
        removed = 0
        for _, path, file_bytes in sorted(files):
            if total <= goal:
                break
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            total -= file_bytes
            removed += 1
        return total, removed

    def _files(self) -> list[tuple[int, str, int]]:
        """Return the last access (ns), the path and the size (bytes) of each file.

        Removes temporary files that are older than `_LEFTOVER_AGE_S`.
        """
        files = []
        with os.scandir(self.path) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if entry.name.startswith(_PARTIAL):
                        if time.time() - status.st_mtime > _LEFTOVER_AGE_S:
                            os.unlink(entry.path)
                    elif entry.name.endswith(self._suffixes):
                        files.append((status.st_atime_ns, entry.path, status.st_size))
        return files
