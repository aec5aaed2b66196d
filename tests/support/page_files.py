"""Parquet files in memory, their columns decoded by Arrow and from their pages."""

import io
import os
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

DTYPES = {
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
}


def written(table: pa.Table, **options: Any) -> bytes:
    """The file that pyarrow writes."""
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


def opened(content: bytes, footer: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """As the loader opens files."""
    source = pa.BufferReader(content)
    return pq.ParquetFile(source, metadata=footer, page_checksum_verification=True)


def span_of(column: pq.ColumnChunkMetaData) -> tuple[int, int]:
    """Where a column chunk begins and ends in its file."""
    start = column.dictionary_page_offset or column.data_page_offset
    return start, start + column.total_compressed_size


def in_one_call(
    content: bytes, parquet: pq.ParquetFile, group: int, number: int, fill: float | None = None
) -> NDArray[Any]:
    """A column of a row group, decoded in one call."""
    from distrain.loader.parquet_pages import _pages

    (start, stop), codec, optional, dtype, rows = _arguments(parquet, group, number)
    values = np.full(rows, 0x5A, dtype)
    chunk, width, memory = content[start:stop], dtype.itemsize, _pages.memory()
    decode_chunk(chunk, codec, optional, width, values, width, _bytes_of(fill, dtype), memory)
    for kind in (np.int32, np.uint16, np.uint8) if dtype.kind == "i" else ():
        narrow, filled = np.full(rows, 0x5A, kind), _bytes_of(fill, np.dtype(kind))
        if narrow.itemsize == width:
            continue
        try:
            decode_chunk(chunk, codec, optional, width, narrow, narrow.itemsize, filled, memory)
        except OverflowError:
            continue
        assert (narrow == values).all()
    return values


def decode_chunk(
    chunk: Any, codec: int, optional: bool, file_bytes: int, out: Any, item_bytes: int, *more: Any
) -> None:
    """Decode a chunk that is a file of its own; an error says what is wrong with it."""
    from distrain.loader.parquet_pages import _pages

    fill, memory = more or (b"", _pages.memory())
    with os.fdopen(os.memfd_create("chunk"), "wb", buffering=0) as file:
        file.write(chunk)
        found = (0, len(chunk), codec, optional, file_bytes, out, item_bytes, fill)
        (problem,) = _pages.decode(file.fileno(), memory, [found])
    _raise(problem)


def _raise(problem: str | None) -> None:
    from distrain.loader.parquet_pages._pages import TOO_WIDE

    if problem is not None:
        raise (OverflowError if problem == TOO_WIDE else ValueError)(problem)


def in_parts(
    content: bytes,
    parquet: pq.ParquetFile,
    group: int,
    number: int,
    fill: float | None = None,
    cuts: Any = (),
    skipped: int = 0,
) -> NDArray[Any]:
    """The same from a file, in parts that end at `cuts`; so many rows are passed over first.

    Two streams read it in the same calls, and must agree.
    """
    from distrain.loader.parquet_pages import _pages

    (start, stop), codec, optional, dtype, rows = _arguments(parquet, group, number)
    width, memory, filled = dtype.itemsize, _pages.memory(), _bytes_of(fill, dtype)
    streams = [
        _pages.stream(start, stop, rows, codec, optional, width, width, filled) for _ in range(2)
    ]
    values: NDArray[Any] = np.full(rows, 0x5A, dtype)
    again = values.copy()
    descriptor = os.memfd_create("pages")
    try:
        os.write(descriptor, content)
        for stream in streams:
            _pages.skip(stream, descriptor, memory, skipped)
        parts = (np.split(outs[skipped:], list(cuts)) for outs in (values, again))
        for outs in zip(*parts, strict=True):
            columns = [(stream, descriptor, out) for stream, out in zip(streams, outs, strict=True)]
            problem, other_problem = _pages.read(memory, columns)
            assert problem == other_problem
            _raise(problem)
    finally:
        os.close(descriptor)
    assert values.tobytes() == again.tobytes()
    return values


def _bytes_of(fill: float | None, dtype: np.dtype[Any]) -> bytes:
    return b"" if fill is None else np.array(fill, dtype).tobytes()


def _arguments(parquet: pq.ParquetFile, group: int, number: int) -> Any:
    from distrain.loader.partition.statistics import CODECS

    row_group = parquet.metadata.row_group(group)
    column, leaf = row_group.column(number), parquet.schema.column(number)
    dtype = np.dtype(DTYPES[parquet.schema_arrow.field(number).type])
    optional, codec = leaf.max_definition_level == 1, CODECS.index(column.compression)
    return span_of(column), codec, optional, dtype, row_group.num_rows


def from_arrow(
    parquet: pq.ParquetFile, group: int, number: int, fill: float | None = None
) -> NDArray[Any]:
    """The same by Arrow; nulls are a `ValueError` where nothing fills them."""
    name = parquet.schema_arrow.names[number]
    column = parquet.read_row_group(group, columns=[name], use_threads=False)[0]
    if column.null_count and fill is None:
        raise ValueError("nulls")
    if column.null_count:
        column = column.fill_null(pa.scalar(fill, column.type))
    values: NDArray[Any] = column.combine_chunks().to_numpy(zero_copy_only=False)
    return values


def same(left: NDArray[Any], right: NDArray[Any]) -> bool:
    """Whether two arrays have the same type and bits: NaN is NaN, -0.0 is not 0.0."""
    return left.dtype == right.dtype and left.tobytes() == right.tobytes()
