"""What `_fill_lists.h` does, in NumPy: for machines without a compiler, and to test it against."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distrain.loader.filling.fill_numpy import DTYPES, cells_of, is_suspicious


def measure_lists(
    offsets: NDArray[np.int32],
    num_items: int,
    rows: NDArray[np.int32],
    counts: NDArray[np.int64],
    most: int,
    lengths: NDArray[np.int32],
    totals: NDArray[np.int64],
) -> int:
    """The lengths of rows' lists, and the items of each run; returns the longest.

    Run `k` takes the next `counts[k]` entries of `rows`, and the first `most` items of each list.
    `offsets` says where each list of the row group begins, and where the last one ends. Fills
    `lengths`, by entry, and `totals`, by run.
    """
    lengths[:] = np.minimum(offsets[1:][rows] - offsets[rows], most)
    ends = np.append(0, np.cumsum(lengths, dtype=np.int64))
    totals[:] = np.diff(ends[np.append(0, np.cumsum(counts))])
    return int(lengths.max(initial=0))


def gather_lists(
    offsets: NDArray[np.int32],
    items: NDArray[Any],
    role: bytes,
    kind: bytes,
    limit: int,
    rows: NDArray[np.int32],
    counts: NDArray[np.int64],
    most: int,
    blocks: Sequence[NDArray[np.int32]],
) -> bool:
    """The items of rows, run by run, as 4-byte cells; whether one of them is suspicious.

    `items` are those of all rows of the row group, of type `kind`, with the letters and the
    suspicions of `fill_numpy.fill`. Each of `blocks` has as many cells as its run's lists have
    items.
    """
    values = np.asarray(items).view(DTYPES[kind.decode()])
    suspicious = False
    stops = np.cumsum(counts)
    for block, stop, count in zip(blocks, stops, counts, strict=True):
        of_run = rows[int(stop - count) : int(stop)]
        starts = offsets[of_run].astype(np.int64)
        lengths = np.minimum(offsets[1:][of_run] - starts, most)
        taken = values[_indices(starts, lengths)]
        block[:] = cells_of(taken)
        suspicious |= is_suspicious(role.decode(), taken, block, np.uint64(limit))
    return suspicious


def place_lists(
    items: NDArray[np.int32],
    places: NDArray[np.int32],
    offsets: NDArray[np.int32],
    values: NDArray[np.int32],
) -> None:
    """Write items of rows, one after another, to their rows' places in a batch's values."""
    starts = offsets[places].astype(np.int64)
    values[_indices(starts, offsets[1:][places] - starts)] = items


def _indices(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """`lengths[k]` numbers from `starts[k]` on, for each `k`.

    >>> _indices(np.array([5, 9]), np.array([2, 3])).tolist()
    [5, 6, 9, 10, 11]
    """
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
