"""Keeps only an index of the long footer of a parquet file.

Arrow needs about 300 bytes for each column of each row group to hold a parsed footer; for a large
table, that is more memory than all batches take. So only the ends of a long footer are kept, and
the offset of each row group's part in the file. The ends and one such part form the footer of a
file with that row group alone.

A footer is a struct in Thrift's compact protocol. The C code of `parquet_pages` finds the parts of
row groups; if it was not built, whole footers are kept. The first and last row group must be the
same as when Arrow parses the whole footer; otherwise the whole footer is kept as well.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from distrain.loader.parquet_pages.footer import IS_BUILT
from distrain.schema.struct_codec import varint

if IS_BUILT:
    from distrain.loader.parquet_pages import _pages

LONG_BYTES = 256 << 10
"""The minimum size of a footer that is sliced; shorter footers are kept whole."""

_MAGIC = b"PAR1"


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


def is_sliceable(footer: pq.FileMetaData) -> bool:
    """Return True if a footer is long and has several row groups, and the C code is built."""
    return IS_BUILT and footer.serialized_size >= LONG_BYTES and footer.num_row_groups > 1


def slice_footer(footer: pq.FileMetaData, raw: bytes, start: int) -> SlicedFooter | None:
    """Return the sliced form of a footer that Arrow has parsed; `None` if it must be kept whole.

    Footers are kept whole if they are short, have fewer than two row groups, or have another
    layout. `raw` is the footer's bytes, which begin at `start` in the file.
    """
    if not is_sliceable(footer):
        return None
    try:
        places = _pages.row_groups(raw)
    except ValueError:
        return None
    if len(places) != footer.num_row_groups + 1:
        return None
    head = raw[: places[0] - len(_list_of(footer.num_row_groups))]
    bounds = array("q", [start + place for place in places])
    sliced = SlicedFooter(head, raw[places[-1] :], bounds)
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
    return bytes([count << 4 | 0xC]) if count < 15 else b"\xfc" + varint(count)
