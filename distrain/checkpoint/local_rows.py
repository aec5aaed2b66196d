"""Which rows of a tensor a rank has, and which of them it writes."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from distrain.embeddings import CanonicalTensor


@dataclass(frozen=True)
class Rows:
    """Rows `first`, `first + stride`, ..., `count` of them.

    >>> Rows(1, 3, 4).numbers()
    range(1, 13, 3)
    """

    first: int
    stride: int
    count: int

    def numbers(self) -> range:
        return range(self.first, self.first + self.count * self.stride, self.stride)

    def part(self, start: int, stop: int) -> "Rows":
        """The `start`-th to the `stop`-th of them, exclusive."""
        return Rows(self.first + start * self.stride, self.stride, stop - start)

    def meet(self, other: "Rows") -> tuple[slice, slice] | None:
        """Where the common rows stand among these and among the others.

        >>> Rows(0, 2, 5).meet(Rows(1, 3, 3))  # 0 2 4 6 8 and 1 4 7
        (slice(2, 3, 3), slice(1, 2, 2))
        """
        if not self.count or not other.count:
            return None
        common = math.gcd(self.stride, other.stride)
        apart = other.first - self.first
        if apart % common:
            return None
        distance = self.stride // common * other.stride
        # The least place among these, counted from 0, that is a row of the others' pattern, too.
        place = apart // common * pow(self.stride // common, -1, other.stride // common)
        row = self.first + self.stride * (place % (other.stride // common))
        row += -(-max(0, other.first - row) // distance) * distance
        last = min(self.numbers()[-1], other.numbers()[-1])
        if row > last:
            return None
        count = (last - row) // distance + 1
        return self._slice(row, distance, count), other._slice(row, distance, count)

    def _slice(self, row: int, distance: int, count: int) -> slice:
        start, step = (row - self.first) // self.stride, distance // self.stride
        return slice(start, start + (count - 1) * step + 1, step)


SMALL_BYTES = 1 << 20


class LocalRows(NamedTuple):
    """Some rows of a tensor that lie on this rank, next to each other in memory."""

    name: str
    rows: Rows  # which rows of it, in canonical order. A scalar is a tensor of one row
    values: Tensor  # the live rows, `[rows.count, ...]`
    alone: bool  # whether no other rank has them; else all ranks have

    @property
    def num_bytes(self) -> int:
        return self.values.numel() * self.values.dtype.itemsize

    @property
    def row_bytes(self) -> int:
        return math.prod(self.values.shape[1:]) * self.values.dtype.itemsize


def local_rows_of(tensors: Mapping[str, Tensor | CanonicalTensor]) -> list[LocalRows]:
    """The rows of the tensors on this rank; tensors of no bytes are left out."""
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
    values = tensor.detach()
    values = values if values.dim() else values.unsqueeze(0)
    return LocalRows(name, Rows(0, 1, len(values)), values, alone)


def share_of(held: Sequence[LocalRows], rank: int, num_ranks: int) -> list[LocalRows]:
    """The part that this rank writes: what it alone holds, and a block of what several hold.

    What is too small to be cut is written by the first of them.
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
    for run in tensor.runs:
        keys = slice(run.first_key, run.first_key + run.stop - run.start)
        local, kept = run.store.local_part(keys)
        values = run.values[local]
        rows = Rows(run.start + kept.start, kept.step or 1, len(values))
        yield LocalRows(name, rows, values, alone=run.store.spread)
