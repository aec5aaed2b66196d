"""Writes the rows of `ordinary` in other layouts: many files, wide, days, lists, a cache."""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from benchmarks.loader_bench.data import GROUP_ROWS, LARGE_GROUPS, make_large_groups
from benchmarks.loader_bench.ours import fill_cache

NUM_MANY_FILES = 2_000
UNUSED = 80  # columns of `wide` in addition to the 40 that are read
LISTS = ("C23", "C24", "C25", "C26")
MOST_ITEMS = 6


def make_more(folder: Path, wanted: Collection[str | None]) -> None:
    """Write the requested layouts; `ordinary` must exist."""
    if set(LARGE_GROUPS) & set(wanted):
        make_large_groups(folder)
    makers = {"files": make_files, "wide": make_wide, "lists": make_lists, "days": make_days}
    for layout, make in makers.items():
        if layout in wanted:
            (folder / layout).mkdir()
            make(folder)
    if "cache" in wanted:
        fill_cache(folder)


def tables(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield name and table of each file of `ordinary`."""
    import pyarrow.parquet as pq

    for path in sorted((folder / "ordinary").iterdir()):
        yield path.name, pq.read_table(path)


def make_files(folder: Path) -> None:
    """Write 2,000 files of one row group each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.concat_tables(table for _, table in tables(folder))
    bounds = [table.num_rows * n // NUM_MANY_FILES for n in range(NUM_MANY_FILES + 1)]
    for number, (start, end) in enumerate(itertools.pairwise(bounds)):
        path = folder / "files" / f"part-{number:05d}.parquet"
        pq.write_table(table.slice(start, end - start), path)


def make_wide(folder: Path) -> None:
    """Write 120 columns, of which the schema has 40."""
    _rewrite(folder, "wide", _with_unused)


def _with_unused(table: Any) -> Any:
    for number in range(UNUSED):
        table = table.append_column(f"unused_{number}", table.column(number % table.num_columns))
    return table


def make_days(folder: Path) -> None:
    """Link half of the files into the folder of each of two days."""
    files = sorted((folder / "ordinary").iterdir())
    for number, file in enumerate(files):
        day = folder / "days" / f"day={2 * number // len(files)}"
        day.mkdir(exist_ok=True)
        (day / file.name).hardlink_to(file)


def make_lists(folder: Path) -> None:
    """Write four of the id columns as lists of up to six ids."""
    from distrain.schema import Schema

    _rewrite(folder, "lists", _with_lists)
    flat = Schema.load(folder / "schema.pbtxt")
    columns = [
        dataclasses.replace(column, is_list=column.name in LISTS, is_ragged=column.name in LISTS)
        for column in flat
    ]
    Schema(tuple(columns)).save(folder / "schema-lists.pbtxt")


def _with_lists(table: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    generator = np.random.default_rng(0)
    for name in LISTS:
        lengths = generator.integers(0, MOST_ITEMS + 1, table.num_rows)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        items = generator.choice(table[name].to_numpy(), offsets[-1])
        lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(items))
        table = table.set_column(table.column_names.index(name), name, lists)
    return table


def _rewrite(folder: Path, layout: str, change: Callable[[Any], Any]) -> None:
    import pyarrow.parquet as pq

    for name, table in tables(folder):
        pq.write_table(change(table), folder / layout / name, row_group_size=GROUP_ROWS)
