"""Draws items as negatives for rows; the draws do not depend on the number of ranks."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from distrain.errors import ModelError
from distrain.loader.batch import Batch, Ragged
from distrain.models.embeddings.kernels.random_bits import words

Sampler = Literal["uniform", "popularity"]

FIRST_VALUE_ID = 3
"""The first id of a column that means a value.

`distrain prep` reserves the smaller ids for padding, missing values and unknown values.
"""
_FACTOR = 0x9E3779B97F4A7C15 - 2**64


@dataclass(frozen=True)
class ItemDraws:
    """Draws item ids for each row; they depend only on `Batch.key` and the row's own ids.

    With n items from id 3 on, "uniform" gives each item the probability 1 / n. "popularity" gives
    the i-th item (from 1) the probability log((i + 1) / i) / log(n + 1). This approximates Zipf's
    law for ids in the order of descending counts, as `distrain prep` writes them.

    Attributes:
        column: The column of the items.
        num_items: The cardinality of that column.
        per_row: The number of items drawn for a row.

    Raises:
        ModelError: There are fewer than two items.

    >>> draws = ItemDraws("item", 10, 4)
    >>> batch = Batch(torch.tensor([[5], [6], [5]]), torch.zeros(3, 0), None, ("item",), (), key=1)
    >>> ids = draws.of(batch).dense()
    >>> ids.shape, ids.min() >= 3, ids.max() < 10, torch.equal(ids[0], ids[2])
    (torch.Size([3, 4]), tensor(True), tensor(True), True)
    """

    column: str
    num_items: int
    per_row: int
    kind: Sampler = "uniform"

    def __post_init__(self) -> None:
        if self._count < 2:
            raise ModelError(
                f"negatives cannot be drawn: the column {self.column!r} has {self.num_items} ids, "
                f"and those below {FIRST_VALUE_ID} are not items"
            )

    @property
    def _count(self) -> int:
        return self.num_items - FIRST_VALUE_ID

    def of(self, batch: Batch) -> Ragged:
        """Return the drawn ids, `per_row` a row, int32; empty for a batch without a key.

        They follow from the batch's key and the row's categorical values, so equal rows of a batch
        draw the same ids.
        """
        rows, per_row = batch.categorical.shape[0], 0 if batch.key is None else self.per_row
        codes = torch.zeros(rows, dtype=torch.int64, device=batch.categorical.device)
        for column in batch.categorical.unbind(1):
            codes = codes * _FACTOR + column + 1
        drawn = words(batch.key or 0, codes, per_row)
        if self.kind == "uniform":
            places = drawn * self._count >> 32
        else:
            # In float64: float32 cannot distinguish the last of a large number of items.
            sizes = ((drawn.double() + 0.5) * (math.log(self._count + 1) / 2**32)).exp()
            places = (sizes.long() - 1).clamp(0, self._count - 1)
        offsets = torch.arange(rows + 1, dtype=torch.int32, device=codes.device) * per_row
        return Ragged((places + FIRST_VALUE_ID).int().flatten(), offsets)

    def log_q(self, ids: Tensor) -> Tensor:
        """Return the natural logarithm of each item's probability, float64, in the shape of `ids`.

        Ids below 3, which are never drawn, get the probability of the most likely item.
        """
        places = (ids - FIRST_VALUE_ID).clamp(min=0).double()
        if self.kind == "uniform":
            return torch.full_like(places, -math.log(self._count))
        return (1 / (places + 1)).log1p().log() - math.log(math.log(self._count + 1))
