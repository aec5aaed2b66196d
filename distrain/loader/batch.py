"""`Batch`, which the loader yields and models take as input, and `Ragged`, its list columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor, device


@dataclass(frozen=True)
class Ragged:
    """A list column whose rows differ in length.

    Row `i` holds `values[offsets[i]:offsets[i + 1]]`, the form of
    `torch.nn.functional.embedding_bag` (with `include_last_offset=True`).

    Attributes:
        values: `[sum of the rows' lengths]`, int32 ids or float32 numbers.
        offsets: `[rows + 1]`, int32, from 0 to the number of values.
        host_offsets: A copy of `offsets` in the host's memory, for lists that were copied from the
            host to a GPU; else `None`.
    """

    values: Tensor
    offsets: Tensor
    host_offsets: NDArray[Any] | None = None

    def offsets_on_host(self) -> NDArray[Any]:
        """Return `offsets` as an array; waits for the device if the host has no copy."""
        if self.host_offsets is not None and not self.offsets.is_cpu:
            return self.host_offsets
        offsets: NDArray[Any] = self.offsets.cpu().numpy()
        return offsets

    def mapped(self, function: Callable[[Tensor], Tensor]) -> Ragged:
        """Return the lists with `function`, such as a copy to a device, applied to both tensors."""
        on_host = self.offsets.numpy() if self.offsets.is_cpu else self.host_offsets
        return Ragged(function(self.values), function(self.offsets), on_host)

    @property
    def lengths(self) -> Tensor:
        """The number of values of each row, `[rows]`, int32."""
        return self.offsets[1:] - self.offsets[:-1]

    def padded(self, length: int, fill: float = 0) -> Tensor:
        """Return the rows as `[rows, length]`, same dtype: cut, or padded with `fill` at the end.

        >>> import torch
        >>> clicks = Ragged(torch.tensor([7, 8, 9]), torch.tensor([0, 2, 2, 3]))
        >>> clicks.padded(2).tolist()
        [[7, 8], [0, 0], [9, 0]]
        """
        import torch

        places = torch.arange(length, device=self.values.device)
        inside = places < self.lengths[:, None]
        result = self.values.new_full(inside.shape, fill)
        result[inside] = self.values[(self.offsets[:-1, None] + places)[inside]]
        return result

    @property
    def row_of_values(self) -> Tensor:
        """The row of each value, `[values]`, int64.

        >>> import torch
        >>> Ragged(torch.tensor([7, 8, 9]), torch.tensor([0, 2, 2, 3])).row_of_values.tolist()
        [0, 0, 2]
        """
        # A value's row is the number of rows that end at or before the value. Only operators that
        # ONNX has are used.
        ends = self.offsets[1:].long()
        counts = ends.new_zeros(self.values.shape[0] + 1)
        return counts.scatter_add(0, ends, ends.new_ones(ends.shape)).cumsum(0)[:-1]

    def newest(self, length: int) -> Ragged:
        """Return the last `length` values of each row; all values of a row that has fewer.

        Waits for the device if the host has no copy of the offsets.

        While torch compiles or exports a model, all values are returned: sizes in a graph may
        depend only on the sizes of its inputs. In such a graph, `EventBlock` zeroes older values.

        >>> import torch
        >>> Ragged(torch.tensor([7, 8, 9]), torch.tensor([0, 2, 2, 3])).newest(1).values.tolist()
        [8, 9]
        """
        import torch

        if torch.compiler.is_compiling():
            return self
        lengths = np.diff(offsets := self.offsets_on_host())
        if (lengths <= length).all():
            return self
        kept = np.zeros_like(offsets)
        np.cumsum(np.minimum(lengths, length), out=kept[1:])
        # The number of values is known on the host, so no operation waits for the device.
        few = self.lengths.clamp(max=length)
        places = ranges(self.offsets[1:] - few, few, int(kept[-1]))
        ends = few.cumsum(0, dtype=self.offsets.dtype)
        starts = torch.cat([ends.new_zeros(1), ends])
        return Ragged(self.values.index_select(0, places), starts, kept)

    def dense(self) -> Tensor:
        """Return the values as a view `[rows, length]`, if all rows have the same length.

        Waits for the device, to compare the lengths.

        Raises:
            ValueError: The lengths differ; use `padded`.

        >>> import torch
        >>> Ragged(torch.tensor([7, 8, 9, 6]), torch.tensor([0, 2, 4])).dense().tolist()
        [[7, 8], [9, 6]]
        """
        num_rows = len(self.offsets) - 1
        length = int(self.values.shape[0]) // max(1, num_rows)
        if not bool((self.lengths == length).all()):
            raise ValueError("the lists differ in length; use padded(length)")
        return self.values.view(num_rows, length)

    def part(self, rows: slice) -> Ragged:
        """Return consecutive rows, `rows.start` to `rows.stop`; the slice's step is ignored.

        Waits for the device if the host has no copy of the offsets.
        """
        start, stop, _ = rows.indices(len(self.offsets) - 1)
        if (start, stop) == (0, len(self.offsets) - 1):
            return self
        on_host = self.offsets_on_host()[start : stop + 1]
        first, last = int(on_host[0]), int(on_host[-1])
        offsets = self.offsets[start : stop + 1] - first
        return Ragged(self.values[first:last], offsets, on_host - first)

    def to(self, target: device) -> Ragged:
        return self.mapped(lambda tensor: tensor.to(target, non_blocking=True))


def ranges(starts: Tensor, lengths: Tensor, total: int) -> Tensor:
    """Return the numbers `starts[k]` to `starts[k] + lengths[k] - 1` for each `k`, in order.

    The result is int64. `total` is the sum of `lengths`; with it, a GPU need not be waited for.

    >>> import torch
    >>> ranges(torch.tensor([5, 9]), torch.tensor([2, 3]), 5).tolist()
    [5, 6, 9, 10, 11]
    """
    import torch

    first = starts - (lengths.cumsum(0) - lengths)
    # With the size of the result given, torch need not wait for the device to compute it.
    places = torch.arange(total, device=starts.device)
    return places + first.repeat_interleave(lengths, output_size=total)


@dataclass(frozen=True)
class Batch:
    """Named tensors of some rows.

    The loader lays each column out contiguously, so `categorical` and `continuous` are usually
    transposed views: `categorical[:, j]` is contiguous.

    Attributes:
        categorical: `[rows, num_categorical]`, int32, each value in `0 .. cardinality-1`.
        continuous: `[rows, num_continuous]`, float32.
        label: The first target, `[rows]`, float32: 0.0 or 1.0, unless the schema tags it as
            regression or multiclass. `None` when rows are scored without labels.
        labels: All targets, `[rows, num_targets]`, float32. `None` without labels, or if the
            creator of the batch set only `label`.
        weight: `[rows]`, float32, 0 or more: each row's weight; `None` if there is no column of
            weights, so all rows have the same weight.
        lists: The list columns, by name.
        task_weights: `[rows, columns]`, float32, 0 or more: each row's weight for single tasks;
            `None` if there are no such columns.
        key: Seed of the random numbers that a training step draws for these rows; `None` if it is
            not set.
    """

    categorical: Tensor
    continuous: Tensor
    label: Tensor | None
    categorical_names: tuple[str, ...]
    continuous_names: tuple[str, ...]
    labels: Tensor | None = None
    label_names: tuple[str, ...] = ()
    weight: Tensor | None = None
    lists: Mapping[str, Ragged] = field(default_factory=dict)
    task_weights: Tensor | None = None
    task_weight_names: tuple[str, ...] = ()
    key: int | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows; may be 0 on a rank in the last step of an epoch."""
        return int(self.categorical.shape[0])

    def __getitem__(self, name: str) -> Tensor:
        """Return one flat column by name, `[rows]`: a feature, a target, or a task's weight.

        Raises:
            KeyError: There is no flat column of that name; list columns are in `lists`.
        """
        if name in self.categorical_names:
            return self.categorical[:, self.categorical_names.index(name)]
        if name in self.continuous_names:
            return self.continuous[:, self.continuous_names.index(name)]
        if self.labels is not None and name in self.label_names:
            return self.labels[:, self.label_names.index(name)]
        if self.task_weights is not None and name in self.task_weight_names:
            return self.task_weights[:, self.task_weight_names.index(name)]
        names = (*self.categorical_names, *self.continuous_names, *self.label_names)
        raise KeyError(f"no flat column {name!r}; there are {', '.join(names)}")

    def part(self, rows: slice) -> Batch:
        """Return consecutive rows, `rows.start` to `rows.stop`, as views of the same memory.

        The slice must not have a step. Offsets of list columns are copied.

        Waits for the device if the host has no copy of a list column's offsets, unless the slice
        has all rows.

        >>> import torch
        >>> ids = torch.arange(6, dtype=torch.int32).view(3, 2)
        >>> batch = Batch(ids, torch.zeros(3, 0), None, ("a", "b"), ())
        >>> batch.part(slice(1, 3)).categorical.tolist()
        [[2, 3], [4, 5]]
        """
        if rows.indices(self.num_rows) == (0, self.num_rows, 1):
            return self
        lists = {name: column.part(rows) for name, column in self.lists.items()}
        return replace(self, **self._mapped(lambda tensor: tensor[rows]), lists=lists)

    def to(self, target: device) -> Batch:
        lists = {name: column.to(target) for name, column in self.lists.items()}
        there = self._mapped(lambda tensor: tensor.to(target, non_blocking=True))
        if self.labels is not None:
            there["label"] = there["labels"][:, 0]
        return replace(self, **there, lists=lists)

    def _mapped(self, function: Callable[[Tensor], Tensor]) -> dict[str, Any]:
        flat = ("categorical", "continuous", "label", "labels", "weight", "task_weights")
        held = {name: getattr(self, name) for name in flat}
        return {name: function(one) for name, one in held.items() if one is not None}
