"""The errors that the service's database raises, and the translation of the drivers' errors."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from distrain.errors import DistrainError, InputError, Unavailable
from distrain.storage.retrying import first_line

_POSTGRES_READ_ONLY = "25006"


class StoreError(DistrainError):
    pass


class RowNotFound(StoreError):
    """The job, project, member or token does not exist."""

    exit_code = 102


class IdTaken(StoreError):
    """Another job has, or had before it was deleted, the id of a new job."""


class WrongState(StoreError):
    """The job's state does not allow the change, or only serve.yaml may change the project."""


class QuotaExceeded(StoreError):
    """The project's quota of queued jobs is used up, until some of them start or end."""


def quota_exceeded(which: str, limit: int, project: str) -> QuotaExceeded:
    return QuotaExceeded(
        f"the project has {limit} waiting jobs, the limit of its quota"
        if which == "max_queued"
        else f"you have {limit} waiting jobs in the project, the limit of its quota",
        where={"project": project, "quota": f"{which}: {limit}"},
        hint="Wait until one starts, or cancel one.",
    )


class Unstorable(InputError):
    """The database cannot store a value, such as a text with a NUL character."""


class SchemaDiffers(StoreError):
    """The database's tables are not those of this version of distrain."""


class NoTables(SchemaDiffers):
    """The database has no tables yet."""


class DatabaseInUse(StoreError):
    """Another service uses the SQLite database."""


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Convert the driver's errors in the block to Unstorable or Unavailable.

    `where` names the database in the messages, which do not contain the values of statements. Other
    errors, such as violated constraints, are not converted.
    """
    try:
        yield
    except exc.DataError as error:
        words = first_line(error.orig or error)
        raise Unstorable(
            f"the database cannot hold a value: {words}", where={"database": where}
        ) from error
    except (exc.TimeoutError, exc.OperationalError, exc.InterfaceError, exc.InternalError) as error:
        words = first_line(getattr(error, "orig", None) or error)
        raise Unavailable(
            f"the database does not answer, or cannot be written: {words}",
            where={"database": where},
            hint="Try again. If the error remains, check that the server runs, and that its disk "
            "has space and can be written.",
        ) from error
    except exc.DatabaseError as error:
        if type(error) is not exc.DatabaseError:
            raise
        words = first_line(error.orig or error)
        raise Unavailable(
            f"the database cannot be read: {words}",
            where={"database": where},
            hint="Stop the service, check the disk, and put a backup back: docs/operate.md, `The "
            "database is lost`.",
        ) from error


def was_opened_read_only(origin: BaseException | None) -> bool:
    """Return True if a driver's error says that the database is read-only for its connection."""
    if isinstance(origin, sqlite3.Error):
        return getattr(origin, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY
    return getattr(origin, "sqlstate", None) == _POSTGRES_READ_ONLY
