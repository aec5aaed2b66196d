"""What a batch's ids mean for the tables: which rows, whose they are, what goes where.

A route depends on ids alone, not on what is in the tables, so it can be made while earlier batches
still train. It is then all that a step needs to know: fetching, expanding, collecting and
exchanging only move values along it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from distrain.batch import Ragged
from distrain.embeddings.replicated import ReplicatedRoute
from distrain.embeddings.row_wise import RowWiseRoute

RowsRoute = ReplicatedRoute | RowWiseRoute


@dataclass(frozen=True)
class ListRoute:
    """How the ids of a list column become one embedding a row.

    Attributes:
        numbers: `[ids]`, int32: which distinct row each id means.
        offsets: `[rows + 1]`, int32: where each row's ids begin.
    """

    numbers: Tensor
    offsets: Tensor

    @property
    def lengths(self) -> Tensor:
        """How many ids each row has, `[rows]`, int64."""
        return (self.offsets[1:] - self.offsets[:-1]).long()

    def part(self, rows: slice) -> "ListRoute":
        """The same for some of the batch's rows."""
        num_rows = len(self.offsets) - 1
        start, stop, _ = rows.indices(num_rows)
        if (start, stop) == (0, num_rows):
            return self  # and need not wait for a GPU to tell where ids begin and end
        bounds = self.offsets[start : stop + 1]
        first, last = int(bounds[0]), int(bounds[-1])
        return ListRoute(self.numbers[first:last], bounds - first)


@dataclass(frozen=True)
class StoreRoute:
    """A batch's route through the tables of one store.

    Attributes:
        numbers: `[flat columns, rows]`, int32: which distinct row each id means.
        lists: The same for each of its list columns.
        num_distinct: u, how many distinct rows the batch looks up.
        rows: Where those rows are, and how they and their gradients travel.
    """

    numbers: Tensor
    lists: tuple[ListRoute, ...]
    num_distinct: int
    rows: RowsRoute


@dataclass(frozen=True)
class Traffic:
    """What a step looks up and sends, on one rank.

    Attributes:
        lookups: Ids looked up.
        distinct: Distinct rows among them.
        updated: Rows that this rank updates.
        sent_bytes: What this rank gives to others: ids, rows, sums of gradients.
    """

    lookups: int = 0
    distinct: int = 0
    updated: int = 0
    sent_bytes: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(
            self.lookups + other.lookups,
            self.distinct + other.distinct,
            self.updated + other.updated,
            self.sent_bytes + other.sent_bytes,
        )


@dataclass(frozen=True)
class Route:
    """A batch's route through all tables.

    Attributes:
        num_rows: Rows of the batch.
        stores: One for each store.
        traffic: What the step will look up and send.
    """

    num_rows: int
    stores: tuple[StoreRoute, ...]
    traffic: Traffic


def flat_segments(num_columns: int, num_rows: int, lists: list[Ragged]) -> tuple[Tensor, Tensor]:
    """Where each column's ids lie when flat columns and lists stand one after another."""
    lengths = [num_rows] * num_columns + [len(ragged.values) for ragged in lists]
    counts = torch.tensor(lengths, dtype=torch.int64)
    return (torch.cumsum(counts, 0) - counts).unsqueeze(1), counts.unsqueeze(1)
