"""Converts rows in any form to columns, with NumPy alone.

`distrain export --with-workflow` writes a copy of this file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from distrain.prep.raw_values import is_missing

_NARROW = re.compile(r"float(?!64)", re.I)
"""Matches the dtype of floats of at most 32 bits, or of lists of these, in a DataFrame."""


class BadValue(ValueError):
    """A value that cannot be scored. The message names its column and row."""

    def __init__(self, column: str, row: int | None, problem: str):
        at = "" if row is None else f", row {row}"
        super().__init__(f"column {column!r}{at}: {problem}")
        self.column, self.row = column, row


def columns_of(rows: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return the columns `names` of `rows`, each an array, or a list or tuple of Python values.

    `rows` is a DataFrame, an Arrow table, a mapping from names to columns, or an iterable of
    mappings, one for each row. Raises `BadValue` if a column is missing, given twice or a single
    value, or a row is not a mapping, and `ValueError` if columns have different numbers of rows.
    """
    names_held = getattr(rows, "column_names", getattr(rows, "columns", None))
    if isinstance(rows, Mapping):
        names_held = rows.keys()
    if names_held is not None:
        present = list(names_held)
        for problem, those in (
            ("not given", [name for name in names if name not in present]),
            ("given twice", [name for name in names if present.count(name) > 1]),
        ):
            if those:
                others = f", and {len(those) - 1} more" if those[1:] else ""
                raise BadValue(those[0], None, problem + others)
        found: dict[str, Any] = {name: listed(name, rows[name]) for name in names}
        sizes = {len(values) for values in found.values()}
        if len(sizes) > 1:
            raise ValueError(f"the columns have different numbers of rows: {sorted(sizes)}")
        return found
    return _transposed(rows if isinstance(rows, list) else list(rows), names)


def _transposed(rows: list[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """Return the columns of a list of rows.

    The list is read row by row, since the values of a row are close to each other in memory. Raises
    `BadValue` if an item is not a mapping, or lacks a column.
    """
    try:
        values = map(itemgetter(*names), rows)
        columns = zip(*values, strict=True) if names[1:] else [tuple(values)]
        return dict(zip(names, columns, strict=True))
    except (IndexError, KeyError, TypeError, ValueError):
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise BadValue(names[0], number, f"{type(row).__name__} is not a row") from None
            for name in names:
                if name not in row:
                    problem = "not given; use null for a missing value"
                    raise BadValue(name, number, problem) from None
        return dict.fromkeys(names, ())


def listed(column: str, values: Any) -> Any:
    """Return a column's values as a list, or as an array if a list would change their type.

    Raises `BadValue` if `values` is a single value.
    """
    if isinstance(values, np.ndarray):
        is_exact = values.dtype.kind in "OUiub" or values.dtype == np.float64
        return values.tolist() if is_exact else values
    if is_single(values):
        problem = f"{values!r} is not a list of values; one row is [{{column: value}}]"
        raise BadValue(column, None, problem)
    kept = getattr(values, "to_list", getattr(values, "to_pylist", values.__iter__))()
    dtype = getattr(values, "dtype", getattr(values, "type", None))
    return _narrow(kept) if _NARROW.search(str(dtype)) else list(kept)


def _narrow(values: Any) -> Any:
    """Return numbers of at most 32 bits, or lists of them, as float32, with NaN for missing ones.

    As texts, float32 numbers have fewer digits than the same numbers in float64.
    """
    if any(hasattr(value, "__len__") for value in values):
        return [None if is_missing(value) else _narrow(value) for value in values]
    return np.array([np.nan if is_missing(value) else value for value in values], np.float32)


def is_single(value: Any) -> bool:
    """Return True if the value is a single value: a text, bytes, a mapping, or without length."""
    return isinstance(value, str | bytes | Mapping) or not hasattr(value, "__len__")
