"""A batch: what the loader gives and a model takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, device


@dataclass(frozen=True)
class Batch:
    """Named tensors of some rows.

    The loader lays each column out contiguously, so `categorical` and `continuous` are usually
    transposed views: `categorical[:, j]` is contiguous.

    Attributes:
        categorical: `[rows, num_categorical]`, int32, each value in `0 .. cardinality-1`.
        continuous: `[rows, num_continuous]`, float32.
        label: `[rows]`, float32, 0.0 or 1.0; `None` when rows are scored without labels.
        categorical_names: The columns of `categorical`, in order.
        continuous_names: The columns of `continuous`, in order.
    """

    categorical: Tensor
    continuous: Tensor
    label: Tensor | None
    categorical_names: tuple[str, ...]
    continuous_names: tuple[str, ...]

    @property
    def num_rows(self) -> int:
        """How many rows; 0 is allowed (a rank may have none in the last step of an epoch)."""
        return int(self.categorical.shape[0])

    def __getitem__(self, name: str) -> Tensor:
        """One feature column by name, `[rows]`.

        Raises:
            KeyError: There is no such column.
        """
        if name in self.categorical_names:
            return self.categorical[:, self.categorical_names.index(name)]
        if name in self.continuous_names:
            return self.continuous[:, self.continuous_names.index(name)]
        raise KeyError(name)

    def to(self, target: device) -> Batch:
        """The same rows on another device."""
        return Batch(
            self.categorical.to(target, non_blocking=True),
            self.continuous.to(target, non_blocking=True),
            None if self.label is None else self.label.to(target, non_blocking=True),
            self.categorical_names,
            self.continuous_names,
        )
