"""An entry of the cache: one row group's columns as raw values, then what they are.

The values come first, so that columns can be written while they are decoded. Behind them stand a
list of the columns as JSON, its checksum, its length and the format's name. Ids are as narrow as
the largest of them allows, so that fewer bytes are written and read. Entries are for this cache
alone; files for others are packed.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distrain.loader.filling.filler import unusable
from distrain.loader.narrow_ids import NARROW_TYPES, narrow_type
from distrain.loader.packed.layout import GroupLayout, ListValues, Values
from distrain.loader.packed.mark import checksum
from distrain.loader.packed.raw_file import Identity, RawFile
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.loader.reading.reader import DecodedColumns

ENTRY_VERSION = 2

_FORMAT = b"dstrrow2"
_TAIL = struct.Struct("<QQ8s")  # the checksum and the length of the list, and the format
_DTYPES = {"id": np.dtype("<i4")}
_NARROW = {kind.str: kind for kind in NARROW_TYPES}  # of ids, one a row
_DAMAGED = "The disk damaged it."
_MOST_AT_ONCE = 512  # of columns that are written in one call; Linux takes 1,024 pieces


class EntryWriter:
    """Writes one entry, part by part; the caller makes the file appear whole."""

    def __init__(self, path: Path, columns: Sequence[WantedColumn]):
        self._flat = [column for column in columns if not column.is_list]
        self._lists = [column for column in columns if column.is_list]
        self._written: list[list[object]] = []
        self.num_bytes = 0
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def add(self, part: DecodedColumns) -> bool:
        """Write a row group's next columns; `False` if they hold what the entry cannot keep."""
        pieces: list[tuple[WantedColumn, NDArray[Any] | None]] = []
        for cells in part.cells:
            column = self._flat.pop(0)
            is_narrow = column.kind == "id" and cells.dtype in NARROW_TYPES
            kept = cells if is_narrow else _narrowed(column, _kept(column, cells))
            pieces.append((column, kept))
        for rows in part.lists:
            column = self._lists.pop(0)
            lengths = rows.value_lengths().to_numpy()
            items = rows.flatten().to_numpy(zero_copy_only=False)
            pieces += [(column, lengths), (column, _kept(column, items))]
        contents = []
        for column, values in pieces:
            if values is None:
                return False
            contents.append(self._listed(column, values))
        self._write(*contents)
        return True

    def finish(self) -> None:
        text = json.dumps(self._written).encode()
        self._write(text + _TAIL.pack(checksum(text), len(text), _FORMAT))

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _listed(self, column: WantedColumn, values: NDArray[Any]) -> memoryview:
        content = np.ascontiguousarray(values).data.cast("B") if len(values) else memoryview(b"")
        kind = values.dtype.str
        self._written.append([column.name, kind, len(values), self.num_bytes, checksum(content)])
        self.num_bytes += len(content)
        return content

    def _write(self, *contents: bytes | memoryview) -> None:
        left = [memoryview(content) for content in contents if len(content)]
        while left:
            done = os.writev(self._descriptor, left[:_MOST_AT_ONCE])
            while left and done >= len(left[0]):
                done -= len(left.pop(0))
            if done:
                left[0] = left[0][done:]


class EntryFacts(NamedTuple):
    identity: Identity
    layout: GroupLayout


class EntryFile(RawFile):
    """An open entry; what is `known` of the same file is not read again.

    A `DataError` says that it is no whole entry of these columns.
    """

    def __init__(
        self,
        path: str,
        columns: Sequence[WantedColumn],
        num_rows: int,
        known: EntryFacts | None = None,
    ):
        super().__init__(path)
        self._size = self.identity[2]
        if known is not None and known.identity == self.identity:
            self.layout = known.layout
            return
        try:
            self.layout = self._layout(columns, num_rows)
        except (ValueError, TypeError) as error:
            raise self.error(f"the list of columns is damaged: {error}", _DAMAGED) from None

    def _layout(self, columns: Sequence[WantedColumn], num_rows: int) -> GroupLayout:
        written = iter(self._read_list())
        cells = []
        lists = []
        for column in columns:
            dtype = _DTYPES.get(column.kind, np.dtype("<f4"))
            if not column.is_list:
                cells.append(self._values(written, column, dtype, num_rows, may_be_narrow=True))
                continue
            lengths = self._values(written, column, np.dtype("<i4"), num_rows)
            lists.append(ListValues(lengths, self._values(written, column, dtype, None)))
        return GroupLayout(num_rows, tuple(cells), tuple(lists))

    def _read_list(self) -> list[list[Any]]:
        tail = self._bytes(self._size - _TAIL.size, _TAIL.size)
        sum_, length, name = _TAIL.unpack(tail)
        if name != _FORMAT:
            raise self.error("not a whole entry", _DAMAGED)
        text = self._bytes(self._size - _TAIL.size - length, length)
        if checksum(text) != sum_:
            raise self.error("the list of columns is damaged", _DAMAGED)
        written: list[list[Any]] = json.loads(text)
        return written

    def _bytes(self, start: int, length: int) -> bytearray:
        if start < 0:
            raise self.error("not a whole entry", _DAMAGED)
        content = bytearray(length)
        self.fill(memoryview(content), start, 0)
        return content

    def _values(
        self,
        written: Any,
        column: WantedColumn,
        dtype: np.dtype[Any],
        rows: int | None,
        *,
        may_be_narrow: bool = False,
    ) -> Values:
        name, kind, count, start, sum_ = next(written, ("", "", 0, 0, 0))
        if may_be_narrow and column.kind == "id":
            dtype = _NARROW.get(kind, dtype)
        values = Values(name, dtype, count, start, sum_)
        inside = 0 <= start <= start + values.num_bytes <= self._size
        if name != column.name or kind != dtype.str or rows not in (None, count) or not inside:
            raise self.error(f"it does not hold column {column.name!r} as wanted", _DAMAGED)
        return values


def _kept(column: WantedColumn, values: NDArray[Any]) -> NDArray[Any] | None:
    """The values as they are kept; `None` if one would become another that can be used."""
    dtype = _DTYPES.get(column.kind, np.dtype("<f4"))
    lossless = np.can_cast(values.dtype, dtype, "safe")
    if not lossless and unusable(column, values).any():
        return None
    return values.astype(dtype, copy=False)


def _narrowed(column: WantedColumn, values: NDArray[Any] | None) -> NDArray[Any] | None:
    """Ids in the narrowest type that holds all of them; all else as it is."""
    if values is None or column.kind != "id":
        return values
    largest = int(values.view(np.uint32).max(initial=0))  # negative ones are large
    narrow = narrow_type(largest + 1)
    return values if narrow is None else values.astype(narrow)
