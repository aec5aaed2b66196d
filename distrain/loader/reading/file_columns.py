"""What the handles of a file have to know of its columns; files of a table mostly have the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from distrain.loader.pages import PageColumns, page_columns
from distrain.partition import WantedColumn, column_of_leaf, type_problem

_ARROW_SCHEMA = b"ARROW:schema"


class FileColumns(NamedTuple):
    """The wanted columns as a file has them."""

    problem: str | None  # why they are not those that are wanted, if so
    numbers: list[int]  # their numbers in the file's row groups
    pages: PageColumns  # what decodes some of them without Arrow


class LatestColumns:
    """Gives the columns of files; of one that is like the file before it, the same again.

    What Arrow makes of a schema and the comparison with what is wanted cost two milliseconds for 40
    columns, as much as 10,000 rows. Any thread may ask.
    """

    def __init__(self) -> None:
        self._latest: tuple[pq.ParquetSchema, bytes, list[str], FileColumns] | None = None

    def of(self, parquet: pq.ParquetFile, columns: Sequence[WantedColumn]) -> FileColumns:
        schema = parquet.metadata.schema
        arrow = (parquet.metadata.metadata or {}).get(_ARROW_SCHEMA, b"")
        names = [column.name for column in columns]
        latest = self._latest
        if latest and latest[1:3] == (arrow, names) and schema.equals(latest[0]):
            return latest[3]
        fills = {column.name: column.fill_null for column in columns if not column.is_list}
        limits = {column.name: column.id_limit for column in columns if column.kind == "id"}
        found = FileColumns(
            _problem(parquet.schema_arrow, columns),
            column_numbers(paths_of(parquet.metadata), columns),
            page_columns(parquet, fills, fills, limits),
        )
        self._latest = schema, arrow, names, found
        return found


def _problem(schema: pa.Schema, columns: Sequence[WantedColumn]) -> str | None:
    kinds = {field.name: field.type for field in schema}
    for column in columns:
        if column.name not in kinds:
            return f"column {column.name!r} is missing"
        problem = type_problem(column, kinds[column.name])
        if problem:
            return problem
    return None


def paths_of(metadata: pq.FileMetaData) -> tuple[str, ...]:
    return tuple(metadata.schema.column(n).path for n in range(metadata.num_columns))


def column_numbers(paths: Sequence[str], columns: Sequence[WantedColumn]) -> list[int]:
    """Which leaf columns some columns have in a file, by the leaves' paths."""
    flat = {column.name for column in columns if not column.is_list}
    lists = {column.name for column in columns if column.is_list}
    return [n for n, path in enumerate(paths) if column_of_leaf(path, flat, lists)]
