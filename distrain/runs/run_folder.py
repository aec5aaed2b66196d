"""Reads a run folder on behalf of users who may not read any other file.

Users can write to the run folder, and could place symbolic links in it. So every folder on the
path to a file is opened relative to its parent, without following links, and only plain files are
read. The parents of the run folder may be links, except those that users can replace, too.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from distrain.jobs.run_paths import RunPaths
from distrain.runs.log_bytes import read_bytes

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PARENT = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DEPTH = 32


@dataclass(frozen=True)
class FileInRun:
    """A file of a run folder."""

    name: str  # its path in the run folder
    size_bytes: int
    modified_s: float  # in seconds since 1970


class NotInRun(LookupError):
    """A run folder has no plain file or folder of that name."""


class DescriptorReader:
    """An open plain file, with the size that it had when it was opened.

    Attributes:
        etag: A value that changes with the file's content.
    """

    def __init__(self, descriptor: int, name: str = ""):
        status = os.fstat(descriptor)
        self.descriptor, self.name = descriptor, name
        self.size_bytes, self.modified_s = status.st_size, status.st_mtime
        self.etag = f'"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"'

    def pread(self, num_bytes: int, first: int) -> bytes:
        """Read `num_bytes` bytes from offset `first`; fewer at the file's end."""
        return os.pread(self.descriptor, num_bytes, first)

    def close(self) -> None:
        os.close(self.descriptor)


class RunFolder(AbstractContextManager["RunFolder"]):
    """An open run folder; `NotInRun` if there is none.

    None of the last `guarded` parts of its path may be a link.
    """

    def __init__(self, root: Path, guarded: int = 1):
        self.place = str(root)
        if guarded == 1:
            self._folder = _opened(str(root), _FOLDER, None)
        else:
            parent = _opened(str(root.parents[guarded - 1]), _PARENT, None)
            self._folder = _opened_in(parent, root.parts[-guarded:])

    def __exit__(self, *_: object) -> None:
        os.close(self._folder)  # descriptors that `open_file` returned stay open

    def open_file(self, name: str) -> int:
        """Open a plain file without following links; the caller closes the returned descriptor.

        Raises `NotInRun` if there is no such file.
        """
        *folders, last = parts_of(name)
        with self._folder_at(folders) as folder:
            file = _opened(last, _FILE, folder)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise NotInRun(name)
        return file

    def open(self, name: str) -> DescriptorReader:
        return DescriptorReader(self.open_file(name), name)

    def read_growing(self, name: str, offset: int, limit: int) -> bytes:
        """Read up to `limit` bytes from `offset`; b"" at the end, or if the file does not exist."""
        *folders, last = parts_of(name)
        with suppress(NotInRun), self._folder_at(folders) as folder:
            return read_bytes(folder, last, offset, limit)
        return b""

    def attempts(self) -> tuple[int, ...]:
        return RunPaths(Path(self.place)).attempts()

    def files(self, below: str = "", after: str = "") -> Iterator[FileInRun]:
        """Yield the plain files in the folder `below` and its subfolders, ordered by name.

        Names are paths in the run folder. Yields only names after `after`. Links and unreadable
        folders are skipped. Raises `NotInRun` if there is no folder `below`.
        """
        parts = parts_of(below) if below else []
        with self._folder_at(parts) as folder:
            yield from _files(folder, "".join(part + "/" for part in parts), after)

    @contextmanager
    def _folder_at(self, parts: Sequence[str]) -> Iterator[int]:
        """Yield the descriptor of a folder below this one, opened without following links."""
        folder = _opened_in(os.dup(self._folder), parts)
        try:
            yield folder
        finally:
            os.close(folder)


def _files(folder: int, prefix: str, after: str) -> Iterator[FileInRun]:
    """Yield the plain files below an open folder, whose path in the run is `prefix`, by name.

    Yields only names after `after`, and nothing in folders deeper than `_DEPTH` levels.
    """
    if prefix.count("/") > _DEPTH:
        return
    entries = []
    for name in os.listdir(folder):
        try:
            name.encode()
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (UnicodeEncodeError, FileNotFoundError):
            continue  # a name that JSON cannot represent, or a removed file
        is_folder = stat.S_ISDIR(status.st_mode)
        if is_folder or stat.S_ISREG(status.st_mode):
            entries.append((prefix + name + "/" * is_folder, name, status))
    for path, name, status in sorted(entries, key=lambda entry: entry[0]):
        if not path.endswith("/"):
            if path > after:
                yield FileInRun(path, status.st_size, status.st_mtime)
        elif path > after or after.startswith(path):
            yield from _inside(folder, name, path, after)


def _inside(folder: int, name: str, path: str, after: str) -> Iterator[FileInRun]:
    try:
        inner = os.open(name, _FOLDER, dir_fd=folder)
    except OSError:
        return
    try:
        yield from _files(inner, path, after)
    finally:
        os.close(inner)


def parts_of(name: str) -> list[str]:
    """Split a path in the run folder at its slashes.

    Raises `NotInRun` if a part is empty, `.` or `..`, or there are too many parts.
    """
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts) or len(parts) > _DEPTH:
        raise NotInRun(name)
    return parts


def _opened_in(folder: int, parts: Sequence[str]) -> int:
    """Open the folder at a path below an open folder without following links; close the latter."""
    for part in parts:
        try:
            inner = _opened(part, _FOLDER, folder)
        finally:
            os.close(folder)
        folder = inner
    return folder


def _opened(name: str, flags: int, folder: int | None) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotInRun(name) from error
    except OSError as error:
        # ELOOP: a symbolic link. ENXIO: a socket. ENAMETOOLONG: the name is too long.
        if isinstance(error, PermissionError) or error.errno in _OF_STORAGE:
            raise
        raise NotInRun(name) from error


_OF_STORAGE = (5, 23, 24, 116)  # EIO, ENFILE, EMFILE, ESTALE
