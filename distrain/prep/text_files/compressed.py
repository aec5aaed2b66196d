"""Splits compressed text at the ends of its members (gzip) or frames (zstd).

bgzip, `cat a.gz b.gz`, pzstd and similar tools make files of many members, each of which can be
decompressed alone. The offsets of the members are not recorded. So a member is searched near each
wanted cut, by its first bytes and by trial decompression. Cuts are verified when rows are read: a
range whose bytes do not end where a member ends is an error.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import pyarrow as pa

from distrain.errors import DataError
from distrain.storage.inputs import open_input
from distrain.storage.retrying import RETRY_S

_MAGIC = {"gzip": b"\x1f\x8b\x08", "zstd": b"\x28\xb5\x2f\xfd"}
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_SCANNED_BYTES = 64 << 20
_WINDOW_BYTES = 1 << 20
_TRIED_BYTES = 64 << 10
_MOST_BLOCK_BYTES = 128 << 10
_TRIED_BLOCKS = 64
_READ_BYTES = 1 << 20


def cuts_of(path: str, codec: str, size_bytes: int, block_bytes: int) -> list[int]:
    """Return offsets at which tasks may start to decompress, from 0, about `block_bytes` apart.

    If no member begins within 64 MiB after a wanted cut, the rest of the file is not cut any more.
    So a file of one member has one offset. Raises `DataError` if the file cannot be read.
    """
    cuts = [0]
    with open_input(path, retry_s=RETRY_S) as handle:
        while size_bytes - cuts[-1] > block_bytes:
            next_cut = _next_member(handle, codec, cuts[-1] + block_bytes, size_bytes)
            if next_cut is None:
                break
            cuts.append(next_cut)
    return cuts


def _next_member(handle: IO[bytes], codec: str, start: int, size_bytes: int) -> int | None:
    magic = _MAGIC[codec]
    at, end = start, min(start + _SCANNED_BYTES, size_bytes)
    while at < end:
        handle.seek(at)
        window = handle.read(_WINDOW_BYTES + len(magic) - 1)  # a magic number may cross the border
        place = window.find(magic)
        while place >= 0 and at + place < end:
            is_one = _is_gzip_member if codec == "gzip" else _is_zstd_frame
            if is_one(handle, at + place, size_bytes):
                return at + place
            place = window.find(magic, place + 1)
        at += _WINDOW_BYTES
    return None


def _is_gzip_member(handle: IO[bytes], at: int, size_bytes: int) -> bool:
    handle.seek(at)
    head = handle.read(_TRIED_BYTES)
    if len(head) < 18 or head[3] & 0xE0:  # reserved flags
        return False
    member = zlib.decompressobj(31)
    try:
        member.decompress(head)
    except zlib.error:
        return False
    rest = member.unused_data
    return not member.eof or not rest or rest.startswith(_MAGIC["gzip"][: len(rest)])


def _is_zstd_frame(handle: IO[bytes], at: int, size_bytes: int) -> bool:
    """Return True if a zstd frame seems to begin at `at`.

    Its blocks, of which at most 64 are tried, must form a chain up to the frame's end.
    """
    handle.seek(at)
    head = handle.read(18)
    if len(head) < 6:
        return False
    flags = head[4]
    if flags & 0x08:  # reserved
        return False
    is_single, has_checksum = bool(flags & 0x20), bool(flags & 0x04)
    content_size = (int(is_single), 2, 4, 8)[flags >> 6]
    at += 5 + (not is_single) + (0, 1, 2, 4)[flags & 3] + content_size
    for _ in range(_TRIED_BLOCKS):
        handle.seek(at)
        header = int.from_bytes(handle.read(3), "little")
        is_last, kind, size = header & 1, header >> 1 & 3, header >> 3
        if kind == 3 or size > _MOST_BLOCK_BYTES or at + 3 > size_bytes:
            return False
        at += 3 + (1 if kind == 1 else size)  # a block of one byte, repeated
        if is_last:
            return _ends_a_frame(handle, at + 4 * has_checksum, size_bytes)
    return at <= size_bytes


def _ends_a_frame(handle: IO[bytes], at: int, size_bytes: int) -> bool:
    handle.seek(at)
    follows = handle.read(4)
    if not follows:
        return at == size_bytes
    return follows == _MAGIC["zstd"] or int.from_bytes(follows, "little") in _SKIPPABLE


class _Slice(io.RawIOBase):
    def __init__(self, handle: IO[bytes], start: int, stop: int | None):
        handle.seek(start)
        self._handle = handle
        self._stop = stop
        self.at = start

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        left = None if self._stop is None else self._stop - self.at
        wanted = size if size >= 0 else _READ_BYTES
        data = self._handle.read(wanted if left is None else min(wanted, left))
        self.at += len(data)
        return data


class Inflated:
    """The content of a compressed file's members, decompressed as it is read.

    `start` and `stop` are bytes of the compressed file at which members begin; `None` for its end.
    `read` raises `DataError` for damaged content.
    """

    def __init__(
        self, handle: IO[bytes], path: str, codec: str, start: int = 0, stop: int | None = None
    ):
        self._path = path
        self._codec = codec
        self._bytes = _Slice(handle, start, stop)
        self._range = (start, stop)
        self._stream: Any = pa.CompressedInputStream(pa.PythonFile(self._bytes, mode="r"), codec)

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
            if "incorrect data check" in str(error) or "checksum" in str(error):
                problem = "is damaged: its checksum does not match"
            start, stop = self._range
            where: dict[str, object] = {"file": self._path, "before byte": f"{self._bytes.at:,}"}
            if start or stop is not None:
                where["since byte"] = f"{start:,}"
            raise DataError(
                f"the {self._codec} file {problem}: {error}",
                where=where,
                hint="It was truncated or damaged; copy it again.",
            ) from None
