"""Bytes of one table on a rank: weights, optimizer state, `train.ema`, and bytes sent in a step.

Placements, the checks before a job starts, and `distrain plan` all use this formula. With W ranks,
U distinct rows of a rank's batch and rows of R bytes, a rank sends in a step

| placement | collectives | bytes |
|---|---|---|
| replicated | counts, ids, sums | `(W-1) * U * (4 + R)` |
| row_wise, host_cached | counts, ids, rows, sums | `(W-1)/W * U * (4 + 2R)` |

The few bytes of the counts are left out. In a recorded step (a CUDA graph), U is the capacity,
except for the ids of row-wise tables. Values are sent as fp32 for any stored type. This module does
not import torch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from distrain.jobs.optimizers import optimizer_facts
from distrain.models.embeddings.columns import PLACEMENTS, TableColumn, first_of_tables
from distrain.models.embeddings.sharding.distinct_rows import expected_unique, with_slack

WEIGHT_BYTES = {"fp32": 4, "bf16": 2}
_ID_BYTES = 4
_SENT_BYTES_PER_VALUE = 4
_GAP_BYTES_PER_VALUE = 4


@dataclass(frozen=True)
class TableSize:
    """The size of one table. Without `columns`, it belongs to one column of the same name."""

    name: str  # `TableColumn.table_name`
    rows: int
    dim: int
    # distinct rows that a rank's batch looks up; `None`: the function `expected_unique`, with one
    # lookup for each row of the batch and column
    expected_unique: float | None = None
    columns: tuple[str, ...] = ()

    def lookups(self, batch_rows: int) -> int:
        return batch_rows * max(1, len(self.columns))

    def unique(self, batch_rows: int) -> float:
        if self.expected_unique is not None:
            return min(float(self.rows), self.expected_unique)
        return expected_unique(self.rows, self.lookups(batch_rows))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.name, *self.columns)))


def table_sizes(columns: Sequence[TableColumn]) -> list[TableSize]:
    """Return the distinct tables of columns, in the order of their first columns.

    >>> columns = [TableColumn("bought", 9, 4, table="item"), TableColumn("shop", 3, 4)]
    >>> columns.append(TableColumn("seen", 9, 4, "mean", table="item"))
    >>> [(table.name, table.rows, table.columns) for table in table_sizes(columns)]
    [('item', 9, ('bought', 'seen')), ('shop', 3, ('shop',))]
    """
    return [
        TableSize(
            first.table_name,
            first.cardinality,
            first.dim,
            columns=tuple(c.name for c in columns if c.table_name == first.table_name),
        )
        for first in first_of_tables(columns)
    ]


@dataclass(frozen=True)
class RowBytes:
    """Computes the sizes in bytes of one table row of width `dim`: weight, state, average."""

    optimizer: str
    weight_bytes_per_value: int = 4
    averaged: bool = False  # with `train.ema`

    def weight(self, dim: int) -> int:
        return self.weight_bytes_per_value * dim

    def state(self, dim: int) -> int:
        """Return the bytes of the optimizer's state, always fp32, and of an average's gap."""
        of_rule = optimizer_facts(self.optimizer).update_rule.state_bytes(dim)
        return of_rule + _GAP_BYTES_PER_VALUE * dim * self.averaged

    def average(self, dim: int) -> int:
        """Return the bytes of the averages that exist beside the weights while rows are scored."""
        return self.weight(dim) * self.averaged


@dataclass(frozen=True)
class TablePlan:
    """The placement of one table, and its bytes on a rank."""

    name: str  # `TableColumn.table_name`
    rows: int
    dim: int
    placement: str
    why: str  # the reason, in words
    unique: float  # distinct rows that a rank's step is expected to touch
    room: float  # rows held and sent: `unique`, or the capacity of a recorded step
    weight_bytes: int  # the largest number of bytes of its weights on a rank
    optimizer_bytes: int  # bytes of its optimizer's state
    average_bytes: int  # bytes of the averages, which exist while rows are scored
    host_bytes: int  # bytes in the host's memory, for a host-cached table
    sent_bytes: float  # bytes that a rank sends for it in a step
    columns: tuple[str, ...]  # the columns that are looked up in it

    @property
    def held_bytes(self) -> int:
        """The bytes that count against a rank's budget."""
        return self.weight_bytes + self.optimizer_bytes + self.average_bytes


@dataclass(frozen=True)
class RankShare:
    """Computes the bytes of a table on one rank, from the numbers of ranks and rows of a batch."""

    num_ranks: int
    batch_rows: int  # of a rank
    row: RowBytes
    captured: bool = False  # steps are CUDA graphs, which send their whole capacity

    def of_table(
        self, table: TableSize, placement: str, beside: Sequence[TableSize], why: str = ""
    ) -> TablePlan:
        """Return the bytes of a table on the rank with most of its rows, and the bytes it sends.

        A rank owns at most `ceil(rows / num_ranks)` rows of a sharded table. For a host-cached
        table, the rows of a step count for the device, and the owned rows for the host.

        Args:
            placement: One of `PLACEMENTS`.
            beside: All tables of the same width, including this one; in a recorded step they share
                a capacity.
            why: The reason of the placement, which is copied to the result.
        """
        facts, row, dim = PLACEMENTS[placement], self.row, table.dim
        unique = table.unique(self.batch_rows)
        room = self._room(table, placement, unique, beside)
        owned = -(-table.rows // self.num_ranks) if facts.is_dealt else table.rows
        held = min(owned, math.ceil(unique)) if facts.on_host else owned
        return TablePlan(
            name=table.name,
            rows=table.rows,
            dim=dim,
            placement=placement,
            why=why,
            unique=unique,
            room=room,
            weight_bytes=held * row.weight(dim),
            optimizer_bytes=held * row.state(dim),
            average_bytes=held * row.average(dim),
            host_bytes=owned * (row.weight(dim) + row.state(dim)) if facts.on_host else 0,
            sent_bytes=self._sent(placement, unique, room, _SENT_BYTES_PER_VALUE * dim),
            columns=table.columns or (table.name,),
        )

    def _sent(self, placement: str, unique: float, room: float, row_bytes: int) -> float:
        peers = self.num_ranks - 1
        if not PLACEMENTS[placement].is_dealt:
            return peers * room * (_ID_BYTES + row_bytes)
        return peers / self.num_ranks * (unique * _ID_BYTES + 2 * room * row_bytes)

    def _room(
        self, table: TableSize, placement: str, unique: float, beside: Sequence[TableSize]
    ) -> float:
        facts = PLACEMENTS[placement]
        if not self.captured or facts.on_host:  # CUDA graphs do not support host-cached tables
            return unique
        if not facts.is_dealt:
            return float(min(table.rows, table.lookups(self.batch_rows)))
        return unique * self._spread(beside)

    def _spread(self, tables: Sequence[TableSize]) -> float:
        """Return how many times more rows a recorded step transfers than it is expected to need.

        This is the sum of the owners' capacities, divided by the expected number of distinct rows.
        `tables` are all tables of one width. Returns 1 if no rows are expected.
        """
        owners, rows = self.num_ranks, self.batch_rows
        expected = sum(table.unique(rows) for table in tables)
        if not expected:
            return 1.0
        most = sum(min(t.rows, owners * min(t.rows, t.lookups(rows))) for t in tables)
        return min(most, owners * with_slack(expected / owners)) / expected
