"""Files that are written locally and then uploaded to a URL, completely or not at all."""

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distrain.errors import DistrainError, OutputError
from distrain.storage.claims import check_still_claimed
from distrain.storage.folder import filesystem_of
from distrain.storage.os_errors import only_os_errors
from distrain.storage.retrying import RETRY_S, first_line, is_transient, with_retries
from distrain.storage.urls import check_url
from distrain.version import how_to_install

_PART_BYTES = 16 << 20
"""Bytes per request of a larger upload; a file of less than two parts is one request."""
_PARTS_AT_ONCE = 4
_FRESH_UPLOADS = 3

UNFINISHED = ".unfinished-"
"""The objects of an unfinished output OUT have the prefix `OUT/.unfinished-ID/`."""
_CLAIMED = re.compile(rf"(.+)/{re.escape(UNFINISHED)}([0-9a-f]{{16}})/.+")


@contextlib.contextmanager
def uploaded(url: str) -> Iterator[Path]:
    """Context manager of a local path to write; on success its content is uploaded to `url`.

    A store shows an object only after a complete upload; after a failed upload, the old object
    remains if there is one. Raises `OutputError`, `Unavailable` if the store does not answer, and
    `DataError` for a URL with a password or an invalid bucket name.
    """
    check_url(url)
    with nameless_file(url) as temporary:
        yield temporary
        send(temporary, url)


@contextlib.contextmanager
def nameless_file(url: str) -> Iterator[Path]:
    """Context manager of a path to an unlinked temporary file, whose content is for the URL `url`.

    The file never outlives the process. An `OSError` inside becomes an `OutputError` about the URL.
    """
    try:
        with tempfile.TemporaryFile(prefix="distrain-") as file:
            yield Path(f"/proc/self/fd/{file.fileno()}")
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OutputError(
            f"could not write a temporary file: {reason}",
            where={"path": url, "temporary folder": _temporary_folder()},
            hint="Free some space there, or set TMPDIR to another folder, on all workers.",
        ) from error


def _temporary_folder() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:  # there is no writable folder
        return os.environ.get("TMPDIR", "none")


def send(file: Path, url: str) -> None:
    """Upload a local file to a URL; raises the errors of `uploaded`.

    A file of an unfinished output is uploaded only while this command's claim on the output is
    valid.
    """
    claimed = _CLAIMED.fullmatch(url)
    if claimed:  # tasks of a killed command may still run
        with sent_errors(url):
            check_still_claimed(claimed[1], claimed[2])

    def put() -> None:
        filesystem, path = filesystem_of(url)
        options: dict[str, Any] = {}
        if "s3" in filesystem.protocol:
            options = {"chunksize": _PART_BYTES, "max_concurrency": _PARTS_AT_ONCE}
        for number in range(_FRESH_UPLOADS):
            try:
                with only_os_errors():
                    filesystem.put_file(str(file), path, **options)
                return
            except FileNotFoundError:
                # S3 also answers so if an upload is completed twice: the first answer was lost, and
                # the upload is not known any more.
                if number == _FRESH_UPLOADS - 1:
                    raise

    with sent_errors(url):
        with_retries(put, {"path": url}, RETRY_S)


@contextlib.contextmanager
def sent_errors(url: str) -> Iterator[None]:
    """Context manager that converts a store's errors to `OutputError`, except transient errors."""
    try:
        yield
    except DistrainError:
        raise
    except (OSError, NotImplementedError) as error:
        if is_transient(error):
            raise
        hint = "Check the bucket's name, the credentials and their write permission."
        if isinstance(error.__cause__, ImportError):
            hint = f"Install that package here and on all workers: {how_to_install('s3')}."
        raise OutputError(
            f"could not write to the object store: {first_line(error)}",
            where={"path": url},
            hint=hint,
        ) from error
