"""Checks, before rows are read, that each file has the columns of the features document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from distrain.errors import DataError
from distrain.prep.features.config import FeatureConfig
from distrain.prep.features.file_format import PARQUET
from distrain.prep.features.joins import SideTable, side_tables
from distrain.prep.features.partitions import Values, partitions_of
from distrain.prep.features.table_file import AddedColumn, TableFile, look_at
from distrain.prep.workers import TaskRunner
from distrain.storage.inputs import InputFile

_LOOKED_AT_FIRST = 4


def check_tables(
    files: Sequence[InputFile], features: FeatureConfig, option: str = "--keep"
) -> None:
    """Raise a `DataError` if an input does not fit the features document.

    Reads the footers or first lines of the first 4 files, all side tables, and the names of all
    files' folders. `option` is the command's option for columns to keep, for the error.
    """
    looks = _looks(files, features, side_tables(features.document.joins))
    for look in looks[:_LOOKED_AT_FIRST]:
        _checked_look(*look, option)


def looked_at(
    files: Sequence[InputFile],
    features: FeatureConfig,
    sides: Sequence[SideTable],
    runner: TaskRunner,
) -> list[TableFile]:
    """Inspect all files on workers, and return their formats and columns in the order of `files`.

    Raises a `DataError` if a file does not fit the features document. `sides` are the joined side
    tables.
    """
    return runner.run("look", _checked_look, _looks(files, features, sides))


def table_file_of(path: str, features: FeatureConfig) -> TableFile:
    """Return the format and the columns of one file.

    Raises a `DataError` if it does not fit the document.
    """
    sides = side_tables(features.document.joins)
    return _checked_look(*_looks([InputFile(path, 0)], features, sides)[0])


def rows_in_memory(
    name: str, types: Mapping[str, pa.DataType], features: FeatureConfig
) -> TableFile:
    """Return a `TableFile` that describes rows in memory, for code that checks files.

    `name` is the name of the rows in errors; `types` are the types of their columns. Raises a
    `DataError` if they do not fit the features document.
    """
    sides = side_tables(features.document.joins)
    joined = {name: added for side in sides for name, added in side.columns.items()}
    file = TableFile(name, PARQUET, None, dict(types), "", joined=joined)
    file.check(features)
    return file


_Look = tuple[str, int, FeatureConfig, Values, dict[str, AddedColumn]]


def _looks(
    files: Sequence[InputFile], features: FeatureConfig, sides: Sequence[SideTable]
) -> list[_Look]:
    joined = {name: column for side in sides for name, column in side.columns.items()}
    folders = partitions_of([file.path for file in files], features.document.partitions)
    return [
        (file.path, file.size_bytes, features, values, joined)
        for file, values in zip(files, folders, strict=True)
    ]


def _checked_look(
    path: str,
    size_bytes: int,
    features: FeatureConfig,
    folders: Values,
    joined: dict[str, AddedColumn],
    option: str = "--keep",
) -> TableFile:
    target = features.document.target.column if features.unlabeled else None
    file = look_at(path, size_bytes, features.document.format, target)
    file = replace(file, folders=folders, joined=joined)
    file.check(features, option)
    return file


def same_in_all(files: Sequence[tuple[str, dict[str, str]]], hint: str) -> dict[str, str]:
    """Return the description of each column, such as `int64` or `lists`, that all files agree on.

    `files` has the path and the descriptions (by column) of each file; a file need not have all
    columns. Raises a `DataError` with `hint` if two files differ.
    """
    first: dict[str, tuple[str, str]] = {}
    for path, columns in files:
        for column, content in columns.items():
            known_path, known = first.setdefault(column, (path, content))
            if known != content:
                raise DataError(
                    f"the column contains {content} here and {known} in an earlier file",
                    where={"column": column, "file": path, "earlier file": known_path},
                    hint=hint,
                )
    return {column: content for column, (_, content) in first.items()}
