"""The NumPy reference implementation of `_fill.c`, used if the C code was not built."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NO_TILE: NDArray[np.uint8] = np.empty(0, np.uint8)
DTYPES = {
    "i": np.int32,
    "q": np.int64,
    "B": np.uint8,
    "H": np.uint16,
    "f": np.float32,
    "d": np.float64,
}


def fill(
    sources: Sequence[NDArray[Any]],
    blocks: Sequence[NDArray[np.int32]],
    roles: bytes,
    types: bytes,
    limits: NDArray[np.uint64],
    rows: NDArray[np.int32],
    starts: NDArray[np.int64],
    counts: NDArray[np.int64],
    places: NDArray[np.int32] | bytes,
    first_column: int = 0,
    num_columns: int = 0,
    tile: NDArray[np.uint8] = _NO_TILE,
) -> bytes:
    """Write some rows of a row group's columns to their places in batches.

    The rows are written in runs, each to one batch. Run `k` takes the next `counts[k]` entries of
    `rows` and writes these rows of every column to `blocks[k]`, from cell `starts[k]` on.

    Args:
        sources: The columns, each `[rows of the row group]`.
        blocks: For each run its batch's memory, `[num_columns, rows of the batch]`, in cells of 4
            bytes.
        roles: A letter per column: `i` an id, `v` a value, `l` a label, `w` a weight.
        types: A letter per column, as in `array.array`: `i` int32, `q` int64, `B` uint8, `H`
            uint16, `f` float32, `d` float64. Ids are integers; other columns are `f` or `d`.
        limits: The exclusive upper bound of each column's ids, from 1 to 2^31.
        rows: Indices of rows of the row group, for all runs, one run after the other.
        starts: The first cell of each run in its block.
        counts: Rows of each run.
        places: For each entry of `rows` its place relative to the start of the run; empty if the
            places of a run are consecutive.
        first_column: The number in a block of the first of these columns.
        num_columns: The number of columns of a block; 0 for the number of `sources`.
        tile: Scratch memory for the C kernel: with 16 bytes for each row of the row group, the
            kernel gathers four columns at a time.

    Returns:
        A byte per column: 1 if these rows hold a suspicious value (an id not below its limit, a
        value that is not finite as float32, a label other than 0 and 1, a weight that is negative
        or not finite). A weight of -0.0 also counts as suspicious, though it is valid.
    """
    suspicious = bytearray(len(sources))
    stops = np.cumsum(counts)
    for column, source in enumerate(sources):
        values = np.asarray(source).view(DTYPES[chr(types[column])])
        for block, start, stop, count in zip(blocks, starts, stops, counts, strict=True):
            run = slice(int(stop - count), int(stop))
            taken = values[rows[run]]
            bits = cells_of(taken)
            where: Any = slice(int(start), int(start + count))
            if len(places):
                where = start + np.asarray(places)[run]
            block[first_column + column, where] = bits
            suspicious[column] |= is_suspicious(chr(roles[column]), taken, bits, limits[column])
    return bytes(suspicious)


def cells_of(values: NDArray[Any]) -> NDArray[np.int32]:
    """Return values as they are stored in a batch, int32: integers, or the bits of float32."""
    if values.dtype.kind in "iu":
        return values.astype(np.int32, copy=False)
    with np.errstate(over="ignore"):
        return values.astype(np.float32, copy=False).view(np.int32)


def is_suspicious(
    role: str, values: NDArray[Any], cells: NDArray[np.int32], limit: np.uint64
) -> bool:
    """Return True if one of a column's values is suspicious (see `fill`).

    `role` is the column's letter in `roles` of `fill`. `values` are the values as read, `cells` the
    same values as 4-byte cells of the batch (`cells_of`). `limit` is the exclusive upper bound of
    ids.
    """
    if role == "i":
        return bool((values.view(f"u{values.itemsize}") >= limit).any())
    if role == "l":
        return not ((values == 0) | (values == 1)).all()
    floats = cells.view(np.float32)
    return not (np.isfinite(floats) & (True if role == "v" else ~np.signbit(floats))).all()


def measure_lists(
    offsets: NDArray[np.int32],
    num_items: int,
    rows: NDArray[np.int32],
    counts: NDArray[np.int64],
    most: int,
    lengths: NDArray[np.int32],
    totals: NDArray[np.int64],
) -> int:
    """Compute the list length of each row and the number of items of each run (see `fill`).

    Run `k` takes the next `counts[k]` entries of `rows`, and at most the first `most` items of each
    list. `offsets` has the start of each list of the row group, and the end of the last one. Fills
    `lengths`, `[rows]`, and `totals`, `[runs]`; returns the maximum length. `num_items`, the number
    of items in the row group, is only used by the C code, which checks `offsets`.
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
    """Write the list items of rows, run by run, as 4-byte cells; return True if one is suspicious.

    `offsets`, `rows`, `counts` and `most` are those of `measure_lists`. `items` has the items of
    all rows of the row group. `role` and `kind` (the type) are letters as for `fill`, with the same
    checks. Each of `blocks` has one cell for each item of its run.
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
    """Copy the items of a run's rows to a batch's `values`.

    `places` has the row of the batch for each row of the run, in the order of `items`; `offsets`
    has the start in `values` of each row of the batch, and the end of the last one.
    """
    starts = offsets[places].astype(np.int64)
    values[_indices(starts, offsets[1:][places] - starts)] = items


def _indices(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return `lengths[k]` numbers from `starts[k]` on, for each `k`.

    >>> _indices(np.array([5, 9]), np.array([2, 3])).tolist()
    [5, 6, 9, 10, 11]
    """
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
