"""Leases: who reconciles a cluster or publishes events, by the database's clock.

A lease that ran out may be taken by another, under the next generation. What its old owner still
writes is refused, since every write looks for owner and generation in its own transaction, with the
lease's row locked until that ends.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select, tuple_, update
from sqlalchemy.sql import case, false, or_

from distrain.service.store import tables
from distrain.service.store.engine import Database
from distrain.service.store.errors import LeaseLost
from distrain.service.values import Lease

TTL_S = 15.0
FAR_TERMS = 4  # a lease for longer than these is free: the clock was put back
_RELEASED = 0.0  # when a lease ran out that was released: before any other one

_leases = tables.leases
_OWNER = select(_leases.c.owner).where(_leases.c.name == bindparam("_name"))
_RENEW = (
    update(_leases)
    .where(
        _leases.c.owner == bindparam("_owner"),
        tuple_(_leases.c.name, _leases.c.generation).in_(bindparam("_known", expanding=True)),
        _leases.c.expires_at_s != _RELEASED,
    )
    .values(expires_at_s=bindparam("expires_at_s"))
    .returning(*_leases.c)
)
_LOCKED = (
    select(_leases.c.owner, _leases.c.generation)
    .where(_leases.c.name == bindparam("_name"))
    .with_for_update()
)


class Leasing:
    """The part of `Store` that lends work to one process at a time."""

    db: Database

    def take_lease(
        self, name: str, owner: str, ttl_s: float = TTL_S, *, ended: str | None = None
    ) -> Lease | None:
        """Take a free or `ended` owner's lease, or renew; `None` while another has it."""

        def take(connection: Connection) -> Row[Any] | None:
            now_s = self.db.now_s(connection)
            far_s = now_s + FAR_TERMS * max(ttl_s, TTL_S)
            ran_out = or_(
                _leases.c.expires_at_s <= now_s,
                _leases.c.expires_at_s > far_s,
                _leases.c.owner == ended if ended is not None else false(),
            )
            statement = (
                self.db.insert(_leases)
                .values(name=name, owner=owner, generation=1, expires_at_s=now_s + ttl_s)
                .on_conflict_do_update(
                    index_elements=[_leases.c.name],
                    set_={
                        "owner": owner,
                        "generation": _leases.c.generation + case((ran_out, 1), else_=0),
                        "expires_at_s": now_s + ttl_s,
                    },
                    where=or_(ran_out, _leases.c.owner == owner),
                )
                .returning(*_leases.c)
            )
            return connection.execute(statement).first()

        row = self.db.together(take)
        return None if row is None else Lease(**row._mapping)

    def renew(self, leases: Sequence[Lease], ttl_s: float = TTL_S) -> list[Lease]:
        """Renew leases of one owner, also ended ones; returns those that it still has."""
        if not leases:
            return []
        owner, known = leases[0].owner, [(lease.name, lease.generation) for lease in leases]

        def renew(connection: Connection) -> list[Lease]:
            expires_at_s = self.db.now_s(connection) + ttl_s
            found = connection.execute(
                _RENEW, {"_owner": owner, "_known": known, "expires_at_s": expires_at_s}
            )
            return [Lease(**row._mapping) for row in found]

        return self.db.together(renew)

    def lease_owner(self, name: str) -> str | None:
        owner: str | None = self.db.scalar(_OWNER, {"_name": name})
        return owner

    def release(self, lease: Lease) -> None:
        """Free a lease now; one that is lost already is left alone."""
        statement = (
            update(_leases)
            .where(
                _leases.c.name == lease.name,
                _leases.c.owner == lease.owner,
                _leases.c.generation == lease.generation,
            )
            .values(expires_at_s=_RELEASED)
        )
        self.db.together(lambda connection: connection.execute(statement))

    def lease_ends(self) -> dict[str, float]:
        """The seconds until each lease ends; negative: it ended so long ago."""
        with self.db.read() as connection:
            now_s = self.db.now_s(connection)
            found = connection.execute(select(_leases.c.name, _leases.c.expires_at_s))
            return {row.name: row.expires_at_s - now_s for row in found}


def must_hold(connection: Connection, lease: Lease) -> None:
    """Lock a lease's row until the transaction ends, so that nobody takes it; raises LeaseLost."""
    row = connection.execute(_LOCKED, {"_name": lease.name}).first()
    if row is None or (row.owner, row.generation) != (lease.owner, lease.generation):
        raise LeaseLost(
            "another process has the lease", where={"lease": lease.name, "owner": lease.owner}
        )
