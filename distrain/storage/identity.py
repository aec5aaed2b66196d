"""Identities of files, which change when their content is rewritten."""

import os
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from distrain.storage.os_errors import only_os_errors
from distrain.storage.urls import is_remote

# Keys in the file information of fsspec's filesystems: S3, GCS, Azure, HTTP, HDFS, SFTP, ... The
# time is used only if there is no checksum: MinIO gives milliseconds in a listing, and seconds for
# a single file.
_MARK_KEYS = ("ETag", "etag", "md5Hash", "md5", "crc32c", "generation")
_TIME_KEYS = ("LastModified", "last_modified", "updated", "modificationTime", "modified", "mtime")


def file_identity(path: str) -> str | None:
    """Return a text that changes when a file at a path or URL changes.

    `None` if the server of a remote file gives no checksum and no time. Raises `OSError` if the
    file is missing or cannot be looked up.
    """
    if is_remote(path):
        return _remote_identity(path)
    status = os.stat(path)
    return repr((os.path.realpath(path), status.st_size, status.st_mtime_ns, status.st_ino))


def _remote_identity(url: str) -> str | None:
    from fsspec.core import url_to_fs

    with only_os_errors():
        fs, path = url_to_fs(url)
        info = fs.info(path)
    version = version_in(info)
    return repr((url, version)) if version else None


def size_as_version(size_bytes: int) -> str:
    """Return a text with a local file's size, by which machines compare their copies of the file.

    Copies of a file have equal sizes but different times of modification.

    >>> size_as_version(13)
    '13 bytes'
    """
    return f"{size_bytes} bytes"


def version_in(info: Mapping[str, Any]) -> str | None:
    """Return the version in fsspec's information about a remote file; `None` if it has none.

    The information from a listing and from a look-up of the file give the same version.
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
