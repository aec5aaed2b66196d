"""Locks for reconciling a cluster or publishing events; a lock ends when its process ends.

The locks only avoid repeated work, so a process may lose a lock and notice it a moment later. Two
holders would repeat each other's requests without harm, since rows have revisions, and a scheduler
accepts each submission once. On SQLite, only one service can open the file, so it has all locks.
"""

import threading
import time
from zlib import crc32

from sqlalchemy import Connection, text

from distrain.errors import DistrainError
from distrain.service.store.engine import Database
from distrain.service.store.errors import translated

TESTED_S = 1.0  # how long a connection is assumed to keep its locks
_SPACE = 0x64697374  # distrain's namespace among the database's advisory locks
_TRY = text("SELECT pg_try_advisory_lock(:space, :number)")


class Locks:
    """The locks of one process; threads may share them."""

    def __init__(self, db: Database):
        self._db = db
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._tested_s = 0.0
        self._since: dict[str, int] = {}

    def hold(self, name: str) -> int | None:
        """Acquire a lock if it is free; return the time since which this process holds it.

        The time is in unix milliseconds; it differs if the lock was lost in between. Returns `None`
        if another process holds the lock. Raises Unavailable if the database does not answer; all
        locks are then released.
        """
        with self._lock:
            if self._db.is_postgres and not self._is_mine(name):
                self._since.pop(name, None)
                return None
            return self._since.setdefault(name, time.time_ns() // 1_000_000)

    def since(self, name: str) -> int | None:
        """Return the last result of `hold` for this lock, without a query.

        `None` if it is not held.
        """
        return self._since.get(name)

    def release(self) -> None:
        """Release all locks, without waiting for a database that does not answer."""
        with self._lock:
            self._drop()

    def _is_mine(self, name: str) -> bool:
        try:
            with translated(self._db.where):
                connection = self._tested()
                if name in self._since:
                    return True
                numbers = {"space": _SPACE, "number": crc32(name.encode()) - 2**31}
                return bool(connection.execute(_TRY, numbers).scalar_one())
        except DistrainError:
            self._drop()
            raise

    def _tested(self) -> Connection:
        """Return the connection that holds the locks, opened if necessary.

        It is tested if `TESTED_S` have passed since the last test. Raises the driver's errors.
        """
        now_s = time.monotonic()
        if self._connection is None:
            self._connection, self._tested_s = self._db.reads.connect(), now_s
        elif now_s - self._tested_s >= TESTED_S:
            self._connection.execute(text("SELECT 1"))
            self._tested_s = now_s  # only updated by tests, since this is called more often
        return self._connection

    def _drop(self) -> None:
        self._since.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()  # returned to the pool, it would keep its locks
            connection.close()
