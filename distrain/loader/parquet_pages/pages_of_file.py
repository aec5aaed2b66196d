"""Decodes columns of a local parquet file from their bytes, without Arrow.

Arrow is the reference implementation. Columns with damaged or unsupported data are left to Arrow,
and so are columns with nulls but without a fill value.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distrain.loader.parquet_pages.footer import (
    IS_BUILT,
    ChunkFacts,
    chunks_of,
    read_row_groups,
)
from distrain.loader.parquet_pages.leaves import Leaf, PageColumns
from distrain.loader.parquet_pages.thread_memory import MEMORY
from distrain.loader.partition.statistics import CODECS

if TYPE_CHECKING:
    from distrain.loader.parquet_pages.column_stream import ColumnStream, Descriptor

if IS_BUILT:
    from distrain.loader.parquet_pages import column_stream
    from distrain.loader.parquet_pages._pages import TOO_WIDE, decode

REFUSED = (ValueError, OSError, pa.ArrowException)
"""The errors after which Arrow has to read a column."""

_T = TypeVar("_T")

# PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED and RLE_DICTIONARY
_ENCODINGS = sum(1 << number for number in (0, 2, 3, 4, 8))
_CODECS = {CODECS.index(name) for name in ("UNCOMPRESSED", "SNAPPY", "LZ4")}
_TYPES = {1: "INT32", 2: "INT64", 4: "FLOAT", 5: "DOUBLE"}


class _Chunk(NamedTuple):
    """A column chunk, with its offset in the file, its size and codec."""

    leaf: Leaf
    start: int
    size: int
    codec: int


def read_columns(columns: Mapping[str, ColumnStream], rows: int) -> dict[str, NDArray[Any]]:
    """Return the next `rows` values of each column; columns that Arrow has to read are missing."""
    if not columns:
        return {}
    results = column_stream.read_aligned([*columns.values()], rows)
    named = zip(columns, results, strict=True)
    return {name: values for name, values in named if not isinstance(values, str)}


class PagesOfFile:
    """The column chunks of a local parquet file, for one thread.

    The file is opened when a chunk is first read. `span` returns the offsets of a row group's part
    of the footer, begin and end; `None` reads the whole footer and keeps it.
    """

    def __init__(
        self,
        file: str,
        columns: PageColumns,
        span: Callable[[int], tuple[int, int]] | None = None,
    ):
        self._file = file
        self._span = span
        self._descriptor: Descriptor | None = None
        self._columns = columns
        self._refused: set[str] = set()
        self._dtypes: dict[str, tuple[np.dtype[Any], ...]] = {}  # of columns that need wider types
        self._footer: list[memoryview] | None = None
        self._latest: tuple[int, list[ChunkFacts]] = (-1, [])

    def read(self, index: int, num_rows: int, names: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Return the columns of a row group that can be decoded without Arrow, each `[num_rows]`.

        Integers have the narrowest of their `Leaf.dtypes` that holds all values of this row group
        and of the row groups read before.
        """
        decoded: dict[str, NDArray[Any]] = {}
        leaves = self._leaves_to_try(names)
        tried = (self._tried(index, num_rows, leaf, _Chunk) for leaf in leaves)
        chunks = [chunk for chunk in tried if chunk is not None]
        while chunks:
            chunks = self._decode(chunks, num_rows, decoded)
        return decoded

    def chunk_bytes(self, index: int, numbers: Iterable[int]) -> int | None:
        """Return the total compressed size, in bytes, of some columns of a row group.

        `numbers` are the columns' leaf numbers in the file. Returns `None` if the size is not known
        without Arrow's footer.
        """
        if not self._columns.leaves:  # the footer is not needed otherwise
            return None
        try:
            facts = self._facts(index)
        except REFUSED:
            return None
        return sum(facts[number].num_bytes for number in numbers)

    def open(self, index: int, num_rows: int, name: str) -> ColumnStream | None:
        """Open a column of a row group to read it in parts; `None` if Arrow has to read it.

        The result may be used by any thread, one at a time. It keeps the file open, and has one
        page in memory at a time.
        """
        leaves = self._leaves_to_try([name])

        def opened(leaf: Leaf, start: int, size: int, codec: int) -> ColumnStream:
            span = column_stream.Span(start, start + size, codec, num_rows)
            file = self._opened_file()
            return column_stream.ColumnStream(file, span, leaf, self._dtypes_of(leaf))

        return self._tried(index, num_rows, leaves[0], opened) if leaves else None

    def _leaves_to_try(self, names: Iterable[str]) -> list[Leaf]:
        leaves, refused = self._columns.leaves, self._refused
        return [leaves[name] for name in names if name in leaves and name not in refused]

    def _tried(
        self,
        index: int,
        num_rows: int,
        leaf: Leaf,
        act: Callable[[Leaf, int, int, int], _T],
    ) -> _T | None:
        try:
            facts = self._facts(index)[leaf.number]
            if not _is_known(facts, leaf, num_rows):
                return None
            return act(leaf, *self._span_of(facts), facts.codec)
        except REFUSED:
            self._refused.add(leaf.name)  # it will likely fail in the file's other row groups, too
            return None

    def _decode(
        self, chunks: Sequence[_Chunk], num_rows: int, decoded: dict[str, NDArray[Any]]
    ) -> list[_Chunk]:
        """Add the chunks' values to `decoded`, by name; return the chunks that need wider types.

        A chunk that this package cannot decode is left to Arrow: its name is added to `_refused`.
        """
        dtypes = [self._dtypes_of(chunk.leaf)[0] for chunk in chunks]
        outs = MEMORY.columns_for(num_rows, dtypes)
        described = [
            (
                chunk.start,
                chunk.size,
                chunk.codec,
                chunk.leaf.optional,
                chunk.leaf.dtype.itemsize,
                values,
                values.itemsize,
                chunk.leaf.fill_bytes(values.dtype),
            )
            for chunk, values in zip(chunks, outs, strict=True)
        ]
        problems = decode(self._opened_file().number, MEMORY.kernel, described)
        again = []
        for chunk, values, problem in zip(chunks, outs, problems, strict=True):
            name = chunk.leaf.name
            if problem is None:
                decoded[name] = chunk.leaf.as_logical(values)
            elif problem == TOO_WIDE:
                self._dtypes[name] = self._dtypes_of(chunk.leaf)[1:]
                again.append(chunk)
            else:
                self._refused.add(name)
        return again

    def _dtypes_of(self, leaf: Leaf) -> tuple[np.dtype[Any], ...]:
        return self._dtypes.get(leaf.name, leaf.dtypes)

    def _facts(self, index: int) -> list[ChunkFacts]:
        if self._latest[0] != index:
            if self._span is not None:
                begin, end = self._span(index)
                facts = chunks_of(self._bytes_at(begin, end - begin))
            else:
                if self._footer is None:
                    file = self._opened_file()
                    self._footer = read_row_groups(self._bytes_at, file.num_bytes)
                facts = chunks_of(self._footer[index]) if index < len(self._footer) else []
            if len(facts) != self._columns.num_columns:
                raise ValueError("a row group has another number of columns")
            self._latest = (index, facts)
        return self._latest[1]

    def _span_of(self, facts: ChunkFacts) -> tuple[int, int]:
        start, count = facts.data_page, facts.num_bytes
        if 0 < facts.dictionary_page < start:
            start = facts.dictionary_page
        if start < 0 or not 0 <= count <= self._opened_file().num_bytes - start:
            raise ValueError("a column chunk is beyond the end of its file")
        return start, count

    def _bytes_at(self, start: int, count: int) -> bytes:
        content = os.pread(self._opened_file().number, count, start)
        if len(content) != count:
            raise ValueError("the file ends early")
        return content

    def _opened_file(self) -> Descriptor:
        if self._descriptor is None:
            self._descriptor = column_stream.Descriptor(self._file)
        return self._descriptor

    def close(self) -> None:
        """Close the file, as soon as its open columns are dropped; it is reopened if needed."""
        self._descriptor = None


def _is_known(facts: ChunkFacts, leaf: Leaf, num_rows: int) -> bool:
    if facts.num_values != num_rows or facts.is_elsewhere or not num_rows:
        return False
    if _TYPES.get(facts.type) != leaf.physical:
        return False
    if facts.nulls > 0 and not leaf.fill_bytes(leaf.dtype):
        return False
    return facts.codec in _CODECS and not facts.encodings & ~_ENCODINGS
