"""`Reader`, the interface of classes that read row groups, and the errors that they share.

`READERS` has the readers by name, with the properties that the loader depends on.
"""

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
    """Some columns of a row group, without nulls, in the order of the reader's columns.

    On the host, cells are arrays, `[rows]`, of any int, float or bool dtype, C-contiguous. They may
    be unaligned, and may be in a reused buffer: use them before the next part is requested. Lists
    are `pa.ListArray`. A reader on a GPU returns tensors on that GPU, and no lists.
    """

    cells: tuple[Any, ...]  # the flat columns
    lists: tuple[Any, ...] = ()  # the list columns, after the flat ones
    bytes_read: int = 0  # compressed bytes in the file, or bytes of a cache entry

    @property
    def num_columns(self) -> int:
        return len(self.cells) + len(self.lists)


class Expected:
    """Row groups that were announced to a reader. This base class does nothing."""

    def passed(self, count: int) -> None:
        """Report that the first `count` row groups have been loaded, or are not needed."""

    def close(self) -> None:
        """Report that no more of these row groups will be requested."""


class Reader(Protocol):
    """Reads row groups, or slices of large ones, from any thread."""

    def read(self, group: RowGroup, columns: Sequence[WantedColumn]) -> Iterator[DecodedColumns]:
        """Yield columns of a row group's selected rows in parts: flat columns first, then lists.

        A part stays valid until the next one is requested. A decoding reader yields few columns at
        a time, so that they are still in the CPU cache when they are used. `columns` are the last
        ones of the columns that the reader was created for, in the same order.

        Raises:
            DataError: The row group cannot be read, or differs from the plan; the error names the
                file, the row group and, if known, the column.
            Unavailable: The storage does not answer; another call opens the file again.
        """
        ...

    def expect(
        self, groups: Iterator[RowGroup | None], is_held: Callable[[RowGroup], bool] | None = None
    ) -> Expected:
        """Announce the row groups that will be requested, in this order; readers may prefetch them.

        A prefetching reader keeps a row group's data until the row group is requested or passed.

        Args:
            groups: The row groups; `None` counts as one that need not be prefetched. The iterator
                must not block. It may be advanced in any thread, by one thread at a time.
            is_held: Returns True if a row group need not be prefetched, because another source,
                such as a cache, has it. It may take long, and is called by several threads.

        Returns:
            The object to report progress to; `close` it when no more are requested.
        """
        return Expected()

    def close(self) -> None:
        """Release all files and buffers; no thread may read meanwhile.

        The reader may be used again.
        """
        ...


def unreadable(
    group: RowGroup, error: Exception, reason: str, hint: str, **more: object
) -> DataError | Unavailable:
    """Return the error to raise for an unreadable row group: `Unavailable` if a retry may help.

    Otherwise, returns a `DataError` whose `where` also has `more`. Its hint is `hint`, unless there
    is a better one for `error` (see `reading_hint`).
    """
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


@dataclass(frozen=True)
class ReaderKind:
    on_gpu: bool = False  # whether it decodes on the batches' GPU and not on the host


READERS = {
    "arrow": ReaderKind(),
    # Not yet tested on a GPU: `auto` does not choose it.
    "cudf": ReaderKind(on_gpu=True),
}
ANY_TABLE = READERS["arrow"]
"""The reader that serves every table."""
