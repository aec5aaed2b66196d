"""Reusable memory of each thread, for the values of column chunks.

New memory of these sizes costs a page fault every 4 KiB, and when it is freed, the kernel takes it
back at once.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distrain.loader.parquet_pages.footer import IS_BUILT

if IS_BUILT:
    from distrain.loader.parquet_pages import _pages

_MOST_KEPT_BYTES = 8 << 20  # larger pieces are not kept for reuse
# Pieces to keep: for columns that streams return at a time, and some that a consumer still uses.
_MOST_ARRAYS = 8
_ALIGNMENT = 64


def _references_of_a_list() -> int:
    """Return what `sys.getrefcount` returns for an object to which only one list refers.

    A buffer with this count is unused. The count includes the variable of a loop over the list and,
    before Python 3.14, an argument.
    """
    for owner in [np.empty(0, np.uint8)]:
        count = sys.getrefcount(owner)
    return count


_ONLY_HERE = _references_of_a_list()


class ThreadMemory(threading.local):
    """The memory of the calling thread; each thread has its own until it ends.

    Attributes:
        kernel: The C code's memory for column chunks, pages and dictionaries.
    """

    def __init__(self) -> None:
        if IS_BUILT:
            self.kernel = _pages.memory()
        self._arrays: list[NDArray[np.uint8]] = []

    def columns_for(self, count: int, dtypes: Sequence[np.dtype[Any]]) -> list[NDArray[Any]]:
        """Return an uninitialised array, `[count]`, of each type, all in one piece of memory.

        The memory is reused when there is no reference to any of the arrays.
        """
        starts = [0]
        for dtype in dtypes:
            end = starts[-1] + count * dtype.itemsize
            starts.append(-(-end // _ALIGNMENT) * _ALIGNMENT)
        owner = self._owner_of(starts[-1])
        return [
            owner[start : start + count * dtype.itemsize].view(dtype)
            for start, dtype in zip(starts, dtypes, strict=False)
        ]

    def _owner_of(self, num_bytes: int) -> NDArray[np.uint8]:
        if not 0 < num_bytes <= _MOST_KEPT_BYTES:
            return np.empty(num_bytes, np.uint8)
        in_use = []
        for owner in self._arrays:
            if sys.getrefcount(owner) != _ONLY_HERE:
                in_use.append(owner)
            elif len(owner) >= num_bytes:
                return owner
        new: NDArray[np.uint8] = np.empty(num_bytes, np.uint8)
        # Unused pieces that are too small are dropped, and so are the oldest pieces in use if there
        # are too many: their memory is then freed after use.
        self._arrays = [*in_use[-_MOST_ARRAYS + 1 :], new]
        return new


MEMORY = ThreadMemory()
"""Buffers for decoding that the calling thread reuses."""
