"""Assigns row groups to windows: all rows of a window are trained before those of the next.

A window is a range of time or of another number, or a single value, for example a day. The window
of a row group follows from its file's name, from the names of folders above the file, or from the
minimum and maximum of a column in the footer. Rows are read only if these do not determine one
window. A row group with rows of two windows counts as two, each with the rows of one window.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distrain.errors import DataError
from distrain.jobs.spec.data import WindowsSpec
from distrain.loader.partition.hive import folder_number
from distrain.loader.partition.scanning import Columns, scan_columns
from distrain.loader.partition.statistics import RowGroupChunks, read_statistics
from distrain.loader.partition.table import RowGroup, Table, Windows
from distrain.schema.folders import NULL_FOLDER, folder_values

if TYPE_CHECKING:
    from pyarrow import DataType, Schema as ArrowSchema
    from pyarrow.parquet import FileMetaData

Kind = Literal["time", "number", "text", "file"]

_NS = 10**9
_DAY_NS = 86_400 * _NS
_UNIT_NS = {"s": _NS, "ms": 10**6, "us": 10**3, "ns": 1}
_EPOCH = datetime(1970, 1, 1)
_NAMES = {"time": "times", "number": "numbers", "text": "texts"}


class Span(NamedTuple):
    """The minimum and maximum, in a row group, of the values that determine its window.

    Times are in nanoseconds since 1970, UTC.
    """

    kind: Kind
    low: Any
    high: Any
    # if False, the values must be read: some may be null or NaN, or the bounds are unknown
    is_sure: bool = True


def row_group_spans(
    path: str,
    windows: WindowsSpec,
    metadata: FileMetaData,
    groups: Mapping[int, RowGroupChunks],
    schema: ArrowSchema,
) -> tuple[dict[int, Span], list[DataError]]:
    """Return the span of each row group in `groups`, by number, and the problems.

    If there is a problem, there are no spans. `groups` are row groups of the file at `path`.
    """
    if windows.by == "file":
        return dict.fromkeys(groups, Span("file", path, path)), []
    if windows.by in schema.names:
        return _of_column(path, windows.by, metadata, groups, schema)
    values = dict(folder_values(path))
    where = {"file": path, "data.windows.by": windows.by}
    if windows.by not in values:
        near = get_close_matches(windows.by, [*values, *schema.names], n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        hint += "It names a column, the key of folders named `key=value`, or is `file`."
        return {}, [DataError("the file has no such column or folder", where=where, hint=hint)]
    if values[windows.by] == NULL_FOLDER:
        message = f"the value of {windows.by!r} is null in the name of a folder"
        return {}, [DataError(message, where=where, hint="Leave that folder out of data.train.")]
    return dict.fromkeys(groups, _of_text(values[windows.by])), []


def _of_text(text: str) -> Span:
    """Return a span with only the value in a folder's name: a number, else a time, else a text.

    >>> _of_text("2026-11-03").kind, _of_text("20261103").low, _of_text("north").kind
    ('time', 20261103, 'text')
    """
    number = folder_number(text)
    if number is not None and math.isfinite(number):
        return Span("number", number, number)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return Span("text", text, text)
    if moment.tzinfo is not None:
        moment = moment.replace(tzinfo=None) - (moment.utcoffset() or timedelta())
    value = (moment - _EPOCH) // timedelta(microseconds=1) * 1000
    return Span("time", value, value)


def _of_column(
    path: str,
    name: str,
    metadata: FileMetaData,
    groups: Mapping[int, RowGroupChunks],
    schema: ArrowSchema,
) -> tuple[dict[int, Span], list[DataError]]:
    kind = schema.field(name).type
    factor = _factor(kind)
    leaves = [n for n in range(metadata.num_columns) if metadata.schema.column(n).path == name]
    if factor is None or len(leaves) != 1:
        problem = DataError(
            f"column {name!r} has type {kind}, which cannot define windows",
            where={"file": path, "data.windows.by": name},
            hint="Dates, timestamps, integers and floating numbers are ordered; write another "
            "column as one of these, or folders named `key=value`.",
        )
        return {}, [problem]
    leaf = metadata.schema.column(leaves[0])
    unsigned = leaf.converted_type.startswith("UINT")
    may_be_nan = leaf.physical_type in ("FLOAT", "DOUBLE")  # which statistics ignore
    spans = {}
    for place, group in groups.items():
        statistics = read_statistics(group, leaves[0], leaf.physical_type, unsigned)
        may_be_null = (
            leaf.max_definition_level > 0 if statistics.nulls is None else statistics.nulls > 0
        )
        is_known = len(statistics.bounds) == 2 and all(map(math.isfinite, statistics.bounds))
        # Without bounds, the selected rows may still all have values: they are read.
        low, high = (bound * (factor or 1) for bound in (statistics.bounds if is_known else (0, 0)))
        is_sure = is_known and not (may_be_nan or may_be_null)
        spans[place] = Span("time" if factor else "number", low, high, is_sure)
    return spans, []


def _factor(kind: DataType) -> int | None:
    """Return the nanoseconds per unit of a time type; 0 for numbers, `None` for other types.

    Times of seconds count as milliseconds, in which Parquet stores them.
    """
    from pyarrow import types

    if types.is_timestamp(kind):
        # Parquet has no timestamps in seconds: Arrow writes them in milliseconds.
        return _UNIT_NS["ms" if kind.unit == "s" else kind.unit]
    if types.is_date(kind):
        return _DAY_NS
    return 0 if types.is_integer(kind) or types.is_floating(kind) else None


def cut_windows(
    windows: WindowsSpec, table: Table, spans: Mapping[tuple[str, int], Span], retry_s: float
) -> Table:
    """Return a table whose row groups are in windows, ordered by their values.

    If each file is a window, the windows are in the order of the files. Rows are read if `spans` do
    not determine the window of a row group.

    Args:
        spans: The span of each row group, by its file and number.
        retry_s: How long to retry if the storage does not answer, for each file.

    Raises:
        DataError: Rows of a row group are in more than two windows or have no value, values are of
            mixed kinds, the size does not fit the values, or a file cannot be read.
        Unavailable: The storage does not answer.
    """
    groups = list(table.row_groups)
    own = [spans[group.file, group.index] for group in groups]
    kind, width = own[0].kind, _width(windows, own[0].kind)
    _refuse_mixed(windows, own, groups)
    keys = [(_key(span.low, width), _key(span.high, width)) for span in own]
    sure = [span.is_sure and low == high for span, (low, high) in zip(own, keys, strict=True)]
    unsure = [group for group, is_sure in zip(groups, sure, strict=True) if not is_sure]

    def split(group: RowGroup, columns: Columns, _: int) -> list[tuple[Any, RowGroup]]:
        _refuse_missing(columns[windows.by], group, windows.by)
        window_keys = _keys_of(columns[windows.by], width)
        own_keys = np.unique(window_keys)[:3].tolist()
        if len(own_keys) > 2:
            values = np.unique(_keys_of(columns[windows.by], None))[[0, -1]].tolist()
            raise _straddling(windows, [_label(value, kind) for value in values], group)
        parts = [(key, group.taking(window_keys == key)) for key in own_keys]
        return [(key if width is None else int(key), part) for key, part in parts if part]

    read = iter(scan_columns(unsure, [windows.by], split, retry_s))
    pairs: list[tuple[Any, RowGroup]] = []
    for group, (low, _), is_sure in zip(groups, keys, sure, strict=True):
        pairs += [(low, group)] if is_sure else next(read)
    # Files are ordered by their names already, with numbers in names compared as numbers.
    keys_present = [key for key, _ in pairs]
    order = list(dict.fromkeys(keys_present)) if kind == "file" else sorted(set(keys_present))
    numbers = {key: number for number, key in enumerate(order)}
    names = _file_names(order) if kind == "file" else _labels(order, kind, width)
    cut = Windows(tuple(names), np.array([numbers[key] for key in keys_present], np.int32))
    return Table([group for _, group in pairs], table.fingerprint, table.only_label, cut)


def _refuse_missing(values: Any, group: RowGroup, name: str) -> None:
    """Raise a `DataError` if an Arrow column has nulls, NaN or infinity: such rows have no window.

    `name` is the column's name in the error.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    counts = {"no value in": values.null_count}
    if pa.types.is_floating(values.type):
        for word, is_such in (("NaN in", pc.is_nan), ("infinity in", pc.is_inf)):
            counts[word] = pc.sum(is_such(values)).as_py()
    for word, count in counts.items():
        if count:
            raise DataError(
                f"{count} rows have {word} column {name!r}, so they belong to no window",
                where={**group.where, "column": name},
                hint="Exclude such rows with data.filter, or when the table is written.",
            )


