"""Routes of tables that are spread over ranks, in shapes known before the batch is.

How many rows a batch wants of each owner depends on its ids. Here each rank has a *capacity* for so
many of each owner's rows, the rest is padding, and all that travels after the route has the shape
of the capacities: rows, and the sums of their gradients. There is capacity for more distinct rows
than a batch is expected to have, not for the most that it can have, which would be as many times
what row-wise tables are to send as there are ranks.

A batch that wants more is not lost: the ranks agree on the most that any of them wants, in numbers
that travel with the routes, and from that batch on all have capacity for it and for a quarter more.
So the capacities of a step are the same on all ranks, and what is computed does not depend on them.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from distrain.models.embeddings import kernels
from distrain.models.embeddings.kernels import padded_positions
from distrain.models.embeddings.peers import Peers
from distrain.models.embeddings.route import table_segments
from distrain.models.embeddings.row_owners import num_rows_before
from distrain.models.embeddings.row_wise import RowRequests, ask_owners
from distrain.models.embeddings.sharding.distinct_rows import expected_unique, with_slack
from distrain.models.embeddings.store import Store

_GROWTH = 1.25


@dataclass(frozen=True)
class PaddedRows:
    slots: Tensor  # `[flat columns, rows]`, int32: where in what arrives each id's row lies
    # `[ranks * room]`, int64: the rows of the own weight that ranks ask for, those for rank 0
    # first, each rank's filled up with one past the last row
    requested: Tensor
    capacities: tuple[int, ...]  # how many rows each owner sends, padding included


@dataclass(frozen=True)
class PaddedRoutes:
    """A batch's rows of all stores that are spread over ranks, in the order of the stores."""

    stores: tuple[PaddedRows, ...]

    @property
    def capacities(self) -> tuple[tuple[int, ...], ...]:
        """Which, with the number of the batch's rows, say all shapes."""
        return tuple(store.capacities for store in self.stores)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(values for store in self.stores for values in (store.slots, store.requested))

    def clone(self) -> "PaddedRoutes":
        return PaddedRoutes(
            tuple(
                PaddedRows(store.slots.clone(), store.requested.clone(), store.capacities)
                for store in self.stores
            )
        )


class RowCapacities:
    """How many rows of each owner a rank may ask for in a step.

    The store is spread over ranks, without columns of lists; no batch has more than `max_rows`.
    """

    def __init__(self, store: Store, max_rows: int):
        num_columns, ranks = Counter(store.table_of), store.sharers.num_ranks
        starts = [int(start) for start in store.starts]
        self._most = [0] * ranks
        expected = [0.0] * ranks
        for number, (table, start) in enumerate(zip(store.tables, starts, strict=True)):
            lookups = max_rows * num_columns[number]
            unique = expected_unique(table.cardinality, lookups)
            for owner in range(ranks):
                before, upto = (
                    num_rows_before(key, owner, ranks) for key in (start, start + table.cardinality)
                )
                held = upto - before
                self._most[owner] += min(lookups, held)
                expected[owner] += unique * held / table.cardinality
        self._planned = [with_slack(rows) for rows in expected]
        self._wanted = 0

    @property
    def now(self) -> tuple[int, ...]:
        planned = zip(self._most, self._planned, strict=True)
        return tuple(min(most, max(plan, self._wanted)) for most, plan in planned)

    def missing(self, asked: Sequence[int]) -> int:
        """Return the most that is asked of an owner who has no capacity for it; 0 if all fit."""
        return max(a if a > room else 0 for a, room in zip(asked, self.now, strict=True))

    def make(self, wanted: int) -> None:
        """Have capacity for `wanted` rows of each owner, from now on."""
        if wanted:
            self._wanted = max(self._wanted, math.ceil(_GROWTH * wanted))


class PaddedRouter:
    """Makes the routes of one store; see `RowCapacities` for the arguments."""

    def __init__(self, store: Store, max_rows: int):
        self.capacities = RowCapacities(store, max_rows)
        self._store = store

    def ask(self, ids: Tensor, sharers: Peers) -> tuple[RowRequests, Tensor]:
        """Ask the owners for `ids`, `[flat columns, rows]`, contiguous; collective.

        Returns what was asked, and which distinct row each id means, `[ids]`, int32.
        """
        segments = table_segments(self._store.table_of, [ids.shape[1]] * len(ids))
        grouping = kernels.unique(ids.reshape(-1), *segments)
        return ask_owners(grouping, self._store.starts, sharers), grouping.inverse

    def padded(self, own: RowRequests, inverse: Tensor) -> PaddedRows:
        capacities, rank = self.capacities.now, self._store.sharers.rank
        device = inverse.device
        slot_of = torch.empty_like(own.by_owner)
        slot_of[own.by_owner] = padded_positions(own.asked, capacities, device)
        received = own.wanted.sum(1).tolist()
        room, end = capacities[rank], self._store.num_local_rows
        requested = torch.full((len(received) * room,), end, dtype=torch.int64, device=device)
        requested[padded_positions(received, [room] * len(received), device)] = own.requested.long()
        slots = slot_of[inverse.long()].int().view(len(self._store.flat), -1)
        return PaddedRows(slots, requested, capacities)
