"""Converts tables in memory, of any library, to Arrow tables, and to files for `prepare`."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from distrain.errors import InputError
from distrain.prep.raw_values import UnusableValue, is_missing, texts_of_any
from distrain.storage.outputs import scratch_folder, translated_errors
from distrain.storage.unfinished import rename_unless_there

_NO_TABLE = (OverflowError, TypeError, ValueError, pa.ArrowException)
_UNNAMED_INDEX = "__index_level_"
_SINGLE = (str, bytes, bool, int, float, np.generic, Decimal, date, type(None))


def table_of(rows: Any) -> pa.Table:
    """Return rows of any library as an Arrow table.

    Args:
        rows: Any object that exports Arrow's C stream (a DataFrame of pandas or polars, an Arrow
            table, a relation of DuckDB), a mapping of arrays, or a list of dictionaries. An index
            of pandas without a name is left out. A column whose values are all missing or NaN gets
            the type null. Intervals of pandas become texts.

    Raises:
        InputError: The rows are not a table, several columns have the same name, or a column has
            values of an unusable type.
    """
    kind = type(rows).__name__
    if isinstance(rows, list) and rows and all(isinstance(row, Mapping) for row in rows):
        names = dict.fromkeys(name for row in rows for name in row)
        rows = {name: [row.get(name) for row in rows] for name in names}
    if isinstance(rows, Mapping):
        _check_names([str(name) for name in rows])
        rows = {str(name): _column(str(name), values) for name, values in rows.items()}
    try:
        with warnings.catch_warnings():
            # pandas warns of names of several types, which become texts.
            warnings.filterwarnings("ignore", ".*column names.*mixed", UserWarning)
            table = pa.table(rows)
    except _NO_TABLE as error:
        if not hasattr(rows, "columns"):
            raise _unreadable(kind, error) from None
        _check_names([str(name) for name in rows.columns])
        try:
            columns = {str(name): rows[name] for name in rows.columns}
        except TypeError:
            raise _unreadable(kind, error) from None
        return table_of(columns)
    # pandas exports a range as metadata only.
    index = getattr(rows, "index", None)
    if isinstance(name := getattr(index, "name", None), str) and name not in table.column_names:
        table = table.append_column(name, pa.array(index))
    _check_names(table.column_names)
    table = table.drop_columns([n for n in table.column_names if n.startswith(_UNNAMED_INDEX)])
    for place, field in enumerate(table.schema):
        if _holds_intervals(field.type):
            return table_of(table.set_column(place, field.name, _interval_texts(table[place])))
        if pa.types.is_run_end_encoded(field.type):
            try:
                decoded = pc.run_end_decode(table[place])
            except pa.ArrowNotImplementedError:  # of string views and dictionaries
                raise _unusable(kind, field) from None
            return table_of(table.set_column(place, field.name, decoded))
        if (plain := _without_views(field.type)) != field.type:
            table = table.set_column(place, field.name, table[place].cast(plain))
        elif _is_unusable(field.type):
            raise _unusable(kind, field)
        elif table.num_rows and _is_empty(table[place]):
            # A column without values becomes null-typed, which fits any type, even if all are NaN.
            table = table.set_column(place, field.name, pa.nulls(table.num_rows))
    return table


def store_rows(rows: Any, place: Path) -> str:
    """Write rows as parquet into a folder of `place` that is named by a hash of their content.

    Args:
        rows: As for `table_of`; or a Dask DataFrame, which the workers of its own cluster write, so
            they must see `place`.

    Returns:
        The folder.

    Raises:
        InputError: The rows are not a table, or a table in memory has no rows.
        OutputError: The folder cannot be written.
    """
    with translated_errors(place):
        place.mkdir(parents=True, exist_ok=True)
    with scratch_folder(place) as scratch, translated_errors(place):
        folder = Path(scratch) / "rows"
        if is_dask(rows):
            named = rows.index.name not in (None, *rows.columns)
            rows = rows.reset_index() if named else rows  # as a named index of pandas
            rows.to_parquet(str(folder), write_index=False)
        else:
            folder.mkdir()
            table = table_of(rows)
            if not table.num_rows:
                raise InputError(f"the given {type(rows).__name__} has no rows")
            _write(table, folder)
        stored = place / _name_by_content(folder)
        rename_unless_there(folder, stored)
    return str(stored)


def folder_of_rows(table: pa.Table) -> str:
    """Return the name of the folder to which `store_rows` writes a table of `table_of`."""
    with TemporaryDirectory(prefix="distrain-rows-") as folder:
        _write(table, Path(folder))
        return _name_by_content(Path(folder))


def _write(table: pa.Table, folder: Path) -> None:
    # Metadata of a library, such as an index, must not change the hash of the content.
    pq.write_table(table.replace_schema_metadata(), folder / "part-0.parquet")


def _name_by_content(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return f"rows-{digest.hexdigest()[:20]}"


def is_dask(rows: Any) -> bool:
    """Return True for a Dask DataFrame."""
    return hasattr(rows, "__dask_graph__") and hasattr(rows, "to_parquet")


def _is_empty(values: pa.ChunkedArray) -> bool:
    is_float = pa.types.is_floating(values.type)
    return bool(pc.all(values.is_null(nan_is_null=is_float)).as_py())


def _check_names(names: list[str]) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(
            "several columns of the table have the same name",
            where={"column": ", ".join(twice)},
            hint="Rename the columns, or leave some out.",
        )


def _without_views(dtype: pa.DataType) -> pa.DataType:
    """Return a type with `string` instead of `string_view`, which few Arrow functions accept."""
    if pa.types.is_string_view(dtype):
        return pa.string()
    if pa.types.is_dictionary(dtype):
        values = _without_views(dtype.value_type)
        return pa.dictionary(dtype.index_type, values, dtype.ordered)
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        plain = _without_views(dtype.value_type)
        return dtype if plain == dtype.value_type else pa.list_(plain)
    return dtype


def _is_unusable(dtype: pa.DataType) -> bool:
    """Return True for types that parquet cannot hold.

    These are intervals, dictionaries of nested or extension types, and lists or structs of such
    types or of run-end-encoded values.
    """
    if pa.types.is_dictionary(dtype):
        dtype = dtype.value_type
        return pa.types.is_nested(dtype) or isinstance(dtype, pa.BaseExtensionType)
    if pa.types.is_interval(dtype) or pa.types.is_run_end_encoded(dtype):
        return True
    return any(_is_unusable(dtype.field(place).type) for place in range(dtype.num_fields))


def _holds_intervals(dtype: pa.DataType) -> bool:
    """Return True for intervals of pandas, such as those that `pandas.cut` returns."""
    dtype = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    return getattr(dtype, "extension_name", "") == "pandas.interval"


def _interval_texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the texts that pandas shows for its intervals, such as `(0, 10]`; nulls stay."""

    def texts(intervals: pa.ExtensionArray) -> pa.Array:
        closed = intervals.type.closed
        begin, end = "[("[closed not in ("left", "both")], "])"[closed not in ("right", "both")]
        bounds = intervals.storage.to_pylist()
        shown = [one and f"{begin}{one['left']}, {one['right']}{end}" for one in bounds]
        return pa.array(shown, pa.string())

    chunks = [
        texts(chunk.dictionary).take(chunk.indices)
        if isinstance(chunk, pa.DictionaryArray)
        else texts(chunk)
        for chunk in values.chunks
    ]
    return pa.chunked_array(chunks, pa.string())


