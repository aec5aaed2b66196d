"""Memory for batches on the host, and how columns lie in it."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distrain.batch import Batch, Ragged
from distrain.partition.columns import Wanted


@dataclass(frozen=True)
class BatchLayout:
    """All flat columns of a batch one after another in a block of 4-byte cells.

    The block is `[columns, rows]`: the ids as int32, then values, labels and the weight as the bits
    of float32. So each column is contiguous, and one copy moves a whole batch to a device.

    Attributes:
        categorical_names: The first columns of a block.
        continuous_names: Those after them.
        label_names: Those after them.
        has_weight: Whether the last column is a weight.
    """

    categorical_names: tuple[str, ...]
    continuous_names: tuple[str, ...]
    label_names: tuple[str, ...]
    has_weight: bool = False

    @classmethod
    def of(cls, columns: Sequence[Wanted]) -> BatchLayout:
        """The layout of these columns, of which lists take no part in the block."""

        def names(kind: str) -> tuple[str, ...]:
            return tuple(c.name for c in columns if c.kind == kind and not c.is_list)

        return cls(names("id"), names("value"), names("label"), bool(names("weight")))

    @property
    def num_columns(self) -> int:
        """Columns of a block."""
        names = (*self.categorical_names, *self.continuous_names, *self.label_names)
        return len(names) + self.has_weight

    def batch(self, block: Tensor, lists: Mapping[str, Ragged] | None = None) -> Batch:
        """The batch whose columns a filled block holds; its tensors are views of the block.

        Args:
            block: `[columns, rows]`, int32, on any device.
            lists: The list columns, by name.
        """
        num_ids = len(self.categorical_names)
        num_features = num_ids + len(self.continuous_names)
        num_targets = len(self.label_names)
        values = block.view(torch.float32)
        labels = values[num_features : num_features + num_targets].t()
        return Batch(
            block[:num_ids].t(),
            values[num_ids:num_features].t(),
            labels[:, 0] if num_targets else None,
            self.categorical_names,
            self.continuous_names,
            labels if num_targets else None,
            self.label_names,
            values[-1] if self.has_weight else None,
            lists or {},
        )


class BlockPool:
    """Lends blocks `[columns, rows]` of 4-byte cells, and takes them back when they are dropped.

    Fresh memory costs a page fault every 4 KiB, a tenth of the loader's work; a block that comes
    back has had its own. Blocks are given out from any thread. A block comes back once nothing
    refers to it or to a tensor made of it.

    Args:
        num_columns: Columns of every block.
        pinned: Whether blocks lie in page-locked memory. They are then kept by torch, not by this
            pool: torch knows which of them a copy to a device still reads.
        most_idle: How many blocks are kept at most; a consumer that gathers batches and drops them
            together gives back more than a loader ever needs. `None` keeps all.
    """

    def __init__(self, num_columns: int, *, pinned: bool = False, most_idle: int | None = None):
        self._num_columns = num_columns
        self._pinned = pinned
        self._idle: deque[NDArray[np.int32]] = deque(maxlen=most_idle)

    def lend(self, num_rows: int) -> NDArray[np.int32]:
        """A block of so many rows; what is in it is arbitrary."""
        cells = self._num_columns * num_rows
        if self._pinned:
            tensor = torch.empty(cells, dtype=torch.int32, pin_memory=True)
            return tensor.numpy().reshape(self._num_columns, num_rows)
        owner = self._idle_or_new(cells)
        # Views of an array refer to whoever owns its memory, so the lent array must not be a view
        # of `owner` in NumPy's eyes, or nobody would know when it is dropped.
        lent = np.frombuffer(owner.data, np.int32)
        weakref.finalize(lent, self._idle.append, owner).atexit = False
        return lent[:cells].reshape(self._num_columns, num_rows)

    def clear(self) -> None:
        """Let go of the blocks that are not lent."""
        self._idle.clear()

    def _idle_or_new(self, cells: int) -> NDArray[np.int32]:
        try:
            owner = self._idle.popleft()
        except IndexError:
            owner = np.empty(0, np.int32)
        # Batches differ by a few rows, the last one by many; a little room serves almost all.
        return (
            owner
            if len(owner) >= cells
            else np.empty(cells + 64 * max(1, self._num_columns), np.int32)
        )
