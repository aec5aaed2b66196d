"""Columns of files that may be decoded here, and the types of their values."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distrain.loader.narrow_ids import narrow_type
from distrain.loader.parquet_pages.footer import IS_BUILT

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
"""NumPy's types of values by the physical type in the file and Arrow's type.

Arrow's values have the same bits as those in the file, or the lowest of them.
"""


class Leaf(NamedTuple):
    name: str
    number: int
    physical: str
    dtype: np.dtype[Any]
    logical: np.dtype[Any]
    optional: bool  # whether it may hold nulls
    fill: float | int | None  # the replacement of nulls; `None` leaves them to Arrow
    # the types of its values, by rising width. The first one that holds the values is used; the
    # last one is that of the file.
    dtypes: tuple[np.dtype[Any], ...]

    def fill_bytes(self, dtype: np.dtype[Any]) -> bytes:
        """Return the bytes of the replacement of nulls in a type; none if it does not fit."""
        if self.fill is None or self.logical != self.dtype:
            return b""
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            if self.fill % 1 or not limits.min <= self.fill <= limits.max:
                return b""
        return np.array(self.fill, dtype).tobytes()

    def as_logical(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values of the file in Arrow's type, which may have fewer bits."""
        return values if self.logical == self.dtype else values.astype(self.logical)


def is_enabled() -> bool:
    """Return True if pages are decoded here: the C code is built, and `DISTRAIN_PAGES` is not 0."""
    return BUILT and os.environ.get("DISTRAIN_PAGES") != "0"


class PageColumns(NamedTuple):
    leaves: Mapping[str, Leaf]  # by their names
    num_columns: int  # total number of columns of the files


def page_columns(
    parquet: pq.ParquetFile,
    names: Iterable[str],
    fills: Mapping[str, float | int | None] | None = None,
    id_limits: Mapping[str, int] | None = None,
) -> PageColumns:
    """Return the columns of a file, open in Arrow, that may be decoded here.

    `fills` has the replacements of nulls by column; nulls of others are left to Arrow. `id_limits`
    has exclusive upper bounds of integers, such as the sizes of vocabularies: these columns are
    returned as uint8 or uint16 if they fit.
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
    """Return the types to try for a type of the file, the narrowest first."""
    narrow = None
    if id_limit is not None and dtype.kind == "i" and logical == dtype:
        narrow = narrow_type(id_limit)
    narrowest = [] if narrow is None else [narrow]
    return (*narrowest, *([_IN_FILE["INT32"]] if dtype == np.int64 else []), dtype)
