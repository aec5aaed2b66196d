"""Which columns of a local file are decoded here, and their bytes.

Arrow decides what is right: what is damaged or unknown here is left to it, and so are nulls of
columns without something to fill them with.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

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
from distrain.loader.pages.thread_memory import MEMORY

if TYPE_CHECKING:
    from distrain.loader.pages.column_stream import Descriptor

if IS_BUILT:
    from distrain.loader.pages import column_chunk, column_stream
    from distrain.loader.pages._pages import TOO_WIDE, decode

REFUSED = (ValueError, OSError, pa.ArrowException)
"""What is raised where Arrow has to read a column."""

_T = TypeVar("_T")

BUILT = IS_BUILT and sys.byteorder == "little"

# PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED and RLE_DICTIONARY
_ENCODINGS = sum(1 << number for number in (0, 2, 3, 4, 8))
_DECOMPRESSED_IN_C = {CODECS.index(name) for name in ("UNCOMPRESSED", "SNAPPY", "LZ4")}
_TYPES = {1: "INT32", 2: "INT64", 4: "FLOAT", 5: "DOUBLE"}
_IN_FILE: dict[str, np.dtype[Any]] = {
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FLOAT": np.dtype(np.float32),
    "DOUBLE": np.dtype(np.float64),
}
_LOGICAL: dict[tuple[str, pa.DataType], np.dtype[Any]] = {
    ("INT32", pa.int32()): np.dtype(np.int32),
    ("INT32", pa.date32()): np.dtype(np.int32),
    ("INT32", pa.uint32()): np.dtype(np.uint32),
    ("INT32", pa.int16()): np.dtype(np.int16),
    ("INT32", pa.uint16()): np.dtype(np.uint16),
    ("INT32", pa.int8()): np.dtype(np.int8),
    ("INT32", pa.uint8()): np.dtype(np.uint8),
    ("INT64", pa.int64()): np.dtype(np.int64),
    ("FLOAT", pa.float32()): np.dtype(np.float32),
    ("DOUBLE", pa.float64()): np.dtype(np.float64),
}
"""What Arrow makes of a type in the file, where that has the same bits, or the lowest ones."""


class _Leaf(NamedTuple):
    """A column by its number, with its types in the file and in memory.

    Attributes:
        optional: Whether it may hold nulls.
        fill: What they become; `None` leaves them to Arrow.
    """

    name: str
    number: int
    physical: str
    dtype: np.dtype[Any]
    logical: np.dtype[Any]
    optional: bool
    fill: float | int | None

    def fill_bytes(self, dtype: np.dtype[Any]) -> bytes:
        """What nulls become in an array of a type; nothing where that cannot be."""
        if self.fill is None or self.logical != self.dtype:
            return b""
        if dtype.kind == "i":
            limits = np.iinfo(dtype)
            if self.fill % 1 or not limits.min <= self.fill <= limits.max:
                return b""
        return np.array(self.fill, dtype).tobytes()

    def as_logical(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of the file as Arrow has them, which drops bits that the type has no room for."""
        return values if self.logical == self.dtype else values.astype(self.logical)


class _Chunk(NamedTuple):
    """A column chunk that C decompresses: where it starts in the file, its bytes, its codec."""

    leaf: _Leaf
    start: int
    size: int
    codec: int


class OpenColumn:
    """A column of a row group whose rows are taken from the front, by one thread at a time."""

    def __init__(self, leaf: _Leaf, source: _Source):
        self._leaf = leaf
        self._source = source

    def read(self, rows: int) -> NDArray[Any]:
        """The next values; integers of 64 bits come as int32 where all of them fit.

        Raises:
            One of `REFUSED`: Arrow has to read the column.
        """
        return self._leaf.as_logical(self._source.read(rows))

    def skip(self, rows: int) -> None:
        """Pass over the next values. Raises as `read` does."""
        self._source.skip(rows)


class _Source(Protocol):
    def read(self, rows: int) -> NDArray[Any]: ...

    def skip(self, rows: int) -> None: ...


