"""The route of a batch's ids: their rows, the owners of the rows, and the transfers.

A route depends on ids only, not on the values of the tables, so it can be made while earlier
batches train. The other operations of a step (fetch, expand, collect, exchange) only move values,
as the route says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from distrain.metrics.exchange_stats import ExchangeStats
from distrain.models.embeddings.replicated import ReplicatedRoute
from distrain.models.embeddings.row_wise import RowWiseRoute

RowsRoute = ReplicatedRoute | RowWiseRoute


@dataclass(frozen=True)
class ListRoute:
    """The ids of a list column: the distinct row of each, and where each batch row's ids begin."""

    inverse: Tensor  # `[ids]`, int32: the distinct row of each id
    offsets: Tensor  # `[rows + 1]`, int32: the start of each row's ids

    @property
    def lengths(self) -> Tensor:
        return (self.offsets[1:] - self.offsets[:-1]).long()

    def part(self, rows: slice) -> "ListRoute":
        num_rows = len(self.offsets) - 1
        start, stop, _ = rows.indices(num_rows)
        if (start, stop) == (0, num_rows):
            return self  # and need not wait for a GPU to read where ids begin and end
        bounds = self.offsets[start : stop + 1]
        first, last = int(bounds[0]), int(bounds[-1])
        return ListRoute(self.inverse[first:last], bounds - first)


@dataclass(frozen=True)
class StoreRoute:
    """The part of a `Route` that belongs to the tables of one store."""

    inverse: Tensor  # `[flat columns, rows]`, int32: the distinct row of each id
    lists: tuple[ListRoute, ...]  # the routes of the store's list columns
    num_distinct: int  # u, the number of distinct rows that the batch looks up
    rows: RowsRoute  # the owners of those rows, and the transfer of rows and gradients


@dataclass(frozen=True)
class Route:
    """A batch's route through all tables, store by store, and the traffic of its step."""

    num_rows: int
    stores: tuple[StoreRoute, ...]
    traffic: ExchangeStats


def table_segments(table_of: Sequence[int], lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return where the ids of each table are in the concatenated ids of all columns.

    `table_of` gives the index of each column's table, `lengths` the number of ids of each column.
    Returns the offset of each column's ids and their number, table by table: each `[tables, largest
    number of columns of a table]`, int64, padded with empty segments. `unique` takes both.

    >>> offsets, counts = table_segments([0, 1, 0], [5, 5, 3])
    >>> offsets.tolist(), counts.tolist()
    ([[0, 10], [5, 0]], [[5, 3], [5, 0]])
    """
    segments: list[list[tuple[int, int]]] = [[] for _ in range(max(table_of) + 1)]
    for table, end, length in zip(table_of, accumulate(lengths), lengths, strict=True):
        segments[table].append((end - length, length))
    width = max(len(own) for own in segments)
    filled = torch.tensor(
        [own + [(0, 0)] * (width - len(own)) for own in segments], dtype=torch.int64
    )
    return filled[..., 0].contiguous(), filled[..., 1].contiguous()
