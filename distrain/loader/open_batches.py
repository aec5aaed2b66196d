"""Batches that are being filled, from the step that comes next to the last that a load reaches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

BlockT = TypeVar("BlockT")


@dataclass
class OpenBatch(Generic[BlockT]):
    """One rank's rows of one step, some of them not yet there.

    Attributes:
        num_rows: How many there will be.
        block: The flat columns, `[columns, rows]`.
        lists: For each list column what has come so far: places in the batch, and their rows.
    """

    num_rows: int
    block: BlockT
    lists: list[list[tuple[NDArray[np.int64], pa.Array]]] = field(default_factory=list)


class OpenBatches(Generic[BlockT]):
    """Opens batches when the first rows for them come; threads fill different rows of them.

    Args:
        rows_in: The rank's rows of a step.
        new_block: Makes a block for so many rows.
        num_lists: How many list columns there are.
    """

    def __init__(
        self,
        rows_in: Callable[[int], int],
        new_block: Callable[[int], BlockT],
        num_lists: int,
    ):
        self._rows_in = rows_in
        self._new_block = new_block
        self._num_lists = num_lists
        self._open: dict[int, OpenBatch[BlockT]] = {}
        self._lock = threading.Lock()

    def at(self, step: int) -> OpenBatch[BlockT]:
        """The batch of a step."""
        with self._lock:
            if step not in self._open:
                num_rows = self._rows_in(step)
                lists: list[list[tuple[NDArray[np.int64], pa.Array]]]
                lists = [[] for _ in range(self._num_lists)]
                self._open[step] = OpenBatch(num_rows, self._new_block(num_rows), lists)
            return self._open[step]

    def take(self, step: int) -> OpenBatch[BlockT]:
        """Take out the batch of a step, once all its rows are there."""
        batch = self.at(step)
        with self._lock:
            return self._open.pop(step, batch)
