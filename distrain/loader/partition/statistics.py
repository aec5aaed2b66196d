"""Reads statistics of column chunks from a footer's bytes: pyarrow aborts on damaged footers."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

_NUMBERS = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE")
_TYPES = (*_NUMBERS, "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_FORMATS = {"BOOLEAN": "?", "INT32": "<i", "INT64": "<q", "FLOAT": "<f", "DOUBLE": "<d"}
CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4_HADOOP", "ZSTD", "LZ4")
"""The names of codecs, by their number in footers; as in pyarrow, LZ4 is the format's LZ4_RAW."""

_I16, _I64, _DOUBLE, _BINARY, _LIST, _STRUCT = 4, 6, 7, 8, 9, 12

RowGroupChunks = list[dict[int, Any]]
"""The fields of each column chunk of a row group, by their numbers in parquet.thrift."""


class Statistics(NamedTuple):
    """Statistics of a column chunk: its number of nulls, its minimum and its maximum."""

    nulls: int | None = None  # `None` if unknown
    bounds: tuple[float, ...] = ()  # minimum and maximum; empty if unknown


def read_chunks(handle: IO[bytes]) -> list[RowGroupChunks]:
    """Return the column chunks of each row group of a parquet file; `OSError` if it is damaged."""
    handle.seek(-8, 2)
    length = int.from_bytes(handle.read(4), "little")
    handle.seek(-8 - length, 2)
    try:
        groups = _read_struct(handle.read(length), 0)[0].get(4, [])
        return [group[1] for group in groups]
    except (IndexError, KeyError, TypeError) as error:
        raise OSError("the footer is damaged") from error


def read_statistics(chunks: RowGroupChunks, leaf: int, kind: str, unsigned: bool) -> Statistics:
    """Return the statistics of the chunk of leaf column number `leaf`.

    Args:
        kind: The column's physical type, as in the footer's schema.
        unsigned: Whether the column has unsigned integers.

    Raises:
        OSError: The footer is damaged.
    """
    try:
        own = chunks[leaf][3]
        if _TYPES[own[1] >> 1] != kind:
            raise TypeError
        statistics = own.get(12, {})
        form, newer = _FORMATS.get(kind, ""), (6, 5)
        if unsigned:
            form = form.upper()
        elif 6 not in statistics:
            newer = (2, 1)  # older writers compare unsigned numbers as signed ones
        has_bounds = form and all(field in statistics for field in newer)
        bounds = (
            [struct.unpack(form, statistics[field])[0] for field in newer] if has_bounds else []
        )
        return Statistics(statistics[3] >> 1 if 3 in statistics else None, tuple(bounds))
    except (IndexError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise OSError(f"a chunk of leaf column {leaf} is damaged") from error


def codec_and_bytes(chunks: RowGroupChunks, leaf: int) -> tuple[str, int]:
    """Return the codec and the compressed bytes of the chunk of leaf column number `leaf`.

    The codec is "unknown" if its number is not in `CODECS`.
    """
    own = chunks[leaf][3]
    codec = own[4] >> 1
    return CODECS[codec] if codec < len(CODECS) else "unknown", own[7] >> 1


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    """Return a varint (seven bits a byte, lowest first), and the offset after it."""
    value, shift = data[at] & 127, 7
    while data[at] > 127:
        at += 1
        value |= (data[at] & 127) << shift
        shift += 7
    return value, at + 1


def _read_value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if _I16 <= kind <= _I64:
        return _read_number(data, at)
    if kind == _BINARY:
        length, at = _read_number(data, at)
        return data[at : at + length], at + length
    if kind == _STRUCT:
        return _read_struct(data, at)
    if kind == _LIST:
        count, items = data[at] >> 4, data[at] & 15
        at += 1
        if count == 15:
            count, at = _read_number(data, at)
        values = []
        for _ in range(count):
            value, at = _read_value(data, at, items)
            values.append(value)
        return values, at
    if kind > _DOUBLE:
        raise TypeError
    return None, at + (8 if kind == _DOUBLE else 1)  # skipped: values of these types are not used


def _read_struct(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    """Return a struct of Thrift's compact protocol, by field number, and the offset after it.

    Integers stay zigzag-encoded.
    """
    fields: dict[int, Any] = {}
    number = 0
    while kind := data[at] & 15:
        step = data[at] >> 4
        at += 1
        if step:
            number += step
        else:
            number, at = _read_number(data, at)
            number >>= 1
        if _I16 <= kind <= _I64 and data[at] < 128:  # the common case, without two calls
            fields[number] = data[at]
            at += 1
        elif kind > 2:  # otherwise a boolean, which the kind encodes
            fields[number], at = _read_value(data, at, kind)
    return fields, at + 1


class _NotRead(Exception):
    pass


class _NothingToRead(io.RawIOBase):
    """A file object that has a size, but raises `_NotRead` if bytes are read."""

    def __init__(self, size_bytes: int):
        self._size_bytes = size_bytes
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = (0, self._at, self._size_bytes)[whence] + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        raise _NotRead


def refuse_bad_chunks(metadata: FileMetaData, size_bytes: int, names: Sequence[str]) -> None:
    """Raise Arrow's error for column chunks that are encrypted, or whose metadata is damaged.

    pyarrow aborts the process if Python code gets the metadata of such a chunk, but a read by Arrow
    raises an error. Arrow checks all chunks before it reads the first one. So this function lets
    Arrow read a source without bytes, which only raises the errors of the check. `names` are the
    columns to check.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not names or not metadata.num_row_groups:
        return
    source = pa.PythonFile(_NothingToRead(size_bytes), mode="r")
    with suppress(_NotRead), pq.ParquetFile(source, metadata=metadata, pre_buffer=True) as parquet:
        parquet.read_row_groups(range(metadata.num_row_groups), list(names), use_threads=False)
