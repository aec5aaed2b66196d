"""Computes the order of an epoch's rows, the line, from row groups.

The line is a sequence of chunks. A chunk is one or more row groups, whose rows are permuted by
(seed, epoch, chunk). `shuffle` determines how row groups form chunks:

- `"none"`: chunks consist of consecutive row groups, in the order of the files; rows keep their
  order as well.
- `"chunk"`: a part is a row group, or several row groups of a file that stay together (see
  `parts_of`). Parts are permuted by (seed, epoch); then `parts_per_chunk` consecutive parts form a
  chunk.
- `"full"`: one chunk has all row groups in the order of the files, so the line is a uniform
  permutation of all rows.

A lane is a span of the line. Two adjacent lanes may share the chunk at their border. Even lanes
traverse their chunks from first to last, odd lanes from last to first. So the two lanes reach the
shared chunk at the same time, both at the start of the epoch or both at its end, and a rank that
serves both decodes it once. Otherwise the chunk's rows for one lane would have to be kept for a
whole epoch, or decoded again. Within a chunk, every lane keeps the chunk's order. In a full shuffle
all lanes traverse the line forwards, also if its only chunk is stored as several buckets
(`forward_pieces`).

If there are large row groups, they are replaced by slices, and chunks are distributed to lanes;
lanes are then not spans of the line (`sliced_order`). This does not apply to `"full"`.

Permutations come from sorting distinct keys: raw Philox output in the high bits, the row's own
number in the low bits. NumPy's `Generator` is not used: NumPy guarantees the raw streams of its
bit generators across releases, but not the output of `Generator` (NEP 19). A job that resumes
after an upgrade has the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distrain.loader.partition.epoch_plan import EpochPlan
from distrain.loader.partition.lazy_sequence import LazySequence
from distrain.loader.partition.slice_dealing import deal_runs

try:
    from distrain.loader.partition._order import order as _fill_order
except ImportError:  # built without a compiler
    ORDER_IS_BUILT = False
else:
    ORDER_IS_BUILT = True

if TYPE_CHECKING:
    from distrain.loader.partition.slices import Slices
    from distrain.loader.partition.table import RowGroup


class Parts(LazySequence[tuple[int, ...]]):
    """The row groups of each part, as tuples of indices, stored in 4 bytes a part.

    `bounds`, `[parts + 1]`, has the first row group of each part, then the number of row groups.
    """

    def __init__(self, bounds: NDArray[np.int32]):
        self.bounds = bounds

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def _make(self, place: int) -> tuple[int, ...]:
        return tuple(range(int(self.bounds[place]), int(self.bounds[place + 1])))


def parts_of(row_groups: Sequence[RowGroup], part_rows: int | None = None) -> Parts:
    """Join consecutive row groups of a file to parts of at most `part_rows` rows.

    Reading small row groups costs more per row, and a chunk of few rows shuffles less. Each row
    group joins the part before it if both are in the same file and the part then has at most
    `part_rows` rows. So a row group larger than `part_rows` is a part of its own.

    Args:
        part_rows: The maximum rows of a part of several row groups; `None` makes each row group a
            part.

    Returns:
        For each part its row groups, as indices into `row_groups`: each index once, in order.

    >>> from distrain.loader.partition.table import RowGroup
    >>> parts_of([RowGroup("a", 0, 4), RowGroup("a", 1, 5), RowGroup("b", 0, 1)], part_rows=10)
    Parts(((0, 1), (2,)))
    """
    if part_rows is None:
        return Parts(np.arange(len(row_groups) + 1, dtype=np.int32))
    begins = np.fromiter(_begins(row_groups, part_rows), np.int32)
    return Parts(np.append(begins, np.int32(len(row_groups))))


def _begins(row_groups: Sequence[RowGroup], part_rows: int) -> Iterator[int]:
    rows_of_part = 0
    file = None
    for place, group in enumerate(row_groups):
        rows_of_part += group.num_rows
        if group.file != file or rows_of_part > part_rows:
            yield place
            file, rows_of_part = group.file, group.num_rows


_NUMBERS_AT_A_TIME = 4  # numbers that Philox draws from each state
_DRAWS = (0, 0, 0)  # the spawn key of `row_draws`, before the file; orders use keys of two numbers


class Chunk(NamedTuple):
    """Row groups, or slices of row groups, whose rows are shuffled together."""

    row_groups: tuple[int, ...]  # indices of its row groups, in the chunk's unshuffled order
    start: int  # the chunk's first row on the epoch's line
    num_rows: int  # rows of all its row groups


class Chunks(LazySequence[Chunk]):
    """The chunks of an epoch, in its order, stored in 4 bytes a row group and 12 a chunk.

    Attributes:
        starts: `[chunks + 1]`: each chunk's first row on the epoch's line, then the number of rows.
        dealt: The pieces of all lanes, `[pieces, 5]`, lane by lane (see `Pieces`), if
            they were computed with the chunks; `None` if `lane_pieces` computes them from the line.
    """

    def __init__(
        self,
        groups: NDArray[np.int32],
        bounds: NDArray[np.int32],
        starts: NDArray[np.int64],
        dealt: NDArray[np.int64] | None = None,
    ):
        self._groups = groups
        self._bounds = bounds
        self.starts = starts
        self.dealt = dealt

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def _make(self, place: int) -> Chunk:
        groups = self._groups[self._bounds[place] : self._bounds[place + 1]]
        start, end = self.starts[place : place + 2].tolist()
        return Chunk(tuple(groups.tolist()), start, end - start)


def chunk_order(
    num_rows_per_group: Sequence[int] | NDArray[np.int64],
    seed: int,
    epoch: int,
    shuffle: str = "chunk",
    parts_per_chunk: int = 1,
    parts: Parts | None = None,
) -> Chunks:
    """Return the chunks of an epoch, in the order in which they form its sequence of rows.

    Args:
        shuffle: `"chunk"` permutes the parts; `"none"` keeps the order of the files; `"full"` puts
            all row groups into one chunk and ignores the parts.
        parts_per_chunk: Parts of a chunk (the last chunk may have fewer).
        parts: The row groups of each part, from `parts_of`. By default each row group is a part.

    >>> list(chunk_order([5, 3, 4], seed=0, epoch=0, shuffle="none", parts_per_chunk=2))
    [Chunk(row_groups=(0, 1), start=0, num_rows=8), Chunk(row_groups=(2,), start=8, num_rows=4)]
    """
    rows = np.asarray(num_rows_per_group, np.int64)
    if parts is None:
        parts = Parts(np.arange(len(rows) + 1, dtype=np.int32))
    places = np.arange(len(parts))
    if shuffle == "chunk":
        places = _permutation(len(parts), seed, epoch, stream=0)
    if shuffle == "full":
        parts_per_chunk = max(len(parts), 1)
    lengths = np.diff(parts.bounds)[places]
    begins = np.cumsum(lengths, dtype=np.int32) - lengths  # of parts in the new order
    groups = np.repeat(parts.bounds[:-1][places] - begins, lengths)
    groups += np.arange(len(rows), dtype=np.int32)
    bounds = np.append(begins[::parts_per_chunk], np.int32(len(rows)))
    rows_before = np.cumsum(np.append(0, rows[groups]))
    return Chunks(groups, bounds, rows_before[bounds])


def sliced_order(
    chunks: Chunks, slices: Slices, lane_rows: Sequence[int], lane_groups: int
) -> Chunks:
    """Return the chunks of an epoch with large row groups in slices, and the pieces of all lanes.

    A chunk of large row groups becomes a run of chunks: the first has the first slice of each row
    group, the second has the second slices, and so on to the end of the largest row group. Each
    lane group works on its own run; see `slice_dealing`.

    Args:
        lane_rows: The number of rows of each lane.
        lane_groups: The number of lane groups.
    """
    runs = [_layers(chunk, slices.firsts) for chunk in chunks]
    sizes = ([int(slices.rows[layer].sum()) for layer in run] for run in runs)
    order, dealt = deal_runs(sizes, lane_rows, lane_groups)
    layers = [runs[run][place] for run, place in order]
    bounds = np.cumsum([0, *map(len, layers)], dtype=np.int32)
    groups = np.concatenate(layers).astype(np.int32)
    starts = np.cumsum(np.append(0, slices.rows[groups]))[bounds]
    return Chunks(groups, bounds, starts, dealt)


def _layers(chunk: Chunk, firsts: NDArray[np.int32]) -> list[NDArray[np.int64]]:
    """Return the first slice of each of a chunk's row groups, then the second slices, and so on.

    Slices are numbered; `firsts` has the number of each row group's first slice.
    """
    first, end = firsts[list(chunk.row_groups)], firsts[[n + 1 for n in chunk.row_groups]]
    layers = (first.astype(np.int64) + number for number in range(int((end - first).max())))
    return [layer[layer < end] for layer in layers]


def row_permutation(num_rows: int, seed: int, epoch: int, chunk: int) -> NDArray[np.int64]:
    """Return the shuffled order of a chunk's rows: its row `result[i]` moves to place `i`."""
    return _permutation(num_rows, seed, epoch, stream=1 + chunk)


