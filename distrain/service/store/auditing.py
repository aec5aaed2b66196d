"""The audit, and the webhooks with their progress."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from distrain.service.store import tables
from distrain.service.store.engine import AnyRow, Database
from distrain.service.store.errors import NotThere
from distrain.service.store.leases import must_hold
from distrain.service.values import Lease

_audit, _webhooks = tables.audit, tables.webhooks
_PUT = insert(_audit)
_NOT_FAILING = {"failures": 0} | dict.fromkeys(
    ("next_at_s", "failing_since_s", "disabled_at_s", "error")
)


@dataclass(frozen=True)
class Deed:
    """A change that somebody made or tried: an audit row without its number and time."""

    user: str
    action: str
    target: str
    outcome: str  # `ok`, or why not
    token_id: str | None = None  # the token they showed
    details: Mapping[str, Any] = field(default_factory=dict)  # JSON values without secrets


def put_deed(connection: Connection, deed: Deed, now_s: float) -> None:
    row = vars(deed) | {"target": deed.target[:256], "details": dict(deed.details), "at_s": now_s}
    connection.execute(_PUT, row)


@dataclass(frozen=True)
class Webhook:
    id: str
    project: str
    owner: str
    url: str
    kinds: tuple[str, ...]  # of the events; empty: all
    cursor: int  # the seq of the last event that was delivered, or passed over
    created_at_s: float
    failures: int = 0  # in a row
    next_at_s: float | None = None  # when to try again after a failure
    failing_since_s: float | None = None  # when the first failure in a row was
    disabled_at_s: float | None = None  # when it was given up
    error: str | None = None  # what failed last, or why it was given up


class Auditing:
    db: Database

    def audit(self, deed: Deed) -> None:
        self.db.together(lambda connection: put_deed(connection, deed, self.db.now_s(connection)))

    def audit_rows(self, before_id: int | None, limit: int) -> Sequence[AnyRow]:
        """Rows before `before_id`, newest first: each a `Deed` with `id` and `at_s`."""
        statement = select(_audit).order_by(_audit.c.id.desc()).limit(limit)
        if before_id is not None:
            statement = statement.where(_audit.c.id < before_id)
        return self.db.all(statement)

    def put_webhook(self, webhook: Webhook) -> None:
        fields = vars(webhook) | {"kinds": list(webhook.kinds)}
        with self.db.write() as connection:
            connection.execute(insert(_webhooks).values(fields))

    def webhook(self, webhook_id: str) -> Webhook | None:
        row = self.db.first(select(_webhooks).where(_webhooks.c.id == webhook_id))
        return None if row is None else _webhook(row._asdict())

    def webhooks(self, project: str | None = None) -> list[Webhook]:
        statement = select(_webhooks).order_by(_webhooks.c.created_at_s, _webhooks.c.id)
        if project is not None:
            statement = statement.where(_webhooks.c.project == project)
        return [_webhook(row._asdict()) for row in self.db.all(statement)]

    def delete_webhook(self, webhook_id: str) -> None:
        with self.db.write() as connection:
            gone = connection.execute(delete(_webhooks).where(_webhooks.c.id == webhook_id))
            if not gone.rowcount:
                raise NotThere("no such webhook", where={"webhook": webhook_id})

    def move_webhook(
        self, webhook_id: str, *, cursor: int, lease: Lease | None = None, **columns: Any
    ) -> None:
        """Note a webhook's progress, under the lease if any; a deleted one stays deleted."""
        with self.db.write() as connection:
            if lease is not None:
                must_hold(connection, lease)
            put = update(_webhooks).where(_webhooks.c.id == webhook_id)
            connection.execute(put.values(_NOT_FAILING | columns | {"cursor": cursor}))


def _webhook(fields: dict[str, Any]) -> Webhook:
    return Webhook(**fields | {"kinds": tuple(fields["kinds"])})