def is_enabled() -> bool:
    """Whether pages are decoded here: it is built, and `DISTRAIN_PAGES` is not 0."""
    return BUILT and os.environ.get("DISTRAIN_PAGES") != "0"


class PageColumns(NamedTuple):
    """Columns of files that may be decoded here; many files may have the same.

    Attributes:
        leaves: By their names.
        num_columns: How many columns the files have, all counted.
    """

    leaves: Mapping[str, _Leaf]
    num_columns: int


def page_columns(
    parquet: pq.ParquetFile,
    names: Iterable[str],
    fills: Mapping[str, float | int | None] | None = None,
) -> PageColumns:
    """Those of some columns of a file, open in Arrow, that may be decoded here.

    `fills` has what nulls become, by column; others leave them to Arrow.
    """
    leaves = _leaves(parquet, names, fills or {}) if is_enabled() else ()
    return PageColumns({leaf.name: leaf for leaf in leaves}, parquet.metadata.num_columns)


class PagesOfFile:
    """A local parquet file's column chunks, for one thread.

    Args:
        file: Its path; it is opened when a chunk is first read.
        columns: Those that may be read.
        span: Where a row group's part of the footer begins and ends in the file; without it the
            whole footer is read again and held.
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
        self._wide: set[str] = set()  # columns whose integers need 64 bits
        self._footer: list[memoryview] | None = None
        self._latest: tuple[int, list[ChunkFacts]] = (-1, [])

    def read(self, index: int, num_rows: int, names: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Those of some columns of a row group of so many rows that do not need Arrow.

        Integers of 64 bits come as int32 where all of them fit.
        """
        found: dict[str, NDArray[Any]] = {}
        chunks = []
        for name in names:
            begun = self._tried(index, num_rows, name, self._begun)
            if isinstance(begun, _Chunk):
                chunks.append(begun)
            elif begun is not None:
                found[name] = begun
        while chunks:
            chunks = self._decode(chunks, num_rows, found)
        return found

    def open(self, index: int, num_rows: int, name: str) -> OpenColumn | None:
        """The same to be read some rows at a time, of which it holds no more than a page.

        It keeps the file open by itself, and may be used in another thread.
        """
        return self._tried(index, num_rows, name, self._opened)

    def _tried(
        self,
        index: int,
        num_rows: int,
        name: str,
        act: Callable[[ChunkFacts, _Leaf, int], _T],
    ) -> _T | None:
        leaf = self._columns.leaves.get(name)
        if leaf is None or name in self._refused:
            return None
        try:
            facts = self._facts(index)[leaf.number]
            return act(facts, leaf, num_rows) if _is_known(facts, leaf, num_rows) else None
        except REFUSED:
            self._refused.add(name)  # the file's other row groups will be no better
            return None

    def _begun(self, facts: ChunkFacts, leaf: _Leaf, num_rows: int) -> _Chunk | NDArray[Any]:
        """A column chunk that C decodes, or its values where it does not decompress it."""
        start, size = self._span_of(facts)
        if facts.codec in _DECOMPRESSED_IN_C:
            return _Chunk(leaf, start, size, facts.codec)
        chunk = self._bytes_at(start, size)
        return leaf.as_logical(self._chunk(facts, leaf, num_rows, chunk).read(num_rows))

    def _decode(
        self, chunks: Sequence[_Chunk], num_rows: int, found: dict[str, NDArray[Any]]
    ) -> list[_Chunk]:
        """Add what chunks become to `found`; returns those that need wider values."""
        outs = [MEMORY.values_for(num_rows, self._narrowest(chunk.leaf)) for chunk in chunks]
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
                found[name] = chunk.leaf.as_logical(values)
            elif problem == TOO_WIDE:
                self._wide.add(name)
                again.append(chunk)
            else:
                self._refused.add(name)
        return again

    def _narrowest(self, leaf: _Leaf) -> np.dtype[Any]:
        """What values become: int64 becomes int32 as long as all of a column fitted."""
        is_narrow = leaf.dtype == np.int64 and leaf.name not in self._wide
        return _IN_FILE["INT32"] if is_narrow else leaf.dtype

    def _opened(self, facts: ChunkFacts, leaf: _Leaf, num_rows: int) -> OpenColumn:
        start, count = self._span_of(facts)
        file = self._opened_file()
        if facts.codec in _DECOMPRESSED_IN_C:
            span = column_stream.Span(
                start, start + count, facts.codec, num_rows, leaf.optional, leaf.dtype
            )
            is_wide = leaf.name in self._wide
            stream = column_stream.ColumnStream(file, span, leaf.fill_bytes, is_wide=is_wide)
            return OpenColumn(leaf, stream)

        def read_again(at: int, count: int) -> bytes:
            return _bytes_of(file, start + at, count)

        chunk = self._bytes_at(start, count)
        return OpenColumn(leaf, self._chunk(facts, leaf, num_rows, chunk, read_again))

    def _chunk(
        self,
        facts: ChunkFacts,
        leaf: _Leaf,
        num_rows: int,
        chunk: bytes,
        read_again: Callable[[int, int], bytes] | None = None,
    ) -> column_chunk.ColumnChunk:
        return column_chunk.ColumnChunk(
            chunk,
            CODECS[facts.codec],
            num_rows,
            leaf.dtype,
            optional=leaf.optional,
            read_again=read_again,
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
            if len(found) != self._columns.num_columns:
                raise ValueError("a row group has another number of columns")
            self._latest = (index, found)
        return self._latest[1]

    def _span_of(self, facts: ChunkFacts) -> tuple[int, int]:
        """Where a column chunk starts in the file, and how long it is."""
        start, count = facts.data_page, facts.num_bytes
        if 0 < facts.dictionary_page < start:
            start = facts.dictionary_page
        if start < 0 or not 0 <= count <= self._opened_file().num_bytes - start:
            raise ValueError("a column chunk lies beyond its file")
        return start, count

    def _bytes_at(self, start: int, count: int) -> bytes:
        return _bytes_of(self._opened_file(), start, count)

    def _opened_file(self) -> Descriptor:
        if self._descriptor is None:
            self._descriptor = column_stream.Descriptor(self._file)
        return self._descriptor

    def close(self) -> None:
        """Close the file, once its open columns are dropped; it is opened again if need be."""
        self._descriptor = None


def _bytes_of(file: Descriptor, start: int, count: int) -> bytes:
    found = os.pread(file.number, count, start)
    if len(found) != count:
        raise ValueError("a column chunk ends early")
    return found


def _leaves(
    parquet: pq.ParquetFile, names: Iterable[str], fills: Mapping[str, float | int | None]
) -> tuple[_Leaf, ...]:
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
        logical = _LOGICAL.get((leaf.physical_type, types.get(name)))
        is_flat = leaf.max_repetition_level == 0 and leaf.max_definition_level <= 1
        if name in seen:  # two columns of one name: Arrow knows what that means
            found.pop(name, None)
        elif is_flat and logical is not None:
            found[name] = _Leaf(
                name,
                number,
                leaf.physical_type,
                _IN_FILE[leaf.physical_type],
                logical,
                leaf.max_definition_level == 1,
                fills.get(name),
            )
        seen.add(name)
    return tuple(found.values())


def _is_known(facts: ChunkFacts, leaf: _Leaf, num_rows: int) -> bool:
    """Whether a chunk is worth trying, as far as its metadata tells."""
    if facts.num_values != num_rows or facts.is_elsewhere or not num_rows:
        return False
    fills = leaf.fill_bytes(leaf.dtype) and facts.codec in _DECOMPRESSED_IN_C
    if _TYPES.get(facts.type) != leaf.physical or (facts.nulls > 0 and not fills):
        return False
    codec = CODECS[facts.codec] if 0 <= facts.codec < len(CODECS) else ""
    return codec in column_chunk.CODECS and not facts.encodings & ~_ENCODINGS
