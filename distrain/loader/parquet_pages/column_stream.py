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
    start: int  # offset of its first byte
    end: int  # offset after its last byte
    codec: int  # 0 for none, 1 for snappy, 7 for LZ4
    num_rows: int  # of the row group
    optional: bool  # whether it may hold nulls
    dtype: np.dtype[Any]  # int32, int64, float32 or float64, as in the file


class ColumnStream:
    """The values of a column of a row group, read in order, by one thread at a time.

    It holds the column's dictionary and one page. `fill` returns the bytes of the replacement of
    nulls in a type, or no bytes if nulls are not filled. Values have the first of `dtypes`, ordered
    by width, until a value does not fit; the last type holds all values.
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
        """Return the next values, in memory that the thread reuses once it is not referenced.

        Raises:
            ValueError: Arrow has to read the column, and why.
        """
        (values,) = read_aligned([self], rows)
        if isinstance(values, str):
            raise ValueError(values)
        return values

    def skip(self, rows: int) -> None:
        """Skip values; pages that are skipped whole are not decompressed. Raises like `read`."""
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
    """Return each stream's next values, from one call of C; or why Arrow must read the column."""
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
        results.append(values if problem is None else problem)
    return results
