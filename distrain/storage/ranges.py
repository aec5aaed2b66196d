"""Reads remote files by byte ranges, with retries; S3 objects by signed URLs if possible.

s3fs receives all bytes of a process in one Python thread, which takes 3 to 4 CPU seconds a
gigabyte: at most about 300 MB/s, and less if other threads need the interpreter. So s3fs only signs
the URL of an object, and urllib3 fetches the bytes in the thread that needs them. If this
does not work, s3fs reads the object: it supports all kinds of servers, credentials, proxies and
errors.
"""

from __future__ import annotations

import io
import os
import threading
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from distrain.errors import DataError
from distrain.storage.identity import version_in
from distrain.storage.retrying import with_retries

if TYPE_CHECKING:
    import urllib3

_AHEAD_BYTES = 4 << 20  # read-ahead beyond a request, so that many small reads are few ranges
_PROTOCOLS = {"s3", "s3a"}
_SIGNED_FOR_S = 3600
# A URL is used for less time than it is valid: clocks differ, and requests may wait.
_USED_FOR_S = _SIGNED_FOR_S / 2
_CONNECT_S, _READ_S = 10.0, 60.0
_REFUSED_FOR_S = 60.0
_PARTIAL_CONTENT = 206


class RangeReader(io.RawIOBase):
    """A remote file, read by ranges; a failed read is retried on a new connection.

    Its methods raise `DataError` if the file has changed since it was opened, `Unavailable` after
    `retry_s` seconds without an answer, and other errors of the filesystem.
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
                hint="Another program writes it: wait until it has finished, and start again.",
            )
        self._handle, self._version = handle, version

    def _drop(self) -> None:
        if self._handle is not None:
            with suppress(Exception):
                self._handle.close()
            self._handle = None


class Connections:
    """HTTP connections shared by a process's threads; keeps at most `most` idle ones per server."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._pool: urllib3.PoolManager | None = None
        self._process = 0

    def pool(self) -> urllib3.PoolManager:
        import urllib3

        with self._lock:
            if self._pool is None or self._process != os.getpid():
                self._process = os.getpid()
                self._pool = urllib3.PoolManager(
                    maxsize=self._most,
                    retries=False,
                    timeout=urllib3.Timeout(connect=_CONNECT_S, read=_READ_S),
                    ca_certs=_certificates(),
                )
            return self._pool

    def close(self) -> None:
        with self._lock:
            if self._pool is not None:
                self._pool.clear()
            self._pool = None


class SignedRanges:
    """Reads ranges of an S3 object, which s3fs has opened, by signed URLs. Thread-safe."""

    def __init__(self, handle: Any, connections: Connections):
        self._filesystem, self._path = handle.fs, handle.path
        self._headers = {"If-Match": handle.details["ETag"], "Accept-Encoding": "identity"}
        self._connections = connections
        self._lock = threading.Lock()
        self._url = ""
        self._until_s = 0.0
        self._has_worked = False
        self._refused_until_s = 0.0

    def read(self, begin: int, end: int) -> bytes | None:
        """Return bytes `begin` to `end - 1` of the object; `None` if signed URLs do not work."""
        if monotonic() < self._refused_until_s:
            return None
        url, content = "", None
        try:
            url = self._signed_url()
            if not _has_proxy(url):
                content = self._received(url, begin, end)
        except Exception:  # s3fs then reads the range, and reports the error
            content = None
        self._learn(url, content is not None)
        return content

    def _signed_url(self) -> str:
        with self._lock:
            if not self._url or monotonic() > self._until_s:
                until_s = monotonic() + _USED_FOR_S
                _sign_by_version_4(self._filesystem, self._path)
                self._url = self._filesystem.sign(self._path, expiration=_SIGNED_FOR_S)
                self._until_s, self._has_worked = until_s, False
            return self._url

    def _received(self, url: str, begin: int, end: int) -> bytes | None:
        headers = self._headers | {"Range": f"bytes={begin}-{end - 1}"}
        response = self._connections.pool().request(
            "GET", url, headers=headers, redirect=False, preload_content=False
        )
        content = b""
        try:
            if response.status == _PARTIAL_CONTENT:
                content = response.read(decode_content=False)
        finally:
            if len(content) != end - begin:  # the connection must not be reused with leftover bytes
                response.close()
            response.release_conn()
        return content if len(content) == end - begin else None

    def _learn(self, url: str, works: bool) -> None:
        """Record whether a signed URL works.

        A failed URL is dropped, since it may have expired. If a new URL fails, signed URLs are not
        used for `_REFUSED_FOR_S`.
        """
        with self._lock:
            if works:
                self._has_worked = True
            elif url == self._url:
                if not self._has_worked:
                    self._refused_until_s = monotonic() + _REFUSED_FOR_S
                self._url = ""


def signed_ranges(handle: Any, connections: Connections) -> SignedRanges | None:
    """Return a reader of the S3 object that s3fs has opened as `handle`.

    `None` for other files, or with DISTRAIN_SIGNED_URLS=0.
    """
    if os.environ.get("DISTRAIN_SIGNED_URLS") == "0":
        return None
    protocol = getattr(getattr(handle, "fs", None), "protocol", ())
    protocols = {protocol} if isinstance(protocol, str) else set(protocol)
    details = getattr(handle, "details", None)
    if not protocols & _PROTOCOLS or not isinstance(details, dict) or not details.get("ETag"):
        return None
    return SignedRanges(handle, connections)


def _sign_by_version_4(filesystem: Any, path: str) -> None:
    """Make s3fs sign URLs with version 4; botocore's default is 2, which new buckets reject."""

    def choose(signature_version: object, **_: object) -> str | None:
        return "s3v4-query" if signature_version in ("v4-query", "s3v4-query") else None

    async def register() -> None:
        await filesystem.set_session()
        client = await filesystem.get_s3(filesystem.split_path(path)[0])
        client.meta.events.register_first(
            "choose-signer.s3.GetObject", choose, unique_id="distrain-version-4"
        )

    from fsspec.asyn import sync  # late: local files need no fsspec

    with suppress(AttributeError):  # in other versions of s3fs; the default may work
        sync(filesystem.loop, register)


def _has_proxy(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in getproxies() and not proxy_bypass(parts.hostname or "")


def _certificates() -> str | None:
    """Return s3fs's file of certificate authorities; `None` to use the machine's own."""
    if named := os.environ.get("AWS_CA_BUNDLE"):
        return named
    try:
        import certifi
    except ImportError:
        return None
    return certifi.where()
