"""Memory for a batch, and the batch made of it. The one file of the loader that knows torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distrain.batch import Batch
from distrain.partition.columns import Wanted


@dataclass(frozen=True)
class BatchLayout:
    """All columns of a batch side by side in one block of 4-byte cells.

    The block is `[columns, rows]`: the ids as int32, then the continuous values and the label as
    the bits of float32. So a lane's rows are copied for all columns at once.

    Attributes:
        categorical_names: The first columns of a block.
        continuous_names: Those after them.
        has_label: Whether the label is the last column.
        pinned: Whether blocks lie in page-locked memory, for copies to a GPU that do not wait.
    """

    categorical_names: tuple[str, ...]
    continuous_names: tuple[str, ...]
    has_label: bool
    pinned: bool = False

    @classmethod
    def of(cls, columns: Sequence[Wanted], *, pin_memory: bool = False) -> BatchLayout:
        """The layout of these columns; memory is pinned only where there is a CUDA device."""
        return cls(
            tuple(column.name for column in columns if column.kind == "id"),
            tuple(column.name for column in columns if column.kind == "value"),
            any(column.kind == "label" for column in columns),
            pin_memory and torch.cuda.is_available(),
        )

    @property
    def num_columns(self) -> int:
        """Columns of a block."""
        return len(self.categorical_names) + len(self.continuous_names) + self.has_label

    def new_block(self, num_rows: int) -> tuple[Tensor, NDArray[np.int32]]:
        """Memory for a batch, not yet filled: the same cells as a tensor and as an array."""
        shape = (self.num_columns, num_rows)
        block = torch.empty(shape, dtype=torch.int32, pin_memory=self.pinned)
        return block, block.numpy()

    def batch(self, block: Tensor) -> Batch:
        """The batch whose columns a filled block holds; its tensors are views of the block."""
        num_ids = len(self.categorical_names)
        num_features = num_ids + len(self.continuous_names)
        values = block.view(torch.float32)
        return Batch(
            block[:num_ids].t(),
            values[num_ids:num_features].t(),
            values[num_features] if self.has_label else None,
            self.categorical_names,
            self.continuous_names,
        )


def current_cuda_device(layout: BatchLayout) -> int | None:
    """The caller's CUDA device if the layout pins memory, else `None`.

    Threads start on device 0 whatever their maker chose; see `use_cuda_device`.
    """
    return torch.cuda.current_device() if layout.pinned else None


def use_cuda_device(device: int | None) -> None:
    """Put the calling thread on a CUDA device, so that pinning does not wake device 0."""
    if device is not None:
        torch.cuda.set_device(device)
