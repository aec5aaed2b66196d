"""Row groups of packed files, as views of what was read."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distrain.loader.packed.packed_file import Buffers, PackedFile, PackedFooter
from distrain.loader.reading import DecodedColumns, Reader, unreadable
from distrain.partition import RowGroup, WantedColumn
from distrain.storage import is_transient

_OPEN_FILES = 256


class PackedReader(Reader):
    """Reads packed files on local filesystems, from any thread.

    Each thread has one buffer. Cells are views of it, of any alignment, which stay valid until the
    same thread reads again, or ends; lists have memory of their own. Keep a reader for as long as
    its files are read, closed or not: a new one parses their footers again.

    `verify` compares checksums, which find every flipped bit and cost 6 ns a row of 40 columns. Of
    a large row group they are compared before its first slice is used, for which it is read twice.
    """

    name = "packed"

    def __init__(self, columns: Sequence[WantedColumn], *, verify: bool = True):
        self._columns = tuple(columns)
        self._verify = verify
        self._buffers = Buffers()
        self._files: OrderedDict[str, PackedFile] = OrderedDict()
        self._footers: dict[str, PackedFooter] = {}
        self._lock = threading.Lock()

    def read(self, group: RowGroup) -> DecodedColumns:
        """The wanted columns of a row group: int32 and float32, or lists of these."""
        try:
            file = self._file(group.file)
            file.check_unchanged()
            columns, constants = _apart(self._columns, group)
            layout = file.layout(group.index, group.group_rows, columns)
            if group.slice:
                found = file.read_slice(layout, group, self._buffers, verify=self._verify)
            else:
                buffer = self._buffers.take(layout.num_bytes)
                found = file.read(layout, group.index, buffer, verify=self._verify)
        except OSError as error:
            if is_transient(error):
                with self._lock:
                    self._files.pop(group.file, None)
            hint = "The file was removed since the run began, or the disk fails."
            raise unreadable(group, error, str(error.strerror or error), hint) from error
        if not constants:
            return found
        flat = [column.name for column in self._columns if not column.is_list]
        inside = [name for name in flat if name not in constants]
        cells = constants | dict(zip(inside, found.cells, strict=True))
        return replace(found, cells=tuple(cells[name] for name in flat))

    def close(self) -> None:
        """Close all files; no thread may be reading. The reader may be used again."""
        with self._lock:
            self._files.clear()
        self._buffers = Buffers()

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
    columns: tuple[WantedColumn, ...], group: RowGroup
) -> tuple[tuple[WantedColumn, ...], dict[str, NDArray[Any]]]:
    """The columns that are in the file, and the cells of those in the names of its folders."""
    if not group.constants:
        return columns, {}
    kinds = {column.name: column.kind for column in columns}
    constants = {
        name: np.full(group.num_rows, value, np.int64 if kinds[name] == "id" else np.float64)
        for name, value in group.constants
        if name in kinds
    }
    return tuple(column for column in columns if column.name not in constants), constants
