"""The order of an epoch: row groups to one line of rows.

The row groups are permuted by (seed, epoch); every `parts_per_chunk` of them in a row form a chunk;
the rows of a chunk are permuted by (seed, epoch, chunk). The line is the chunks one after another.

Permutations come from sorting distinct keys, raw Philox output above and the row's own number
below, and not from NumPy's `Generator`: NumPy keeps the raw streams of its bit generators the same
from release to release, but not what `Generator` makes of them (its NEP 19). A job that resumes
after an upgrade finds the same order.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distrain.errors import SpecError

SHUFFLES = ("chunk", "none")


class Chunk(NamedTuple):
    """Row groups whose rows are shuffled together.

    Attributes:
        row_groups: Which row groups, in the order in which their rows are laid down.
        start: The chunk's first row on the epoch's line.
        num_rows: Rows of all its row groups.
    """

    row_groups: tuple[int, ...]
    start: int
    num_rows: int


def chunk_order(
    num_rows_per_group: Sequence[int],
    seed: int,
    epoch: int,
    shuffle: str = "chunk",
    parts_per_chunk: int = 1,
) -> list[Chunk]:
    """The chunks of an epoch, in the order of its line.

    Args:
        num_rows_per_group: Rows of each row group, in file order.
        seed: The job's seed, 0 or more.
        epoch: Which epoch, from 0.
        shuffle: `"chunk"` permutes the row groups; `"none"` keeps the order of the files.
        parts_per_chunk: Row groups of a chunk (the last chunk may have fewer).

    Raises:
        SpecError: `shuffle`, `seed` or `parts_per_chunk` cannot be used.

    >>> chunk_order([5, 3, 4], seed=0, epoch=0, shuffle="none", parts_per_chunk=2)
    [Chunk(row_groups=(0, 1), start=0, num_rows=8), Chunk(row_groups=(2,), start=8, num_rows=4)]
    """
    if shuffle not in SHUFFLES:
        raise SpecError(f"unknown shuffle {shuffle!r}", hint=f"Allowed: {', '.join(SHUFFLES)}.")
    if parts_per_chunk < 1:
        raise SpecError(f"parts_per_chunk is {parts_per_chunk}, not 1 or more")
    groups = list(range(len(num_rows_per_group)))
    if shuffle != "none":
        groups = _permutation(len(groups), seed, epoch, stream=0).tolist()
    chunks = []
    start = 0
    for first in range(0, len(groups), parts_per_chunk):
        members = tuple(groups[first : first + parts_per_chunk])
        num_rows = sum(num_rows_per_group[group] for group in members)
        chunks.append(Chunk(members, start, num_rows))
        start += num_rows
    return chunks


def row_permutation(num_rows: int, seed: int, epoch: int, chunk: int) -> NDArray[np.int64]:
    """The order of a chunk's rows: place `i` of the chunk holds its row `result[i]`.

    Args:
        num_rows: Rows of the chunk.
        seed: The job's seed, 0 or more.
        epoch: Which epoch, from 0.
        chunk: The chunk's number in the epoch's order, from 0.

    Returns:
        `[num_rows]`, each of `0 .. num_rows-1` once.
    """
    return _permutation(num_rows, seed, epoch, stream=1 + chunk)


def _permutation(size: int, seed: int, epoch: int, stream: int) -> NDArray[np.int64]:
    if seed < 0:
        raise SpecError(f"seed is {seed}, not 0 or more")
    # The spawn key stands apart from the seed, so no two (seed, epoch, stream) share a stream.
    source = np.random.Philox(np.random.SeedSequence(seed, spawn_key=(epoch, stream)))
    keys: NDArray[np.uint64] = source.random_raw(size)
    # The keys are distinct, so any correct sort gives the same result. At 2^24 rows the 40 random
    # bits left above the row number still tie too rarely to matter.
    number_bits = np.uint64(max(size - 1, 1).bit_length())
    keys >>= number_bits
    keys <<= number_bits
    keys |= np.arange(size, dtype=np.uint64)
    keys.sort()
    keys &= (np.uint64(1) << number_bits) - np.uint64(1)
    return keys.view(np.int64)
