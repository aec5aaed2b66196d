"""Writes rows to batches on a device, with the same results as `filler.Filler` on the host."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from distrain.loader.filling.schedule import RowAssignment
from distrain.loader.host_memory import to_device
from distrain.loader.partition.wanted_columns import WantedColumn

_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def signed_bits(values: Tensor) -> Tensor:
    """Return the same bits in a signed type: torch supports few operations on unsigned ones."""
    return values.view(_SIGNED.get(values.dtype, values.dtype))


class TorchFiller:
    """Writes flat columns, which are tensors on `device`, to the memory of batches (blocks) there.

    `columns` must be in the order of a block: ids, values, labels, weights.
    """

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

    def fill(
        self, cells: Sequence[Tensor], assignment: RowAssignment, blocks: Sequence[Tensor]
    ) -> Tensor:
        """Write rows to the block of each run of `assignment`, without waiting for the device.

        `cells` has a tensor `[rows of the row group]` for each column.

        Returns:
            `[columns]`, bool: whether these rows have unusable values in a column.
        """
        rows = to_device(torch.from_numpy(assignment.rows), self._device)
        dealt = torch.empty((len(cells), len(rows)), dtype=torch.int32, device=self._device)
        for column, source, target in zip(self._columns, cells, dealt, strict=True):
            gather_column(column, source, rows, target)
        self._write(dealt, assignment, blocks)
        return self._bad_columns(dealt)

    def _write(self, dealt: Tensor, assignment: RowAssignment, blocks: Sequence[Tensor]) -> None:
        places = None
        if len(assignment.places):
            places = to_device(torch.from_numpy(assignment.places), self._device).long()
        first = 0
        for block, start, count in zip(
            blocks, assignment.starts.tolist(), assignment.counts.tolist(), strict=True
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
    """Return the values in a type that can also hold the column's replacement of nulls.

    For example, 0.5 would not fit int32.
    """
    if column.kind == "id":
        is_wide = values.dtype.itemsize >= 4
        return values if is_wide else _as_id(column, signed_bits(values), values.dtype)
    if values.dtype in (torch.float32, torch.float64):
        return values
    return _as_float(column, signed_bits(values), values.dtype)


def gather_column(column: WantedColumn, source: Tensor, rows: Tensor, target: Tensor) -> None:
    """Write rows of a column to `target`, `[rows]`, int32: ids, or the bits of float32 numbers.

    `source` has the column's values in the row group, and `rows` the indices of the rows to write.
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
