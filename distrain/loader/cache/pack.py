"""Fills a cache folder in advance, from any table that the loader reads."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from distrain.errors import DataError, OutputError
from distrain.loader.cache.row_group_cache import RowGroupCache
from distrain.loader.dataset import Dataset
from distrain.loader.filling.filler import check_values
from distrain.loader.filling.list_columns import check_lists
from distrain.loader.partition.table import RowGroup
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.loader.reading.arrow import ArrowReader
from distrain.loader.reading.source import Source
from distrain.storage.outputs import atomic_dir, check_inputs_outside
from distrain.storage.retrying import RETRY_S

_MOST_THREADS = 8

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PackReport:
    rows: int
    entries: int  # row groups, and slices of large ones
    bytes_out: int  # size of the entries
    seconds: float


def pack(
    dataset: Dataset,
    cache_dir: str | Path,
    *,
    overwrite: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> PackReport:
    """Create a cache folder with all row groups of a dataset, for loaders of the same columns.

    Every value is checked as in training. The folder is created completely or not at all. Each
    thread has one row group, or one slice of a large row group, in memory.

    Args:
        cache_dir: The folder to create; loaders use it as `cache`, jobs as `data.cache_dir`.
        overwrite: Whether to replace the folder if it exists.
        threads: Row groups read at a time; by default the number of processors, at most 8.
        progress: Called with rows done and total rows, in the calling thread.

    Raises:
        DataError: The source cannot be read, has files without a version (an ETag or a time), or
            holds values that training rejects.
        OutputError: The folder exists, contains source files, or could not be written.
        ValueError: `threads` is less than 1.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads={threads}")
    started_s = time.monotonic()
    columns, num_threads = dataset.columns, threads or min(os.cpu_count() or 1, _MOST_THREADS)
    check_inputs_outside(cache_dir, dataset.table.compact.files)
    with atomic_dir(cache_dir, replace=overwrite) as folder:
        cache = RowGroupCache(columns, folder, sys.maxsize)
        new_reader = partial(ArrowReader, columns, open_groups=num_threads, threads=num_threads)
        source = Source(columns, new_reader, RETRY_S, cache).open()
        pool = ThreadPoolExecutor(num_threads)
        try:
            write = partial(_write_entry, columns, source, cache, folder)
            for rows_done in accumulate(pool.map(write, dataset.slices)):
                if progress:
                    progress(rows_done, len(dataset))
        finally:  # also after Ctrl-C
            pool.shutdown(cancel_futures=True)
            source.close()
    seconds = time.monotonic() - started_s
    return PackReport(len(dataset), len(dataset.slices), cache.counters.bytes_written, seconds)


def _write_entry(
    columns: Sequence[WantedColumn],
    source: Source,
    cache: RowGroupCache,
    folder: Path,
    group: RowGroup,
) -> int:
    """Check a row group's values and write its entry; return its number of rows.

    Raises `DataError` for values that training rejects, and for a file without a version; raises
    `OutputError` if the entry was not written.
    """
    if cache.fingerprint(group) is None:
        raise DataError(
            "the file has no version that identifies its cache entries",
            where={"file": group.file},
            hint="Copy the table to a local disk, or to a store with ETags or file times.",
        )
    unchecked = iter(columns)
    for part in source.read(group):
        for values in (*part.cells, *part.lists):
            _check(next(unchecked), values, group)
    if not cache.holds(group):
        raise OutputError(
            f"could not write: {cache.problem or 'an entry is missing'}",
            where={"path": str(folder)},
            hint="Check the disk and the permissions.",
        )
    return group.num_rows


def _check(column: WantedColumn, values: Any, group: RowGroup) -> None:
    if not column.is_list:
        check_values(column, values, group)
    elif column.keep_length:  # training cuts lists, so they may be longer than the schema says
        check_lists(replace(column, max_length=None), values, group)
    else:
        check_lists(column, values, group)
