"""An open packed file and its footer."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distrain.errors import DataError
from distrain.loader.packed.layout import GroupLayout, ListValues, group_layout
from distrain.loader.packed.mark import Mark, checksum, mark_of
from distrain.loader.packed.raw_file import Buffers, Identity, RawFile
from distrain.loader.reading import DecodedColumns
from distrain.partition import RowGroup, WantedColumn
from distrain.storage import first_line

_CHANGED = "The file was changed since the run began; start again."


@dataclass(frozen=True)
class PackedFooter:
    """The footer of a packed file, whether the file is open or not."""

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
