"""The audit log: the changes that users made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from sqlalchemy import Connection, insert, select

from distrain.service.store import tables
from distrain.service.store.engine import AnyRow, Database

_audit = tables.audit
_PUT = insert(_audit).inline()  # no caller uses the id of a new row


@dataclass(frozen=True)
class AuditEntry:
    """A change that a user made: an audit row without its id and time."""

    user: str
    action: str
    target: str
    token_id: str | None = None  # the user's token
    details: Mapping[str, Any] = field(default_factory=dict)  # JSON values without secrets


AUDITED = tuple(field.name for field in fields(AuditEntry))


def audit_row(entry: AuditEntry) -> dict[str, Any]:
    return vars(entry) | {"details": dict(entry.details)}


def put_audit_entry(connection: Connection, audit_entry: AuditEntry, now_s: float) -> None:
    connection.execute(_PUT, audit_row(audit_entry) | {"at_s": now_s})


class Auditing:
    db: Database

    def audit(self, audit_entry: AuditEntry) -> None:
        with self.db.write() as connection:
            put_audit_entry(connection, audit_entry, self.db.now_s(connection))

    def audit_rows(self, before_id: int | None, limit: int) -> Sequence[AnyRow]:
        """Return at most `limit` rows, newest first: the fields of `AuditEntry`, `id` and `at_s`.

        Unless `before_id` is `None`, only rows with lower ids are returned.
        """
        statement = select(_audit).order_by(_audit.c.id.desc()).limit(limit)
        if before_id is not None:
            statement = statement.where(_audit.c.id < before_id)
        return self.db.all(statement)
