"""Memory for tiles: lent where they gain something, and not asked for where there is none."""

import mmap
from unittest.mock import Mock

import numpy as np
import pytest

from distrain.loader.filling.batch_memory import TilePool, tile_bytes
from distrain.loader.filling.kernel import KERNEL

pytestmark = pytest.mark.skipif(KERNEL != "C", reason="distrain was built without a compiler")

MOST_ROWS = 131_072


@pytest.mark.parametrize(
    ("rows", "columns", "is_lent"),
    [
        (1, 4, False),
        (8_191, 40, False),
        (8_192, 4, True),
        (8_192, 3, False),
        (MOST_ROWS, 4, True),
        (MOST_ROWS + 1, 4, False),
    ],
)
def test_tiles_are_for_row_groups_of_some_size(rows: int, columns: int, is_lent: bool) -> None:
    with TilePool().allocate(rows, columns) as tile:
        assert len(tile) == tile_bytes(rows, columns)
        assert (len(tile) >= 16 * rows) is is_lent


def test_a_tile_is_lent_to_one_at_a_time_and_used_again() -> None:
    pool = TilePool()
    with pool.allocate(MOST_ROWS, 4) as first, pool.allocate(MOST_ROWS, 4) as second:
        assert not np.shares_memory(first, second)
        assert first.ctypes.data % 64 == 0
        places = {first.ctypes.data, second.ctypes.data}
    with pool.allocate(MOST_ROWS, 4) as first, pool.allocate(MOST_ROWS, 4) as second:
        assert {first.ctypes.data, second.ctypes.data} == places
    pool.clear()


def test_where_there_is_no_memory_none_is_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = TilePool()
    with monkeypatch.context() as patched:
        patched.setattr(mmap, "mmap", Mock(side_effect=OSError(12, "Cannot allocate memory")))
        with pool.allocate(MOST_ROWS, 4) as tile:
            assert len(tile) == 0
    with pool.allocate(MOST_ROWS, 4) as tile:
        assert len(tile) == 16 * MOST_ROWS
