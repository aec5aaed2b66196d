"""Row groups of packed files, as views of what was read."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distrain.errors import DataError, SchemaError, Unavailable
from distrain.loader.packed.file import Buffers, PackedFile, PackedFooter
from distrain.loader.reader import Decoded
from distrain.partition import RowGroup
from distrain.partition.columns import Wanted
from distrain.storage import may_pass

_OPEN_FILES = 256


class PackedReader:
    """Reads packed files on local filesystems, from any thread.

    Each thread has one buffer. What `read` returns is views of it, of any alignment, and holds
    until the same thread reads again, or ends. Keep a reader for as long as its files are read,
    closed or not: a new one parses their footers again.

    Args:
        columns: What to read; flat columns only.
        verify: Whether checksums are compared; they find every flipped bit and cost 6 ns a row of
            40 columns.

    Raises:
        SchemaError: A list column is wanted.
    """

    name = "packed"

    def __init__(self, columns: Sequence[Wanted], *, verify: bool = True):
        check_flat(columns, "packed files")
        self._columns = tuple(columns)
        self._verify = verify
        self._buffers = Buffers()
        self._files: OrderedDict[str, PackedFile] = OrderedDict()
        self._footers: dict[str, PackedFooter] = {}
        self._lock = threading.Lock()

    def read(self, group: RowGroup) -> Decoded:
        """The wanted columns of a row group: int32 and float32.

        Raises:
            Unavailable: The storage does not answer; another try opens the file anew.
            DataError: The file is gone, was replaced, changed or cut short since it was first read,
                a checksum is wrong, or it is not packed.
        """
        try:
            file = self._file(group.file)
            file.check_unchanged()
            columns, constants = _apart(self._columns, group)
            layout = file.layout(group.index, group.num_rows, columns)
            buffer = self._buffers.take(layout.num_bytes)
            cells = file.read(layout, group.index, buffer, verify=self._verify)
        except OSError as error:
            message = f"could not read a row group: {error.strerror or error}"
            where = {"file": group.file, "row group": group.index}
            if may_pass(error):
                self._let_go(group.file)
                raise Unavailable(message, where=where) from error
            raise DataError(
                message,
                where=where,
                hint="The file was removed since the run began, or the disk fails.",
            ) from error
        if constants:
            found = dict(zip((column.name for column in columns), cells, strict=True)) | constants
            cells = tuple(found[column.name] for column in self._columns)
        return Decoded(cells, bytes_read=layout.num_bytes)

    def read_in_parts(self, group: RowGroup) -> Iterator[Decoded]:
        """The same, in one part: one call reads all columns."""
        yield self.read(group)

    def close(self) -> None:
        """Close all files; no thread may be reading. The reader may be used again."""
        with self._lock:
            self._files.clear()
        self._buffers = Buffers()

    def _let_go(self, path: str) -> None:
        with self._lock:
            self._files.pop(path, None)

    def _file(self, path: str) -> PackedFile:
        with self._lock:
            file = self._files.get(path)
            if file is None:
                file = self._files[path] = PackedFile(path, self._footers.get(path))
                self._footers[path] = file.footer
                if len(self._files) > _OPEN_FILES:
                    self._files.popitem(last=False)
            self._files.move_to_end(path)
            return file


def _apart(
    columns: tuple[Wanted, ...], group: RowGroup
) -> tuple[tuple[Wanted, ...], dict[str, NDArray[Any]]]:
    """The columns that are in the file, and those that the names of its folders give."""
    if not group.constants:
        return columns, {}
    constants = constant_cells(columns, group)
    return tuple(column for column in columns if column.name not in constants), constants


def constant_cells(columns: Sequence[Wanted], group: RowGroup) -> dict[str, NDArray[Any]]:
    """Columns of one value, `[rows]` each, int64 for ids and float64 for others, by name."""
    kinds = {column.name: column.kind for column in columns}
    return {
        name: np.full(group.num_rows, value, np.int64 if kinds[name] == "id" else np.float64)
        for name, value in group.constants
        if name in kinds
    }


def check_flat(columns: Sequence[Wanted], holder: str) -> None:
    """Refuse list columns.

    Raises:
        SchemaError: There is one.
    """
    lists = [column.name for column in columns if column.is_list]
    if lists:
        raise SchemaError(
            f"{holder} hold one value per row, but these columns are lists: {', '.join(lists)}",
            hint="Read such a table as it is, or leave these columns out of the schema.",
        )
