"""Where the values of a packed file lie, and the mark in its footer that says so.

The mark is JSON under the footer's key `distrain.packed`: for each row group its bytes' place, a
checksum of all of them, and one of each column's values. It has a checksum of its own. The offsets
of the columns come from parquet's footer, and must tile the row group's bytes without a gap.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import xxhash

from distrain.errors import DataError
from distrain.partition import WantedColumn

FORMAT_VERSION = 1
MARK_KEY = "distrain.packed"

_HEX_DIGITS = 16
_LONGEST_PAGE_HEADER_BYTES = 1024
_DTYPES = {"INT32": np.dtype("<i4"), "FLOAT": np.dtype("<f4")}
_DAMAGED = "The footer is damaged, or another program changed the file: pack it again."

checksum = xxhash.xxh3_64_intdigest
new_checksum = xxhash.xxh3_64  # the same, part by part


@dataclass(frozen=True)
class GroupMark:
    """A row group in the mark.

    Attributes:
        start: Where its bytes begin in the file.
        length: The number of bytes, including page headers.
        all_checksum: XXH3 (64 bits) of these bytes.
        column_checksums: XXH3 of each column's values alone, in the order of the file.
    """

    start: int
    length: int
    num_rows: int
    all_checksum: int
    column_checksums: tuple[int, ...]


@dataclass(frozen=True)
class Mark:
    """Marks a parquet file as packed; `source` is the fingerprint of the table it was made from."""

    columns: tuple[str, ...]
    source: str
    groups: tuple[GroupMark, ...]

    def to_json(self) -> str:
        """The mark as it stands in the footer."""
        groups = [
            [
                group.start,
                group.length,
                group.num_rows,
                _hex(group.all_checksum),
                "".join(map(_hex, group.column_checksums)),
            ]
            for group in self.groups
        ]
        body = {"columns": self.columns, "source": self.source, "row_groups": groups}
        document = {"version": FORMAT_VERSION, "checksum": _checksum_of(body), **body}
        return json.dumps(document, ensure_ascii=False)

    @staticmethod
    def from_json(text: bytes) -> Mark:
        """Parse it; a `ValueError` says that it is damaged, or of another version."""
        document = _parsed(text)
        if document.pop("version") != FORMAT_VERSION:
            raise ValueError("written by another version")
        if document.pop("checksum") != _checksum_of(document):
            raise ValueError("damaged")
        groups = (
            GroupMark(start, length, num_rows, int(all_, 16), _from_hex(columns))
            for start, length, num_rows, all_, columns in document["row_groups"]
        )
        mark = Mark(tuple(document["columns"]), document["source"], tuple(groups))
        # The checksum finds damage, but a writer can make it fit any numbers.
        for group in mark.groups:
            numbers = (group.start, group.length, group.num_rows)
            if not all(type(number) is int and number >= 0 for number in numbers):
                raise ValueError("a row group's place is no place in a file")
            if len(group.column_checksums) != len(mark.columns):
                raise ValueError("a row group has not one checksum a column")
        return mark


def is_packed(metadata: pq.FileMetaData) -> bool:
    """Whether a parquet file has the layout, in a version that is known here.

    Only the mark's presence and version count; a damaged mark is reported when a row group is read.
    Files of a later version are read as ordinary parquet.
    """
    text = (metadata.metadata or {}).get(MARK_KEY.encode())
    if text is None:
        return False
    try:
        return bool(_parsed(text)["version"] == FORMAT_VERSION)
    except (ValueError, KeyError, TypeError):
        return True  # so that reading reports the damage


def mark_of(metadata: pq.FileMetaData, file: str) -> Mark:
    """The mark of a packed file; it must be whole and fit the footer."""
    where = {"file": file}
    text = (metadata.metadata or {}).get(MARK_KEY.encode())
    if text is None:
        raise DataError(
            "not a packed file", where=where, hint="Make one of it with `distrain pack`."
        )
    try:
        mark = Mark.from_json(text)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = "the footer's key distrain.packed cannot be used"
        raise DataError(message, where={**where, "cause": str(error)}, hint=_DAMAGED) from None
    names = tuple(metadata.schema.column(i).path for i in range(metadata.num_columns))
    if names != mark.columns or metadata.num_row_groups != len(mark.groups):
        message = "the footer has other columns or row groups than its key distrain.packed says"
        raise DataError(message, where=where, hint=_DAMAGED)
    return mark


@dataclass(frozen=True)
class ByteRange:
    """`length` bytes from `start` of a file, which one call reads to `place` of a buffer."""

    start: int
    length: int
    place: int


@dataclass(frozen=True)
class Values:
    """A column's values, `<i4` or `<f4`, from byte `place` of the buffer on, at any alignment."""

    name: str
    dtype: np.dtype[Any]
    place: int
    checksum: int


