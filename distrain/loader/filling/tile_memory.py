"""Memory for the tiles in which the kernel in C keeps four columns row by row."""

from __future__ import annotations

import contextlib
import mmap
from collections import deque
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from distrain.loader.filling.kernel import KERNEL

_COLUMNS = 4
_ROW_BYTES = 4 * _COLUMNS
_FEWEST_ROWS = 1 << 13  # columns of fewer rows lie in the L1 cache
_MOST_ROWS = 1 << 17  # a larger tile than the L2 cache gains nothing
_TILE_BYTES = _MOST_ROWS * _ROW_BYTES  # a huge page of x86, which is taken whole

Tile = NDArray[np.uint8]

_NO_TILE: Tile = np.empty(0, np.uint8)


def tile_bytes(num_rows: int, num_columns: int) -> int:
    """Bytes of memory for the tiles of a row group of so many rows and flat columns.

    >>> tile_bytes(65_536, 40), tile_bytes(65_536, 3), tile_bytes(1_000, 40)
    (2097152, 0, 0)
    """
    gains = KERNEL == "C" and _FEWEST_ROWS <= num_rows <= _MOST_ROWS and num_columns >= _COLUMNS
    return _TILE_BYTES if gains else 0


class TilePool:
    """Lends memory for tiles to any thread, and keeps it."""

    def __init__(self) -> None:
        self._idle: deque[Tile] = deque()

    @contextlib.contextmanager
    def lend(self, num_rows: int, num_columns: int) -> Iterator[Tile]:
        """Memory for tiles of so many rows of some of the columns; empty where none are made."""
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


def _one_huge_page() -> Tile:
    """Its rows are used in any order, for which a huge page is best. None if there is no memory."""
    try:
        memory = mmap.mmap(-1, 2 * _TILE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, AttributeError):  # no memory is left, or this system has other flags
        return _NO_TILE
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    found: Tile = np.frombuffer(memory, np.uint8)
    start = -found.ctypes.data % _TILE_BYTES
    return found[start : start + _TILE_BYTES]
