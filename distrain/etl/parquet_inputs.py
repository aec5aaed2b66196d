"""Parquet inputs: what their footers say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from distrain.errors import DataError
from distrain.etl.lists import holds_lists
from distrain.etl.operators.categorify import category_type
from distrain.etl.parts import Part, readable_parquet
from distrain.schema import LABEL


@dataclass(frozen=True)
class InspectedFile:
    """A parquet input that can be used.

    Attributes:
        path: The file.
        parts: Its row groups, small neighbours together.
        category_types: `int64` or `string`, by categorical column; of lists, what their items are.
        holds_lists: Of each column whether a row holds a list.
    """

    path: str
    parts: tuple[Part, ...]
    category_types: dict[str, str]
    holds_lists: dict[str, bool]


def inspect_parquet(
    path: str, columns: Sequence[str], categorical: Sequence[str], part_rows: int
) -> InspectedFile:
    """Check one file's columns and types and cut it into parts of about `part_rows` rows.

    Raises:
        DataError: The file is damaged, or columns are missing or of an unusable type; all are
            named at once.
    """
    with readable_parquet(path) as file:
        schema = file.schema_arrow
        rows = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
    mistakes = {}
    types: dict[str, str] = {}
    for column in (LABEL, *columns):
        mistake = _mistake(schema, column, column in categorical)
        if mistake:
            mistakes[column] = mistake
        elif column in categorical:
            types[column] = category_type(_of_item(schema.field(column).type))
    if mistakes:
        raise _unusable(path, schema.names, mistakes, len(columns) + 1)
    lists = {column: holds_lists(schema.field(column).type) for column in columns}
    return InspectedFile(path, tuple(_parts(path, rows, part_rows)), types, lists)


def check_category_types(files: Sequence[tuple[str, dict[str, str]]]) -> dict[str, str]:
    """The type of each categorical column, the same in all files.

    Args:
        files: Path and category types, as in `InspectedFile`.

    Raises:
        DataError: A column holds integers in one file and strings in another.
    """
    first: dict[str, tuple[str, str]] = {}
    for path, types in files:
        for column, found in types.items():
            known_path, known = first.setdefault(column, (path, found))
            if known != found:
                raise DataError(
                    f"the column holds {found} here and {known} in an earlier file",
                    where={"column": column, "file": path, "earlier file": known_path},
                    hint="Raw Criteo text counts as int64; prepare such files separately.",
                )
    return {column: found for column, (_, found) in first.items()}


def check_same_shape(files: Sequence[tuple[str, dict[str, bool]]]) -> None:
    """Check that a column holds lists in all files or in none.

    Args:
        files: Path and `holds_lists`, as in `InspectedFile`.

    Raises:
        DataError: One holds lists in some files.
    """
    first: dict[str, tuple[str, bool]] = {}
    words = {True: "lists", False: "single values"}
    for path, shapes in files:
        for column, found in shapes.items():
            known_path, known = first.setdefault(column, (path, found))
            if known != found:
                raise DataError(
                    f"the column holds {words[found]} here and {words[known]} in an earlier file",
                    where={"column": column, "file": path, "earlier file": known_path},
                    hint="Write the files anew with one of the two.",
                )


def _unusable(
    path: str, held: Sequence[str], mistakes: Mapping[str, str], num_wanted: int
) -> DataError:
    """Of a table of another kind it tells what the table is, not what each column lacks."""
    missing = [column for column, mistake in mistakes.items() if mistake == "missing"]
    if len(missing) <= num_wanted // 2:
        return DataError(
            f"{len(mistakes)} of {num_wanted} columns cannot be used",
            where={"file": path, **{f"column {c}": m for c, m in mistakes.items()}},
            hint="Rename or convert the columns, or leave the file out.",
        )
    return DataError(
        f"another table than the workflow is for: {len(missing)} of its {num_wanted} columns are "
        "missing",
        where={"file": path, "columns here": _some(held), "columns missing": _some(missing)},
        hint="`distrain prep` fits the columns of Criteo's logs. For a table of your own write a "
        "Workflow in Python and call distrain.etl.prepare, as docs/data.md shows; what holds ids "
        "and finite numbers already needs a schema only, and trains as it is.",
    )


def _some(names: Sequence[str], most: int = 12) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _mistake(schema: pa.Schema, column: str, is_categorical: bool) -> str | None:
    if column not in schema.names:
        return "missing"
    dtype = schema.field(column).type
    if column != LABEL:
        dtype = _of_item(dtype)
    dtype = _decoded(dtype)
    is_integer = pa.types.is_integer(dtype)
    if is_categorical:
        text = pa.types.is_string(dtype) or pa.types.is_large_string(dtype)
        return None if is_integer or text else f"{dtype}, not integer or string"
    if is_integer or pa.types.is_floating(dtype):
        return None
    if column == LABEL and pa.types.is_boolean(dtype):
        return None
    return f"{dtype}, not a number"


def _of_item(dtype: pa.DataType) -> pa.DataType:
    return dtype.value_type if holds_lists(dtype) else dtype


def _decoded(dtype: pa.DataType) -> pa.DataType:
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def _parts(path: str, rows: Sequence[int], part_rows: int) -> list[Part]:
    parts: list[Part] = []
    groups: list[int] = []
    first_row = num_rows = 0
    for group, group_rows in enumerate(rows):
        if groups and num_rows + group_rows > part_rows:
            parts.append(Part(path, tuple(groups), num_rows, path, first_row=first_row))
            first_row, num_rows, groups = first_row + num_rows, 0, []
        groups.append(group)
        num_rows += group_rows
    if num_rows:
        parts.append(Part(path, tuple(groups), num_rows, path, first_row=first_row))
    return parts