@dataclass(frozen=True)
class GroupLayout:
    """How to read some columns of a row group.

    Attributes:
        byte_ranges: What to read, in the order of the buffer.
        num_bytes: Bytes of the buffer.
        values: The wanted columns, in their order.
        all_checksum: The checksum of the whole buffer, if all of the row group is read.
    """

    num_rows: int
    byte_ranges: tuple[ByteRange, ...]
    num_bytes: int
    values: tuple[Values, ...]
    all_checksum: int | None


def group_layout(
    metadata: pq.FileMetaData, mark: Mark, index: int, wanted: Sequence[WantedColumn], file: str
) -> GroupLayout:
    """Find the wanted columns of a row group."""
    where = {"file": file, "row group": index}
    group = mark.groups[index]
    chunks, dtypes = _chunks(metadata, group, index, where)
    numbers = [_number_of(column, mark, dtypes, where) for column in wanted]
    byte_ranges, places = _byte_ranges(chunks, sorted(set(numbers)))
    value_bytes = 4 * group.num_rows
    values = tuple(
        Values(
            mark.columns[number],
            dtypes[number],
            places[number] + chunks[number][1] - value_bytes,  # behind the page's header
            group.column_checksums[number],
        )
        for number in numbers
    )
    whole = len(places) == len(chunks)
    num_bytes = sum(byte_range.length for byte_range in byte_ranges)
    return GroupLayout(
        group.num_rows, byte_ranges, num_bytes, values, group.all_checksum if whole else None
    )


def _chunks(
    metadata: pq.FileMetaData, group: GroupMark, index: int, where: dict[str, object]
) -> tuple[list[tuple[int, int]], list[np.dtype[Any]]]:
    """Start and length of each column chunk, and its type; they tile the row group's bytes."""
    row_group = metadata.row_group(index)
    found, dtypes = [], []
    next_start = group.start
    for number in range(metadata.num_columns):
        chunk = row_group.column(number)
        start, length = chunk.data_page_offset, chunk.total_compressed_size
        header = length - 4 * group.num_rows
        dtype = _DTYPES.get(chunk.physical_type)
        good = start == next_start and 0 < header <= _LONGEST_PAGE_HEADER_BYTES
        # Not its codec: pyarrow ends the process where a damaged footer gives one that is none.
        if not good or dtype is None or chunk.total_uncompressed_size != length:
            message = "the footer does not describe a packed column chunk"
            raise DataError(message, where={**where, "column": number}, hint=_DAMAGED)
        found.append((start, length))
        dtypes.append(dtype)
        next_start += length
    if next_start != group.start + group.length or row_group.num_rows != group.num_rows:
        message = "the footer's row group is not the one that its key distrain.packed names"
        raise DataError(message, where=where, hint=_DAMAGED)
    return found, dtypes


def _number_of(
    column: WantedColumn, mark: Mark, dtypes: list[np.dtype[Any]], where: dict[str, object]
) -> int:
    place = {**where, "column": column.name}
    if column.name not in mark.columns:
        raise DataError(
            f"column {column.name!r} is missing",
            where=place,
            hint="Pack the source again, with a schema that has the column.",
        )
    number = mark.columns.index(column.name)
    if column.kind == "id" and dtypes[number].kind != "i":
        message = f"column {column.name!r} holds float, but integer ids are needed"
        hint = "It was packed with a schema that calls it continuous: pack the source again."
        raise DataError(message, where=place, hint=hint)
    return number


def _byte_ranges(
    chunks: list[tuple[int, int]], numbers: list[int]
) -> tuple[tuple[ByteRange, ...], dict[int, int]]:
    """Neighbouring column chunks read together, and each chunk's place in the buffer."""
    byte_ranges: list[ByteRange] = []
    places: dict[int, int] = {}
    end = 0
    for number in numbers:
        start, length = chunks[number]
        places[number] = end
        if byte_ranges and byte_ranges[-1].start + byte_ranges[-1].length == start:
            last = byte_ranges.pop()
            byte_ranges.append(ByteRange(last.start, last.length + length, last.place))
        else:
            byte_ranges.append(ByteRange(start, length, end))
        end += length
    return tuple(byte_ranges), places


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _hex(number: int) -> str:
    return f"{number:0{_HEX_DIGITS}x}"


def _from_hex(text: str) -> tuple[int, ...]:
    return tuple(int(text[i : i + _HEX_DIGITS], 16) for i in range(0, len(text), _HEX_DIGITS))


def _checksum_of(body: dict[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return _hex(checksum(text.encode()))
