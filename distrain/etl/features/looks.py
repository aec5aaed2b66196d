"""A look at each file before its rows are read: whether it is a table of the document."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from distrain.errors import DataError
from distrain.etl.features.config import FeatureConfig
from distrain.etl.features.joins import SideTable, side_tables
from distrain.etl.features.partitions import Values, partitions_of
from distrain.etl.features.table_file import PARQUET, AddedColumn, TableFile, look_at
from distrain.etl.features.values import holds_text
from distrain.etl.lists import holds_lists
from distrain.etl.workers import TaskRunner
from distrain.storage import InputFile
from distrain.vocabulary import is_text

_LOOKED_AT_FIRST = 4


def check_tables(
    files: Sequence[InputFile], features: FeatureConfig, option: str = "--keep"
) -> None:
    """Raise a `DataError` if one of the first files lacks columns; `option` names those to keep."""
    looks = _looks(files, features, side_tables(features.document.joins))
    for look in looks[:_LOOKED_AT_FIRST]:
        _checked_look(*look, option)


def looked_at(
    files: Sequence[InputFile],
    features: FeatureConfig,
    sides: Sequence[SideTable],
    runner: TaskRunner,
) -> list[TableFile]:
    """The files, each a table of the document; a `DataError` if one is none."""
    return runner.run("look", _checked_look, _looks(files, features, sides))


def table_file_of(path: str, features: FeatureConfig) -> TableFile:
    """One file, a table of the document; a `DataError` if it is none."""
    sides = side_tables(features.document.joins)
    return _checked_look(*_looks([InputFile(path, 0)], features, sides)[0])


def rows_in_memory(
    name: str, types: Mapping[str, pa.DataType], features: FeatureConfig, texts: Collection[str]
) -> TableFile:
    """Rows in memory as a file called `name`; a `DataError` if they are no table of the document.

    A column of texts is read as a text file's, as is one of numbers whose categories are `texts`.
    """
    document, layout = features.document, features.document.format
    joined = {n: added for side in side_tables(document.joins) for n, added in side.columns.items()}
    spelled = {
        column.source or n
        for n, column in document.columns.items()
        if n in texts or column.separator is not None
    }
    for column, dtype in {} if features.as_is else types.items():
        item = dtype.value_type if holds_lists(dtype) else dtype
        item = item.value_type if pa.types.is_dictionary(item) else item
        is_plain = pa.types.is_boolean(item) or pa.types.is_integer(item) or pa.types.is_null(item)
        is_plain = is_plain or pa.types.is_floating(item)
        if holds_text(item) or (column in spelled and is_plain):
            joined[column] = AddedColumn(dtype, layout)
    file = TableFile(name, PARQUET, None, dict(types), "", joined=joined)
    file.check(features)
    return file


def without_null_texts(table: pa.Table, null_values: Sequence[str]) -> pa.Table:
    """Rows whose texts that stand for a gap are gaps."""
    for place, column in enumerate(table.schema):
        if is_text(column.type):
            texts = table[column.name]
            gaps = pc.is_in(texts, value_set=pa.array(null_values, column.type))
            texts = pc.if_else(gaps, pa.scalar(None, column.type), texts)
            table = table.set_column(place, column.name, texts)
    return table


_Look = tuple[str, int, FeatureConfig, Values, dict[str, AddedColumn]]


def _looks(
    files: Sequence[InputFile], features: FeatureConfig, sides: Sequence[SideTable]
) -> list[_Look]:
    joined = {name: column for side in sides for name, column in side.columns.items()}
    folders: list[Values] = [{}] * len(files)
    if not features.as_is:
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
    """What each column holds, which must be the same in all files."""
    first: dict[str, tuple[str, str]] = {}
    for path, columns in files:
        for column, found in columns.items():
            known_path, known = first.setdefault(column, (path, found))
            if known != found:
                raise DataError(
                    f"the column holds {found} here and {known} in an earlier file",
                    where={"column": column, "file": path, "earlier file": known_path},
                    hint=hint,
                )
    return {column: found for column, (_, found) in first.items()}
