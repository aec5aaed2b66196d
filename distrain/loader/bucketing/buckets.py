"""Which bucket a row of a full shuffle goes to: numbers to numbers.

The line of an epoch has its rows in the order of their keys, which are random, so rows whose keys
lie in one range are neighbours on the line. A bucket holds the rows of such a range; all ranges
are equal, and buckets so but for chance. Where each begins on the line follows from counting keys,
and the order in it from sorting its own. So buckets are to lanes what row groups are, and their
number does not affect the order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distrain.loader.options import LoaderOptions
from distrain.partition import Chunks, EpochPlan, WantedColumn, forward_pieces, row_keys
from distrain.spec import ReaderFacts

LEAST_BUCKET_ROWS = 65_536
"""A bucket's column should fit a processor's cache while its rows are taken in their order, and the
rows that a row group has for a bucket should fill cache lines."""

_COUNTED_AT_A_TIME = 1 << 20


def use_buckets(
    options: LoaderOptions, columns: tuple[WantedColumn, ...], reader: ReaderFacts
) -> bool:
    flat = not any(column.is_list for column in columns)
    return options.shuffle == "full" and flat and not reader.on_gpu


def _bucket_rows(num_rows: int) -> int:
    # More rows a bucket: fewer buckets, so less memory for those being written to a file, but more
    # for those that lanes are in. Both grow with the square root of the table.
    return max(LEAST_BUCKET_ROWS, math.isqrt(8 * num_rows))


def bucket_rows_bound(num_rows: int) -> int:
    """Rows of a bucket that none exceeds, but by a chance below one in a million.

    >>> bucket_rows_bound(6_000_000), bucket_rows_bound(1_000)
    (67516, 1000)
    """
    mean = num_rows / Buckets.of(num_rows, 0, 0).count
    return min(num_rows, math.ceil(mean + 9 * math.sqrt(mean)))


@dataclass(frozen=True)
class Buckets:
    """The buckets of an epoch: `count` equal ranges of keys."""

    num_rows: int
    seed: int
    epoch: int
    count: int

    @classmethod
    def of(cls, num_rows: int, seed: int, epoch: int) -> Buckets:
        return cls(num_rows, seed, epoch, -(-num_rows // _bucket_rows(num_rows)))

    def keys(self, first: int, count: int) -> NDArray[np.uint64]:
        return row_keys(self.num_rows, self.seed, self.epoch, first, count)

    def numbers(self, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
        numbers = keys >> np.uint64(32)
        numbers *= np.uint64(self.count)
        numbers >>= np.uint64(32)
        return numbers

    def sizes(self) -> NDArray[np.int64]:
        sizes = np.zeros(self.count, np.int64)
        for first in range(0, self.num_rows, _COUNTED_AT_A_TIME):
            count = min(_COUNTED_AT_A_TIME, self.num_rows - first)
            numbers = self.numbers(self.keys(first, count)).view(np.int64)
            sizes += np.bincount(numbers, minlength=self.count)
        return sizes

    def expected_sizes(self) -> NDArray[np.int64]:
        bounds = np.arange(self.count + 1, dtype=np.int64) * self.num_rows // self.count
        return np.diff(bounds)

    @staticmethod
    def chunks(sizes: NDArray[np.int64], plan: EpochPlan) -> Chunks:
        """The line as chunks of a bucket each; empty ones are left out.

        Lanes go through it as if it were one chunk.
        """
        groups = np.flatnonzero(sizes).astype(np.int32)
        starts = np.cumsum(np.append(0, sizes[groups]))
        bounds = np.arange(len(groups) + 1, dtype=np.int32)
        dealt = forward_pieces(plan, Chunks(groups, bounds, starts))
        return Chunks(groups, bounds, starts, dealt)
