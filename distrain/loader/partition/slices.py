"""Cuts large row groups into slices, which are read one after another.

Other tools write row groups of 250,000 to 1,000,000 rows. If they were decoded whole, a rank would
have to keep that many rows for each lane, and the first batch would come late. So chunks consist of
slices instead of large row groups. How a row group is cut depends only on its number of rows.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from distrain.loader.partition.lazy_sequence import LazySequence
from distrain.loader.partition.table import RowGroup, RowGroups, Slice

LARGE_ROWS = 131_072
"""A row group with more rows is cut into slices of at most a quarter of this number.

All slices of a row group are equal, except the last.
"""


def slice_sizes(rows: NDArray[np.int64], large_rows: int = LARGE_ROWS) -> NDArray[np.int64]:
    """Return the rows of each row group's slices; all its rows if a row group is not large.

    >>> slice_sizes(np.array([131_072, 131_073, 1_000_000])).tolist()
    [131072, 26215, 32259]
    """
    most = max(1, large_rows // 4)
    counts = np.where(rows > large_rows, -(-rows // most), 1)
    return -(-rows // np.maximum(counts, 1))


class Slices(LazySequence[RowGroup]):
    """The slices of all row groups, stored in 24 bytes each; a small row group is one slice.

    Attributes:
        firsts: `[row groups + 1]`: each row group's first slice, then the number of slices.
        rows: The selected rows of each slice, `[slices]`.
        sizes: The rows of each row group's first slice, which is its largest, `[row groups]`.
    """

    def __init__(self, groups: RowGroups, large_rows: int = LARGE_ROWS):
        self._groups = groups
        self.rows = self.sizes = groups.rows
        self.firsts = np.arange(len(groups) + 1, dtype=np.int32)
        self._group_of = self.firsts[:-1]
        if not (groups.rows > large_rows).any():
            return
        self.sizes = slice_sizes(groups.rows, large_rows)
        counts = -(-groups.rows // np.maximum(self.sizes, 1))
        self.firsts = np.cumsum(np.append(0, counts), dtype=np.int32)
        self._group_of = np.repeat(np.arange(len(groups), dtype=np.int32), counts)
        numbers = np.arange(len(self._group_of)) - self.firsts[self._group_of]
        sizes = self.sizes[self._group_of]
        self.rows = np.minimum(sizes, groups.rows[self._group_of] - numbers * sizes)

    @property
    def any_large(self) -> bool:
        return len(self) > len(self._groups)

    @cached_property
    def most_read(self) -> int:
        """The maximum number of rows read at a time, including rows that are not selected."""
        most = int(self.rows.max())
        for group, selection in self._groups.selections.items():
            first, end = self.firsts[group : group + 2].tolist()
            if end - first == 1:
                most = max(most, selection.group_rows)
            else:
                spans = self[first].spans
                most = max(most, int((spans[:, 1] - spans[:, 0]).max()))
        return most

    def __len__(self) -> int:
        return len(self._group_of)

    def _make(self, place: int) -> RowGroup:
        number = int(self._group_of[place])
        group = self._groups[number]
        size = int(self.sizes[number])
        if size == group.num_rows:
            return group
        cut = Slice(place - int(self.firsts[number]), size, group.num_rows)
        return replace(group, num_rows=int(self.rows[place]), slice=cut)
