"""Migrates a database's tables to this version, and checks them."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, insert, select, text

from distrain.errors import OutputError
from distrain.service.store import tables
from distrain.service.store.engine import Database
from distrain.service.store.errors import NoTables, SchemaDiffers, translated

_ADVISORY_LOCK = 0x64697374  # an arbitrary number; advisory locks have no names
_SERVICE_ID = "service_id"


def head() -> str:
    revision = _script().get_current_head()
    assert revision is not None
    return revision


def upgrade(db: Database) -> None:
    """Create missing tables, or migrate existing tables to this version, in one transaction.

    Raises SchemaDiffers for tables of an unknown revision.
    """
    with _alone(db) as connection:
        context = MigrationContext.configure(connection)
        revision = context.get_current_revision()
        _refuse_unknown(db, revision)
        if revision is None:
            tables.metadata.create_all(connection)
            context.stamp(_script(), "head")
        else:
            _take_steps(connection)
        _name_service(connection)


def _take_steps(connection: Connection) -> None:
    script = _script()
    environment = EnvironmentContext(
        Config(), script, fn=lambda revision, context: script._upgrade_revs("head", revision)
    )
    with environment:
        environment.configure(connection=connection, target_metadata=tables.metadata)
        environment.run_migrations()


def check(db: Database) -> None:
    """Raise SchemaDiffers unless the tables are those of this version; does not create a file.

    Raises Unavailable if the database does not answer, or SQLite's file was replaced, and
    OutputError if this user may not look into the file's folder.
    """
    db.check_file()
    revision = None
    if db.path is None or _exists(db.path):  # opening a missing file would create it
        with db.read() as connection:
            revision = current(connection)
    if revision == head():
        return
    _refuse_unknown(db, revision)
    if revision is None:
        raise NoTables(
            "the database has no tables yet",
            where={"database": db.where},
            hint="If the service uses another database, pass its --config or --data-dir. "
            "Otherwise `distrain serve migrate` or `distrain serve` creates the tables.",
        )
    raise SchemaDiffers(
        f"the database's tables are from an earlier version (revision {revision})",
        where={"database": db.where},
        hint="Run `distrain serve migrate`; copy the database first, with `distrain serve backup` "
        "or pg_dump.",
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise OutputError(
            f"the database's folder cannot be read: {error.strerror}",
            where={"database": path},
            hint="Set another `data_dir`, or change the owner or permissions of its folders.",
        ) from error


def current(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def service_id(db: Database) -> str:
    """Return the service's id, by which a scheduler distinguishes the services that use it."""
    with db.read() as connection:
        statement = select(tables.facts.c.value).where(tables.facts.c.name == _SERVICE_ID)
        return str(connection.execute(statement).scalar_one())


def _refuse_unknown(db: Database, revision: str | None) -> None:
    if revision not in {None, *(step.revision for step in _script().walk_revisions())}:
        raise SchemaDiffers(
            "the database's tables are from a later version of distrain, or from a version "
            f"before 0.2.0 (revision {revision})",
            where={"database": db.where},
            hint="Run a later version, or restore a backup from before `distrain serve migrate`. "
            "Databases of versions before 0.2.0 cannot be read.",
        )


@contextmanager
def _alone(db: Database) -> Iterator[Connection]:
    """Yield a transaction that no other migration can overlap; on PostgreSQL, without timeouts."""
    if not db.is_postgres:
        with db.write() as connection:
            yield connection
        return
    with translated(db.where), db.engine.connect() as connection:
        for limit in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
            connection.execute(text(f"SET {limit} = 0"))
        connection.execute(text("SELECT pg_advisory_lock(:number)"), {"number": _ADVISORY_LOCK})
        connection.commit()
        try:
            with connection.begin():
                yield connection
        finally:
            connection.invalidate()  # its limits are disabled, and closing it releases the lock


def _name_service(connection: Connection) -> None:
    facts = tables.facts
    known = select(facts.c.value).where(facts.c.name == _SERVICE_ID)
    if connection.execute(known).first() is None:
        connection.execute(insert(facts).values(name=_SERVICE_ID, value=uuid.uuid4().hex))


def _script() -> ScriptDirectory:
    return ScriptDirectory(str(Path(__file__).parent))
