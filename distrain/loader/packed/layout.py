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
from distrain.partition.columns import Wanted

FORMAT_VERSION = 1
MARK_KEY = "distrain.packed"

_HEX_DIGITS = 16
_LONGEST_PAGE_HEADER_BYTES = 1024
_DTYPES = {"INT32": np.dtype("<i4"), "FLOAT": np.dtype("<f4")}
_DAMAGED = "The footer is damaged, or another program changed the file: pack it again."

checksum = xxhash.xxh3_64_intdigest


@dataclass(frozen=True)
class GroupMark:
    """What the mark says of a row group.

    Attributes:
        start: Where its bytes begin in the file.
        length: How many there are, page headers and all.
        num_rows: Its rows.
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
    """What makes a parquet file a packed one.

    Attributes:
        columns: The names of its columns, in order.
        source: The fingerprint of the table that it was made from.
        groups: Its row groups.
    """

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
        """Parse it.

        Raises:
            ValueError: It is damaged, or of another version.
        """
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
        # The checksum finds accidents; whoever wrote the mark can make it fit anything.
        for group in mark.groups:
            numbers = (group.start, group.length, group.num_rows)
            if not all(type(number) is int and number >= 0 for number in numbers):
                raise ValueError("a row group's place is no place in a file")
            if len(group.column_checksums) != len(mark.columns):
                raise ValueError("a row group has not one checksum a column")
        return mark


def is_packed(metadata: pq.FileMetaData) -> bool:
    """Whether a parquet file has the layout, in a version that is known here.

    Only the mark's presence and version are looked at; a damaged one is told when a row group is
    read. Files of a later version are parquet like any other.
    """
    text = (metadata.metadata or {}).get(MARK_KEY.encode())
    if text is None:
        return False
    try:
        return bool(_parsed(text)["version"] == FORMAT_VERSION)
    except (ValueError, KeyError, TypeError):
        return True  # so that reading tells of the damage


def mark_of(metadata: pq.FileMetaData, file: str) -> Mark:
    """The mark of a packed file.

    Raises:
        DataError: It has none, or it is damaged, or does not fit the footer.
    """
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
class Span:
    """What one call reads: `length` bytes from `start` of a file, to `place` of a buffer."""

    start: int
    length: int
    place: int


@dataclass(frozen=True)
class Values:
    """A column's values in the buffer.

    Attributes:
        name: The column.
        dtype: `<i4` or `<f4`.
        place: Where they begin in the buffer, in bytes; of any alignment.
        checksum: XXH3 of their bytes.
    """

    name: str
    dtype: np.dtype[Any]
    place: int
    checksum: int


@dataclass(frozen=True)
class GroupLayout:
    """How to read some columns of a row group.

    Attributes:
        num_rows: Its rows.
        spans: What to read, in the order of the buffer.
        num_bytes: How long the buffer must be.
        values: The wanted columns, in the order in which they are wanted.
        all_checksum: The checksum of the whole buffer, if all of the row group is read.
    """

    num_rows: int
    spans: tuple[Span, ...]
    num_bytes: int
    values: tuple[Values, ...]
    all_checksum: int | None


def group_layout(
    metadata: pq.FileMetaData, mark: Mark, index: int, wanted: Sequence[Wanted], file: str
) -> GroupLayout:
    """Find the wanted columns of a row group.

    Raises:
        DataError: A column is missing or of the wrong type, or the footer contradicts itself.
    """
    where = {"file": file, "row group": index}
    group = mark.groups[index]
    chunks, dtypes = _chunks(metadata, group, index, where)
    numbers = [_number_of(column, mark, dtypes, where) for column in wanted]
    spans, places = _spans(chunks, sorted(set(numbers)))
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
    num_bytes = sum(span.length for span in spans)
    return GroupLayout(
        group.num_rows, spans, num_bytes, values, group.all_checksum if whole else None
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
        if not good or dtype is None or chunk.compression != "UNCOMPRESSED":
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
    column: Wanted, mark: Mark, dtypes: list[np.dtype[Any]], where: dict[str, object]
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


def _spans(
    chunks: list[tuple[int, int]], numbers: list[int]
) -> tuple[tuple[Span, ...], dict[int, int]]:
    """Neighbouring column chunks read together, and each chunk's place in the buffer."""
    spans: list[Span] = []
    places: dict[int, int] = {}
    end = 0
    for number in numbers:
        start, length = chunks[number]
        places[number] = end
        if spans and spans[-1].start + spans[-1].length == start:
            last = spans.pop()
            spans.append(Span(last.start, last.length + length, last.place))
        else:
            spans.append(Span(start, length, end))
        end += length
    return tuple(spans), places


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
