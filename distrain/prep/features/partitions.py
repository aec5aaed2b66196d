"""Hive partitions: columns whose values are in the names of folders, such as `day=2024-05-01/`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from distrain.errors import DataError
from distrain.schema.folders import NULL_FOLDER, folder_values

_WHOLE = re.compile(r"-?[0-9]+")
_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)

_Type = Literal["text", "integer"]

Values = Mapping[str, Any]
"""The values in the names of one file's folders: a `pyarrow.Scalar` for each column."""


def partitions_of(paths: Sequence[str], types: Mapping[str, _Type]) -> list[Values]:
    """Return, for each file, the values in its folders' names (`key=value`), by key.

    A key's values have one type in all files: int64 if all fit into int32 and none has a leading
    zero, otherwise string. A null folder gives a null. `types` overrides the type by key, with
    `integer` (of 64 bits) or `text`.

    Raises:
        DataError: A value of a key with the type `integer` is not an integer of 64 bits.
    """
    texts = [_texts_of(path) for path in paths]
    held = _held(texts)
    whole = {name for name, kind in _types(held, types).items() if kind == "integer"}
    for name in sorted(whole & set(types)):
        bad = sorted(value for value in held[name] if not _are_whole({value}, _INT64))
        if bad:
            raise DataError(
                f"the folder {name}={bad[0]} is not an integer",
                where={"file": paths[[values.get(name) for values in texts].index(bad[0])]},
                hint=f"Leave partitions.{name} out of the features document, or set it to text.",
            )
    return [
        {
            name: pa.scalar(int(value), pa.int64())
            if name in whole and value is not None
            else pa.scalar(value, pa.int64() if name in whole else pa.string())
            for name, value in values.items()
        }
        for values in texts
    ]


def types_of_partitions(paths: Sequence[str], types: Mapping[str, _Type]) -> dict[str, _Type]:
    """Return the type of each key of the files' folders, as `partitions_of` chooses it."""
    return _types(_held([_texts_of(path) for path in paths]), types)


def _texts_of(path: str) -> dict[str, str | None]:
    return {name: None if value == NULL_FOLDER else value for name, value in folder_values(path)}


def _held(texts: Sequence[Mapping[str, str | None]]) -> dict[str, set[str]]:
    held: dict[str, set[str]] = {}
    for values in texts:
        for name, value in values.items():
            held.setdefault(name, set()).update([] if value is None else [value])
    return held


def _types(held: Mapping[str, set[str]], types: Mapping[str, _Type]) -> dict[str, _Type]:
    return {
        name: types.get(name)
        or ("integer" if _are_whole(values, _INT32) and not _have_zeros(values) else "text")
        for name, values in held.items()
    }


def _have_zeros(values: set[str]) -> bool:
    """Return True if a value has a leading zero: as integers, 01 and 1 would be one value."""
    return any(str(int(value)) != value for value in values)


def _are_whole(values: set[str], bounds: range) -> bool:
    if not values:
        return False
    return all(_WHOLE.fullmatch(value) and int(value) in bounds for value in values)


def with_partitions(table: pa.Table, values: Values) -> pa.Table:
    """Return the table with a constant column for each of `values` whose name it lacks."""
    for name, value in values.items():
        if name not in table.column_names:
            table = table.append_column(name, pa.repeat(value, table.num_rows))
    return table
