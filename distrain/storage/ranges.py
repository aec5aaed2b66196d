"""Remote files read by ranges, again where a storage does not answer."""

import contextlib
import io
from typing import Any

from distrain.errors import DataError
from distrain.storage.identity import version_in
from distrain.storage.retrying import with_retries

_AHEAD_BYTES = 4 << 20  # what is read beyond a request, so that many small ones are few ranges


class RangeReader(io.RawIOBase):
    """A remote file; each failed read is tried again from where it began, on a new connection.

    Its methods raise `DataError` if the file has changed since it was opened, `Unavailable` after
    `retry_s` without an answer, and what else the filesystem raises.
    """

    def __init__(self, path: str, retry_s: float):
        super().__init__()
        self._path = path
        self._retry_s = retry_s
        self._handle: Any = None
        self._version: str | None = None
        self._at = 0
        self._size: int | None = with_retries(self._opened_size, {"file": path}, retry_s)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size or 0}[whence]
        self._at = max(0, begin + offset)
        return self._at

    def readinto(self, target: Any) -> int:
        view = memoryview(target).cast("B")
        content = self._read(len(view))
        view[: len(content)] = content
        return len(content)

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            return b"".join(iter(lambda: self._read(_AHEAD_BYTES), b""))
        return self._read(size)

    def close(self) -> None:
        self._drop()
        super().close()

    def _read(self, size: int) -> bytes:
        def read() -> bytes:
            if self._handle is None:
                self._open()
            try:
                self._handle.seek(self._at)
                content: bytes = self._handle.read(size)
            except BaseException:
                self._drop()
                raise
            return content

        where = {"file": self._path, "from byte": self._at}
        content = with_retries(read, where, self._retry_s)
        self._at += len(content)
        return content

    def _opened_size(self) -> int | None:
        self._open()
        size = getattr(self._handle, "size", None)
        return None if size is None else int(size)

    def _open(self) -> None:
        from fsspec.core import url_to_fs

        filesystem, path = url_to_fs(self._path)
        handle = filesystem.open(path, "rb", block_size=_AHEAD_BYTES)
        details = getattr(handle, "details", None)
        version = version_in(details) if isinstance(details, dict) else None
        if self._version is not None and version != self._version:
            handle.close()
            raise DataError(
                "the file has changed while it was read",
                where={"file": self._path},
                hint="Another program writes it: wait for its end, and start again.",
            )
        self._handle, self._version = handle, version

    def _drop(self) -> None:
        if self._handle is not None:
            with contextlib.suppress(Exception):
                self._handle.close()
            self._handle = None
