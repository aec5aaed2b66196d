"""Finds the columns of a file that this package can decode, and the types of their values."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distrain.loader.parquet_pages.footer import IS_BUILT

NARROW_TYPES: tuple[np.dtype[Any], ...] = (np.dtype("|u1"), np.dtype("<u2"))
"""NumPy's types for ids of fewer than 4 bytes, the narrowest first."""


def narrow_type(id_limit: int) -> np.dtype[Any] | None:
    """Return the first of `NARROW_TYPES` that holds all ids below `id_limit`; `None` if none does.

    >>> narrow_type(256), narrow_type(257), narrow_type(65_537)
    (dtype('uint8'), dtype('uint16'), None)
    """
    return next((kind for kind in NARROW_TYPES if id_limit <= 1 << 8 * kind.itemsize), None)


BUILT = IS_BUILT and sys.byteorder == "little"

_IN_FILE: dict[str, np.dtype[Any]] = {
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FLOAT": np.dtype(np.float32),
    "DOUBLE": np.dtype(np.float64),
}
_LOGICAL: dict[tuple[str, pa.DataType], np.dtype[Any]] = {
    ("INT32", pa.int32()): np.dtype(np.int32),
    ("INT32", pa.date32()): np.dtype(np.int32),
    ("INT32", pa.uint32()): np.dtype(np.uint32),
    ("INT32", pa.int16()): np.dtype(np.int16),
    ("INT32", pa.uint16()): np.dtype(np.uint16),
    ("INT32", pa.int8()): np.dtype(np.int8),
    ("INT32", pa.uint8()): np.dtype(np.uint8),
    ("INT64", pa.int64()): np.dtype(np.int64),
    ("FLOAT", pa.float32()): np.dtype(np.float32),
    ("DOUBLE", pa.float64()): np.dtype(np.float64),
}
"""The NumPy type of a column's values, by its physical type in the file and its Arrow type.

Only types are included whose values in Arrow are those in the file, or their lowest bits.
"""


class Leaf(NamedTuple):
    name: str
    number: int  # of the leaf column in the file
    physical: str  # the file's type, as named by parquet, such as `INT32`
    dtype: np.dtype[Any]  # NumPy's type for `physical`
    logical: np.dtype[Any]  # NumPy's type for Arrow's type
    optional: bool  # whether it may hold nulls
    fill: float | int | None  # the replacement of nulls; `None` leaves columns with nulls to Arrow
    # the types for the values, by rising width; the first one that holds all values is used. The
    # last one is the type in the file.
    dtypes: tuple[np.dtype[Any], ...]

    def fill_bytes(self, dtype: np.dtype[Any]) -> bytes:
        """Return the value that replaces nulls, as the bytes of one value of type `dtype`.

        Returns b"" if this package does not replace nulls of the column: `fill` is `None` or does
        not fit `dtype`, or Arrow's type is not the file's.
        """
        if self.fill is None or self.logical != self.dtype:
            return b""
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            if self.fill % 1 or not limits.min <= self.fill <= limits.max:
                return b""
        return np.array(self.fill, dtype).tobytes()

    def as_logical(self, values: NDArray[Any]) -> NDArray[Any]:
        """Convert values from the file's type to NumPy's type for the column's Arrow type."""
        return values if self.logical == self.dtype else values.astype(self.logical)


def is_enabled() -> bool:
    """Return True if this package decodes pages.

    The C code is built, the machine is little-endian, and `DISTRAIN_PAGES` is not 0.
    """
    return BUILT and os.environ.get("DISTRAIN_PAGES") != "0"


class PageColumns(NamedTuple):
    leaves: Mapping[str, Leaf]  # the columns that this package can decode, by name
    num_columns: int  # number of all leaf columns of the file


def page_columns(
    parquet: pq.ParquetFile,
    names: Iterable[str],
    fills: Mapping[str, float | int | None] | None = None,
    id_limits: Mapping[str, int] | None = None,
) -> PageColumns:
    """Return the columns, among `names`, that this package can decode.

    There are none if it is disabled (see `is_enabled`).

    Args:
        parquet: The file, open in Arrow.
        names: The columns to consider.
        fills: The replacement of nulls by column; other columns with nulls are left to Arrow.
        id_limits: Exclusive upper bounds of integer columns, such as the sizes of vocabularies.
            These columns are decoded to uint8 or uint16 if their values fit.
    """
    count = parquet.metadata.num_columns
    if not is_enabled():
        return PageColumns({}, count)
    fills, id_limits, wanted = fills or {}, id_limits or {}, set(names)
    types = {field.name: field.type for field in parquet.schema_arrow}
    leaves: dict[str, Leaf] = {}
    seen = set()
    for number in range(count):
        leaf = parquet.schema.column(number)
        name = leaf.path
        if name not in wanted:
            continue
        logical = _LOGICAL.get((leaf.physical_type, types.get(name)))
        is_flat = leaf.max_repetition_level == 0 and leaf.max_definition_level <= 1
        if name in seen:  # two columns of one name are left to Arrow
            leaves.pop(name, None)
        elif is_flat and logical is not None:
            dtype = _IN_FILE[leaf.physical_type]
            leaves[name] = Leaf(
                name,
                number,
                leaf.physical_type,
                dtype,
                logical,
                leaf.max_definition_level == 1,
                fills.get(name),
                _types_to_try(dtype, logical, id_limits.get(name)),
            )
        seen.add(name)
    return PageColumns(leaves, count)


def _types_to_try(
    dtype: np.dtype[Any], logical: np.dtype[Any], id_limit: int | None
) -> tuple[np.dtype[Any], ...]:
    """Return the types to try for values of type `dtype` in the file, the narrowest first.

    A type narrower than int32 is tried only for integers, if it holds all ids below `id_limit`.
    """
    narrow = None
    if id_limit is not None and dtype.kind == "i" and logical == dtype:
        narrow = narrow_type(id_limit)
    narrowest = [] if narrow is None else [narrow]
    return (*narrowest, *([_IN_FILE["INT32"]] if dtype == np.int64 else []), dtype)
