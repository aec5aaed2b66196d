"""The interface of readers of row groups, and their common errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from distrain.errors import DataError, Unavailable
from distrain.loader.partition.table import RowGroup
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.storage.os_errors import reading_hint
from distrain.storage.retrying import is_transient


@dataclass(frozen=True)
class DecodedColumns:
    """Some columns of a row group, without nulls, in the order of `WantedColumn`.

    On the host, cells are arrays, `[rows]`, of any int, float or bool dtype, C-contiguous. They may
    be unaligned and may be in a reused buffer: they are valid until the same thread reads the next
    row group. Lists are `pa.ListArray`. For a reader on a GPU, both are tensors there (see
    `cudf_reader`).
    """

    cells: tuple[Any, ...]  # the flat columns
    lists: tuple[Any, ...] = ()  # the list columns, after the flat ones
    bytes_read: int = 0

    @property
    def num_columns(self) -> int:
        return len(self.cells) + len(self.lists)


class Expected:
    """The row groups that a reader expects; this implementation ignores them."""

    def passed(self, count: int) -> None:
        """Note that the first `count` row groups have been loaded, or are not needed."""

    def close(self) -> None:
        """Note that no more row groups will be requested."""


class Reader(Protocol):
    """Reads row groups, or slices of large ones, from any thread."""

    def read(self, group: RowGroup, columns: Sequence[WantedColumn]) -> Iterator[DecodedColumns]:
        """Yield columns of the selected rows of a row group: flat ones first, some at a time.

        A part stays valid until the next one is requested. A decoding reader yields few columns at
        a time, so that they are still in the CPU cache when they are used. `columns` are the last
        of those that the reader was created for, in the same order.

        Raises:
            DataError: The row group cannot be read, or is not the planned one; the error names
                file, row group and, where it can, the column.
            Unavailable: The storage does not answer; another call opens the file again.
        """
        ...

    def expect(
        self, groups: Iterator[RowGroup | None], is_held: Callable[[RowGroup], bool] | None = None
    ) -> Expected:
        """Note the row groups that will be requested, in this order.

        `None` is a row group that another source provides. The iterator may be advanced in any
        thread, one at a time, and must not block. `is_held` returns True if a row group comes from
        elsewhere; it may take long, and is called in any thread, by several at a time. A
        prefetching reader holds its data until the row group is requested or passed.
        """
        return Expected()

    def close(self) -> None:
        """Release all files and buffers; no thread may be reading. The reader may be used again."""
        ...


def unreadable(
    group: RowGroup, error: Exception, reason: str, hint: str, **more: object
) -> DataError | Unavailable:
    """Return the error for an unreadable row group: `Unavailable` if a retry may help."""
    message = f"could not read a row group: {reason}"
    if is_transient(error):
        return Unavailable(message, where=group.where)
    return DataError(message, where=group.where | more, hint=reading_hint(error, hint))


def another_version(where: Mapping[str, object]) -> DataError:
    return DataError(
        "the file was replaced or written to since it was first read",
        where=where,
        hint="Start again; a run must not mix two versions of a file.",
    )
