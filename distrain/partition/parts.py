"""Parts: row groups of one file that stay together when row groups are permuted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from distrain.errors import SpecError
from distrain.partition.on_demand import OnDemand

if TYPE_CHECKING:
    from distrain.partition.table import RowGroup


class Parts(OnDemand[tuple[int, ...]]):
    """The row groups of each part, in 4 bytes a part.

    Args:
        bounds: The first row group of each part, and how many row groups there are.
    """

    def __init__(self, bounds: NDArray[np.int32]):
        self.bounds = bounds

    @classmethod
    def of(cls, parts: Sequence[Sequence[int]], num_groups: int) -> Parts:
        """Parts that somebody spelled.

        Raises:
            ValueError: They are not the row groups in their order.
        """
        if list(chain.from_iterable(parts)) != list(range(num_groups)):
            raise ValueError(f"parts do not hold the row groups 0..{num_groups - 1} in order")
        return cls(np.cumsum([0, *map(len, parts)], dtype=np.int32))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def _make(self, place: int) -> tuple[int, ...]:
        return tuple(range(int(self.bounds[place]), int(self.bounds[place + 1])))


def parts_of(row_groups: Sequence[RowGroup], part_rows: int | None = None) -> Parts:
    """Join neighbouring row groups of a file to parts of at most `part_rows` rows.

    Small row groups cost a reader more per row than large ones, and shuffling mixes the rows of
    small ones less. From the first row group on, each joins the part before it if both lie in the
    same file and the part has room; so a row group larger than `part_rows` is a part by itself.

    Args:
        row_groups: Those of a table, in file order.
        part_rows: The most rows of a part that has several row groups; `None` joins none.

    Returns:
        For each part its row groups, as places in `row_groups`: each place once, in order.

    Raises:
        SpecError: `part_rows` is less than 1.

    >>> from distrain.partition import RowGroup
    >>> parts_of([RowGroup("a", 0, 4), RowGroup("a", 1, 5), RowGroup("b", 0, 1)], part_rows=10)
    Parts(((0, 1), (2,)))
    """
    if part_rows is not None and part_rows < 1:
        raise SpecError(f"part_rows is {part_rows}, not 1 or more")
    if part_rows is None:
        return Parts(np.arange(len(row_groups) + 1, dtype=np.int32))
    begins = np.fromiter(_begins(row_groups, part_rows), np.int32)
    return Parts(np.append(begins, np.int32(len(row_groups))))


def _begins(row_groups: Sequence[RowGroup], part_rows: int) -> Iterator[int]:
    """The first row group of each part."""
    rows_of_part = 0
    file = None
    for place, group in enumerate(row_groups):
        rows_of_part += group.num_rows
        if group.file != file or rows_of_part > part_rows:
            yield place
            file, rows_of_part = group.file, group.num_rows
