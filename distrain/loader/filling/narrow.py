"""Batches on their way to a device: ids in as few bytes as their vocabularies allow."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distrain.batch import Batch, Ragged
from distrain.loader.filling.batch_memory import BatchLayout
from distrain.loader.filling.fill_numpy import LETTER_BYTES
from distrain.loader.narrow_ids import narrow_type
from distrain.partition import WantedColumn

# In this order in memory, so that those of two and four bytes are aligned.
_LETTERS = "iHTB"
_MOST_THREE_BYTES = 1 << 24


class NarrowLayout:
    """The flat columns of a batch one after another in bytes, each contiguous.

    Ids below 2^8, 2^16 and 2^24 take one, two and three bytes, all else 4, as in `BatchLayout`.

    Attributes:
        row_bytes: Bytes of a row.
    """

    def __init__(self, columns: Sequence[WantedColumn]):
        flat = [column for column in columns if not column.is_list]
        self._cells = "".join(map(_letter, flat))
        self._numbers = {
            letter: [n for n, cell in enumerate(self._cells) if cell == letter]
            for letter in _LETTERS
        }
        offsets = np.zeros(len(flat), np.int64)
        self.row_bytes = 0
        for letter, numbers in self._numbers.items():
            for number in numbers:
                offsets[number] = self.row_bytes
                self.row_bytes += LETTER_BYTES[letter]
        self._offsets = offsets
        self._places: dict[torch.device, Tensor] = {}

    @property
    def is_narrower(self) -> bool:
        return self.row_bytes < 4 * len(self._cells)

    def part(self, columns: slice) -> tuple[bytes, NDArray[np.int64], int]:
        """What the kernels that fill blocks want to know of some columns."""
        return self._cells[columns].encode(), self._offsets[columns], self.row_bytes

    def widened(self, narrow: Tensor, num_rows: int) -> Tensor:
        """A block as in `BatchLayout`, `[columns, rows]`, int32, by work on the current stream."""
        if not num_rows:  # torch views no empty memory as another type
            shape = (len(self._cells), 0)
            return torch.empty(shape, dtype=torch.int32, device=narrow.device)
        counts = [len(numbers) * num_rows for numbers in self._numbers.values()]
        sizes = [LETTER_BYTES[x] * n for x, n in zip(_LETTERS, counts, strict=True)]
        parts = zip(torch.split(narrow, sizes), _LETTERS, strict=True)
        wide = [_as_int32(part, letter) for part, letter in parts if len(part)]
        columns = torch.cat(wide).view(len(self._cells), num_rows)
        # Not by index_copy_, which sorts indices where torch is told to be deterministic.
        return columns.index_select(0, self._places_on(narrow.device))

    def _places_on(self, device: torch.device) -> Tensor:
        """Where each column of a block is among those that are sorted by their widths."""
        if device not in self._places:
            by_width = [number for numbers in self._numbers.values() for number in numbers]
            places = np.argsort(by_width).tolist()
            # Made there: a copy would wait for the device.
            made = [torch.arange(place, place + 1, device=device) for place in places]
            self._places[device] = torch.cat(made)
        return self._places[device]


@dataclass(frozen=True)
class NarrowBatch:
    """A batch whose flat columns are bytes of a `NarrowLayout`."""

    block: Tensor  # `[rows * row_bytes]`, uint8
    num_rows: int  # rows of the batch
    lists: Mapping[str, Ragged]  # its list columns, as in `Batch`
    layout: BatchLayout
    narrow: NarrowLayout

    def widened(self) -> tuple[Batch, Tensor]:
        """The batch on the same device, and the new memory of its flat columns."""
        block = self.narrow.widened(self.block, self.num_rows)
        return self.layout.batch(block, self.lists), block


def narrow_layout(columns: Sequence[WantedColumn]) -> NarrowLayout | None:
    """The layout of these columns, if it saves bytes and `DISTRAIN_NARROW` is not 0."""
    layout = NarrowLayout(columns)
    return layout if layout.is_narrower and os.environ.get("DISTRAIN_NARROW") != "0" else None


def _letter(column: WantedColumn) -> str:
    if column.kind != "id" or column.id_limit > _MOST_THREE_BYTES:
        return "i"
    narrow = narrow_type(column.id_limit)
    return "T" if narrow is None else narrow.char


def _as_int32(cells: Tensor, letter: str) -> Tensor:
    if letter == "i":
        return cells.view(torch.int32)
    if letter == "B":
        return cells.to(torch.int32)
    if letter == "T":
        return torch.constant_pad_nd(cells.view(-1, 3), (0, 1)).view(-1).view(torch.int32)
    # Not torch.uint16, which few operations know. The mask is no number: the result has its type.
    return torch.bitwise_and(cells.view(torch.int16), _low_half(cells.device))


@cache
def _low_half(device: torch.device) -> Tensor:
    return torch.full((1,), 0xFFFF, dtype=torch.int32, device=device)
