"""What tells one version of a file from another."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from distrain.errors import DataError

# What filesystems of fsspec call it: S3, GCS, Azure, HTTP, HDFS, SFTP, ... A time counts only where
# nothing better is told: MinIO tells milliseconds in a listing, and seconds of a single file.
_MARK_KEYS = ("ETag", "etag", "md5Hash", "md5", "crc32c", "generation")
_TIME_KEYS = (
    "LastModified",
    "last_modified",
    "updated",
    "modificationTime",
    "modified",
    "mtime",
)


def file_identity(path: str) -> str | None:
    """A file's name, size and version.

    Args:
        path: A local path, or a URL as fsspec takes it, whose server is asked each time.

    Returns:
        A text that is another one after the file was changed; `None` if its server says neither a
        checksum nor a time.

    Raises:
        OSError: There is no such file, or its server cannot be asked.
    """
    if "://" in path:
        return _remote_identity(path)
    status = os.stat(path)
    return repr((os.path.realpath(path), status.st_size, status.st_mtime_ns, status.st_ino))


def _remote_identity(url: str) -> str | None:
    from fsspec.core import url_to_fs

    try:
        fs, path = url_to_fs(url)
        info = fs.info(path)
    except (OSError, DataError):
        raise
    except Exception as error:  # remote filesystems raise what they like
        raise OSError(f"{type(error).__name__}: {error}") from error
    version = version_told(info)
    return repr((url, version)) if version else None


def size_as_version(size_bytes: int) -> str:
    """What is known of a local file's version on every machine: copies differ in their times.

    >>> size_as_version(13)
    '13 bytes'
    """
    return f"{size_bytes} bytes"


def version_told(info: Mapping[str, Any]) -> str | None:
    """The size and version in what a remote filesystem says of a file; `None` if none is told.

    It is the same whether a listing of the folder said it or the server was asked for the file.
    """
    for keys in (_MARK_KEYS, _TIME_KEYS):
        versions = [(key, _plain(info[key])) for key in keys if info.get(key)]
        if versions:
            return repr((info.get("size"), versions))
    return None


def _plain(version: object) -> str:
    # Azure quotes an ETag in its answer for a file, but not in a listing.
    if isinstance(version, datetime):
        version = version.replace(microsecond=0)
    return str(version).strip('"')
