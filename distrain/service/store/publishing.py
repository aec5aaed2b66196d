"""Publishes events: rows of the outbox are numbered without gaps, for streams to read.

Rows get sequence numbers when they are written, but transactions may commit in another order. A
reader that used these numbers as cursors would miss rows that commit late. So one process at a time
moves committed rows from the outbox to the events, and only the numbers assigned then are cursors.
Of two simultaneous publishers, one fails on a duplicate number. Changes of one job are committed
one after the other, so their order is kept.
"""

from typing import Any

from sqlalchemy import Select, delete, func, insert, literal, select

from distrain.service.store import tables
from distrain.service.store.engine import Database
from distrain.service.values import Event

_events = tables.events
_outbox = tables.outbox
_COPIED = ("job_id", "project", "owner", "kind", "body", "at_s")


class Publishing:
    db: Database

    def publish(self, limit: int = 500) -> int:
        """Move rows from the table `outbox` to the table of events; return how many.

        At most `limit` rows are moved, the oldest first. They get the next numbers.
        """
        if self.db.first(select(_outbox.c.id).limit(1)) is None:
            return 0  # without a write transaction, since this is called constantly
        with self.db.write() as connection:
            oldest = select(_outbox.c.id).order_by(_outbox.c.id).limit(limit)
            ids = connection.execute(oldest).scalars().all()
            if not ids:
                return 0
            last = connection.execute(select(func.max(_events.c.seq))).scalar_one() or 0
            number = literal(last) + func.row_number().over(order_by=_outbox.c.id)
            moved = select(number, *(_outbox.c[name] for name in _COPIED)).where(
                _outbox.c.id.in_(ids)
            )
            connection.execute(insert(_events).from_select(["seq", *_COPIED], moved))
            connection.execute(delete(_outbox).where(_outbox.c.id.in_(ids)))
        return len(ids)

    def unpublished_s(self) -> float:
        """Return the seconds for which the outbox's oldest row has waited; 0 if none waits."""
        with self.db.read() as connection:
            now_s = self.db.now_s(connection)
            oldest_s = connection.execute(select(func.min(_outbox.c.at_s))).scalar_one()
        return max(0.0, now_s - oldest_s) if oldest_s is not None else 0.0

    def events_after(self, seq: int, limit: int) -> list[Event]:
        return self._events(select(_events).where(_events.c.seq > seq), limit)

    def job_events_after(self, job_id: str, seq: int, limit: int) -> list[Event]:
        return self._events(
            select(_events).where(_events.c.job_id == job_id, _events.c.seq > seq), limit
        )

    def last_seq(self) -> int:
        return self.db.scalar(select(func.max(_events.c.seq))) or 0

    def first_seq(self) -> int:
        """Return the number of the oldest kept event; 0 if there is none.

        A cursor below this number minus 1 is invalid, since events after it were deleted.
        """
        return self.db.scalar(select(func.min(_events.c.seq))) or 0

    def _events(self, statement: Select[Any], limit: int) -> list[Event]:
        found = self.db.all(statement.order_by(_events.c.seq).limit(limit))
        return [Event(**row._mapping) for row in found]
