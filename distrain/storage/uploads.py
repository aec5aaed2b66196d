"""Files that are written here and then sent to a URL, whole or not at all."""

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
"""What one request of a larger upload sends; a file of less than two of them is one request."""
_PARTS_AT_ONCE = 4
_FRESH_UPLOADS = 3

UNFINISHED = ".unfinished-"
"""Begins the name of the prefix in which the objects of an unfinished output lie."""
_CLAIMED = re.compile(rf"(.+)/{re.escape(UNFINISHED)}([0-9a-f]{{16}})/.+")


@contextlib.contextmanager
def uploaded(url: str) -> Iterator[Path]:
    """Yield a path of this machine to write; on success send what is there to `url`.

    A store shows an object when all of it has arrived: a broken upload leaves the old one, or none.
    `OutputError`, or `Unavailable` if the store does not answer.
    """
    check_url(url)
    with nameless_file(url) as here:
        yield here
        send(here, url)


@contextlib.contextmanager
def nameless_file(url: str) -> Iterator[Path]:
    """Yield the path of a temporary file without a name, for what is, or will be, at a URL.

    No kill leaves it behind. An `OSError` inside becomes an `OutputError`.
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
    except OSError:  # there is none that can be written to
        return os.environ.get("TMPDIR", "none")


def send(file: Path, url: str) -> None:
    """Send a file of this machine to a URL; errors as `uploaded`."""
    claimed = _CLAIMED.fullmatch(url)
    if claimed:  # of a command that was killed, tasks may still run
        with sent_errors(url):
            check_still_claimed(claimed[1], claimed[2])

    def put() -> None:
        filesystem, path = filesystem_of(url)
        options: dict[str, Any] = {}
        if "s3" in filesystem.protocol:
            options = {"chunksize": _PART_BYTES, "max_concurrency": _PARTS_AT_ONCE}
        for number in range(_FRESH_UPLOADS):
            try:
                filesystem.put_file(str(file), path, **options)
                return
            except FileNotFoundError:
                # Or the answer that completed an upload was lost, and the upload is unknown when it
                # is completed again.
                if number == _FRESH_UPLOADS - 1:
                    raise

    with sent_errors(url):
        with_retries(lambda: _translated(put), {"path": url}, RETRY_S)


def _translated(put: Any) -> None:
    with only_os_errors():
        put()


@contextlib.contextmanager
def sent_errors(url: str) -> Iterator[None]:
    """Raise a store's final errors inside as `OutputError`, with a hint."""
    try:
        yield
    except DistrainError:
        raise
    except (OSError, NotImplementedError) as error:
        if is_transient(error):
            raise
        hint = "Check the bucket's name, the credentials and that they may write there."
        if isinstance(error.__cause__, ImportError):
            hint = f"Install that package here and on all workers: {how_to_install('s3')}."
        raise OutputError(
            f"could not write to the object store: {first_line(error)}",
            where={"path": url},
            hint=hint,
        ) from error
