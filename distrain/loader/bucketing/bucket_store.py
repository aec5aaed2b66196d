"""Stores the buckets of a full shuffle, which any thread writes and which are read once.

A bucket is `[columns + 2, rows]` of 4-byte cells: the flat columns in the layout of a batch, then
the rows' random keys (see `first_pass`), 8 bytes each.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Cells = NDArray[np.int32]

_KEY_CELLS = 2


def stored_row_bytes(num_columns: int) -> int:
    """Return the bytes of a row with `num_columns` flat columns in a bucket, with its sort key.

    >>> stored_row_bytes(40)
    168
    """
    return 4 * (num_columns + _KEY_CELLS)


class BucketMemory:
    """Holds the buckets of a full shuffle in memory.

    Args:
        sizes: The number of rows of each bucket, by its number.
        num_columns: The number of flat columns.

    Raises:
        MemoryError: The system has too little memory for the rows.
    """

    def __init__(self, sizes: Mapping[int, int], num_columns: int):
        width = num_columns + _KEY_CELLS
        slab = _new_cells(width * sum(sizes.values()))
        self._buckets: dict[int, Cells] = {}
        self._filled = dict.fromkeys(sizes, 0)
        self._lock = threading.Lock()
        end = 0
        for bucket, rows in sizes.items():
            self._buckets[bucket] = slab[end : end + width * rows].reshape(width, rows)
            end += width * rows

    def reserve(self, buckets: Sequence[int], counts: Sequence[int]) -> list[int]:
        """Reserve places for `counts[k]` more rows of bucket `buckets[k]`, for each `k`.

        Returns the first place of each bucket. The caller writes the rows to `keys` and `columns`,
        from this place on. Any thread may call it.
        """
        starts = []
        with self._lock:
            for bucket, count in zip(buckets, counts, strict=True):
                starts.append(self._filled[bucket])
                self._filled[bucket] += count
        return starts

    def keys(self, bucket: int) -> NDArray[np.uint64]:
        """Return the random sort keys of a bucket's rows, `[rows]`, in the order of storage."""
        return self._buckets[bucket][-_KEY_CELLS:].reshape(-1).view(np.uint64)

    def columns(self, bucket: int) -> Cells:
        """Return the values of a bucket's rows, `[columns, rows]`, in the order of storage."""
        return self._buckets[bucket][:-_KEY_CELLS]

    def close(self) -> None:
        self._buckets = {}


def _new_cells(count: int) -> Cells:
    try:
        return np.empty(count, np.int32)
    except MemoryError as error:
        raise MemoryError(
            f"cannot allocate {4 * count:,} bytes for a rank's share of a full shuffle: use more "
            "memory, ranks on more hosts, or data.shuffle: chunk with more data.parts_per_chunk"
        ) from error
