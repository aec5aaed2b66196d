"""Stores the buckets of a full shuffle, which any thread writes and which are read once.

A bucket is cut into segments. A segment is `[columns + 2, rows]` of 4-byte cells: the flat columns
in the layout of a batch, then the rows' random keys (see `first_pass`), 8 bytes each.
`BucketMemory` is the store in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Cells = NDArray[np.int32]

KEY_CELLS = 2
_SEGMENT_BYTES = 256 << 10
_LEAST_SEGMENT_BYTES = 16 << 10
_STAGED_BYTES = 256 << 20


def stored_row_bytes(num_columns: int) -> int:
    """Return the bytes of a row with `num_columns` flat columns in a bucket, with its sort key.

    >>> stored_row_bytes(40)
    168
    """
    return 4 * (num_columns + KEY_CELLS)


def segment_rows(num_columns: int, buckets: int) -> int:
    """Return the number of rows of a segment of a `BucketFile`, at least 1.

    One segment per bucket is in memory, so segments are smaller if there are many buckets.
    """
    size = min(_SEGMENT_BYTES, max(_LEAST_SEGMENT_BYTES, _STAGED_BYTES // max(buckets, 1)))
    return max(1, size // stored_row_bytes(num_columns))


def staged_bytes(num_columns: int, buckets: int) -> int:
    """Return the maximum bytes of a `BucketFile`'s segments that wait in memory to be written."""
    return buckets * segment_rows(num_columns, buckets) * stored_row_bytes(num_columns)


@dataclass
class Segment:
    cells: Cells  # `[columns + 2, rows]`
    left: int  # rows that are not written yet
    place: int = 0  # offset of the segment in the file, in bytes

    @property
    def block(self) -> Cells:
        return self.cells[:-KEY_CELLS]

    @property
    def keys(self) -> NDArray[np.uint64]:
        return self.cells[-KEY_CELLS:].reshape(-1).view(np.uint64)


class Run(NamedTuple):
    """Consecutive rows of a segment, from row `start` on."""

    segment: Segment
    start: int
    rows: int


class BucketMemory:
    """Holds the buckets of a full shuffle in memory, each as one segment.

    Args:
        sizes: The number of rows of each bucket, by its number.
        num_columns: The number of flat columns.
    """

    def __init__(self, sizes: Mapping[int, int], num_columns: int):
        width = num_columns + KEY_CELLS
        slab = np.empty(width * sum(sizes.values()), np.int32)
        self._segments: dict[int, Segment] = {}
        self._filled = dict.fromkeys(sizes, 0)
        self._lock = threading.Lock()
        end = 0
        for bucket, rows in sizes.items():
            cells = slab[end : end + width * rows].reshape(width, rows)
            self._segments[bucket] = Segment(cells, rows)
            end += width * rows

    def reserve(self, buckets: Sequence[int], counts: Sequence[int]) -> list[Run]:
        """Reserve places for `counts[k]` more rows of bucket `buckets[k]`, for each `k`.

        The caller writes the rows to the returned runs, in this order, and then passes the runs to
        `commit`. Any thread may call it.
        """
        runs = []
        with self._lock:
            for bucket, count in zip(buckets, counts, strict=True):
                start = self._filled[bucket]
                self._filled[bucket] = start + count
                runs.append(Run(self._segments[bucket], start, count))
        return runs

    def commit(self, runs: Sequence[Run]) -> None: ...

    def keys(self, bucket: int) -> NDArray[np.uint64]:
        """Return the random sort keys of a bucket's rows, `[rows]`, in the order of storage."""
        return self._segments[bucket].keys

    def columns(self, bucket: int) -> Cells:
        """Return the values of a bucket's rows, `[columns, rows]`, in the order of storage.

        They are valid until the same thread reads another bucket.
        """
        return self._segments[bucket].block

    def close(self) -> None:
        self._segments = {}
