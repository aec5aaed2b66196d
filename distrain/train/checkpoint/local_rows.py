"""The rows of a tensor that a rank has, and the part of them that it writes to a checkpoint."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from distrain.models.embeddings.canonical_state import CanonicalTensor
from distrain.models.embeddings.row_owners import place_in_block

SMALL_BYTES = 1 << 20
_NUMBERED_AT_ONCE = 1 << 18

Places = slice | Tensor  # indices among some rows: a slice, or a tensor `[n]`, int64


@dataclass(frozen=True)
class Rows:
    """The numbers of some rows of a tensor: adjacent rows, or one rank's rows of a sharded table.

    A sharded table consists of blocks of `num_ranks` rows; each rank has one row of every block
    (`embeddings/row_owners.py`).

    >>> Rows(1, 1, 4).numbers().tolist(), Rows(1, 3, 4, rank=2).numbers().tolist()
    ([1, 2, 3, 4], [3, 5, 9, 11])
    """

    first: int  # the first row of the first block
    stride: int  # rows of a block: the number of ranks; 1 for adjacent rows
    count: int
    # the rank, of `stride` ranks, that has the rows of a sharded table; `None`: all rows
    rank: int | None = None
    block: int = 0  # the number of a rank's first block, from the table's start

    def row(self, place: Any) -> Any:
        """Return the number, in the tensor, of the row at index `place` among these rows.

        `place` may be a tensor of indices, `[n]`, int64; so is the result then.
        """
        start = self.first + place * self.stride
        if self.rank is None:
            return start
        return start + place_in_block(self.block + place, self.rank, self.stride)

    def numbers(self) -> Tensor:
        """Return the numbers of the rows, `[count]`, int64, ascending."""
        numbers: Tensor = self.row(torch.arange(self.count))
        return numbers

    @property
    def last(self) -> int:
        return int(self.row(self.count - 1))

    def part(self, start: int, stop: int) -> "Rows":
        """Return those of these rows that have the indices `start` to `stop - 1`."""
        block = 0 if self.rank is None else self.block + start
        first = self.first + start * self.stride
        return replace(self, first=first, count=stop - start, block=block)

    def num_before(self, row: int) -> int:
        """Return the number of these rows that are before row number `row`.

        >>> Rows(1, 1, 4).num_before(3), Rows(1, 1, 4).num_before(99)
        (2, 4)
        """
        place = (row - self.first) // self.stride
        return min(max(0, place + int(self.row(place) < row)), self.count)

    def may_meet(self, other: "Rows") -> bool:
        """Return False if these rows and `other` certainly have no row in common, else True."""
        if not self.count or not other.count:
            return False
        if self.last < other.row(0) or other.last < self.row(0):
            return False
        return self.rank == other.rank or not self._is_dealt_as(other)

    def meet(self, other: "Rows") -> Iterator[tuple[Places, Places]]:
        """Yield the positions, in these rows and in `other`, of the rows that both have.

        They come in several parts. A part is a pair of slices, or of tensors of equal length.

        >>> list(Rows(0, 1, 5).meet(Rows(3, 1, 9)))
        [(slice(3, 5, None), slice(0, 2, None))]
        """
        if not self.may_meet(other):
            return
        if self.stride == other.stride and (
            self._is_dealt_as(other) or self.rank is other.rank is None
        ):
            shift = (other.first - self.first) // self.stride
            start, stop = max(0, shift), min(self.count, other.count + shift)
            yield slice(start, stop), slice(start - shift, stop - shift)
            return
        start, stop = self.num_before(other.row(0)), self.num_before(other.last + 1)
        for begin in range(start, stop, _NUMBERED_AT_ONCE):
            numbers = self.part(begin, min(begin + _NUMBERED_AT_ONCE, stop)).numbers()
            places = (numbers - other.first) // other.stride
            common = other.row(places) == numbers
            yield begin + common.nonzero().flatten(), places[common]

    def _is_dealt_as(self, other: "Rows") -> bool:
        """Return True if both are rows of a sharded table that is cut into the same blocks."""
        if self.rank is None or other.rank is None or self.stride != other.stride:
            return False
        return other.first - self.first == (other.block - self.block) * self.stride


class LocalRows(NamedTuple):
    """Rows of a tensor on this rank that are adjacent in memory; implements `RowReceiver`."""

    name: str
    rows: Rows  # its rows of the tensor, in canonical order; a scalar is a tensor of one row
    values: Tensor  # the live rows, `[rows.count, ...]`
    alone: bool  # whether no other rank has them; otherwise all ranks have them

    @property
    def num_bytes(self) -> int:
        return self.values.numel() * self.values.dtype.itemsize

    @property
    def row_bytes(self) -> int:
        return math.prod(self.values.shape[1:]) * self.values.dtype.itemsize

    @property
    def device(self) -> torch.device:
        return self.values.device

    def wants(self, rows: Rows) -> bool:
        return rows.may_meet(self.rows)

    @torch.no_grad()
    def take(self, rows: Rows, values: Tensor) -> None:
        if not self.wants(rows):
            return
        # All values are moved: selecting rows that are not adjacent would copy them first.
        values = values.to(self.device)
        for source, target in rows.meet(self.rows):
            self.values[target] = values[source]


def local_rows_of(tensors: Mapping[str, Tensor | CanonicalTensor]) -> list[LocalRows]:
    """Return the rows of `tensors` that this rank holds; empty tensors are omitted."""
    return [
        held
        for name, tensor in tensors.items()
        for held in (
            [whole(name, tensor, alone=False)]
            if isinstance(tensor, Tensor)
            else _runs(name, tensor)
        )
        if held.num_bytes
    ]


def whole(name: str, tensor: Tensor, *, alone: bool) -> LocalRows:
    """Return all rows of a tensor; a scalar has one row. `alone` is as in `LocalRows`."""
    values = tensor.detach()
    values = values if values.dim() else values.unsqueeze(0)
    return LocalRows(name, Rows(0, 1, len(values)), values, alone)


def rows_to_write(held: Sequence[LocalRows], rank: int, num_ranks: int) -> list[LocalRows]:
    """Return the rows that rank `rank` writes to its file of a checkpoint.

    These are all rows that only this rank has, and an equal part of the rows that all ranks have.
    Exception: rank 0 alone writes tensors of less than `SMALL_BYTES` that all ranks have.
    """
    return [
        share for one in held for share in _own_part(one, rank, num_ranks) if share.rows.count > 0
    ]


def _own_part(held: LocalRows, rank: int, num_ranks: int) -> Iterator[LocalRows]:
    if held.alone:
        yield held
    elif held.num_bytes >= SMALL_BYTES:
        start, stop = (held.rows.count * n // num_ranks for n in (rank, rank + 1))
        yield held._replace(rows=held.rows.part(start, stop), values=held.values[start:stop])
    elif rank == 0:
        yield held


def _runs(name: str, tensor: CanonicalTensor) -> Iterator[LocalRows]:
    """Yield this rank's rows of `tensor`, which has the rows of all tables of one width.

    Yields an item for each stretch of adjacent rows in one store (tables of one placement).
    """
    for run in tensor.runs:
        store, keys = run.store, slice(run.first_key, run.first_key + run.stop - run.start)
        local = store.local_part(keys)
        rows = Rows(run.start, 1, keys.stop - keys.start)
        if store.is_sharded:
            shard_group, count = store.shard_group, local.stop - local.start
            first = run.start - run.first_key + local.start * shard_group.num_ranks
            rows = Rows(first, shard_group.num_ranks, count, shard_group.rank, local.start)
        yield LocalRows(name, rows, run.values[local], alone=store.is_sharded)
