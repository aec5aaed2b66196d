"""What the loader asks of whoever reads its row groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from numpy.typing import NDArray

from distrain.partition import RowGroup


@dataclass(frozen=True)
class Decoded:
    """A row group's wanted columns in host memory, in the order of `Wanted`.

    Attributes:
        cells: One array per flat column, `[rows]`, of any int, float or bool dtype, without nulls,
            C-contiguous. They may be unaligned and may lie in a buffer that the reader uses again:
            they hold until the same thread reads the next row group.
        lists: One `pa.ListArray` per list column, after the flat ones, without nulls at any level.
        bytes_read: Compressed bytes of the columns read.
    """

    cells: tuple[NDArray[Any], ...]
    lists: tuple[pa.Array, ...] = ()
    bytes_read: int = 0


def joined(parts: Iterable[Decoded]) -> Decoded:
    """A row group's columns from its parts, if they all hold at once."""
    kept = tuple(parts)
    return Decoded(
        tuple(column for part in kept for column in part.cells),
        tuple(column for part in kept for column in part.lists),
        sum(part.bytes_read for part in kept),
    )


class Reader(Protocol):
    """Reads row groups, the wanted columns only, from any thread.

    Attributes:
        name: How people call it: "arrow", "packed".
    """

    name: str

    def read(self, group: RowGroup) -> Decoded:
        """The wanted columns of a row group.

        Raises:
            DataError: The row group cannot be read, or is not what was planned with; it names file,
                row group and, where it can, the column.
        """
        ...

    def read_in_parts(self, group: RowGroup) -> Iterator[Decoded]:
        """The same, some columns at a time, in their order: flat ones first.

        A part holds until the next one is asked for. Who decodes gives few columns at a time, so
        that they are still in the processor's cache when they are used.
        """
        ...

    def close(self) -> None:
        """Let go of all files and buffers; no thread may be reading."""
        ...
