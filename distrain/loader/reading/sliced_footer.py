"""Keeps only an index of the long footer of a parquet file.

Arrow needs about 300 bytes for each column of each row group to hold a parsed footer; for a large
table, that is more memory than all batches take. So only the ends of a long footer are kept, and
the offset of each row group's part in the file. The ends and one such part form the footer of a
file with that row group alone.

A footer is a struct in Thrift's compact protocol. The parts of row groups are found by the bytes
with which each begins. Their number must match the footer's, and the first and last row group must
be the same as when Arrow parses the whole footer; otherwise the whole footer is kept.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

LONG_BYTES = 256 << 10
"""The minimum size of a footer that is sliced; shorter footers are kept whole."""

_MAGIC = b"PAR1"
_TAIL_BYTES = 8  # the footer's length, and the magic word
_LIST, _BINARY = b"\x19", b"\x18"  # a field of that type, numbered one above the previous field
_NEXT_BUT_ONE_BINARY = b"\x28"
_FILE_OFFSET = b"\x26"  # the first byte of each column of a row group: field 2, an i64


@dataclass(frozen=True)
class SlicedFooter:
    """The ends of a footer, and the offsets in the file of the row groups' parts between them."""

    head: bytes  # the beginning, with the schema, up to the list of row groups
    tail: bytes  # the rest after the list of row groups
    # the offset of each row group's part in the file, and the end of the last one
    bounds: array[int]

    def span(self, index: int) -> tuple[int, int]:
        return self.bounds[index], self.bounds[index + 1]

    def footer_of(self, part: bytes) -> pq.FileMetaData:
        """Return the footer of a file with one row group, from the bytes of its `span`."""
        return _parsed(self.head + _list_of(1) + part + self.tail)


def slice_footer(footer: pq.FileMetaData, handle: IO[bytes]) -> SlicedFooter | None:
    """Return the sliced form of a footer that Arrow has parsed; `None` if it must be kept whole.

    Footers are kept whole if they are short, have fewer than two row groups, or have another
    layout. `handle` is the open file.
    """
    length, groups = footer.serialized_size, footer.num_row_groups
    keys = list(footer.metadata or ())
    if length < LONG_BYTES or groups < 2:
        return None
    end = handle.seek(0, 2) - _TAIL_BYTES
    start = end - length
    handle.seek(start)
    raw = handle.read(length)
    begins = _LIST + _list_of(footer.num_columns) + _FILE_OFFSET
    count = _LIST + _list_of(groups)
    # After the row groups come keys and values, if any, then the writer's name.
    follows = _NEXT_BUT_ONE_BINARY + _text(footer.created_by.encode())
    if keys:
        follows = _LIST + _list_of(len(keys)) + _BINARY + _text(keys[0])
    tail = raw.rfind(follows)
    first = raw.find(count + begins)
    if first < 0 or tail < 0:
        return None
    bounds = array("q", [start + first + len(count)])
    while (at := raw.find(begins, bounds[-1] - start + 1, tail)) >= 0:
        bounds.append(start + at)
    if len(bounds) != groups:
        return None
    bounds.append(start + tail)
    sliced = SlicedFooter(raw[: first + 1], raw[tail:], bounds)
    return sliced if _is_right(sliced, footer, raw, start) else None


def _is_right(sliced: SlicedFooter, footer: pq.FileMetaData, raw: bytes, start: int) -> bool:
    for index in (0, footer.num_row_groups - 1):
        begin, end = sliced.span(index)
        try:
            own = sliced.footer_of(raw[begin - start : end - start])
        except (OSError, pa.ArrowException):
            return False
        if own.num_row_groups != 1 or not own.row_group(0).equals(footer.row_group(index)):
            return False
    return True


def _parsed(footer: bytes) -> pq.FileMetaData:
    length = len(footer).to_bytes(4, "little")
    return pq.read_metadata(pa.BufferReader(_MAGIC + footer + length + _MAGIC))


def _list_of(count: int) -> bytes:
    """Return the first bytes of an encoded list of `count` structs: its length and type."""
    return bytes([count << 4 | 0xC]) if count < 15 else b"\xfc" + _number(count)


def _text(content: bytes) -> bytes:
    return _number(len(content)) + content


def _number(value: int) -> bytes:
    """Return a varint: seven bits a byte, the lowest first.

    >>> _number(300).hex()
    'ac02'
    """
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])