def _unusable(kind: str, field: pa.Field) -> InputError:
    return InputError(
        f"a column of the given {kind} has the unsupported type {field.type}",
        where={"column": field.name},
        hint="Convert the column to texts or numbers, or leave it out.",
    )


def _column(name: str, values: Any) -> Any:
    """Return one column as an Arrow array.

    Mixed values that Arrow rejects, and integers beyond 64 bits, become texts, also inside lists.
    Raises `InputError` for other values that Arrow rejects, such as objects.
    """
    if not isinstance(values, list | tuple):
        try:
            return pa.array(values)
        except _NO_TABLE as error:
            if not hasattr(values, "tolist"):
                raise _unreadable(type(values).__name__, error, column=name) from None
            values = values.tolist()
    values = [None if is_missing(value) else value for value in values]
    kinds = set(map(type, values)) - {type(None)}
    times = {kind for kind in kinds if issubclass(kind, date)}
    if date in times and len(times) > 1:  # Arrow would convert all of them to dates
        values = [datetime.combine(v, time()) if type(v) is date else v for v in values]
    try:
        if not times or times == kinds:  # Arrow reads numbers beside times as microseconds
            return pa.array(values)
        raise TypeError("times and other values")
    except _NO_TABLE as error:
        if all(isinstance(value, _SINGLE) for value in values):
            try:
                return pa.array(texts_of_any(values), pa.string())
            except UnusableValue as bad:
                raise _unreadable(type(values).__name__, bad, column=name, row=bad.place) from None
        if all(value is None or isinstance(value, list | tuple) for value in values):
            lists = [value and _column(name, value).to_pylist() for value in values]
            return pa.array([one and texts_of_any(one) for one in lists], pa.list_(pa.string()))
        raise _unreadable(type(values).__name__, error, column=name) from None


def _unreadable(kind: str, error: Exception, **where: Any) -> InputError:
    return InputError(
        f"cannot read the given {kind} as a table: {error}",
        where=where,
        hint="A DataFrame or an Arrow table is needed, whose columns hold single values or lists "
        "of one type each, or dictionaries, or the paths of files.",
    )
