"""Fills a cache folder in advance, from any table that the loader reads."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
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
from distrain.loader.reading.source import Lease, Source
from distrain.storage.outputs import check_apart, whole_dir

_MOST_THREADS = 8
_RETRY_S = 300.0

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
        progress: Called with rows done and total rows, by one thread at a time.

    Raises:
        DataError: The source cannot be read, or holds values that training rejects.
        OutputError: The folder exists, contains source files, or could not be written.
        ValueError: `threads` is less than 1.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads={threads}")
    started_s = time.monotonic()
    check_apart(cache_dir, dataset.table.compact.files)
    with whole_dir(cache_dir, replace=overwrite) as folder:
        bytes_out = _Job(dataset, folder, progress).run(
            threads or min(os.cpu_count() or 1, _MOST_THREADS)
        )
    seconds = time.monotonic() - started_s
    return PackReport(len(dataset), len(dataset.slices), bytes_out, seconds)


class _Job:
    def __init__(self, dataset: Dataset, folder: Path, progress: Progress | None):
        self._dataset = dataset
        self._folder = folder
        self._cache = RowGroupCache(dataset.columns, folder, sys.maxsize)
        self._groups = iter(dataset.slices)
        self._progress = progress
        self._rows_done = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def run(self, threads: int) -> int:
        """Write all entries; return their total bytes."""
        columns = self._dataset.columns
        new_reader = partial(ArrowReader, columns, open_groups=threads, threads=threads)
        source = Source(columns, new_reader, _RETRY_S, self._cache).lease()
        try:
            with ThreadPoolExecutor(threads) as pool:
                tasks = [pool.submit(self._write_entries, source) for _ in range(threads)]
                try:
                    for task in tasks:
                        task.result()
                finally:  # also after Ctrl-C
                    self._stop.set()
        finally:
            source.close()
        return self._cache.counters.bytes_written

    def _write_entries(self, source: Lease) -> None:
        try:
            while not self._stop.is_set() and (group := self._next()) is not None:
                self._write_entry(source, group)
        except BaseException:  # ends the other threads as well, so that the error is raised soon
            self._stop.set()
            raise

    def _next(self) -> RowGroup | None:
        with self._lock:
            return next(self._groups, None)

    def _write_entry(self, source: Lease, group: RowGroup) -> None:
        if self._cache.fingerprint(group) is None:
            raise DataError(
                "the file has no version that identifies its cache entries",
                where={"file": group.file},
                hint="Copy the table to a local disk, or to a store with ETags or file times.",
            )
        columns = iter(self._dataset.columns)
        for part in source.read(group):
            for values in (*part.cells, *part.lists):
                _check(next(columns), values, group)
        if not self._cache.holds(group):
            raise OutputError(
                f"could not write: {self._cache.problem or 'an entry is missing'}",
                where={"path": str(self._folder)},
                hint="Check the disk and the permissions.",
            )
        with self._lock:
            self._rows_done += group.num_rows
            if self._progress:
                self._progress(self._rows_done, len(self._dataset))


def _check(column: WantedColumn, values: Any, group: RowGroup) -> None:
    if not column.is_list:
        check_values(column, values, group)
    elif column.keep_length:  # training cuts lists, so they may be longer than the schema says
        check_lists(replace(column, max_length=None), values, group)
    else:
        check_lists(column, values, group)
