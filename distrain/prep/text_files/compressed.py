"""Decompresses gzip and zstd files, of one or several members, as they are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import pyarrow as pa

from distrain.errors import DataError

_AFTER_THE_END = ("incorrect header check", "unknown compression method", "Unknown frame")
"""Parts of the errors for bytes that follow a gzip member or zstd frame, but begin no other."""


class Inflated:
    """The content of a compressed file; `read` raises `DataError` if it is damaged."""

    def __init__(self, handle: IO[bytes], path: str, codec: str):
        self._path = path
        self._codec = codec
        self._bytes = handle
        self._stream: Any = pa.CompressedInputStream(pa.PythonFile(handle, mode="r"), codec)

    def read(self, size_bytes: int) -> bytes:
        with self._decompressing():
            data: bytes = self._stream.read(size_bytes)
            while len(data) < size_bytes and (more := self._stream.read(size_bytes - len(data))):
                data += more
            return data

    @contextmanager
    def _decompressing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno is not None:  # an error of the storage
                raise
            problem = "cannot be decompressed"
            hint = "It was truncated or damaged; copy it again."
            if any(one in str(error) for one in _AFTER_THE_END):
                problem = "has other bytes, such as zeros, after its compressed data"
                hint = (
                    "Compress the table again. `gzip -dc FILE | gzip > NEW` drops padding of gzip."
                )
            elif "incorrect data check" in str(error) or "checksum" in str(error):
                problem = "is damaged: its checksum does not match"
            raise DataError(
                f"the {self._codec} file {problem}: {error}",
                where={"file": self._path, "before byte": f"{self._bytes.tell():,}"},
                hint=hint,
            ) from None


@contextmanager
def read_errors(path: str) -> Iterator[None]:
    """Context manager that converts an `OSError` of reading a text file to `DataError`."""
    # An `OSError` would look like an error of the output that is being written.
    try:
        yield
    except OSError as error:
        raise DataError(
            f"the file could not be read: {error}",
            where={"file": path},
            hint="Check its disk or its server, and start again.",
        ) from None