def row_order(num_rows: int, seed: int, epoch: int, chunk: int) -> NDArray[np.int32]:
    """Return `row_permutation` as int32, in a third of the time if the C code is built.

    There may be at most 2^31 rows.

    >>> row_order(5, 1, 2, 0).tolist() == row_permutation(5, 1, 2, 0).tolist()
    True
    """
    if not ORDER_IS_BUILT:
        return row_permutation(num_rows, seed, epoch, chunk).astype(np.int32)
    order = np.empty(num_rows, np.int32)
    low, high = _source(seed, epoch, 1 + chunk).generate_state(2, np.uint64).tolist()
    _fill_order(low, high, int(_number_bits(num_rows)), order)
    return order


def row_keys(num_rows: int, seed: int, epoch: int, first: int, count: int) -> NDArray[np.uint64]:
    """Return the sort keys of rows `first .. first+count-1` of the table, for `shuffle="full"`.

    A full shuffle orders the rows by these distinct keys. So a part of that order can be computed
    without a permutation of the whole table.

    >>> keys = [row_keys(7, 1, 2, first, 1) for first in range(7)]
    >>> np.argsort(np.concatenate(keys)).tolist() == row_permutation(7, 1, 2, 0).tolist()
    True
    """
    return _keys(num_rows, seed, epoch, 1, first, count)


