"""What a parquet footer can tell about the columns that are wanted of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from difflib import get_close_matches
from typing import TYPE_CHECKING

from distrain.errors import DataError
from distrain.partition.columns import Wanted, type_hint, type_problem, value_problem

if TYPE_CHECKING:
    from pyarrow import Schema as ArrowSchema
    from pyarrow.parquet import ColumnChunkMetaData, FileMetaData

_DAY_0 = date(1970, 1, 1).toordinal()


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
    leaves = _leaves(metadata)
    for column in wanted:
        where = {"file": file, "column": column.name}
        if schema.get_field_index(column.name) < 0:
            yield _missing(column, schema.names, where)
            continue
        kind = schema.field(column.name).type
        mismatch = type_problem(column, kind)
        if mismatch:
            yield DataError(mismatch, where=where, hint=type_hint(column, kind))
            continue
        leaf = _leaf_of(leaves, column)
        problem = None if leaf is None else _statistics_problem(file, metadata, leaf, column)
        if problem:
            yield problem


def _missing(column: Wanted, names: Sequence[str], where: Mapping[str, object]) -> DataError:
    near = get_close_matches(column.name, names, n=1)
    return DataError(
        f"column {column.name!r} is missing",
        where=where,
        hint=f"Did you mean {near[0]!r}?" if near else f"The file has: {', '.join(names[:50])}.",
    )


def _leaves(metadata: FileMetaData) -> list[tuple[str, bool]]:
    """The path of each leaf column, and whether it holds lists."""
    leaves = (metadata.schema.column(index) for index in range(metadata.num_columns))
    return [(leaf.path, leaf.max_repetition_level > 0) for leaf in leaves]


def _leaf_of(leaves: Sequence[tuple[str, bool]], column: Wanted) -> int | None:
    """Which of the file's leaf columns holds the values; `None` if that cannot be told."""
    found = [
        index
        for index, (path, repeated) in enumerate(leaves)
        if repeated == column.is_list
        # A list's leaf is `tags.list.element`, `tags.bag.array_element`, ... by its writer.
        and (path == column.name or (repeated and path.startswith(f"{column.name}.")))
    ]
    return found[0] if len(found) == 1 else None


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
    # Writers count empty lists among the nulls, so of lists only their reader can tell.
    if column.fill is not None or column.is_list:
        return None
    if not statistics.has_null_count or not statistics.null_count:
        return None
    message = f"column {column.name!r} has {statistics.null_count} nulls"
    return message, "Fill the missing values when the table is prepared."


def _range_problem(chunk: ColumnChunkMetaData, column: Wanted) -> tuple[str, str] | None:
    statistics = chunk.statistics
    if not statistics.has_min_max:
        return None
    bounds = [_number(bound) for bound in (statistics.min, statistics.max)]
    problems = (value_problem(column, bound) for bound in bounds if bound is not None)
    return next((problem for problem in problems if problem), None)


def _number(bound: object) -> float | int | None:
    if isinstance(bound, date):
        return bound.toordinal() - _DAY_0
    # Arrow leaves the statistics of float16 undecoded.
    return bound if isinstance(bound, (int, float)) else None
