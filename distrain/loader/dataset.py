"""`Dataset`: a table to load, with its files, its columns, and the options for its rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distrain.errors import DataError
from distrain.jobs.spec.data import RowsSpec
from distrain.loader.options import checked, parse_bytes, refuse_two_names
from distrain.loader.partition.footers import read_footers
from distrain.loader.partition.row_order import parts_of
from distrain.loader.partition.slices import LARGE_ROWS, Slices
from distrain.loader.partition.table import RowGroup, Table
from distrain.loader.partition.wanted_columns import wanted_columns
from distrain.schema.files import schema_of_rows
from distrain.schema.schema import Schema
from distrain.storage.urls import is_remote

CELL_BYTES = 4


class Dataset:
    """The row groups of a table, checked as far as footers allow, and the columns to read.

    It is small, holds no open files, and can be pickled.

    Args:
        paths: Parquet files: paths, folders, globs or URLs, one or many.
        schema: A schema, or a local file or folder, or the URL of a file, to load it from. `None`
            looks next to the first file and in the parent folder, where `distrain prep` writes it.
            For remote files, a schema must be given.
        part_size: Maximum size in memory of a part, in bytes or like `"128MiB"`. A part is a run of
            row groups of one file that stay together when parts are shuffled; `None` makes each row
            group a part.
        hive: Whether folders named `key=value` define columns.
        need_label: Whether to read targets and the weight.
        fill_null_id: Replacement of nulls in categorical columns; `None` rejects nulls.
        fill_null_value: Replacement of nulls in continuous columns; `None` rejects nulls.
        row_filter: Condition on rows to load, such as `"country == 'de' and age > 18"`; `None`
            loads all rows.
        windows: How to cut the rows into windows, which are loaded strictly one after another;
            `None` for no windows.

    Other keyword arguments are fields of `RowsSpec`, which are also fields of the section `data` of
    a job spec.

    Attributes:
        table: The row groups, and the table's fingerprint.
        columns: The columns that batches hold, in order.
        part_rows: The maximum rows of a part; `None` if each row group is a part.
        parts: The row groups of each part, by their indices in the table.
        slices: The units of reading: row groups, or slices of large ones.
        windows: A dataset for each window, in order; without windows, only the dataset itself.

    Raises:
        DataError: Footers show that the files cannot be used; see `read_footers`.
        Unavailable: The storage does not answer.
        SpecError: An option is invalid, or the filter cannot be used.
        SchemaError: There is no schema, it has no features, or it does not fit the options.
    """

    def __init__(
        self,
        paths: str | Path | Sequence[str | Path],
        schema: Schema | str | Path | None = None,
        *,
        need_label: bool = True,
        row_filter: str | None = None,
        part_size: int | str | None = None,
        **options: Any,
    ):
        refuse_two_names("row_filter", row_filter, "filter", options)
        size = None if part_size is None else str(part_size)
        named = {"filter": row_filter, "part_size": size}
        rows = checked(RowsSpec, named | options)
        patterns = [str(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
        if not patterns:
            raise DataError("no files are named", hint="Name files, folders, globs or URLs.")
        loaded_schema = schema if isinstance(schema, Schema) else _load_schema(patterns, schema)
        table = read_footers(
            patterns,
            loaded_schema,
            need_label=need_label,
            hive=rows.hive,
            fill_null_id=rows.fill_null_id,
            fill_null_value=rows.fill_null_value,
            row_filter=rows.filter,
            windows=rows.windows,
        )
        self._set(table, loaded_schema, rows, need_label=need_label)

    @classmethod
    def of(
        cls,
        table: Table,
        schema: Schema,
        rows: RowsSpec | None = None,
        *,
        need_label: bool = True,
    ) -> Dataset:
        """Return a dataset of a table that `read_footers` returned for this schema and options."""
        dataset = cls.__new__(cls)
        dataset._set(table, schema, rows or RowsSpec(), need_label=need_label)
        return dataset

    def part(self, groups: Sequence[RowGroup]) -> Dataset:
        """Return a dataset of some of the row groups, with the same options."""
        table = Table(groups, self.table.fingerprint)
        return self.of(table, self.schema, self._rows, need_label=self._need_label)

    def _set(self, table: Table, schema: Schema, rows: RowsSpec, *, need_label: bool) -> None:
        self.table = table
        self.schema = schema
        self._rows, self._need_label = rows, need_label
        self.columns = wanted_columns(
            schema,
            need_label=need_label,
            fill_null_id=rows.fill_null_id,
            fill_null_value=rows.fill_null_value,
        )
        self.part_rows: int | None = None
        if rows.part_size is not None:
            self.part_rows = max(1, parse_bytes(rows.part_size) // max(1, self.row_bytes))
        self.parts = parts_of(table.row_groups, self.part_rows)
        self.slices = Slices(table.compact, LARGE_ROWS)
        self.any_remote = any(is_remote(file) for file in table.compact.files)
        self._windows: tuple[Dataset, ...] = ()
        if table.windows is not None:
            tables = [table.of_window(number) for number in range(len(table.windows.names))]
            self._windows = tuple(
                self.of(one, schema, rows, need_label=need_label) for one in tables
            )

    @property
    def windows(self) -> tuple[Dataset, ...]:
        return self._windows or (self,)

    def __len__(self) -> int:
        return self.table.num_rows

    def __repr__(self) -> str:
        files = self.table.compact.files
        return (
            f"Dataset({len(self)} rows, {len(self.table.row_groups)} row groups, "
            f"{len(files)} files, {len(self.columns)} columns)"
        )

    @property
    def row_bytes(self) -> int:
        """Bytes of a row's flat columns in a batch."""
        return CELL_BYTES * sum(not column.is_list for column in self.columns)


def _load_schema(patterns: Sequence[str], given: str | Path | None) -> Schema:
    if given is not None:
        return Schema.load(given)
    hint = "Pass schema=..., such as the path of the schema.pbtxt that `distrain prep` writes."
    return Schema.load(schema_of_rows(patterns, hint))
