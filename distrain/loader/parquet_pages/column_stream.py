"""A column chunk whose rows are read in parts, each in one call of the C code."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distrain.loader.parquet_pages import _pages
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
    start: int  # its first byte
    end: int  # the byte behind its last one
    codec: int  # 0 for none, 1 for snappy, 7 for LZ4
    num_rows: int  # of the row group
    optional: bool  # whether it may hold nulls
    dtype: np.dtype[Any]  # int32, int64, float32 or float64, as the file has it


class ColumnStream:
    """The values of a column of a row group, taken from the front, by one thread at a time.

    It holds the column's dictionary and one page. Where nulls may be filled, `fill` gives the bytes
    of what they become in a type, or none. Values come in the first of `dtypes`, each with more
    space than the one before it, until one does not fit; the last has space for all.
    """

    def __init__(
        self,
        file: Descriptor,
        span: Span,
        fill: Callable[[np.dtype[Any]], bytes],
        dtypes: Sequence[np.dtype[Any]],
    ):
        self._file = file
        self._span = span
        self._fill = fill
        self._taken = 0
        self._dtypes = iter(dtypes)
        self._open()

    def _open(self) -> None:
        start, end, codec, num_rows, optional, in_file = self._span
        self._dtype = dtype = next(self._dtypes)
        self._stream = _pages.stream(
            start, end, num_rows, codec, optional, in_file.itemsize, dtype.itemsize,
            self._fill(dtype),
        )  # fmt: skip

    def read(self, rows: int) -> NDArray[Any]:
        """Return the next values, in memory that the thread uses again once nothing refers to them.

        A `ValueError` says why Arrow has to read the column.
        """
        (found,) = read_aligned([self], rows)
        if isinstance(found, str):
            raise ValueError(found)
        return found

    def skip(self, rows: int) -> None:
        """Pass over values without decompressing their pages; raises as `read`."""
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
    """The next values of each stream in one call of C; instead, why Arrow must read the column."""
    outs = MEMORY.columns_for(rows, [stream._dtype for stream in streams])
    wanted = [
        (stream._stream, stream._file.number, values)
        for stream, values in zip(streams, outs, strict=True)
    ]
    found: list[NDArray[Any] | str] = []
    problems = _pages.read(MEMORY.kernel, wanted)
    for stream, values, problem in zip(streams, outs, problems, strict=True):
        if problem == _pages.TOO_WIDE:
            found.append(stream._read_wider(rows))
            continue
        if problem is None:
            stream._taken += rows
        found.append(values if problem is None else problem)
    return found
