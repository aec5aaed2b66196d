"""Writes files completely or not at all, and makes private folders."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from distrain.errors import OutputError


@contextmanager
def atomic_file(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """Yield a temporary file that becomes `path` if the block succeeds.

    A `private` file is readable only by this user; otherwise the umask applies. Raises
    `OutputError` if the file cannot be written. If the block fails, an existing file is unchanged.
    """
    try:
        number, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.partial-", dir=path.parent)
    except OSError as error:
        raise _not_written(path, error) from None
    partial = Path(name)
    try:
        with os.fdopen(number, "wb") as file:
            if not private:
                umask = os.umask(0)
                os.umask(umask)
                os.fchmod(file.fileno(), 0o666 & ~umask)
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise _not_written(path, error) from None
    finally:
        with suppress(OSError):
            partial.unlink()


def private_folder(path: Path) -> None:
    """Make a folder that only this user may enter, if it is missing; raises OutputError."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _not_written(path, error) from None


def _not_written(path: Path, error: OSError) -> OutputError:
    return OutputError(
        f"could not write {path.name}: {error.strerror or error}", where={"path": path}
    )
