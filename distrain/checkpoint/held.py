"""What a rank holds of a training's tensors, and which part of it the rank writes."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from distrain.checkpoint.rows import Rows
from distrain.embeddings.canonical import CanonicalTensor

SMALL_BYTES = 1 << 20


class Held(NamedTuple):
    """Some rows of a tensor that lie on this rank, next to each other in memory.

    Attributes:
        name: Of the tensor.
        rows: Which rows of it, in canonical order. A scalar is a tensor of one row.
        values: The live rows, `[rows.count, ...]`.
        alone: Whether no other rank has them.
    """

    name: str
    rows: Rows
    values: Tensor
    alone: bool

    @property
    def num_bytes(self) -> int:
        """Of its values."""
        return self.values.numel() * self.values.dtype.itemsize

    @property
    def row_bytes(self) -> int:
        """Of a row."""
        return math.prod(self.values.shape[1:]) * self.values.dtype.itemsize


def held_by_rank(tensors: Mapping[str, Tensor | CanonicalTensor]) -> list[Held]:
    """What this rank holds of the tensors, without what has no bytes."""
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


def whole(name: str, tensor: Tensor, *, alone: bool) -> Held:
    """A tensor that a rank holds as a whole."""
    values = tensor.detach()
    values = values if values.dim() else values.unsqueeze(0)
    return Held(name, Rows(0, 1, len(values)), values, alone)


def share_of(held: Sequence[Held], rank: int, num_ranks: int) -> list[Held]:
    """The part that this rank writes: every row of every tensor is some rank's, and only one's.

    What the rank alone holds, a block of what all hold, and on rank 0 what is too small to be cut.
    """
    return [
        share for one in held for share in _own_part(one, rank, num_ranks) if share.rows.count > 0
    ]


def _own_part(held: Held, rank: int, num_ranks: int) -> Iterator[Held]:
    if held.alone:
        yield held
    elif held.num_bytes >= SMALL_BYTES:
        start, stop = (held.rows.count * r // num_ranks for r in (rank, rank + 1))
        yield held._replace(rows=held.rows.part(start, stop), values=held.values[start:stop])
    elif rank == 0:
        yield held


def _runs(name: str, tensor: CanonicalTensor) -> Iterator[Held]:
    for run in tensor.runs:
        keys = slice(run.first_key, run.first_key + run.stop - run.start)
        local, kept = run.store.local_part(keys)
        values = run.values[local]
        rows = Rows(run.start + kept.start, kept.step or 1, len(values))
        yield Held(name, rows, values, run.store.spread)
