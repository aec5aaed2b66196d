"""The service's database as one object, and functions to open it."""

import fcntl
import logging
import os
import socket
from pathlib import Path
from typing import IO

from sqlalchemy import select

from distrain.errors import InputError, Unavailable
from distrain.service.settings import Settings
from distrain.service.store import migrations, sqlite_backup, tables
from distrain.service.store.engine import Database, database_url
from distrain.service.store.errors import DatabaseInUse
from distrain.service.store.job_changes import Changing
from distrain.service.store.listing import Listing
from distrain.service.store.locks import Locks
from distrain.service.store.people import People
from distrain.service.store.publishing import Publishing
from distrain.service.store.reconciler_writes import Recording
from distrain.service.store.retention import Pruning
from distrain.service.store.submitting import Submitting
from distrain.storage.outputs import translated_errors

log = logging.getLogger(__name__)

_BACKUP_S = "backup_s"


class Store(Submitting, Changing, Listing, Recording, Publishing, People, Pruning):
    """The database. Threads may share it; each call is one or a few short transactions.

    Every call may raise Unavailable. A write that raised it may still have been committed. A
    repeated call notices that by the job's id or its `resumes`, or changes nothing.
    """

    def __init__(self, db: Database, lock: IO[str] | None = None):
        self.db = db
        self.service_id = migrations.service_id(db)
        self.locks = Locks(db)
        self._lock = lock

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; another service may then open the SQLite file."""
        self.locks.release()
        self.db.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def fact(self, name: str) -> str | None:
        facts = tables.facts.c
        value: str | None = self.db.scalar(select(facts.value).where(facts.name == name))
        return value

    def keep_fact(self, name: str, value: str) -> None:
        new = self.db.insert(tables.facts).values(name=name, value=value)
        put = new.on_conflict_do_update(index_elements=["name"], set_={"value": value})
        with self.db.write() as connection:
            connection.execute(put)

    def backup(self, target: Path) -> None:
        """Copy SQLite's database to a new file, also while it is in use.

        Raises InputError for PostgreSQL, and OutputError if the file exists or cannot be written.
        """
        if self.db.path is None:
            raise InputError(
                "distrain does not copy PostgreSQL databases",
                where={"database": self.db.where},
                hint="Use pg_dump, and pg_restore while the service is stopped.",
            )
        sqlite_backup.backup(self.db.path, target)
        try:
            self.keep_fact(_BACKUP_S, str(self.now_s()))
        except Unavailable as error:  # the copy is still complete
            log.warning("the time of the backup could not be stored: %s", error)

    def backup_s(self) -> float | None:
        """Return the unix time of the last `backup`: 0 if there was none, `None` for PostgreSQL."""
        return None if self.db.path is None else float(self.fact(_BACKUP_S) or 0.0)

    def check(self) -> None:
        """Check that the database answers, and has the tables of this version.

        Raises Unavailable or SchemaDiffers.
        """
        migrations.check(self.db)

    def now_s(self) -> float:
        return self.db.clock_s()


def open_store(settings: Settings, *, single: bool = True) -> Store:
    """Open the database.

    With `single`, an SQLite file is locked until the store is closed. Of a service's processes,
    only the one that reconciles sets it. Raises DatabaseInUse if another service has the lock,
    OutputError if the lock's file cannot be written or the database's folder cannot be read,
    SchemaDiffers, Unavailable, and InputError if the setting of the database is wrong.
    """
    db = Database(database_url(settings))
    lock = None
    try:
        if single and db.path is not None:
            lock = _lock(db.path)
        migrations.check(db)
        return Store(db, lock)
    except BaseException:
        db.close()
        if lock is not None:
            lock.close()
        raise


def migrate(settings: Settings) -> None:
    """Create or migrate the tables.

    Raises SchemaDiffers, DatabaseInUse, OutputError, Unavailable, and InputError if the setting of
    the database is wrong.
    """
    db = Database(database_url(settings))
    try:
        if db.path is None:
            migrations.upgrade(db)
            return
        with _lock(db.path):
            _make_file(db.path)
            migrations.upgrade(db)
    finally:
        db.close()


def _make_file(path: Path) -> None:
    """Create the file for its owner only; SQLite's other files get the same permissions.

    An existing file is unchanged. Raises `OutputError` if it cannot be written.
    """
    with translated_errors(path):
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _lock(path: Path) -> IO[str]:
    """Lock a file beside a database, and write the holder into it; closing the file releases it.

    Raises DatabaseInUse if another process has the lock, and OutputError.
    """
    beside = path.with_name(path.name + ".lock")
    with translated_errors(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = beside.open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise DatabaseInUse(
            "another service uses the database",
            where={"database": path, "held by": holder},
            hint="SQLite supports one service; stop the other one, or set `database_url` to a "
            "PostgreSQL database.",
        ) from error
    lock.seek(0)
    lock.truncate()
    lock.write(f"pid {os.getpid()} on {socket.gethostname()}\n")
    lock.flush()
    return lock
