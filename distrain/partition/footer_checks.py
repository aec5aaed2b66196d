"""What a parquet footer can tell about the columns that are wanted of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from distrain.errors import DataError
from distrain.partition.columns import Wanted, id_hint, type_problem

if TYPE_CHECKING:
    from pyarrow import Schema as ArrowSchema
    from pyarrow.parquet import ColumnChunkMetaData, FileMetaData

_PREPARED = "Prepare the raw table first; a prepared one holds integer ids and plain numbers."


def column_problems(
    file: str, metadata: FileMetaData, schema: ArrowSchema, wanted: Sequence[Wanted]
) -> Iterator[DataError]:
    """Each column's first problem in a file, if it has one.

    Args:
        file: The file's name, for the errors.
        metadata: Its footer.
        schema: Its Arrow schema.
        wanted: The columns to check.
    """
    leaf_of = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    for column in wanted:
        where = {"file": file, "column": column.name}
        if schema.get_field_index(column.name) < 0:
            yield _missing(column, schema.names, where)
            continue
        mismatch = type_problem(column, schema.field(column.name).type)
        if mismatch:
            yield DataError(mismatch, where=where, hint=_PREPARED)
            continue
        problem = _statistics_problem(file, metadata, leaf_of[column.name], column)
        if problem:
            yield problem


def _missing(column: Wanted, names: Sequence[str], where: Mapping[str, object]) -> DataError:
    near = get_close_matches(column.name, names, n=1)
    return DataError(
        f"column {column.name!r} is missing",
        where=where,
        hint=f"Did you mean {near[0]!r}?" if near else f"The file has: {', '.join(names[:50])}.",
    )


def _statistics_problem(
    file: str, metadata: FileMetaData, leaf: int, column: Wanted
) -> DataError | None:
    for group in range(metadata.num_row_groups):
        chunk: ColumnChunkMetaData = metadata.row_group(group).column(leaf)
        if not chunk.is_stats_set:
            continue
        found = _null_problem(chunk, column) or _range_problem(chunk, column)
        if found:
            message, hint = found
            where = {"file": file, "row group": group, "column": column.name}
            return DataError(message, where=where, hint=hint)
    return None


def _null_problem(chunk: ColumnChunkMetaData, column: Wanted) -> tuple[str, str] | None:
    statistics = chunk.statistics
    if not statistics.has_null_count or not statistics.null_count:
        return None
    message = f"column {column.name!r} has {statistics.null_count} nulls"
    return message, "Fill the missing values when the table is prepared."


def _range_problem(chunk: ColumnChunkMetaData, column: Wanted) -> tuple[str, str] | None:
    statistics = chunk.statistics
    if not statistics.has_min_max:
        return None
    least, greatest = statistics.min, statistics.max
    if isinstance(least, bytes):  # Arrow leaves the statistics of float16 undecoded
        return None
    if column.kind == "value":
        bad = next((v for v in (least, greatest) if not math.isfinite(v)), None)
        message = f"column {column.name!r} holds {bad}, which is not a finite number"
        return None if bad is None else (message, "Clip or fill it when the table is prepared.")
    limit = 1 if column.kind == "label" else column.id_limit - 1
    bad = least if least < 0 else greatest if greatest > limit else None
    if bad is None:
        return None
    if column.kind == "label":
        return f"label {column.name!r} is {bad}, not 0 or 1", "Is it the right target column?"
    return f"id {bad} of column {column.name!r} is not in 0..{limit}", id_hint(column, bad)
