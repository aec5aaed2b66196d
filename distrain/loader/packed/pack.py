"""Any parquet that the loader can read, as packed files."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distrain.errors import OutputError
from distrain.loader.filling.filler import check_values
from distrain.loader.filling.list_columns import check_lists
from distrain.loader.packed.writer import MOST_GROUP_ROWS, Column, PackedWriter, certify, kept_as
from distrain.loader.partition.footers import PARQUET_SUFFIXES, read_footers
from distrain.loader.partition.table import RowGroup, Table
from distrain.loader.partition.wanted_columns import WantedColumn, wanted_columns
from distrain.loader.reading.arrow import ArrowReader
from distrain.loader.reading.reader import SameFilesReader
from distrain.schema.column import Tags
from distrain.schema.schema import Schema
from distrain.storage.inputs import list_inputs
from distrain.storage.outputs import check_free, translated_errors, whole_dir
from distrain.storage.urls import is_remote

ROW_GROUP_ROWS = 65536
ROWS_PER_FILE = 64 * ROW_GROUP_ROWS
_MOST_THREADS = 8

Progress = Callable[[int, int], None]
_Columns = list[Column]


@dataclass(frozen=True)
class PackReport:
    rows: int
    files: int
    bytes_in: int  # size of the source's files
    bytes_out: int  # size of the written ones
    seconds: float


def pack(
    patterns: str | Sequence[str],
    schema: Schema,
    output_dir: str | Path,
    *,
    row_group_rows: int = ROW_GROUP_ROWS,
    rows_per_file: int = ROWS_PER_FILE,
    overwrite: bool = False,
    hive: bool = False,
    fill_null_id: int | None = None,
    fill_null_value: float | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> PackReport:
    """Write a table in the fast layout, its rows in their order, and its schema beside it.

    Every value is checked as in training, and every file is read back. The folder appears whole or
    not at all. Memory is bounded by one row group of the source and one of the output per thread.

    Args:
        patterns: Paths, folders, globs or URLs, as for `distrain.storage.inputs.list_inputs`.
        schema: Its categorical, continuous, target and weight columns are written, no others.
        output_dir: The folder to make: `part-00000.parquet`, ..., `.merlin/schema.json`.
        row_group_rows: Rows per row group, 1 to 2^28.
        rows_per_file: Rows per file, rounded up to whole row groups.
        hive, fill_null_id, fill_null_value: As for `read_footers`.
        threads: Files written at once; by default as many as there are processors, at most 8.
        progress: Called with rows done and rows to do, from one thread at a time.

    Raises:
        SchemaError: The schema cannot be used.
        DataError: The source cannot be read, or holds what training would refuse.
        OutputError: The folder exists, holds the source, or could not be written.
        ValueError: A number of rows or threads is out of its range.
    """
    if not 1 <= row_group_rows <= MOST_GROUP_ROWS or rows_per_file < 1:
        raise ValueError(f"row_group_rows={row_group_rows}, rows_per_file={rows_per_file}")
    if threads is not None and threads < 1:
        raise ValueError(f"threads={threads}")
    started_s = time.monotonic()
    has_targets = bool(len(schema.select_by_tag(Tags.TARGET)))
    fills: dict[str, Any] = {"fill_null_id": fill_null_id, "fill_null_value": fill_null_value}
    columns = wanted_columns(schema, need_label=has_targets, **fills)
    check_free(output_dir, overwrite)
    table = read_footers(patterns, schema, need_label=has_targets, hive=hive, **fills)
    _check_apart(table, output_dir)
    bytes_in = sum(file.size_bytes for file in list_inputs(patterns, suffixes=PARQUET_SUFFIXES))
    rows_per_file = -(-rows_per_file // row_group_rows) * row_group_rows
    names = {column.name for column in columns}
    with whole_dir(output_dir, replace=overwrite) as folder:
        job = _Job(table, columns, folder, row_group_rows, progress)
        job.run(rows_per_file, threads or min(os.cpu_count() or 1, _MOST_THREADS))
        kept = schema.select(name for name in schema.names if name in names)
        # Where Merlin has it too: a visible file would disturb tools that read a whole folder.
        kept.save(folder / ".merlin" / "schema.json")
        written = sorted(folder.glob("*.parquet"))
        bytes_out = sum(file.stat().st_size for file in written)
    seconds = time.monotonic() - started_s
    return PackReport(table.num_rows, len(written), bytes_in, bytes_out, seconds)


def _check_apart(table: Table, output_dir: str | Path) -> None:
    """Refuse to replace the source, whose columns without a role would be lost."""
    output = Path(output_dir).resolve()
    for group in table.row_groups:
        if not is_remote(group.file) and output in Path(group.file).resolve().parents:
            raise OutputError(
                "the output folder holds files that are to be packed",
                where={"path": str(output_dir), "file": group.file},
                hint="Choose another folder.",
            )


class _Job:
    def __init__(
        self,
        table: Table,
        columns: tuple[WantedColumn, ...],
        folder: Path,
        row_group_rows: int,
        progress: Progress | None,
    ):
        self._table = table
        self._columns = columns
        self._folder = folder
        self._row_group_rows = row_group_rows
        self._progress = progress
        self._rows_done = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def run(self, rows_per_file: int, threads: int) -> None:
        firsts = range(0, self._table.num_rows, rows_per_file)
        with ThreadPoolExecutor(min(threads, len(firsts))) as pool:
            tasks = [
                pool.submit(self._write_file, number, first, first + rows_per_file)
                for number, first in enumerate(firsts)
            ]
            try:
                for task in tasks:
                    task.result()
            finally:  # also after Ctrl-C
                self._stop.set()
                pool.shutdown(cancel_futures=True)

    def _write_file(self, number: int, first: int, end: int) -> None:
        path = self._folder / f"part-{number:05}.parquet"
        with self._stop_on_error(), translated_errors(path):
            with (
                contextlib.closing(_Source(self._table, self._columns)) as source,
                PackedWriter(path, self._columns, self._table.fingerprint) as writer,
            ):
                rows = source.rows(first, min(end, self._table.num_rows))
                for columns in _in_groups(rows, self._row_group_rows):
                    if self._stop.is_set():
                        return
                    writer.write(columns)
                    self._report(len(columns[0]))
            certify(path, self._columns)

    @contextlib.contextmanager
    def _stop_on_error(self) -> Iterator[None]:
        """End the other files too, so that the error is raised now and not when they are done."""
        try:
            yield
        except BaseException:
            self._stop.set()
            raise

    def _report(self, rows: int) -> None:
        with self._lock:
            self._rows_done += rows
            if self._progress:
                self._progress(self._rows_done, self._table.num_rows)


class _Source:
    """The rows of a table from any row on, checked; for one thread."""

    def __init__(self, table: Table, columns: Sequence[WantedColumn]):
        self._groups = table.row_groups
        self._columns = columns
        self._starts = [0, *accumulate(group.num_rows for group in table.row_groups)]
        self._reader = SameFilesReader(ArrowReader(columns))

    def rows(self, first: int, end: int) -> Iterator[_Columns]:
        number = bisect_right(self._starts, first) - 1
        while number < len(self._groups) and self._starts[number] < end:
            start = self._starts[number]
            columns = self._checked(self._groups[number])
            yield [column[max(first - start, 0) : end - start] for column in columns]
            number += 1

    def close(self) -> None:
        self._reader.close()

    def _checked(self, group: RowGroup) -> _Columns:
        decoded = self._reader.read(group)
        columns: _Columns = []
        for column, values in zip(self._columns, (*decoded.cells, *decoded.lists), strict=True):
            if isinstance(values, pa.ListArray):
                # Where training cuts lists, they may be longer than the schema says.
                check_lists(
                    replace(column, max_length=None) if column.keep_length else column,
                    values,
                    group,
                )
            else:
                check_values(column, values, group)
            columns.append(kept_as(column, values))
        return columns


def _in_groups(pieces: Iterator[_Columns], group_rows: int) -> Iterator[_Columns]:
    waiting: list[_Columns] = []
    num_waiting = 0
    for piece in pieces:
        while piece and len(piece[0]):
            taken = min(group_rows - num_waiting, len(piece[0]))
            waiting.append([column[:taken] for column in piece])
            piece = [column[taken:] for column in piece]
            num_waiting += taken
            if num_waiting == group_rows:
                yield _joined(waiting)
                waiting, num_waiting = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(pieces: list[_Columns]) -> _Columns:
    if len(pieces) == 1:
        return pieces[0]
    return [
        pa.concat_arrays(parts) if isinstance(parts[0], pa.ListArray) else np.concatenate(parts)
        for parts in zip(*pieces, strict=True)
    ]
