"""Windows of a table: which row groups are trained strictly before which.

A window is a stretch of time, or of another number, or a value of its own: a day, say. Which one a
row group lies in is known from its file's name, from the folders above it, or from the least and
the greatest value of a column, which footers hold. Rows are not read, so a row group lies in one
window as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from distrain.errors import DataError
from distrain.partition.statistics import RowGroupChunks, read_statistics
from distrain.partition.table import Windows
from distrain.schema import NULL_FOLDER, folder_values
from distrain.spec import WindowsSpec

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
    """The least and the greatest value of a row group; times as nanoseconds since 1970, in UTC."""

    kind: Kind
    low: Any
    high: Any


def row_group_spans(
    path: str,
    windows: WindowsSpec,
    metadata: FileMetaData,
    groups: Sequence[RowGroupChunks],
    schema: ArrowSchema,
) -> tuple[list[Span], list[DataError]]:
    """The span of each row group that has rows, and why there is none."""
    counts = [metadata.row_group(place).num_rows for place in range(len(groups))]
    filled = [place for place, rows in enumerate(counts) if rows]
    if windows.by == "file":
        return [Span("file", path, path) for _ in filled], []
    if windows.by in schema.names:
        return _of_column(path, windows.by, metadata, [groups[n] for n in filled], filled, schema)
    values = dict(folder_values(path))
    where = {"file": path, "data.windows.by": windows.by}
    if windows.by not in values:
        near = get_close_matches(windows.by, [*values, *schema.names], n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        hint += "It names a column, the key of folders named `key=value`, or is `file`."
        return [], [DataError("the file has no such column or folder", where=where, hint=hint)]
    if values[windows.by] == NULL_FOLDER:
        message = f"the value of {windows.by!r} is null in the name of a folder"
        return [], [DataError(message, where=where, hint="Leave that folder out of data.train.")]
    return [_of_text(values[windows.by])] * len(filled), []


def _of_text(text: str) -> Span:
    """The value that a folder's name gives.

    >>> _of_text("2026-11-03").kind, _of_text("20261103").low, _of_text("north").kind
    ('time', 20261103, 'text')
    """
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if math.isfinite(number):
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
    groups: Sequence[RowGroupChunks],
    places: Sequence[int],
    schema: ArrowSchema,
) -> tuple[list[Span], list[DataError]]:
    kind = schema.field(name).type
    factor = _factor(kind)
    leaves = [n for n in range(metadata.num_columns) if metadata.schema.column(n).path == name]
    if factor is None or len(leaves) != 1:
        problem = DataError(
            f"windows are no values of column {name!r}, which holds {kind}",
            where={"file": path, "data.windows.by": name},
            hint="Dates, timestamps, integers and floating numbers are ordered; write another "
            "column as one of these, or folders named `key=value`.",
        )
        return [], [problem]
    leaf = metadata.schema.column(leaves[0])
    unsigned = leaf.converted_type.startswith("UINT")
    spans, problems = [], []
    for place, group in zip(places, groups, strict=True):
        found = read_statistics(group, leaves[0], leaf.physical_type, unsigned)
        optional = leaf.max_definition_level > 0
        if found.nulls or len(found.bounds) != 2 or (found.nulls is None and optional):
            problems.append(_unknown(path, place, name, found.nulls))
        elif not all(map(math.isfinite, found.bounds)):
            problems.append(_unknown(path, place, name, None))
        else:
            low, high = (bound * (factor or 1) for bound in found.bounds)
            spans.append(Span("time" if factor else "number", low, high))
    return spans, problems[:1]


def _factor(kind: DataType) -> int | None:
    """Nanoseconds of a step of a type's values; 0 for numbers, `None` for other types."""
    from pyarrow import types

    if types.is_timestamp(kind):
        # Parquet has no seconds: Arrow writes these as milliseconds.
        return _UNIT_NS["ms" if kind.unit == "s" else kind.unit]
    if types.is_date(kind):
        return _DAY_NS
    return 0 if types.is_integer(kind) or types.is_floating(kind) else None