def _keys_of(values: Any, width: float | None) -> NDArray[Any]:
    """Return the key of the window of each value of an Arrow column, as `_key` returns it.

    Values with equal keys are in one window. `width` is the width of a window in units of the
    column, for times nanoseconds; without it, each distinct value is a window.
    """
    import pyarrow as pa

    kind, unit = values.type, 0
    if pa.types.is_timestamp(kind):
        values, unit = values.cast(pa.int64()), _UNIT_NS[kind.unit]
    elif pa.types.is_date(kind):
        values, unit = values.cast(pa.timestamp("ms")).cast(pa.int64()), _UNIT_NS["ms"]
    numbers: NDArray[Any] = values.to_numpy()
    if numbers.dtype.itemsize < 8:  # the window's width may not fit a narrower type
        numbers = numbers.astype(np.int64 if numbers.dtype.kind in "iu" else np.float64)
    if unit:
        if max(-int(numbers.min()), int(numbers.max())) * unit >= 2**63:  # e.g. year 9999
            numbers = numbers.astype(object)
        numbers = numbers * unit
    keys: NDArray[Any] = numbers if width is None else np.floor_divide(numbers, width)
    return keys


def _refuse_mixed(windows: WindowsSpec, spans: Sequence[Span], groups: Sequence[RowGroup]) -> None:
    files: dict[Kind, str] = {}
    for span, group in zip(spans, groups, strict=True):
        files.setdefault(span.kind, group.file)
    if len(files) > 1:
        kinds_in_files = " and ".join(f"{_NAMES[kind]} in {file}" for kind, file in files.items())
        raise DataError(
            f"windows by {windows.by!r} have no common order: it holds {kinds_in_files}",
            where={"data.windows.by": windows.by},
            hint="Write one type of value into all files.",
        )


