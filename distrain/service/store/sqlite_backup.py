"""Backs up SQLite databases."""

import contextlib
import os
import sqlite3
from pathlib import Path

from distrain.errors import OutputError
from distrain.storage.folder import sync_path


def backup(source: Path, target: Path) -> None:
    """Write a consistent copy of a database to a new file.

    Raises OutputError if `target` exists or cannot be written; no partial file remains.
    """
    partial = target.with_name(target.name + ".partial")
    if target.exists():
        raise OutputError("the file exists already", where={"path": target})
    try:
        _copy(source, partial)
        os.link(partial, target)  # unlike a rename, this replaces nothing
        sync_path(target.parent)
    except (OSError, sqlite3.Error) as error:
        raise OutputError(
            f"the backup could not be written: {error}", where={"path": target}
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    address = f"{source.resolve().as_uri()}?mode=ro"
    with (
        contextlib.closing(sqlite3.connect(address, uri=True, timeout=30)) as read,
        contextlib.closing(sqlite3.connect(target)) as written,
    ):
        read.backup(written)  # one read transaction, which with WAL blocks no writer
        written.execute("PRAGMA journal_mode=DELETE")  # everything in one file
    with target.open("rb") as file:
        os.fsync(file.fileno())