def _unknown(path: str, place: int, name: str, nulls: int | None) -> DataError:
    where = {"file": path, "row group": place, "column": name}
    if nulls:
        message = f"{nulls} rows have no value of column {name!r}, and so lie in no window"
        return DataError(message, where=where, hint="Leave such rows out when it is written.")
    return DataError(
        f"the footer does not say between which values of column {name!r} its rows lie",
        where=where,
        hint="Write the file with statistics, and without nulls or NaN in this column.",
    )


def cut_windows(
    windows: WindowsSpec, spans: Sequence[Span], where: Sequence[tuple[str, int]]
) -> Windows:
    """Put row groups into windows, which are in the order of their values.

    Args:
        where: The file and the number of each row group.

    Raises:
        DataError: Rows of a row group lie in several windows, or values are not of one kind.
    """
    kinds: dict[Kind, tuple[str, int]] = {}
    for span, place in zip(spans, where, strict=True):
        kinds.setdefault(span.kind, place)
    if len(kinds) > 1:
        told = " and ".join(f"{_NAMES[kind]} in {file}" for kind, (file, _) in kinds.items())
        raise DataError(
            f"windows by {windows.by!r} have no common order: it holds {told}",
            where={"data.windows.by": windows.by},
            hint="Write one type of value into all files.",
        )
    width = _width(windows, spans[0].kind)
    keys = []
    for span, place in zip(spans, where, strict=True):
        low, high = _key(span.low, width), _key(span.high, width)
        if low != high:
            raise _straddling(windows, span, place)
        keys.append(low)
    # Files are in the order of their names already, numbers in them as numbers.
    order = list(dict.fromkeys(keys)) if spans[0].kind == "file" else sorted(set(keys))
    numbers = {key: number for number, key in enumerate(order)}
    names = _file_names(order) if spans[0].kind == "file" else list(_labels(order, spans, width))
    return Windows(tuple(names), np.array([numbers[key] for key in keys], np.int32))


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
        message = "each file or text is a window of its own, and has no size"
        raise DataError(message, where=where, hint="Leave data.windows.size out.")
    if kind == "number":
        message, hint = "the values are numbers, and the size is a time", "86400 is a day in s"
    else:
        message, hint = "the values are times, and the size is a number", "say 1d or 12h"
    raise DataError(message, where=where, hint=f"Give the size in the unit of the values: {hint}.")


def _key(value: Any, width: float | None) -> Any:
    return value if width is None else math.floor(value // width)


def _straddling(windows: WindowsSpec, span: Span, place: tuple[str, int]) -> DataError:
    low, high = (_label(value, span.kind) for value in (span.low, span.high))
    message = f"the rows lie in several windows: {windows.by!r} runs from {low} to {high}"
    hint = "Sort the table by this column and begin a row group at each border, such as a file for "
    hint += "each window" + (", or set data.windows.size." if windows.size is None else ".")
    where = {"file": place[0], "row group": place[1], "data.windows.size": windows.size}
    return DataError(message, where=where, hint=hint)


def _labels(order: Sequence[Any], spans: Sequence[Span], width: float | None) -> Iterator[str]:
    for key in order:
        yield _label(key if width is None else key * width, spans[0].kind)


def _label(value: Any, kind: Kind) -> str:
    """A window's name: its value, or where it begins.

    >>> _label(86_400 * 10**9, "time"), _label(3_600 * 10**9, "time"), _label(7, "number")
    ('1970-01-02', '1970-01-01T01:00:00', '7')
    """
    if kind != "time":
        return str(value)
    try:
        moment = _EPOCH + timedelta(microseconds=value // 1000)
    except OverflowError:
        return str(value)
    return moment.isoformat() if value % _DAY_NS else moment.date().isoformat()


def _file_names(files: Sequence[str]) -> list[str]:
    short = [file.rpartition("/")[2] for file in files]
    return short if len(set(short)) == len(short) else list(files)