def _width(windows: WindowsSpec, kind: Kind) -> float | None:
    size, width = windows.size, windows.size_ns
    if size is None:
        return None
    where = {"data.windows.by": windows.by, "data.windows.size": size}
    if kind == "number" and width is None:
        assert not isinstance(size, str)
        return int(size) if size == int(size) else size
    if kind == "time" and width is not None:
        return width
    if kind in ("file", "text"):
        message = "each file or text is a window of its own, so windows have no size"
        raise DataError(message, where=where, hint="Leave data.windows.size out.")
    if kind == "number":
        message, hint = "the values are numbers, but the size is a time", "86400 is a day in s"
    else:
        message, hint = "the values are times, but the size is a number", "use 1d or 12h"
    raise DataError(message, where=where, hint=f"Give the size in the unit of the values: {hint}.")


def _key(value: Any, width: float | None) -> Any:
    return value if width is None else math.floor(value // width)


def _straddling(windows: WindowsSpec, ends: Sequence[str], group: RowGroup) -> DataError:
    return DataError(
        f"the row group has rows of more than two windows: {windows.by!r} is between {ends[0]} "
        f"and {ends[1]}",
        where={**group.where, "data.windows.size": windows.size},
        hint="Sort the table by this column, or write a file for each window"
        + (", or set data.windows.size." if windows.size is None else "."),
    )


def _labels(order: Sequence[Any], kind: Kind, width: float | None) -> list[str]:
    return [_label(key if width is None else key * width, kind) for key in order]


def _label(value: Any, kind: Kind) -> str:
    """Return a window's name, from its only value or its start.

    >>> _label(86_400 * 10**9, "time"), _label(3_600 * 10**9, "time"), _label(7, "number")
    ('1970-01-02', '1970-01-01T01:00:00', '7')
    """
    if kind != "time":
        return str(value)
    try:
        moment = _EPOCH + timedelta(microseconds=value // 1000)
    except OverflowError:
        return str(value)
    if value % 1000:  # names must be unique
        return f"{moment.isoformat(timespec='microseconds')}{value % 1000:03d}"
    return moment.isoformat() if value % _DAY_NS else moment.date().isoformat()


def _file_names(files: Sequence[str]) -> list[str]:
    short = [file.rpartition("/")[2] for file in files]
    return short if len(set(short)) == len(short) else list(files)
