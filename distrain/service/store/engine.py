"""Connections to SQLite and PostgreSQL, the two kinds of transactions, and the database's clock.

A `read` has one or several statements; a commit between two of them changes what the second reads.
A `write` is one transaction. On SQLite it begins with BEGIN IMMEDIATE, so that it never has to
upgrade from reader to writer, the cause of "database is locked". Writers of one process first wait
for a lock of the process, since SQLite itself waits by polling. On PostgreSQL a `write` is READ
COMMITTED with row locks. Rows are locked in this order: job, project.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Engine,
    ExceptionContext,
    Executable,
    Float,
    Row,
    Table,
    create_engine,
    event,
    literal_column,
    make_url,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry

from distrain.errors import InputError, Unavailable
from distrain.service.settings import Settings
from distrain.service.store.errors import translated, was_opened_read_only

AnyRow = Row[*tuple[Any, ...]]

# Timeouts: `WRITE_WAIT_S` for SQLite's write lock; the `_LIMIT_S` are limits of PostgreSQL.
WRITE_WAIT_S = 30.0
POOL_WAIT_S = 10.0
POOL_KEPT = 10
POOL_MORE = 5
STATEMENT_LIMIT_S = 15
LOCK_LIMIT_S = 10
IDLE_LIMIT_S = 15
CONNECT_LIMIT_S = 5
IDLE_TESTED_S = 0.5

POSTGRES_NOW = literal_column("extract(epoch from clock_timestamp())::float8", Float())
SQLITE_NOW = literal_column("distrain_now_s()", Float())


class Database:
    """The connections to the service's database, with its transactions and its clock.

    Use `read` for queries, and `write` for a transaction.
    """

    def __init__(self, url: URL):
        self.is_postgres = url.get_backend_name() == "postgresql"
        self.path = None if self.is_postgres else Path(url.database or "")
        self.where = str(self.path or url.render_as_string(hide_password=True))
        self.engine = _postgres(url) if self.is_postgres else _sqlite(url)
        # Each statement of a read is its own transaction. PostgreSQL has a separate pool for reads:
        # switching a connection's mode takes as long as a short query.
        self.reads = (
            _postgres(url, isolation_level="AUTOCOMMIT", skip_autocommit_rollback=True)
            if self.is_postgres
            else self.engine  # which begins no transaction automatically: see `_set_up`
        )
        for one in {self.engine, self.reads}:
            event.listen(one, "handle_error", _reopen_if_read_only)
        self._writer = self.engine.execution_options(distrain_write=True)
        self._turn = threading.Lock()
        self._file: tuple[int, int] | None = None  # the device and inode of SQLite's open file

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection for queries; each query sees the data committed before it begins.

        Raises `Unavailable` if the database does not answer.
        """
        self.check_file()
        with translated(self.where), self.reads.connect() as connection:
            yield connection

    def check_file(self) -> None:
        """Raise Unavailable if SQLite's file was removed or replaced since the first check.

        Writes to the old file would be lost, and a new connection would create an empty database.
        """
        if self.path is None:
            return
        try:
            found = self.path.stat()
            now = (found.st_dev, found.st_ino)
        except OSError:
            now = None
        if self._file is None:
            self._file = now
        elif now != self._file:
            state = "no longer exists" if now is None else "was replaced"
            raise Unavailable(
                f"the database's file {state}, while the service has it open",
                where={"database": self.where},
                hint="Stop the service, put the file or a backup back (docs/operate.md, `The "
                "database is lost`), and start it again.",
            )

    def first(self, statement: Executable, values: Any = None) -> AnyRow | None:
        with self.read() as connection:
            return connection.execute(statement, values).first()

    def scalar(self, statement: Executable, values: Any = None) -> Any:
        with self.read() as connection:
            return connection.execute(statement, values).scalar()

    def all(self, statement: Executable, values: Any = None) -> Sequence[AnyRow]:
        with self.read() as connection:
            return connection.execute(statement, values).all()

    def insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        return postgresql.insert(table) if self.is_postgres else sqlite.insert(table)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Yield a transaction, committed at the end of the block, rolled back on an error.

        On SQLite, waits for the write lock. Raises the errors of `translated`, and Unavailable if
        the lock is not free within `WRITE_WAIT_S`.
        """
        self.check_file()
        with translated(self.where), self._my_turn(), self._writer.begin() as connection:
            yield connection

    def now(self) -> ColumnElement[float]:
        """Return the SQL expression of the current time in unix seconds.

        The clock is that of the PostgreSQL server; for SQLite, that of this machine.
        """
        return POSTGRES_NOW if self.is_postgres else SQLITE_NOW

    def now_s(self, connection: Connection) -> float:
        if not self.is_postgres:
            return time.time()
        return float(connection.execute(select(self.now())).scalar_one())

    def clock_s(self) -> float:
        if not self.is_postgres:
            return time.time()
        with self.read() as connection:
            return self.now_s(connection)

    def close(self) -> None:
        self.reads.dispose()
        self.engine.dispose()

    @contextmanager
    def _my_turn(self) -> Iterator[None]:
        if self.is_postgres:
            yield
            return
        if not self._turn.acquire(timeout=WRITE_WAIT_S):
            raise Unavailable(
                f"other processes have been writing for {WRITE_WAIT_S:g} s",
                where={"database": self.where},
            )
        try:
            yield
        finally:
            self._turn.release()


def database_url(settings: Settings) -> URL:
    """Return the database's URL; by default that of the SQLite file `service.db` in `data_dir`.

    Raises InputError if `settings.database_url` is not the URL of a PostgreSQL database or of an
    SQLite file.
    """
    if settings.database_url is None:
        return URL.create("sqlite", database=str(settings.data_dir / "service.db"))
    try:
        url = make_url(settings.database_url)
        backend = url.get_backend_name()
    except Exception as error:
        raise InputError(
            "database_url is not the URL of a database",
            hint="Give postgresql://USER@HOST/DATABASE.",
        ) from error
    if backend in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    if backend == "sqlite" and url.database and url.database != ":memory:":
        return url.set(drivername="sqlite")
    raise InputError(
        f"database_url begins with {backend!r}",
        hint="Give postgresql://USER@HOST/DATABASE, or leave it out for a file of SQLite.",
    )


def _test_idle(dialect: Any) -> Callable[[Any, ConnectionPoolEntry, object], None]:
    """Return a listener that tests a connection before use if it was idle for `IDLE_TESTED_S`.

    Other connections are not tested, since each test is a round trip.
    """

    def checkout(connection: Any, record: ConnectionPoolEntry, proxy: object) -> None:
        now_s = time.monotonic()
        last_s = record.info.get("used_s", now_s)
        record.info["used_s"] = now_s
        if now_s - last_s < IDLE_TESTED_S:
            return
        try:
            alive = dialect.do_ping(connection)
        except Exception as error:
            raise DisconnectionError() from error  # the pool then creates another connection
        if not alive:
            raise DisconnectionError()

    return checkout


def _postgres(url: URL, **options: Any) -> Engine:
    limits = {
        "statement_timeout": f"{STATEMENT_LIMIT_S}s",
        "lock_timeout": f"{LOCK_LIMIT_S}s",
        "idle_in_transaction_session_timeout": f"{IDLE_LIMIT_S}s",
        # The server ends sessions of unreachable machines, and frees their locks.
        "tcp_keepalives_idle": "5s",
        "tcp_keepalives_interval": "5s",
        "tcp_keepalives_count": "3",
    }
    engine = create_engine(
        url,
        hide_parameters=True,
        pool_size=POOL_KEPT,
        max_overflow=POOL_MORE,
        pool_timeout=POOL_WAIT_S,
        connect_args={
            "connect_timeout": CONNECT_LIMIT_S,
            "application_name": "distrain",
            "tcp_user_timeout": STATEMENT_LIMIT_S * 1000,
            "options": " ".join(f"-c {name}={value}" for name, value in limits.items()),
        },
        **options,
    )
    event.listen(engine, "checkout", _test_idle(engine.dialect))
    return engine


def _sqlite(url: URL) -> Engine:
    engine = create_engine(
        url,
        hide_parameters=True,
        pool_size=20,
        max_overflow=20,
        pool_timeout=POOL_WAIT_S,
        connect_args={"timeout": WRITE_WAIT_S},
    )
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "begin", _begin)
    return engine


def _set_up(connection: Any, record: object) -> None:
    connection.isolation_level = None  # disables Python's implicit transactions
    connection.create_function("distrain_now_s", 0, time.time)
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "cache_size=-16000"):
        connection.execute(f"PRAGMA {pragma}").close()


def _reopen_if_read_only(context: ExceptionContext) -> None:
    # A connection opened read-only stays so even when the database becomes writable. SQLite shares
    # this state within a process, so idle connections are closed, too.
    if was_opened_read_only(context.original_exception) and context.engine is not None:
        if context.execution_context is not None:
            context.execution_context.cursor.close()  # otherwise SQLite keeps the connection open
        context.is_disconnect = True
        context.engine.dispose()


def _begin(connection: Connection) -> None:
    if connection.get_execution_options().get("distrain_write"):
        connection.exec_driver_sql("BEGIN IMMEDIATE")