def key_order(keys: NDArray[np.uint64], num_rows: int) -> NDArray[np.int64]:
    """Return the argsort of some of `row_keys`, for a table of `num_rows` rows.

    It takes half the time of `np.argsort`: in the low bits of each key, the row's number is
    replaced by the key's index, and the keys are sorted. If the other bits of two keys are equal,
    `np.argsort` is used instead.

    >>> keys = row_keys(7, 1, 2, 0, 7)
    >>> key_order(keys, 7).tolist() == np.argsort(keys).tolist()
    True
    """
    bits = _number_bits(num_rows)
    mixed = keys >> bits
    mixed <<= bits
    mixed |= np.arange(len(keys), dtype=np.uint64)
    mixed.sort()
    order = mixed & ((np.uint64(1) << bits) - np.uint64(1))
    mixed >>= bits
    if (mixed[1:] == mixed[:-1]).any():
        return np.argsort(keys)
    return order.view(np.int64)


def row_draws(seed: int, file: int, first: int, count: int) -> NDArray[np.uint64]:
    """Return a random number for each row `first .. first+count-1` of a file, `[count]`.

    The numbers depend on the seed, on the number `file` and on the row's number in the file.

    >>> np.array_equal(row_draws(1, 7, 0, 9)[5:], row_draws(1, 7, 5, 4))
    True
    """
    return _numbers(np.random.SeedSequence(seed, spawn_key=(*_DRAWS, file)), first, count)


