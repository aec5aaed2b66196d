"""Routes of tables that are sharded over ranks, in shapes known before the batch.

How many rows a batch wants of each owner depends on its ids. Here each rank has a *capacity* for a
number of each owner's rows, the rest is padding, and all that travels has the shape of the
capacities: which rows are asked for, the rows, and the sums of their gradients. There is capacity
for more distinct rows than a batch is expected to have, not for the most that it can have, which
would be as many times what row-wise tables are to send as there are ranks.

Whoever asks an owner says beside its rows how many it lacks capacity for, so each rank learns the
most that any of them lacks. An answer with a number above 0 leaves rows out and must not be used:
the ranks make capacity for that number and a quarter more, and ask again. So the capacities are the
same on all ranks, and what is computed does not depend on them.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from distrain.models.embeddings.row_owners import num_rows_before
from distrain.models.embeddings.sharding.distinct_rows import expected_unique, with_slack
from distrain.models.embeddings.store import Store

_GROWTH = 1.25


@dataclass(frozen=True)
class PaddedRows:
    slots: Tensor  # `[flat columns, rows]`, int32: where in what arrives each id's row is
    in_order: Tensor  # `[flat columns * rows]`, int32: the slots, sorted
    order: Tensor  # `[flat columns * rows]`, int64: the places of `slots` in that order
    # `[ranks * capacity]`, int64: the rows of the own weight that ranks ask for, those for rank 0
    # first, each rank's filled up with one past the last row
    requested: Tensor
    capacities: tuple[int, ...]  # the number of rows that each owner sends, padding included

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.slots, self.in_order, self.order, self.requested


@dataclass(frozen=True)
class PaddedRoutes:
    """A batch's rows of all stores that are sharded over ranks, in the order of the stores."""

    stores: tuple[PaddedRows, ...]

    @property
    def capacities(self) -> tuple[tuple[int, ...], ...]:
        """With the number of the batch's rows, these decide all shapes."""
        return tuple(store.capacities for store in self.stores)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(values for store in self.stores for values in store.tensors)

    @classmethod
    def of(cls, capacities: Sequence[tuple[int, ...]], tensors: Sequence[Tensor]) -> "PaddedRoutes":
        """The routes with such `capacities` and `tensors`."""
        each = iter(tensors)
        return cls(
            tuple(
                PaddedRows(next(each), next(each), next(each), next(each), own)
                for own in capacities
            )
        )


class RowCapacities:
    """Number of rows that a rank may request of each owner in a step.

    The store is sharded over ranks, without list columns; no batch has more than `max_rows`.
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

    def make(self, wanted: int) -> None:
        """Provide capacity for `wanted` rows of each owner from now on."""
        if wanted:
            self._wanted = max(self._wanted, math.ceil(_GROWTH * wanted))
