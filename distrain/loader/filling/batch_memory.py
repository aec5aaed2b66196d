"""Memory of batches: a pool of blocks, batches being filled, and scratch memory of the C kernel."""

from __future__ import annotations

import contextlib
import mmap
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distrain.loader.batch import Batch, Ragged
from distrain.loader.filling.kernel import KERNEL
from distrain.loader.partition.wanted_columns import WantedColumn

_MAPPED_BYTES = 1 << 20  # blocks of at least this size are mapped individually


_COLUMNS = 4
_ROW_BYTES = 4 * _COLUMNS
_FEWEST_ROWS = 1 << 13  # columns of fewer rows fit the L1 cache
_MOST_ROWS = 1 << 17  # a tile larger than the L2 cache gains nothing
_TILE_BYTES = _MOST_ROWS * _ROW_BYTES  # a huge page of x86, used as a whole

Tile = NDArray[np.uint8]

_NO_TILE: Tile = np.empty(0, np.uint8)


def tile_bytes(num_rows: int, num_columns: int) -> int:
    """Return the bytes of the tile for a row group; 0 if a tile would not be faster.

    A tile is scratch memory in which the C kernel stores four columns row by row, before it gathers
    rows. `num_columns` is the number of flat columns.

    >>> tile_bytes(65_536, 40), tile_bytes(65_536, 3), tile_bytes(1_000, 40)
    (2097152, 0, 0)
    """
    gains = KERNEL == "C" and _FEWEST_ROWS <= num_rows <= _MOST_ROWS and num_columns >= _COLUMNS
    return _TILE_BYTES if gains else 0


class TilePool:
    def __init__(self) -> None:
        self._idle: deque[Tile] = deque()

    @contextlib.contextmanager
    def allocate(self, num_rows: int, num_columns: int) -> Iterator[Tile]:
        """Return a context with memory for a tile.

        The memory is empty if a tile would not be faster, or if no memory is left.
        """
        if not tile_bytes(num_rows, num_columns):
            yield _NO_TILE
            return
        try:
            tile = self._idle.pop()
        except IndexError:
            tile = _one_huge_page()
        try:
            yield tile
        finally:
            if len(tile):
                self._idle.append(tile)

    def clear(self) -> None:
        self._idle.clear()


def _mapped(num_bytes: int) -> mmap.mmap:
    """Return new memory, in huge pages if the kernel supports them."""
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _one_huge_page() -> Tile:
    """Return memory for a tile in one huge page, in which random access is faster.

    Empty if it cannot be allocated.
    """
    try:
        memory = _mapped(2 * _TILE_BYTES)
    except (OSError, AttributeError):  # no memory is left, or this system has other flags
        return _NO_TILE
    tile: Tile = np.frombuffer(memory, np.uint8)
    start = -tile.ctypes.data % _TILE_BYTES
    return tile[start : start + _TILE_BYTES]


@dataclass(frozen=True)
class BatchLayout:
    """The layout of a batch's flat columns, one after another in a block of 4-byte cells.

    The block is `[columns, rows]`: the ids as int32, then values, labels and weights as the bits
    of float32. So each column is contiguous, and one copy moves a whole batch to a device.
    """

    categorical_names: tuple[str, ...]
    continuous_names: tuple[str, ...]
    label_names: tuple[str, ...]
    has_weight: bool = False
    task_weight_names: tuple[str, ...] = ()

    @classmethod
    def of(cls, columns: Sequence[WantedColumn]) -> BatchLayout:
        def names(kind: str) -> tuple[str, ...]:
            return tuple(c.name for c in columns if c.kind == kind and not c.is_list)

        weights = bool(names("weight")), names("task_weight")
        return cls(names("id"), names("value"), names("label"), *weights)

    @property
    def num_columns(self) -> int:
        names = (*self.categorical_names, *self.continuous_names, *self.label_names)
        return len(names) + self.has_weight + len(self.task_weight_names)

    def batch(self, block: Tensor, lists: Mapping[str, Ragged] | None = None) -> Batch:
        """Return a filled block, `[columns, rows]`, int32, as a batch of views of the block.

        `lists` are the batch's lists by column, which have their own memory.
        """
        num_ids = len(self.categorical_names)
        num_features = num_ids + len(self.continuous_names)
        num_targets = len(self.label_names)
        values = block.view(torch.float32)
        num_before = num_features + num_targets + self.has_weight
        labels = values[num_features : num_features + num_targets].t()
        return Batch(
            block[:num_ids].t(),
            values[num_ids:num_features].t(),
            labels[:, 0] if num_targets else None,
            self.categorical_names,
            self.continuous_names,
            labels if num_targets else None,
            self.label_names,
            values[num_before - 1] if self.has_weight else None,
            lists or {},
            values[num_before:].t() if self.task_weight_names else None,
            self.task_weight_names,
        )


