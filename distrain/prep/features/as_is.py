"""Checks tables that are used without a features document: columns are not converted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from distrain.errors import DataError, InputError
from distrain.formatting import join_names
from distrain.prep.features.config import FeatureConfig
from distrain.prep.lists import holds_lists
from distrain.prep.raw_lines import RAW_COLUMNS
from distrain.schema.criteo import LABEL

_SHOWN_COLUMNS = 12


def check_text(path: str, features: FeatureConfig) -> None:
    """Raise an error if raw Criteo lines lack columns that are needed.

    It is a `DataError` for columns of the workflow or its history, and an `InputError` for columns
    to keep.
    """
    unknown = [name for name in features.document.columns if name not in RAW_COLUMNS]
    if unknown:
        raise DataError(
            f"raw Criteo lines have no columns {', '.join(unknown)}",
            where={"file": path},
            hint="A workflow with other columns needs parquet inputs.",
        )
    if features.document.history is not None:
        raise DataError(
            "raw Criteo lines have no histories",
            where={"file": path},
            hint="They have no users and times; a workflow with a history needs parquet.",
        )
    if features.keep:
        raise InputError(
            f"raw Criteo lines have no columns to keep: {', '.join(features.keep)}",
            where={"file": path},
            hint="With --unlabeled, each row's number is written as row_number.",
        )


def check_types(path: str, types: Mapping[str, pa.DataType], features: FeatureConfig) -> None:
    """Raise a `DataError` if parquet columns are missing or unusable.

    The error lists all of them. If most columns are missing, it lists only some of the missing
    ones, and says that the file is not the table of the workflow. `types` has the type of each
    column of the file.
    """
    wanted = {} if features.unlabeled else {LABEL: LABEL}
    columns = {name: column.kind for name, column in features.document.columns.items()}
    history = features.document.history
    for name in (*features.keep, *((history.by, history.order) if history else ()), *columns):
        wanted.setdefault(name, columns.get(name, "kept"))
    problem_of = {name: _mistake(types, name, kind) for name, kind in wanted.items()}
    mistakes = {name: mistake for name, mistake in problem_of.items() if mistake is not None}
    if not mistakes:
        return
    missing = [name for name, mistake in mistakes.items() if mistake == "missing"]
    if len(missing) > len(wanted) // 2:
        raise _another_table(path, list(types), missing, len(wanted))
    raise DataError(
        f"{len(mistakes)} of {len(wanted)} columns cannot be used",
        where={"file": path, **{f"column {name}": problem for name, problem in mistakes.items()}},
        hint="Rename or convert the columns, or leave the file out.",
    )


def _another_table(
    path: str, held: Sequence[str], missing: Sequence[str], num_wanted: int
) -> DataError:
    return DataError(
        f"not the table of the workflow: {len(missing)} of its {num_wanted} columns are missing",
        where={
            "file": path,
            "columns here": join_names(held, _SHOWN_COLUMNS),
            "columns missing": join_names(missing, _SHOWN_COLUMNS),
        },
        hint="`distrain prep` expects Criteo's columns by default. For another table describe its "
        "columns with --config, as docs/any-table.md shows, or write a Workflow in Python. A table "
        "that already holds ids and finite numbers needs only a schema.",
    )


def _mistake(types: Mapping[str, pa.DataType], column: str, kind: str) -> str | None:
    """Return why a column cannot be used; `None` if it can.

    `kind` is `categorical`, `continuous`, `label`, or `kept` for columns of any type.
    """
    if column not in types:
        return "missing"
    if kind == "kept":
        return None
    dtype, is_label = types[column], kind == LABEL
    if holds_lists(dtype) and not is_label:
        dtype = dtype.value_type
    if pa.types.is_dictionary(dtype):
        dtype = dtype.value_type
    is_integer = pa.types.is_integer(dtype)
    if pa.types.is_null(dtype) and not is_label:
        return None
    if kind == "categorical":
        text = pa.types.is_string(dtype) or pa.types.is_large_string(dtype)
        return None if is_integer or text else f"{dtype}, not integer or string"
    if is_integer or pa.types.is_floating(dtype):
        return None
    if is_label and pa.types.is_boolean(dtype):
        return None
    return f"{dtype}, not a number"
