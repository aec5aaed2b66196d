"""Packed files with their footers, and their row groups as views of what was read."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distrain.errors import DataError
from distrain.loader.options import LoaderOptions
from distrain.loader.packed.layout import GroupLayout, ListValues, group_layout
from distrain.loader.packed.mark import Mark, checksum, is_packed, mark_of
from distrain.loader.packed.raw_file import Buffers, Identity, RawFile
from distrain.loader.partition.table import RowGroup, Table
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.loader.reading.reader import (
    DecodedColumns,
    Reader,
    join_decoded,
    taken_rows,
    unreadable,
)
from distrain.storage.retrying import first_line, is_transient
from distrain.storage.urls import is_remote

_OPEN_FILES = 256
# As many rows of so many columns stay in the processor's cache until they have been gathered from,
# four at a time; with fewer, threads wait more for Python's lock.
COLUMNS_AT_A_TIME = 12


_CHANGED = "The file was changed since the run began; start again."


@dataclass(frozen=True)
class PackedFooter:
    identity: Identity  # that of the file
    metadata: pq.FileMetaData
    mark: Mark
    # the layouts of the row groups that were read before
    layouts: dict[int, GroupLayout] = field(default_factory=dict)
    # large row groups whose checksums were right when their slices were first read
    verified: set[int] = field(default_factory=set)
    # of large row groups' list columns the number of items before each slice
    item_starts: dict[tuple[int, str], NDArray[np.int64]] = field(default_factory=dict)


class PackedFile(RawFile):
    """A local packed file for any number of threads; a `footer` of another file is refused."""

    def __init__(self, path: str, footer: PackedFooter | None = None):
        super().__init__(path)
        self._verifying = threading.Lock()
        if footer is not None and footer.identity != self.identity:
            raise self.replaced()
        self.footer = footer or self._read_footer()

    def _read_footer(self) -> PackedFooter:
        try:
            with os.fdopen(os.dup(self._descriptor), "rb") as handle:
                metadata = pq.read_metadata(handle)
        except pa.ArrowException as error:
            reason = first_line(error)
            hint = "It was cut short or changed."
            raise self.error(f"not a whole parquet file: {reason}", hint) from None
        return PackedFooter(self.identity, metadata, mark_of(metadata, self.path))

    @property
    def group_rows(self) -> tuple[int, ...]:
        return tuple(group.num_rows for group in self.footer.mark.groups)

    def layout(self, index: int, num_rows: int, wanted: Sequence[WantedColumn]) -> GroupLayout:
        """How to read the columns of a row group; `wanted` must be the same in every call."""
        known = self.footer.layouts.get(index)
        if known is None:
            groups = len(self.footer.mark.groups)
            if index >= groups:
                message = f"the file has {groups} row groups"
                raise self.error(message, _CHANGED, **{"row group": index})
            footer = self.footer
            known = group_layout(footer.metadata, footer.mark, index, wanted, self.path)
            self._check_size(known, index)
            self.footer.layouts[index] = known
        if known.num_rows != num_rows:
            message = f"the row group has {known.num_rows} rows, not {num_rows} as planned"
            raise self.error(message, _CHANGED, **{"row group": index})
        return known

    def _check_size(self, layout: GroupLayout, index: int) -> None:
        # Checked before a buffer of the length that a footer claims is allocated.
        size = self.identity[2]
        if any(values.start + values.num_bytes > size for values in layout.values):
            raise self.error("the file was cut short", _CHANGED, **{"row group": index})

    def iter_group(
        self,
        layout: GroupLayout,
        group: RowGroup,
        buffers: Buffers,
        columns_at_a_time: int,
        *,
        verify: bool = True,
    ) -> Iterator[DecodedColumns]:
        """The columns of a row group or slice; `verify` reads a large one whole at its begin."""
        if verify and group.slice:
            with self._verifying:
                if group.slice.number == 0 or group.index not in self.footer.verified:
                    self.verify_columns(layout, group.index, buffers)
                    self.footer.verified.add(group.index)
        return self.iter_parts(layout, group, buffers, columns_at_a_time, verify=verify)

    def item_starts(self, column: ListValues, index: int, slice_rows: int) -> NDArray[np.int64]:
        key = (index, column.items.name)
        known = self.footer.item_starts.get(key)
        if known is None:
            known = super().item_starts(column, index, slice_rows)
            self.footer.item_starts[key] = known
        return known

    def certify(self, wanted: Sequence[WantedColumn], buffers: Buffers) -> None:
        """Raise a `DataError` unless each row group is what its writer wrote."""
        for index, num_rows in enumerate(self.group_rows):
            layout = self.layout(index, num_rows, wanted)
            mark = self.footer.mark.groups[index]
            buffer = buffers.take(mark.length)
            self.fill(buffer, mark.start, index)
            if checksum(buffer) != mark.all_checksum:
                where: dict[str, object] = {"file": self.path, "row group": index}
                raise DataError("the checksum is wrong", where=where)
            self.verify_columns(layout, index, buffers)


class PackedReader(Reader):
    """Reads packed files on local filesystems, from any thread.

    Each thread has one buffer. Cells are views of it, of any alignment, which stay valid until the
    same thread reads again, or ends; lists have memory of their own. Keep a reader for as long as
    its files are read, closed or not: a new one parses their footers again.

    `verify` compares checksums, which find every flipped bit and cost 6 ns a row of 40 columns. Of
    a large row group they are compared before its first slice is used, for which it is read twice.
    """

    def __init__(self, columns: Sequence[WantedColumn], *, verify: bool = True):
        self._columns = tuple(columns)
        self._verify = verify
        self._buffers = Buffers()
        self._files: OrderedDict[str, PackedFile] = OrderedDict()
        self._footers: dict[str, PackedFooter] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(
        cls, columns: Sequence[WantedColumn], options: LoaderOptions, open_groups: int
    ) -> PackedReader:
        return cls(columns)

    @classmethod
    def why_not(
        cls, table: Table, columns: Sequence[WantedColumn], device_type: str, has_cache: bool
    ) -> str | None:
        for file in table.compact.files:
            if is_remote(file):
                return "the fast layout is read from local files only"
            try:
                packed = is_packed(pq.read_metadata(file))
            except (OSError, pa.ArrowException):
                packed = False  # the reader of its rows will say what is wrong with it
            if not packed:
                return "the files are ordinary parquet"
        return "columns come from the names of folders" if table.compact.has_constants else None

    def read(self, group: RowGroup) -> DecodedColumns:
        return join_decoded(self._parts(group, max(1, len(self._columns))))

    def iter_columns(self, group: RowGroup) -> Iterator[DecodedColumns]:
        return self._parts(group, COLUMNS_AT_A_TIME)

    def _parts(self, group: RowGroup, at_a_time: int) -> Iterator[DecodedColumns]:
        try:
            file = self._file(group.file)
            if not file.is_unchanged():
                raise file.replaced()
            constants = dict(group.constants)
            inside = [column for column in self._columns if column.name not in constants]
            layout = file.layout(group.index, group.group_rows, inside)
            found = file.iter_group(layout, group, self._buffers, at_a_time, verify=self._verify)
            taken = (taken_rows(part, group) for part in found) if group.selection else found
            yield from self._with_constants(taken, group) if constants else taken
        except OSError as error:
            if is_transient(error):
                with self._lock:
                    self._files.pop(group.file, None)
            hint = "The file was removed since the run began, or the disk fails."
            raise unreadable(group, error, str(error.strerror or error), hint) from error

    def _with_constants(
        self, parts: Iterator[DecodedColumns], group: RowGroup
    ) -> Iterator[DecodedColumns]:
        """The same with the columns that are in the names of folders, at their places."""
        constants = dict(group.constants)
        waiting = [column for column in self._columns if not column.is_list]

        def of_folders() -> tuple[NDArray[Any], ...]:
            first = []
            while waiting and waiting[0].name in constants:
                column = waiting.pop(0)
                dtype = np.int64 if column.kind == "id" else np.float64
                first.append(np.full(group.num_rows, constants[column.name], dtype))
            return tuple(first)

        for part in parts:
            cells: list[NDArray[Any]] = [*of_folders()]
            for column in part.cells:
                waiting.pop(0)
                cells += [column, *of_folders()]
            yield replace(part, cells=tuple(cells))
        if waiting:
            yield DecodedColumns(of_folders())

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
