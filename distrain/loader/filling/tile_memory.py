"""Memory for the tiles in which the kernel in C keeps four columns row by row."""

from __future__ import annotations

import contextlib
import mmap
from collections import deque
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from distrain.loader.filling.kernel import KERNEL

_ROW_BYTES = 16
# A tile that is larger than the processor's L2 cache gains nothing.
_MOST_ROWS = 1 << 17
_HUGE_PAGE_BYTES = 1 << 21

Tile = NDArray[np.uint8]

_NO_TILE: Tile = np.empty(0, np.uint8)


class TilePool:
    """Lends memory for tiles to any thread, and keeps it: 2 MiB for each that fills at a time."""

    def __init__(self) -> None:
        self._idle: deque[Tile] = deque()

    @contextlib.contextmanager
    def lend(self, num_rows: int) -> Iterator[Tile]:
        """Memory for a tile of so many rows; empty where none is to be made."""
        if KERNEL != "C" or num_rows > _MOST_ROWS:
            yield _NO_TILE
            return
        try:
            tile = self._idle.pop()
        except IndexError:
            tile = _one_huge_page()
        try:
            yield tile
        finally:
            self._idle.append(tile)

    def clear(self) -> None:
        """Free what is not lent."""
        self._idle.clear()


def _one_huge_page() -> Tile:
    """Its rows are used in any order, for which a huge page is best; only what is used is taken."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.empty(_MOST_ROWS * _ROW_BYTES, np.uint8)
    memory = mmap.mmap(-1, 2 * _HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    found: Tile = np.frombuffer(memory, np.uint8)
    start = -found.ctypes.data % _HUGE_PAGE_BYTES
    return found[start : start + _MOST_ROWS * _ROW_BYTES]