def _numbers(source: np.random.SeedSequence, first: int, count: int) -> NDArray[np.uint64]:
    philox = np.random.Philox(source)
    skipped = first % _NUMBERS_AT_A_TIME
    philox.advance(first // _NUMBERS_AT_A_TIME)
    numbers: NDArray[np.uint64] = philox.random_raw(skipped + count)[skipped:]
    return numbers


def _permutation(size: int, seed: int, epoch: int, stream: int) -> NDArray[np.int64]:
    keys = _keys(size, seed, epoch, stream, 0, size)
    keys.sort()
    keys &= (np.uint64(1) << _number_bits(size)) - np.uint64(1)
    return keys.view(np.int64)


def _number_bits(size: int) -> np.uint64:
    return np.uint64(max(size - 1, 1).bit_length())


def _source(seed: int, epoch: int, stream: int) -> np.random.SeedSequence:
    # The spawn key is separate from the seed, so no two (seed, epoch, stream) share a stream.
    return np.random.SeedSequence(seed, spawn_key=(epoch, stream))


def _keys(
    size: int, seed: int, epoch: int, stream: int, first: int, count: int
) -> NDArray[np.uint64]:
    keys = _numbers(_source(seed, epoch, stream), first, count)
    # The keys are distinct, so any correct sort gives the same result. Rows with equal random bits
    # keep their order. Such ties are rare: of 2^24 rows (40 random bits) one in 65,000 has a tie,
    # of 2^28 rows (36 bits) one in 256.
    number_bits = _number_bits(size)
    keys >>= number_bits
    keys <<= number_bits
    keys |= np.arange(first, first + count, dtype=np.uint64)
    return keys


class Piece(NamedTuple):
    """Consecutive rows of a chunk, in the chunk's shuffled order, that belong to one lane."""

    lane: int
    chunk: int  # the chunk's number in the epoch's order
    start: int  # the first row's place in the chunk's order
    stop: int  # one past the last row's place
    offset: int  # the number of the lane's rows before this piece


class Pieces(LazySequence[Piece]):
    """Pieces (rows of a chunk for one lane), stored as int32 or int64 in 20 or 40 bytes each.

    Attributes:
        cells: `[pieces, 5]`: the fields of each `Piece`.
    """

    def __init__(self, cells: NDArray[Any]):
        self.cells = cells

    def __len__(self) -> int:
        return len(self.cells)

    def _make(self, place: int) -> Piece:
        return Piece(*self.cells[place].tolist())


def lane_pieces(plan: EpochPlan, chunks: Chunks, lane: int) -> Pieces:
    """Return a lane's pieces (its rows of each chunk), in the order of the lane's rows.

    >>> plan = EpochPlan(12, lanes=2, global_batch_size=4)
    >>> chunks = chunk_order([4, 4, 4], seed=0, epoch=0, shuffle="none")
    >>> [(piece.chunk, piece.start, piece.stop) for piece in lane_pieces(plan, chunks, 0)]
    [(0, 0, 4), (1, 0, 2)]
    >>> [(piece.chunk, piece.start, piece.stop) for piece in lane_pieces(plan, chunks, 1)]
    [(2, 0, 4), (1, 2, 4)]
    """
    if chunks.dealt is not None:
        bounds = np.searchsorted(chunks.dealt[:, 0], [lane, lane + 1])
        return Pieces(chunks.dealt[bounds[0] : bounds[1]].copy())
    return _pieces_on_line(plan, chunks, lane, backwards=bool(lane % 2))


def forward_pieces(plan: EpochPlan, chunks: Chunks) -> NDArray[np.int64]:
    """Return the pieces of all lanes as an array (see `Pieces`), for a full shuffle.

    All lanes traverse the line forwards, unlike those of `lane_pieces`.
    """
    cells = [_pieces_on_line(plan, chunks, n, backwards=False).cells for n in range(plan.lanes)]
    return np.concatenate(cells)


def _pieces_on_line(plan: EpochPlan, chunks: Chunks, lane: int, *, backwards: bool) -> Pieces:
    first, last = plan.lane_span(lane)
    lowest = int(np.searchsorted(chunks.starts[:-1], first, side="right")) - 1
    numbers = np.arange(lowest, np.searchsorted(chunks.starts[:-1], last))
    if backwards:
        numbers = numbers[::-1]
    begins = chunks.starts[numbers]
    starts = np.maximum(first - begins, 0)
    stops = np.minimum(last, chunks.starts[numbers + 1]) - begins
    rows = np.maximum(stops - starts, 0)
    cells = [np.full_like(rows, lane), numbers, starts, stops, np.cumsum(rows) - rows]
    return Pieces(np.stack(cells, axis=1)[rows > 0])
