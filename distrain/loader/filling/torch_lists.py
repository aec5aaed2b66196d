"""List columns on a device: dealt to batches, and joined there, with the bits of `list_columns`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distrain.batch import Ragged
from distrain.host_memory import to_device
from distrain.loader.filling.batch_memory import OpenBatch
from distrain.loader.filling.list_columns import check_total
from distrain.loader.filling.schedule import Deal
from distrain.loader.filling.torch_filler import gather_column
from distrain.partition import WantedColumn


class DeviceLists(NamedTuple):
    """A list column of a row group on a device, without nulls.

    Row `i` holds `items[offsets[i]:offsets[i + 1]]`.
    """

    offsets: Tensor  # `[rows + 1]`, int32; the first may be above 0
    items: Tensor  # of any integer, floating or boolean type

    def part(self, first: int, last: int) -> DeviceLists:
        return DeviceLists(self.offsets[first : last + 1], self.items)


class DealtLists(NamedTuple):
    """The lists of a column's rows for one batch, row after row."""

    places: Tensor  # each row's place in the batch, int64
    lengths: Tensor  # the number of its items, int64
    items: Tensor  # the bits of int32 ids or of float32 values


class TorchListFiller:
    """Deals the lists of row groups to batches, and makes columns of batches of them.

    Args:
        limits: The most items that lists keep, the first ones, by column.
    """

    def __init__(
        self, columns: Sequence[WantedColumn], limits: Mapping[str, int], device: torch.device
    ):
        self._columns = tuple(columns)
        self._limits = [limits.get(column.name) for column in columns]
        self._device = device

    def deal(
        self, lists: Sequence[DeviceLists], deal: Deal, batches: Sequence[OpenBatch[Tensor]]
    ) -> Tensor:
        """Give rows to the batches of a deal's runs; a mask of columns with unusable rows.

        The thread waits for the device once: for the number of items.
        """
        if not self._columns:
            return torch.zeros(0, dtype=torch.bool, device=self._device)
        rows = self._to_device(deal.rows)
        places = self._places(deal)
        spans = [
            _spans(column.offsets, rows, most)
            for column, most in zip(lists, self._limits, strict=True)
        ]
        totals = self._items_of_runs([lengths for _, lengths in spans], deal)
        bad = []
        for number, (column, source) in enumerate(zip(self._columns, lists, strict=True)):
            starts, lengths = spans[number]
            items = torch.empty(sum(totals[number]), dtype=torch.int32, device=self._device)
            gather_column(column, source.items, ranges(starts, lengths, len(items)), items)
            bad.append(_is_bad(column, lengths, items))
            rows_of_runs = deal.counts.tolist()
            runs = map(
                DealtLists,
                torch.split(places, rows_of_runs),
                torch.split(lengths, rows_of_runs),
                torch.split(items, totals[number]),
            )
            for batch, run in zip(batches, runs, strict=True):
                batch.lists[number].append(run)
        return torch.stack(bad)

    def join(self, batch: OpenBatch[Tensor]) -> dict[str, Ragged]:
        """The list columns of a batch whose rows are all there; nothing waits for the device."""
        return {
            column.name: self._joined(column, batch.num_rows, runs)
            for column, runs in zip(self._columns, batch.lists, strict=True)
        }

    def _joined(self, column: WantedColumn, num_rows: int, runs: Sequence[DealtLists]) -> Ragged:
        total = sum(len(run.items) for run in runs)
        check_total(column, total)
        offsets = torch.zeros(num_rows + 1, dtype=torch.int32, device=self._device)
        values = torch.empty(total, dtype=torch.int32, device=self._device)
        if runs:
            places, lengths, items = map(torch.cat, zip(*runs, strict=True))
            of_place = torch.empty_like(lengths).index_copy_(0, places, lengths)
            ends = of_place.cumsum(0)
            offsets[1:].copy_(ends)
            starts = (ends - of_place)[places]
            values.index_copy_(0, ranges(starts, lengths, total), items)
        return Ragged(values.view(torch.int32 if column.kind == "id" else torch.float32), offsets)

    def _to_device(self, numbers: NDArray[Any]) -> Tensor:
        return to_device(torch.from_numpy(numbers), self._device).long()

    def _places(self, deal: Deal) -> Tensor:
        counts = deal.counts
        begin = np.repeat(deal.starts, counts)
        if len(deal.places):
            return self._to_device(deal.places + begin)
        before = np.repeat(np.cumsum(counts) - counts, counts)  # rows of a run follow each other
        return self._to_device(np.arange(len(begin)) - before + begin)

    def _items_of_runs(self, lengths: Sequence[Tensor], deal: Deal) -> list[list[int]]:
        ends = torch.stack(list(lengths)).cumsum(1)
        ends = torch.nn.functional.pad(ends, (1, 0))
        bounds = self._to_device(np.append(0, np.cumsum(deal.counts)))
        totals: list[list[int]] = ends.index_select(1, bounds).diff(dim=1).tolist()
        return totals


def ranges(starts: Tensor, lengths: Tensor, total: int) -> Tensor:
    """`lengths[k]` numbers from `starts[k]` on, for each `k`: `total` numbers, all int64.

    >>> ranges(torch.tensor([5, 9]), torch.tensor([2, 3]), 5).tolist()
    [5, 6, 9, 10, 11]
    """
    before = lengths.cumsum(0) - lengths
    # Told the size of the result, torch need not ask the device for it.
    first = torch.repeat_interleave(starts - before, lengths, dim=0, output_size=total)
    return first + torch.arange(total, device=starts.device)


def _spans(offsets: Tensor, rows: Tensor, most: int | None) -> tuple[Tensor, Tensor]:
    starts = offsets.index_select(0, rows).to(torch.int64)
    lengths = offsets[1:].index_select(0, rows) - starts
    return starts, lengths if most is None else lengths.clamp(max=most)


def _is_bad(column: WantedColumn, lengths: Tensor, items: Tensor) -> Tensor:
    if column.kind == "id":
        bad = ((items < 0) | (items > column.id_limit - 1)).any()
    else:
        bad = (~torch.isfinite(items.view(torch.float32))).any()
    return bad | (lengths > column.max_length).any() if column.max_length else bad
