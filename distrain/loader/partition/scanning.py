"""Reads files in parallel before training: footers, or some columns of row groups."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, chain, groupby
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from distrain.errors import DataError, DistrainError, Unavailable
from distrain.loader.partition.table import RowGroup, Table
from distrain.schema.column import ColumnSchema
from distrain.storage.inputs import open_input
from distrain.storage.os_errors import reading_hint
from distrain.storage.retrying import first_line, is_transient, stop_retrying_when, with_retries

if TYPE_CHECKING:
    from pyarrow import ChunkedArray
    from pyarrow.parquet import ParquetFile

Columns: TypeAlias = "Mapping[str, ChunkedArray]"

_READERS = 16
_SAMPLED_ROWS = 2_000_000  # approximate; more rows do not improve a mean
_CHANGED = "The file is damaged, or was removed or changed since its footer was read; start again."

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def read_files(
    files: Sequence[str], read: Callable[[int], ResultT], retry_s: float = 0.0
) -> list[ResultT]:
    """Return `read(index)` for each index of `files`, in order, computed in parallel threads.

    If the storage does not answer, a file is retried for `retry_s`.
    """
    over = threading.Event()
    readers = ThreadPoolExecutor(
        min(_READERS, max(1, len(files))),
        "footers",
        initializer=stop_retrying_when,
        initargs=(over.is_set,),
    )

    def read_one(number: int) -> ResultT:
        return with_retries(lambda: read(number), {"file": files[number]}, retry_s)

    try:
        return list(readers.map(read_one, range(len(files))))
    finally:  # also after Ctrl-C during a wait
        over.set()
        readers.shutdown(cancel_futures=True)


def scan_columns(
    groups: Sequence[RowGroup],
    columns: Sequence[str],
    result_of: Callable[[RowGroup, Columns, int], ResultT],
    retry_s: float = 0.0,
) -> list[ResultT]:
    """Read some columns, and return the result of `result_of` for each row group, in order.

    Args:
        groups: Row groups, not slices; row groups of a file must be consecutive.
        columns: The columns to read. Columns that a file lacks are not passed to `result_of`.
        result_of: Called in any thread, with the row group, the columns of its selected rows, and
            the number in the file of the row group's first row.
        retry_s: How long to retry if the storage does not answer, for each file.

    Raises:
        DataError: A file cannot be read, or is not the one whose footer was read.
        Unavailable: The storage does not answer.
    """
    by_file = [list(of_file) for _, of_file in groupby(groups, lambda group: group.file)]
    cuts = max(1, _READERS // max(1, len(by_file)))  # so that few files also use all threads
    pieces = [
        of_file[first : first + size]
        for of_file in by_file
        for size in [-(-len(of_file) // cuts)]
        for first in range(0, len(of_file), size)
    ]

    def scan(number: int) -> list[ResultT]:
        return _scan_file(pieces[number], columns, result_of)

    return list(chain.from_iterable(read_files([p[0].file for p in pieces], scan, retry_s)))


def sampled_groups(table: Table) -> list[RowGroup]:
    """Return the first, and then every n-th row group of a table.

    `n` is the table's rows divided by two million, rounded up. So small tables are returned whole,
    and row groups of similar size have one to two million rows in total.
    """
    stride = -(-table.num_rows // _SAMPLED_ROWS)
    return [table.row_groups[n] for n in range(0, len(table.row_groups), stride)]


def column_moments(
    table: Table, columns: Sequence[ColumnSchema], weight: str | None = None
) -> dict[str, tuple[float, float]]:
    """Return the mean and standard deviation of numeric columns, by name.

    They are computed from a sample of the row groups (`sampled_groups`). Nulls, infinite values and
    values of weight 0 do not count. Columns without any value that counts are missing.

    Args:
        columns: The columns. If `known` of a column names another column, rows are also weighted by
            its values, so that rows whose label is unknown (0) do not count.
        weight: The column of the rows' weights; `None` if all are 1.
    """
    import numpy as np

    known = {column.name: column.known for column in columns}
    names = [*known]

    def of_group(_: RowGroup, given: Columns, __: int) -> dict[str, tuple[float, float, float]]:
        numbers = {name: given[name].to_numpy().astype(np.float64) for name in given}
        moments = {}
        for name in (name for name in names if name in numbers):
            weights = np.ones_like(numbers[name]) if weight is None else numbers[weight]
            if (which := known[name]) is not None:
                weights = weights * numbers[which]
            counts = np.isfinite(numbers[name]) & (weights > 0)
            values, weights = numbers[name][counts], weights[counts]
            if len(values):
                mean = np.average(values, weights=weights)
                squares = (weights * np.square(values - mean)).sum()
                moments[name] = (weights.sum(), mean, squares)
        return moments

    wanted = [*names, *(name for name in (weight, *known.values()) if name is not None)]
    parts = scan_columns(sampled_groups(table), wanted, of_group)
    moments = {}
    for name in names:
        if some := [part[name] for part in parts if name in part]:
            sizes, means, squares = np.array(some).T
            mean = np.average(means, weights=sizes)
            # Not as a difference of large sums, which would be inaccurate if the deviation is much
            # smaller than the mean.
            variance = (squares + sizes * np.square(means - mean)).sum() / sizes.sum()
            moments[name] = (float(mean), float(np.sqrt(variance)))
    return moments


def _scan_file(
    groups: Sequence[RowGroup],
    columns: Sequence[str],
    result_of: Callable[[RowGroup, Columns, int], ResultT],
) -> list[ResultT]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = groups[0].file
    try:
        with open_input(file) as handle, pq.ParquetFile(handle) as parquet:
            names = [name for name in columns if name in parquet.schema_arrow.names]
            sizes = [parquet.metadata.row_group(n).num_rows for n in range(parquet.num_row_groups)]
            firsts = [0, *accumulate(sizes)]
            return [
                result_of(group, _columns(parquet, group, names), firsts[group.index])
                for group in groups
            ]
    except DistrainError:
        raise
    except Exception as error:
        if is_transient(error):
            message = f"could not read {', '.join(columns)}: {first_line(error)}"
            raise Unavailable(message, where={"file": file}) from error
        if not isinstance(error, OSError | pa.ArrowException):
            raise
        raise DataError(
            f"could not read {', '.join(columns)}: {first_line(error)}",
            where={"file": file},
            hint=reading_hint(error, _CHANGED),
        ) from error


def _columns(parquet: ParquetFile, group: RowGroup, names: list[str]) -> dict[str, Any]:
    if not names:
        return {}
    table = parquet.read_row_group(group.index, columns=names, use_threads=False)
    if table.num_rows != group.group_rows:
        raise DataError(
            f"the row group has {table.num_rows} rows, not {group.group_rows} as planned",
            where=group.where,
            hint=_CHANGED,
        )
    if group.taken is not None:
        table = table.take(group.taken)
    return {name: table[name] for name in names}
