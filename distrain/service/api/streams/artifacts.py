"""Files of a run folder for the API: pages of names, and bytes of one file."""

import mimetypes
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from email.utils import formatdate
from functools import partial
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import quote

from distrain.runs.run_folder import FileInRun
from distrain.runs.stored.folder import RunFileReader, open_job_folder

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
CHUNK_BYTES = 2**20

_SHOWN: Final = {
    ".log": "text/plain; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".yaml": "text/plain; charset=utf-8",
    ".csv": "text/csv; charset=utf-8",
    ".json": "application/json",
    ".jsonl": "application/x-ndjson",
    ".png": "image/png",
    ".html": "text/html; charset=utf-8",
}
"""Types that a browser may display; all others, including images with scripts, are downloaded."""

_OF_PAGES = "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""Security policy for HTML files of run folders, which users write: no scripts, no forms, no
loading.
"""


def headers_of(file: RunFileReader) -> dict[str, str]:
    last = PurePosixPath(file.name)
    shown = _SHOWN.get(last.suffix)
    kind = "inline" if shown else "attachment"
    guessed = mimetypes.guess_type(last.name)[0] or "application/octet-stream"
    policy = {"Content-Security-Policy": _OF_PAGES} if last.suffix == ".html" else {}
    return policy | {
        "Content-Type": shown or guessed,
        "Content-Disposition": f"{kind}; filename*=UTF-8''{quote(last.name, safe='')}",
        "Last-Modified": formatdate(file.modified_s, usegmt=True),
        "ETag": file.etag,
        "Accept-Ranges": "bytes",
    }


async def chunks_of(
    file: RunFileReader, first: int, end: int, in_thread: InThread
) -> AsyncIterator[bytes]:
    """Yield the bytes from `first` to before `end`; fewer only if the file was truncated."""
    while first < end:
        size = min(CHUNK_BYTES, end - first)
        data = await in_thread(partial(file.pread, size, first))
        if not data:
            return  # shorter than Content-Length, so the client notices it
        first += len(data)
        yield data


def list_files(run_dir: str, below: str, after: str, limit: int) -> tuple[list[FileInRun], bool]:
    """Return at most `limit` files of a run folder in name order, and whether there are more.

    These are the files in the folder `below` and its subfolders whose names come after `after`; ""
    means no restriction. Raises NotInRun if there is no such folder, and OSError.
    """
    with open_job_folder(run_dir) as folder:
        found = list(islice(folder.files(below, after), limit + 1))
    return found[:limit], len(found) > limit


def open_artifact(run_dir: str, name: str) -> RunFileReader:
    """Open a file of a run folder; the caller closes it.

    Raises NotInRun if there is no such file, and OSError.
    """
    with open_job_folder(run_dir) as folder:
        return folder.open(name)


def is_named(header: str | None, etag: str) -> bool:
    """Return True if the header `If-None-Match` contains an ETag, or is `*`.

    >>> is_named('W/"a", "b"', '"a"'), is_named("*", '"a"'), is_named(None, '"a"')
    (True, True, False)
    """
    names = [name.strip().removeprefix("W/") for name in (header or "").split(",")]
    return etag in names or names == ["*"]


_ONE_RANGE = re.compile(r"bytes=[ \t]*([0-9]*)-([0-9]*)[ \t]*", re.IGNORECASE)


class NoSuchBytes(ValueError):
    pass


def wanted_range(header: str | None, size_bytes: int) -> tuple[int, int] | None:
    """Return the offsets of the first byte that the header `Range` requests, and of the end.

    The end is the offset after the last byte, at most the file's size. Returns `None`, for the
    whole file, without the header and if it is malformed, has several ranges or another unit, as
    RFC 9110 allows. Raises `NoSuchBytes` for a range beyond the file.

    >>> wanted_range("bytes=2-4", 10), wanted_range("bytes=-3", 10), wanted_range("bytes=8-", 10)
    ((2, 5), (7, 10), (8, 10))
    """
    found = _ONE_RANGE.fullmatch(header or "")
    if found is None or not any(found.groups()):
        return None
    if not found[1]:
        length = min(int(found[2][:20]), size_bytes)
        if not length:
            raise NoSuchBytes(header)
        return size_bytes - length, size_bytes
    first = int(found[1][:20])
    last = int(found[2][:20]) if found[2] else size_bytes - 1
    if found[2] and last < first:
        return None
    if first >= size_bytes:
        raise NoSuchBytes(header)
    return first, min(last + 1, size_bytes)
