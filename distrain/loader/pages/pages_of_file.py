"""Which columns of a local file are decoded here, and their bytes.

Arrow decides what is right: what is damaged or unknown here is left to it, and so are nulls.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distrain.loader.pages.footer import (
    CODECS,
    IS_BUILT,
    ChunkFacts,
    chunks_of,
    read_row_groups,
)
from distrain.loader.pages.thread_memory import ThreadMemory

if TYPE_CHECKING:
    from distrain.loader.pages.column_chunk import ColumnChunk

if IS_BUILT:
    from distrain.loader.pages import column_chunk
    from distrain.loader.pages._pages import decode as decode_chunk

BUILT = IS_BUILT and sys.byteorder == "little"

# PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED and RLE_DICTIONARY
_ENCODINGS = sum(1 << number for number in (0, 2, 3, 4, 8))
_DECOMPRESSED_IN_C = {CODECS.index(name) for name in ("UNCOMPRESSED", "SNAPPY", "LZ4")}
_memory = ThreadMemory()
_TYPES = {1: "INT32", 2: "INT64", 4: "FLOAT", 5: "DOUBLE"}
_KINDS: dict[str, tuple[pa.DataType, np.dtype[Any]]] = {
    "INT32": (pa.int32(), np.dtype(np.int32)),
    "INT64": (pa.int64(), np.dtype(np.int64)),
    "FLOAT": (pa.float32(), np.dtype(np.float32)),
    "DOUBLE": (pa.float64(), np.dtype(np.float64)),
}


class _Leaf(NamedTuple):
    """A column by its number, with its type and whether it may hold nulls."""

    name: str
    number: int
    physical: str
    dtype: np.dtype[Any]
    optional: bool


def is_enabled() -> bool:
    """Whether pages are decoded here: it is built, and `DISTRAIN_PAGES` is not 0."""
    return BUILT and os.environ.get("DISTRAIN_PAGES") != "0"


class PagesOfFile:
    """A local parquet file's column chunks, for one thread.

    Args:
        file: Its path; it is opened when a chunk is first read.
        parquet: The same file, open in Arrow.
        names: The columns that may be read.
        span: Where a row group's part of the footer begins and ends in the file; without it the
            whole footer is read again and held.
    """

    def __init__(
        self,
        file: str,
        parquet: pq.ParquetFile,
        names: Iterable[str],
        span: Callable[[int], tuple[int, int]] | None = None,
    ):
        self._file = file
        self._span = span
        self._descriptor = -1
        self._num_bytes = 0
        # Files of a table have the same columns, and a rank may have hundreds open.
        self._leaves = _shared(_leaves(parquet, names)) if is_enabled() else {}
        self._num_columns = parquet.metadata.num_columns
        self._refused: set[str] = set()
        self._wide: set[str] = set()  # columns whose integers need 64 bits
        self._footer: list[memoryview] | None = None
        self._latest: tuple[int, list[ChunkFacts]] = (-1, [])

    def read(self, index: int, num_rows: int, name: str) -> NDArray[Any] | None:
        """A column of a row group of so many rows; `None` if Arrow has to read it.

        Integers of 64 bits come as int32 where all of them fit.
        """
        leaf = self._leaves.get(name)
        if leaf is None or name in self._refused:
            return None
        try:
            facts = self._facts(index)[leaf.number]
            if not _is_known(facts, leaf, num_rows):
                return None
            if facts.codec in _DECOMPRESSED_IN_C:
                return self._decode(facts, leaf, num_rows)
            values = np.empty(num_rows, leaf.dtype)
            self._chunk(facts, leaf, num_rows, page_by_page=False).read_into(values)
        except (ValueError, OSError, pa.ArrowException):
            self._refused.add(name)  # the file's other row groups will be no better
            return None
        return values

    def _decode(self, facts: ChunkFacts, leaf: _Leaf, num_rows: int) -> NDArray[Any]:
        """All values of a column chunk, in one call."""
        start, count = self._span_of(facts)
        raw = _memory.bytes_for(count)
        if os.preadv(self._descriptor, [raw.data], start) != count:
            raise ValueError("a column chunk ends early")
        in_file = leaf.dtype.itemsize
        kinds = [leaf.dtype] if leaf.dtype != np.int64 or leaf.name in self._wide else []
        for dtype in kinds or (np.dtype(np.int32), leaf.dtype):
            values = _memory.values_for(num_rows, dtype)
            try:
                decode_chunk(raw, facts.codec, leaf.optional, in_file, values, dtype.itemsize)
                break
            except OverflowError:
                self._wide.add(leaf.name)
        return values

    def open(
        self, index: int, num_rows: int, name: str, *, page_by_page: bool = False
    ) -> ColumnChunk | None:
        """A column of a row group, of which rows can be read; `None` if Arrow has to read it.

        With `page_by_page` it holds no more than a page at a time, and reads the file again.
        """
        leaf = self._leaves.get(name)
        if leaf is None or name in self._refused:
            return None
        try:
            facts = self._facts(index)[leaf.number]
            if not _is_known(facts, leaf, num_rows):
                return None
            return self._chunk(facts, leaf, num_rows, page_by_page=page_by_page)
        except (ValueError, OSError, pa.ArrowException):
            self._refused.add(name)
            return None

    def _chunk(
        self, facts: ChunkFacts, leaf: _Leaf, num_rows: int, *, page_by_page: bool
    ) -> ColumnChunk:
        start, count = self._span_of(facts)
        return column_chunk.ColumnChunk(
            self._bytes_at(start, count),
            CODECS[facts.codec],
            num_rows,
            leaf.dtype,
            optional=leaf.optional,
            read_again=(lambda at, n: self._bytes_at(start + at, n)) if page_by_page else None,
        )

    def _facts(self, index: int) -> list[ChunkFacts]:
        """The column chunks of a row group."""
        if self._latest[0] != index:
            if self._span is not None:
                begin, end = self._span(index)
                found = chunks_of(self._bytes_at(begin, end - begin))
            else:
                if self._footer is None:
                    with open(self._file, "rb") as handle:
                        self._footer = read_row_groups(handle)
                found = chunks_of(self._footer[index]) if index < len(self._footer) else []
            if len(found) != self._num_columns:
                raise ValueError("a row group has another number of columns")
            self._latest = (index, found)
        return self._latest[1]

    def _span_of(self, facts: ChunkFacts) -> tuple[int, int]:
        """Where a column chunk starts in the file, and how long it is."""
        self._open_file()
        start, count = facts.data_page, facts.num_bytes
        if 0 < facts.dictionary_page < start:
            start = facts.dictionary_page
        if start < 0 or not 0 <= count <= self._num_bytes - start:
            raise ValueError("a column chunk lies beyond its file")
        return start, count

    def _bytes_at(self, start: int, count: int) -> bytes:
        self._open_file()
        found = os.pread(self._descriptor, count, start)
        if len(found) != count:
            raise ValueError("a column chunk ends early")
        return found

    def _open_file(self) -> None:
        if self._descriptor < 0:
            self._descriptor = os.open(self._file, os.O_RDONLY)
            self._num_bytes = os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Close the file; it is opened again if need be."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _leaves(parquet: pq.ParquetFile, names: Iterable[str]) -> tuple[_Leaf, ...]:
    """The columns that may be decoded here."""
    wanted = {name: name for name in names}
    types = {field.name: field.type for field in parquet.schema_arrow}
    found: dict[str, _Leaf] = {}
    seen = set()
    for number in range(parquet.metadata.num_columns):
        leaf = parquet.schema.column(number)
        name = wanted.get(leaf.path)
        if name is None:
            continue
        kind, dtype = _KINDS.get(leaf.physical_type, (None, None))
        is_flat = leaf.max_repetition_level == 0 and leaf.max_definition_level <= 1
        if name in seen:  # two columns of one name: Arrow knows what that means
            found.pop(name, None)
        elif is_flat and dtype is not None and types.get(name) == kind:
            is_optional = leaf.max_definition_level == 1
            found[name] = _Leaf(name, number, leaf.physical_type, dtype, is_optional)
        seen.add(name)
    return tuple(found.values())


@functools.lru_cache(maxsize=8)
def _shared(leaves: tuple[_Leaf, ...]) -> dict[str, _Leaf]:
    return {leaf.name: leaf for leaf in leaves}


def _is_known(facts: ChunkFacts, leaf: _Leaf, num_rows: int) -> bool:
    """Whether a chunk is worth trying, as far as its metadata tells."""
    if facts.num_values != num_rows or facts.is_elsewhere or not num_rows:
        return False
    if _TYPES.get(facts.type) != leaf.physical or facts.nulls > 0:
        return False
    codec = CODECS[facts.codec] if 0 <= facts.codec < len(CODECS) else ""
    return codec in column_chunk.CODECS and not facts.encodings & ~_ENCODINGS
