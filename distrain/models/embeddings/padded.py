"""Routes of tables that are sharded over ranks, in shapes known before the batch.

How many rows a batch needs from each owner depends on its ids. To make the shapes constant, each
owner has a *capacity*: the number of rows that a rank can request from it. The rest is padding.
All transfers have the shape of the capacities: the requested row numbers, the rows, and the sums of
their gradients. The capacity is somewhat above the expected number of distinct rows. The maximum
possible number would multiply the bytes that row-wise tables send by the number of ranks.

With its request, each rank sends all owners one number: 0 if its requests fit the capacities, else
the largest number of rows that it needs from an owner whose capacity is exceeded. So every rank
learns the maximum over all ranks. If that is above 0, rows are missing and the answers must not be
used: the ranks raise the capacities to that number plus a quarter, and ask again. So the capacities
are the same on all ranks. They do not affect the results.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from distrain.models.embeddings.row_owners import num_rows_before
from distrain.models.embeddings.sharding.distinct_rows import expected_unique, with_slack
from distrain.models.embeddings.table_store import Store

_GROWTH = 1.25


@dataclass(frozen=True)
class PaddedRows:
    # `[flat columns, rows]`, int32: the index of each id's row among the received rows
    slots: Tensor
    in_order: Tensor  # `[flat columns * rows]`, int32: the slots, sorted
    order: Tensor  # `[flat columns * rows]`, int64: the places of `slots` in that order
    # `[ranks * capacity]`, int64: the rows of this rank's weight that the ranks request, rank 0's
    # first; each rank's part is padded with one past the last row
    requested: Tensor
    capacities: tuple[int, ...]  # the number of rows that each owner sends, padding included

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.slots, self.in_order, self.order, self.requested


@dataclass(frozen=True)
class PaddedRoutes:
    """The row requests of a batch, for each store that is sharded over ranks, in order."""

    stores: tuple[PaddedRows, ...]

    @property
    def capacities(self) -> tuple[tuple[int, ...], ...]:
        """For each store, each owner's capacity (see the module docstring).

        With the number of the batch's rows, they determine all shapes.
        """
        return tuple(store.capacities for store in self.stores)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(values for store in self.stores for values in store.tensors)

    @classmethod
    def of(cls, capacities: Sequence[tuple[int, ...]], tensors: Sequence[Tensor]) -> "PaddedRoutes":
        """Make the routes from tensors, the inverse of flattening them for a graph or a transfer.

        `tensors` is the result of `FixedTables.request_rows` without its first tensor, and
        `capacities` are those with which `request_rows` was called.
        """
        each = iter(tensors)
        return cls(
            tuple(
                PaddedRows(next(each), next(each), next(each), next(each), own)
                for own in capacities
            )
        )


class RowCapacities:
    """The number of rows that a rank may request from each owner in a step.

    `store` must be sharded over ranks and have no list columns. No batch may have more than
    `max_rows` rows.
    """

    def __init__(self, store: Store, max_rows: int):
        num_columns, ranks = Counter(store.table_of), store.shard_group.num_ranks
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
        """The current capacity for each owner."""
        planned = zip(self._most, self._planned, strict=True)
        return tuple(min(most, max(plan, self._wanted)) for most, plan in planned)

    def make(self, wanted: int) -> None:
        """Raise the capacity of each owner to at least 1.25 times `wanted` rows.

        A capacity never falls, and never exceeds the rows that a batch can need from the owner. If
        `wanted` is 0, nothing changes.
        """
        if wanted:
            self._wanted = max(self._wanted, math.ceil(_GROWTH * wanted))
