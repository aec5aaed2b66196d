"""Reading again after a failure: only missing columns, from the cache or the reader."""

import errno
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cache_tables import COLUMNS, SCHEMA, float32_cells, make_table
from hypothesis import HealthCheck, given, settings, strategies as st

from distrain.errors import Unavailable
from distrain.loader import Dataset
from distrain.loader.cache.row_group_cache import RowGroupCache
from distrain.loader.partition.table import RowGroup
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.loader.reading.reader import DecodedColumns, Reader
from distrain.loader.reading.source import Source
from distrain.storage import retrying

ROWS = 120


class Flaky(Reader):
    """Reads column by column, and fails before the columns with these numbers, once each."""

    def __init__(self, fails: set[int]):
        self.fails = set(fails)
        self.closes = 0
        self.given: list[str] = []

    def read(self, group: RowGroup, columns: Sequence[WantedColumn]) -> Iterator[DecodedColumns]:
        table = make_table(500)[:ROWS]
        for column in columns:
            number = COLUMNS.index(column)
            if number in self.fails:
                self.fails.remove(number)
                raise OSError(errno.ESTALE, "Stale file handle")
            self.given.append(column.name)
            yield DecodedColumns((table[column.name].to_numpy(),))

    def close(self) -> None:
        self.closes += 1


def test_files_are_closed_when_the_last_user_closes_the_source() -> None:
    reader = Flaky(set())
    source = Source(COLUMNS, lambda: reader, 0.0)
    first, second = source.open(), source.open()
    first.close()
    assert reader.closes == 0
    second.close()
    assert reader.closes == 1
    source.open().close()
    assert reader.closes == 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(fails=st.sets(st.integers(0, len(COLUMNS) - 1)), is_cached=st.booleans())
def test_each_column_is_given_once_and_no_entry_lacks_one(
    source: Path, tmp_path_factory: Any, fails: set[int], is_cached: bool
) -> None:
    group = Dataset(source, SCHEMA).table.row_groups[0]
    cache = RowGroupCache(COLUMNS, tmp_path_factory.mktemp("c"), 1 << 30) if is_cached else None
    expected = float32_cells(make_table(500)[:ROWS])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retrying, "FIRST_PAUSE_S", 1e-6)
        reader = Flaky(fails)
        read = Source(COLUMNS, lambda: reader, 60.0, cache).open().read
        for _ in range(3):
            cells = [column for part in read(group) for column in part.cells]
            for found, wanted in zip(cells, expected, strict=True):
                np.testing.assert_array_equal(found.astype(wanted.dtype), wanted)
    if cache is None:
        assert reader.given == 3 * [column.name for column in COLUMNS]
    else:
        assert cache.counters.hits == (2 if not fails - {0} else 1)
        assert cache.counters.corrupt == 0


def test_without_patience_the_first_failure_is_told(source: Path) -> None:
    group = Dataset(source, SCHEMA).table.row_groups[0]
    with pytest.raises(Unavailable) as caught:
        list(Source(COLUMNS, lambda: Flaky({1}), 0.0).open().read(group))
    assert caught.value.where == group.where
