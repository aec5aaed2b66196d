"""Writes rows and lists to batches on a device, with the same bits as on the host.

The modules for the host are `filler` and `list_columns`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distrain.loader.batch import Ragged
from distrain.loader.filling.batch_memory import OpenBatch
from distrain.loader.filling.list_columns import check_total
from distrain.loader.filling.schedule import Deal
from distrain.loader.host_memory import to_device
from distrain.loader.partition.wanted_columns import WantedColumn


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
    """Distributes the lists of row groups to batches, and joins them to the batches' list columns.

    Args:
        limits: Maximum list lengths by column; the first items are kept.
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
        """Add the lists of a deal's rows to `batches`, which has the batch of each run.

        The thread waits for the device once, for the number of items.

        Returns:
            `[list columns]`, bool: whether the rows of a column hold an unusable list or item.
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
        """Return the list columns of a complete batch, without waiting for the device."""
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
        before = np.repeat(np.cumsum(counts) - counts, counts)  # rows of a run are consecutive
        return self._to_device(np.arange(len(begin)) - before + begin)

    def _items_of_runs(self, lengths: Sequence[Tensor], deal: Deal) -> list[list[int]]:
        ends = torch.stack(list(lengths)).cumsum(1)
        ends = torch.nn.functional.pad(ends, (1, 0))
        bounds = self._to_device(np.append(0, np.cumsum(deal.counts)))
        totals: list[list[int]] = ends.index_select(1, bounds).diff(dim=1).tolist()
        return totals


def ranges(starts: Tensor, lengths: Tensor, total: int) -> Tensor:
    """Return `lengths[k]` numbers from `starts[k]` on, for each `k`: `total` numbers, all int64.

    >>> ranges(torch.tensor([5, 9]), torch.tensor([2, 3]), 5).tolist()
    [5, 6, 9, 10, 11]
    """
    before = lengths.cumsum(0) - lengths
    # With the size of the result given, torch need not wait for the device to compute it.
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


_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def signed_bits(values: Tensor) -> Tensor:
    """Return the same bits in a signed type: torch supports few operations on unsigned ones."""
    return values.view(_SIGNED.get(values.dtype, values.dtype))


class TorchFiller:
    def __init__(self, columns: Sequence[WantedColumn], device: torch.device):
        self._columns = tuple(columns)
        kinds = [column.kind for column in columns]
        self._num_ids, self._num_labels = kinds.count("id"), kinds.count("label")
        self._num_weights = sum(column.is_weight for column in columns)
        self._labels = [column for column in columns if column.kind == "label"]
        self._all_binary = all(column.target_kind == "binary" for column in self._labels)
        last_ids = [column.id_limit - 1 for column in columns[: self._num_ids]]
        self._last_ids = to_device(torch.tensor(last_ids, dtype=torch.int32)[:, None], device)
        self._device = device

    def fill(self, cells: Sequence[Tensor], deal: Deal, blocks: Sequence[Tensor]) -> Tensor:
        """Write rows to the block of each run of `deal`, without waiting for the device.

        Returns:
            `[columns]`, bool: whether these rows have unusable values in a column.
        """
        rows = to_device(torch.from_numpy(deal.rows), self._device)
        dealt = torch.empty((len(cells), len(rows)), dtype=torch.int32, device=self._device)
        for column, source, target in zip(self._columns, cells, dealt, strict=True):
            gather_column(column, source, rows, target)
        self._write(dealt, deal, blocks)
        return self._bad_columns(dealt)

    def _write(self, dealt: Tensor, deal: Deal, blocks: Sequence[Tensor]) -> None:
        places = None
        if len(deal.places):
            places = to_device(torch.from_numpy(deal.places), self._device).long()
        first = 0
        for block, start, count in zip(
            blocks, deal.starts.tolist(), deal.counts.tolist(), strict=True
        ):
            run = slice(first, first + count)
            if places is None:
                block[:, start : start + count].copy_(dealt[:, run])
            else:
                block.index_copy_(1, places[run] + start, dealt[:, run])
            first += count

    def _bad_columns(self, dealt: Tensor) -> Tensor:
        ids, floats = dealt[: self._num_ids], dealt[self._num_ids :].view(torch.float32)
        num_values = len(floats) - self._num_labels - self._num_weights
        labels = floats[num_values : num_values + self._num_labels]
        weight = floats[num_values + self._num_labels :]
        bad = (
            (ids < 0) | (ids > self._last_ids),
            ~torch.isfinite(floats[:num_values]),
            self._bad_labels(labels),
            ~torch.isfinite(weight) | (weight < 0),
        )
        return torch.cat([part.any(dim=1) for part in bad])

    def _bad_labels(self, labels: Tensor) -> Tensor:
        if self._all_binary:
            return (labels != 0) & (labels != 1)
        bad = []
        for column, row in zip(self._labels, labels, strict=True):
            if column.target_kind == "binary":
                bad.append((row != 0) & (row != 1))
            elif column.target_kind == "multiclass":
                bad.append(~((row >= 0) & (row < column.id_limit) & (row == row.floor())))
            else:
                bad.append(~torch.isfinite(row))
        return torch.stack(bad)


def with_capacity(column: WantedColumn, values: Tensor) -> Tensor:
    """Return the values in a type that can hold the fill value as well: 0.5 would not fit int32."""
    if column.kind == "id":
        is_wide = values.dtype.itemsize >= 4
        return values if is_wide else _as_id(column, signed_bits(values), values.dtype)
    if values.dtype in (torch.float32, torch.float64):
        return values
    return _as_float(column, signed_bits(values), values.dtype)


def gather_column(column: WantedColumn, source: Tensor, rows: Tensor, target: Tensor) -> None:
    """Write rows of a column to `target`, `[rows]`, int32: ids, or the bits of float32 numbers.

    Unusable values, such as ids above int32, remain unusable there.
    """
    bits = signed_bits(source)
    if column.kind != "id":
        target = target.view(torch.float32)
    if bits.dtype == target.dtype and source.dtype == bits.dtype:
        torch.index_select(bits, 0, rows, out=target)
        return
    taken = bits.index_select(0, rows)
    narrow = _as_id if column.kind == "id" else _as_float
    target.copy_(narrow(column, taken, source.dtype))


def _as_id(_: WantedColumn, values: Tensor, kind: torch.dtype) -> Tensor:
    if kind == torch.uint16:
        return values.to(torch.int32) & 0xFFFF
    if kind == torch.uint32:
        return values  # a too large one becomes negative, which is also invalid
    if values.dtype == torch.int64:  # uint64 as well
        return torch.where((values < 0) | (values >= 2**31), -1, values).to(torch.int32)
    return values.to(torch.int32)


def _as_float(column: WantedColumn, values: Tensor, kind: torch.dtype) -> Tensor:
    if kind == torch.uint16:
        values = values.to(torch.int32) & 0xFFFF
    elif kind == torch.uint32:
        values = values.to(torch.int64) & 0xFFFFFFFF
    elif kind == torch.uint64:
        # Values above int64 are negative as int64. Halve them as unsigned numbers; the last bit is
        # set if either of the last two bits was, so that the rounding is right.
        half = ((values >> 1) & (2**63 - 1)) | (values & 1)
        return torch.where(values < 0, half.to(torch.float32) * 2, values.to(torch.float32))
    elif kind == torch.float64 and column.kind == "label":
        if column.target_kind == "binary":
            values = torch.where((values == 0) | (values == 1), values, torch.nan)
        elif column.target_kind == "multiclass":
            values = torch.where(values == values.floor(), values, torch.nan)
    elif kind == torch.float64 and column.is_weight:
        values = torch.where(values < 0, -1.0, values)
    return values.to(torch.float32)