class BlockPool:
    """Lends the memory of batches, blocks `[columns, rows]` of 4-byte cells, and reuses it.

    New memory costs a page fault every 4 KiB, a tenth of the loader's work; a reused block causes
    none. Any thread may borrow a block. A block returns to the pool when no reference to the block,
    or to a tensor made of it, is left. At most `most_idle` unused blocks are kept (`None`: all): a
    consumer that collects batches and drops them together returns more than a loader ever needs.

    Page-locked blocks (`pinned`) are reused by torch instead of this pool, since torch records
    which blocks a copy to a device still reads.

    Attributes:
        tiles: Scratch memory for the threads that fill blocks (see `tile_bytes`).
    """

    def __init__(
        self,
        num_columns: int,
        *,
        pinned: bool = False,
        most_idle: int | None = None,
    ):
        self.tiles = TilePool()
        self._num_columns = num_columns
        self._pinned = pinned
        self._idle: deque[NDArray[np.int32]] = deque(maxlen=most_idle)

    def allocate(self, num_rows: int) -> NDArray[np.int32]:
        shape, cells = (self._num_columns, num_rows), self._num_columns * num_rows
        if self._pinned:
            return torch.empty(shape, dtype=torch.int32, pin_memory=True).numpy()
        owner = self._idle_or_new(cells)
        # NumPy's views refer to the array that owns their memory. If `lent` were a view of `owner`,
        # views of `lent` would keep only `owner` alive, and `lent` would be finalized too early.
        lent = np.frombuffer(owner.data, np.int32)
        weakref.finalize(lent, self._idle.append, owner).atexit = False
        return lent[:cells].reshape(shape)

    def clear(self) -> None:
        self._idle.clear()
        self.tiles.clear()

    def _idle_or_new(self, cells: int) -> NDArray[np.int32]:
        try:
            owner = self._idle.popleft()
        except IndexError:
            owner = np.empty(0, np.int32)
        # Batches differ by a few rows, and the last one by many: with a little extra space, a block
        # fits almost all of them.
        return owner if len(owner) >= cells else _new_cells(cells + 64 * max(1, self._num_columns))


def _new_cells(count: int) -> NDArray[np.int32]:
    """Return new memory for `count` values of 4 bytes; a small array is not initialised.

    A large array is mapped with `mmap`, so its memory returns to the system when it is dropped.
    malloc keeps fragments of memory that several threads allocate and others free: a process that
    made a loader for each epoch held the memory of five loaders after a few epochs. Raises
    `MemoryError` if the system has no memory.
    """
    num_bytes = 4 * count
    if num_bytes < _MAPPED_BYTES or not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.empty(count, np.int32)
    try:
        memory = _mapped(num_bytes)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"cannot allocate {num_bytes:,} bytes for a batch") from error
    return np.frombuffer(memory, np.int32)


BlockT = TypeVar("BlockT")


class ListRun(NamedTuple):
    start: int  # where the rows begin in the batch
    stop: int  # where they end, if they are consecutive
    # each row's place in the batch; `None` if the rows are consecutive
    places: NDArray[np.int32] | None
    items: NDArray[np.int32]  # the bits of int32 ids or of float32 values


@dataclass
class OpenBatch(Generic[BlockT]):
    num_rows: int
    block: BlockT  # the flat columns, `[columns, rows]`
    lists: list[list[ListRun]] = field(default_factory=list)  # of each list column so far
    # the length of each row's list, `[list columns, rows]`
    lengths: NDArray[np.int32] = field(default_factory=lambda: np.empty((0, 0), np.int32))


class OpenBatches(Generic[BlockT]):
    """The batches that are being filled, by step; threads fill different rows of one batch.

    A batch is created when the first row for it arrives. `rows_in` returns the number of rows of a
    step.
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

    def at(self, steps: Sequence[int]) -> list[OpenBatch[BlockT]]:
        """Return the batches of some steps, in this order; missing ones are created."""
        with self._lock:
            return [self._open.get(step) or self._new(step) for step in steps]

    def take(self, step: int) -> OpenBatch[BlockT]:
        """Remove and return a step's batch; a new one if no row for it has arrived."""
        with self._lock:
            return self._open.pop(step, None) or self._made(step)

    def _new(self, step: int) -> OpenBatch[BlockT]:
        self._open[step] = self._made(step)
        return self._open[step]

    def _made(self, step: int) -> OpenBatch[BlockT]:
        num_rows = self._rows_in(step)
        lists: list[list[ListRun]] = [[] for _ in range(self._num_lists)]
        lengths = np.empty((self._num_lists, num_rows), np.int32)
        return OpenBatch(num_rows, self._new_block(num_rows), lists, lengths)
