"""Reads a column chunk in parts; each part takes one call of the C code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distrain.loader.parquet_pages import _pages
from distrain.loader.parquet_pages.leaves import Leaf
from distrain.loader.parquet_pages.thread_memory import MEMORY


class Descriptor:
    def __init__(self, file: str):
        self.number = -1
        self.number = os.open(file, os.O_RDONLY)
        self.num_bytes = os.fstat(self.number).st_size

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)


class Span(NamedTuple):
    start: int  # offset in the file of the chunk's first byte
    end: int  # offset after the chunk's last byte
    codec: int  # 0 for none, 1 for snappy, 7 for LZ4
    num_rows: int  # rows of the row group


class ColumnStream:
    """Decodes the values of a column of a row group, in order, by one thread at a time.

    It keeps the column's dictionary and one page in memory. `dtypes` are the types to decode to,
    ordered by width: the first one is used until a value does not fit, then the next. The last one
    must hold all values. Results are then converted to the NumPy type of the column's Arrow type.
    """

    def __init__(self, file: Descriptor, span: Span, leaf: Leaf, dtypes: Sequence[np.dtype[Any]]):
        self._file = file
        self._span = span
        self._leaf = leaf
        self._taken = 0
        self._dtypes = iter(dtypes)
        self._open()

    def _open(self) -> None:
        start, end, codec, num_rows = self._span
        self._dtype = dtype = next(self._dtypes)
        in_file, fill = self._leaf.dtype.itemsize, self._leaf.fill_bytes(dtype)
        self._stream = _pages.stream(
            start, end, num_rows, codec, self._leaf.optional, in_file, dtype.itemsize, fill
        )

    def read(self, rows: int) -> NDArray[Any]:
        """Return the next `rows` values, in memory that is reused when there is no reference to it.

        Raises:
            ValueError: Arrow has to read the column; the message says why.
        """
        (values,) = read_aligned([self], rows)
        if isinstance(values, str):
            raise ValueError(values)
        return values

    def skip(self, rows: int) -> None:
        """Skip `rows` values, without decompressing pages that are skipped whole.

        Raises the errors of `read`.
        """
        try:
            _pages.skip(self._stream, self._file.number, MEMORY.kernel, rows)
        except OverflowError:
            self._widen()
            return self.skip(rows)
        self._taken += rows
        return None

    def _read_wider(self, rows: int) -> NDArray[Any] | str:
        try:
            self._widen()
            return self.read(rows)
        except ValueError as error:
            return str(error)

    def _widen(self) -> None:
        taken, self._taken = self._taken, 0
        self._open()
        self.skip(taken)


def read_aligned(streams: Sequence[ColumnStream], rows: int) -> list[NDArray[Any] | str]:
    """Return the next `rows` values of each stream, with one call of the C code for all.

    For a column that this package cannot decode, so that Arrow has to read it, the result has the
    reason, a text, instead of the values.
    """
    outs = MEMORY.columns_for(rows, [stream._dtype for stream in streams])
    wanted = [
        (stream._stream, stream._file.number, values)
        for stream, values in zip(streams, outs, strict=True)
    ]
    results: list[NDArray[Any] | str] = []
    problems = _pages.read(MEMORY.kernel, wanted)
    for stream, values, problem in zip(streams, outs, problems, strict=True):
        if problem == _pages.TOO_WIDE:
            results.append(stream._read_wider(rows))
            continue
        if problem is None:
            stream._taken += rows
        results.append(stream._leaf.as_logical(values) if problem is None else problem)
    return results
