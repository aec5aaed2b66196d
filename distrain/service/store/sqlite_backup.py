"""Backs up SQLite databases, and restores them."""

import contextlib
import os
import sqlite3
from pathlib import Path

from distrain.errors import InputError, OutputError
from distrain.service.store import migrations
from distrain.service.store.errors import SchemaDiffers
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


def restore(copy: Path, path: Path) -> Path | None:
    """Put a backup in place of a database, which no process may have open.

    Returns the path of the earlier database, `NAME.replaced`; `None` if there was none. Raises
    InputError or SchemaDiffers if the backup cannot be used; nothing is changed then. After an
    OutputError, the earlier database is complete at `path` or at `NAME.replaced`.
    """
    _check(copy)
    fresh = path.with_name(path.name + ".restoring")
    try:
        _copy(copy, fresh)
        replaced = _set_aside(path)
        os.replace(fresh, path)
        sync_path(path.parent)
    except (OSError, sqlite3.Error) as error:
        raise OutputError(
            f"the backup could not be put in place: {error}", where={"path": path}
        ) from error
    finally:
        fresh.unlink(missing_ok=True)
    return replaced


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


def _check(copy: Path) -> None:
    try:
        with contextlib.closing(
            sqlite3.connect(f"{copy.resolve().as_uri()}?mode=ro", uri=True)
        ) as database:
            state = database.execute("PRAGMA quick_check").fetchone()[0]
            revision = database.execute("SELECT version_num FROM alembic_version").fetchone()[0]
            database.execute("SELECT count(*) FROM jobs").fetchone()
    except (sqlite3.Error, TypeError) as error:
        raise InputError(
            f"this is not a backup of the service: {error}", where={"path": copy}
        ) from error
    if state != "ok":
        raise InputError(f"the backup is damaged: {state}", where={"path": copy})
    if not migrations.is_known(revision):
        raise SchemaDiffers(
            "the backup is from a later version of distrain, or from a version before 0.2.0 "
            f"(revision {revision})",
            where={"path": copy},
            hint="Restore it with that version.",
        )


def _set_aside(path: Path) -> Path | None:
    """Link a database to `NAME.replaced`, and move its write-ahead log there; return that path.

    The database remains at `path`, too. Returns `None` if there is no database.
    """
    if not path.exists():
        return None
    with contextlib.suppress(sqlite3.Error):  # for a damaged database, keep the log as it is
        _fold_log(path)
    aside = path.with_name(path.name + ".replaced")
    for end in ("", "-wal", "-shm"):
        aside.with_name(aside.name + end).unlink(missing_ok=True)
    os.link(path, aside)
    log = path.with_name(path.name + "-wal")
    if log.exists():
        # SQLite would apply the log to another database of this name.
        os.replace(log, aside.with_name(aside.name + "-wal"))
    path.with_name(path.name + "-shm").unlink(missing_ok=True)
    return aside


def _fold_log(path: Path) -> None:
    """Write a database's write-ahead log into its file, so that the file is complete alone."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
