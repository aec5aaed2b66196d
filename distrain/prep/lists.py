"""List columns in Arrow: items and the offset of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Int64Array = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, eq=False)
class Lists:
    """A column of lists: the items of all rows, one row after the other."""

    items: pa.Array  # `[sum of the rows' lengths]`: row `i` has `items[offsets[i]:offsets[i + 1]]`
    offsets: Int64Array  # `[rows + 1]`, int64, from 0

    @classmethod
    def of(cls, values: pa.Array) -> Lists:
        """Return the lists of an Arrow list array; a null list becomes an empty list.

        >>> lists = Lists.of(pa.array([[7, None], None, [8]]))
        >>> lists.items.to_pylist(), lists.offsets.tolist()
        ([7, None, 8], [0, 2, 2, 3])
        """
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
        items = values.flatten()  # without items of missing lists
        if pa.types.is_dictionary(items.type):
            items = items.dictionary_decode()
        return cls(items, offsets_of(lengths))

    @property
    def lengths(self) -> Int64Array:
        return np.diff(self.offsets)

    def row_of(self, item: int) -> int:
        """Return the index of the row whose list has the item with index `item`."""
        return int(np.searchsorted(self.offsets, item, side="right")) - 1

    def to_arrow(self, *, nullable_items: bool = True) -> pa.Array:
        """Return an Arrow list array, whose type allows null items if `nullable_items` is set."""
        field = pa.field("item", self.items.type, nullable=nullable_items)
        offsets = pa.array(self.offsets.astype(np.int32))
        return pa.ListArray.from_arrays(offsets, self.items, type=pa.list_(field))


def holds_lists(dtype: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(dtype) or types.is_large_list(dtype) or types.is_fixed_size_list(dtype)
    )


def offsets_of(lengths: Int64Array) -> Int64Array:
    """Return the offsets, `[rows + 1]`, of lists with these lengths, `[rows]`."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
