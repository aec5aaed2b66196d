"""Connections to SQLite and PostgreSQL, the two kinds of transactions, and the database's clock.

A `read` is one statement, or several that may see different moments. A `write` is one transaction.
On SQLite it begins with BEGIN IMMEDIATE, so that it never has to turn from reader to writer, which
is what "database is locked" is about; writers of one process queue up before that, since SQLite's
own waiting is by polling. On PostgreSQL it is READ COMMITTED with row locks. Rows are locked in
this order: job, project.

Works of several threads share one transaction, so that they wait for the disk once.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

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

from distrain.errors import DistrainError, InputError, Unavailable
from distrain.service.settings import Settings
from distrain.service.store.errors import translated, was_opened_read_only

T = TypeVar("T")


@dataclass
class _Work:
    do: Callable[[Connection], Any]
    result: Any = None
    error: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)


class GroupCommit:
    """A batch of work by one thread: the first to come waits for the turn to write."""

    def __init__(self, write: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._waiting: list[_Work] = []

    def run(self, do: Callable[[Connection], T]) -> T:
        """Do some work in a transaction, and return when it is committed, or raise its error."""
        mine = _Work(do)
        with self._lock:
            self._waiting.append(mine)
            is_first = len(self._waiting) == 1
        if is_first:
            self._lead()
        else:
            mine.done.wait()
        if mine.error is not None:
            raise mine.error
        result: T = mine.result
        return result

    def _lead(self) -> None:
        batch: list[_Work] = []
        try:
            with self._write() as connection:
                batch = self._take()
                is_whole = _all_done(connection, batch)
                if not is_whole:
                    connection.rollback()
            if not is_whole:
                for work in batch:
                    self._alone(work)
        except BaseException as error:
            batch = batch or self._take()
            for work in batch:
                work.error = work.error or error
        finally:
            for work in batch:
                work.done.set()

    def _take(self) -> list[_Work]:
        with self._lock:
            batch, self._waiting = self._waiting, []
        return batch

    def _alone(self, work: _Work) -> None:
        work.result = work.error = None
        try:
            with self._write() as connection:
                work.result = work.do(connection)
        except BaseException as error:
            work.error = error


def _all_done(connection: Connection, batch: list[_Work]) -> bool:
    """Do all work, each undone alone if it refuses; false if the database itself failed in it."""
    for work in batch:
        try:
            if len(batch) == 1:
                work.result = work.do(connection)
                continue
            with connection.begin_nested():
                work.result = work.do(connection)
        except DistrainError as error:
            if len(batch) == 1:
                raise
            work.error = error
        except Exception:
            if len(batch) == 1:
                raise
            return False
    return True


AnyRow = Row[*tuple[Any, ...]]

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
    def __init__(self, url: URL):
        self.is_postgres = url.get_backend_name() == "postgresql"
        self.path = None if self.is_postgres else Path(url.database or "")
        self.where = str(self.path or url.render_as_string(hide_password=True))
        self.engine = _postgres(url) if self.is_postgres else _sqlite(url)
        # Each statement of these is a transaction of its own. PostgreSQL's have a pool of their
        # own: turning a connection to the other kind takes as long as a short query.
        self.reads = (
            _postgres(url, isolation_level="AUTOCOMMIT", skip_autocommit_rollback=True)
            if self.is_postgres
            else self.engine  # which begins no transaction by itself: see `_set_up`
        )
        for one in {self.engine, self.reads}:
            event.listen(one, "handle_error", _reopen_if_read_only)
        self._writer = self.engine.execution_options(distrain_write=True)
        self._turn = threading.Lock()
        self._file: tuple[int, int] | None = None  # which file SQLite's connections have open
        self._together = GroupCommit(self.write)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for queries, each of which sees what is committed when it begins."""
        self.check_file()
        with translated(self.where), self.reads.connect() as connection:
            yield connection

    def check_file(self) -> None:
        """Refuse to go on with a file that is not at its path any more (Unavailable).

        What is written into it would be lost, and a new connection would begin an empty database.
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
            state = "is not there any more" if now is None else "was replaced"
            raise Unavailable(
                f"the database's file {state}, while the service has it open",
                where={"database": self.where},
                hint="Stop the service, put the file or a backup back (`distrain serve restore`), "
                "and start it again.",
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
        """A transaction: committed at the end of the block, rolled back by an error in it."""
        self.check_file()
        with translated(self.where), self._my_turn(), self._writer.begin() as connection:
            yield connection

    def together(self, work: Callable[[Connection], T]) -> T:
        """The result of some work, in a transaction that is committed when this returns.

        On SQLite the work of threads that come meanwhile shares the transaction, and so the wait
        for the disk; work that fails is undone alone. It may be called a second time, in another
        transaction.
        """
        if self.is_postgres:  # commits of several connections at once share that wait by themselves
            with self.write() as connection:
                return work(connection)
        return self._together.run(work)

    def now(self) -> ColumnElement[float]:
        """Its clock in a statement, in unix seconds; SQLite's is this machine's."""
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
                f"others have written for {WRITE_WAIT_S:g} s", where={"database": self.where}
            )
        try:
            yield
        finally:
            self._turn.release()


def database_url(settings: Settings) -> URL:
    """The database's URL; raises InputError: it is neither PostgreSQL's nor SQLite's."""
    if settings.database_url is None:
        return URL.create("sqlite", database=str(settings.data_dir / "service.db"))
    try:
        url = make_url(settings.database_url)
        backend = url.get_backend_name()
    except Exception as error:
        raise InputError(
            "database_url is no URL of a database", hint="Give postgresql://USER@HOST/DATABASE."
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
    """Test connections that have lain idle before they are used; each test is a round trip."""

    def checkout(connection: Any, record: ConnectionPoolEntry, proxy: object) -> None:
        now_s = time.monotonic()
        last_s = record.info.get("used_s", now_s)
        record.info["used_s"] = now_s
        if now_s - last_s < IDLE_TESTED_S:
            return
        try:
            alive = dialect.do_ping(connection)
        except Exception as error:
            raise DisconnectionError() from error  # the pool makes another connection
        if not alive:
            raise DisconnectionError()

    return checkout


def _postgres(url: URL, **options: Any) -> Engine:
    limits = {
        "statement_timeout": f"{STATEMENT_LIMIT_S}s",
        "lock_timeout": f"{LOCK_LIMIT_S}s",
        "idle_in_transaction_session_timeout": f"{IDLE_LIMIT_S}s",
        # The server ends the sessions of a machine that is gone, and frees their locks.
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
    connection.isolation_level = None  # Python would begin transactions by itself
    connection.create_function("distrain_now_s", 0, time.time)
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "cache_size=-16000"):
        connection.execute(f"PRAGMA {pragma}").close()


def _reopen_if_read_only(context: ExceptionContext) -> None:
    # A connection stays as it was opened: read-only, also when the database is so no more. SQLite's
    # share that within a process, so idle ones are closed, too.
    if was_opened_read_only(context.original_exception) and context.engine is not None:
        if context.execution_context is not None:
            context.execution_context.cursor.close()  # else SQLite keeps the connection open
        context.is_disconnect = True
        context.engine.dispose()


def _begin(connection: Connection) -> None:
    if connection.get_execution_options().get("distrain_write"):
        connection.exec_driver_sql("BEGIN IMMEDIATE")
