"""Locks of the filesystem that let one process write a run directory."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from distrain.errors import OutputError
from distrain.storage import no_pipe, translated_errors


class RunInUse(OutputError):
    """Another command keeps the run directory up to date."""


@contextmanager
def alone_in(root: Path) -> Iterator[None]:
    """Keep other commands from beginning a run in the same directory."""
    with translated_errors(root):
        folder = os.open(root, os.O_RDONLY)
    try:
        _lock(folder, root)
        yield
    finally:
        os.close(folder)


def locked(path: Path) -> BinaryIO:
    """A file, locked for this process as long as it is open."""
    with translated_errors(path):
        file = os.fdopen(no_pipe(str(path), os.O_RDONLY), "rb")
    try:
        _lock(file.fileno(), path.parent)
    except RunInUse:
        file.close()
        raise
    return file


def _lock(descriptor: int, root: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RunInUse(
            "another command is at this run",
            where={"path": str(root)},
            hint="Wait for its end, or end it.",
        ) from None
    except OSError:  # a filesystem without locks
        pass
