"""A table to load: which files, which columns, and what holds for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from distrain.errors import DataError, SchemaError
from distrain.jobs.spec.data import RowsSpec
from distrain.loader.options import checked, parse_bytes, refuse_two_names
from distrain.loader.partition.footers import PARQUET_SUFFIXES, read_footers
from distrain.loader.partition.row_order import parts_of
from distrain.loader.partition.slices import LARGE_ROWS, Slices
from distrain.loader.partition.table import Table
from distrain.loader.partition.wanted_columns import wanted_columns
from distrain.prep.vocabulary import WORKFLOW_FILE
from distrain.schema.files import find_schema_next_to, hint_without_schema
from distrain.schema.schema import Schema
from distrain.storage.inputs import list_inputs
from distrain.storage.urls import is_remote

CELL_BYTES = 4


class Dataset:
    """The row groups of a table, checked as far as footers show, and the columns to read.

    It is small, knows no open files, and can be pickled.

    Args:
        paths: Parquet files: paths, folders, globs or URLs, one or many.
        schema: Says what the columns are; or a file or folder to load it from; `None` looks beside
            the files and in the folder above, where `distrain prep` writes it.
        part_size: Row groups of a file are kept together up to this size in memory (bytes, or text
            like `"128MiB"`) when parts are shuffled; `None` makes each row group a part.
        hive: Whether folders named `key=value` give columns.
        need_label: Whether to read targets and the weight.
        fill_null_id: What a null in a categorical column becomes; `None` refuses nulls.
        fill_null_value: What a null in a continuous column becomes; `None` refuses nulls.
        row_filter: Which rows are loaded, such as `"country == 'de' and age > 18"`; `None` for all.
        windows: Cuts the rows into windows, which are loaded strictly one after another.
        workflow: The folder of a fitted workflow, which prepares raw rows as they are read; the
            schema lies beside it. `None` for prepared rows.

    Arguments that the signature does not name are fields of `RowsSpec`, which a job spec has in its
    section `data`.

    Attributes:
        table: The row groups, and the table's fingerprint.
        columns: The columns that batches hold, in order.
        part_rows: The most rows of a part; `None` if each row group is a part.
        parts: The row groups of each part, by their numbers in the table.
        slices: What is read at a time: row groups, or slices of large ones.
        windows: The dataset of each window, in their order; only itself where there are none.

    Raises:
        DataError: Footers show that the files cannot be used; see `read_footers`.
        SpecError: The filter cannot be used.
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
        beside = patterns if rows.workflow is None else [f"{rows.workflow}/{WORKFLOW_FILE}"]
        found = schema if isinstance(schema, Schema) else _load_schema(beside, schema)
        raw_columns = columns_of_raw(rows.workflow)
        table = read_footers(
            patterns,
            found,
            need_label=need_label,
            hive=rows.hive,
            fill_null_id=rows.fill_null_id,
            fill_null_value=rows.fill_null_value,
            row_filter=rows.filter,
            windows=rows.windows,
            raw_columns=raw_columns,
        )
        self._set(table, found, rows, need_label=need_label)

    @classmethod
    def of(
        cls,
        table: Table,
        schema: Schema,
        rows: RowsSpec | None = None,
        *,
        need_label: bool = True,
    ) -> Dataset:
        """Return a dataset over footers that were read before, with the same schema and options."""
        dataset = cls.__new__(cls)
        dataset._set(table, schema, rows or RowsSpec(), need_label=need_label)
        return dataset

    def _set(self, table: Table, schema: Schema, rows: RowsSpec, *, need_label: bool) -> None:
        self.table = table
        self.schema = schema
        self.workflow = rows.workflow
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
        return CELL_BYTES * sum(not column.is_list for column in self.columns)


def columns_of_raw(workflow: str | None) -> Callable[[str], list[str]] | None:
    """What `read_footers` asks for the columns of a raw file; `None` where rows are prepared."""
    if workflow is None:
        return None
    from distrain.prep.transforming import raw_tables  # which few loaders need

    raw = raw_tables(workflow)
    raw.check_rows_alone()
    return raw.columns_in


def _load_schema(patterns: Sequence[str], given: str | Path | None) -> Schema:
    if given is not None:
        if is_remote(given):
            raise SchemaError(
                "schemas are read from local files only",
                where={"file": given},
                hint="Copy it here and name the copy.",
            )
        return Schema.load(given)
    first = list_inputs(patterns, suffixes=PARQUET_SUFFIXES)[0].path
    if is_remote(first):
        raise SchemaError(
            "there is no schema, and none is looked for beside files that are not local",
            where={"file": first},
            hint="Pass schema=..., a local file or a Schema.",
        )
    found = find_schema_next_to(first)
    if found is None:
        raise SchemaError(
            "found no schema beside the files",
            where={"file": first},
            hint=hint_without_schema(
                first,
                "Pass schema=..., or put the schema.pbtxt that `distrain prep` writes beside them.",
            ),
        )
    return Schema.load(found)
