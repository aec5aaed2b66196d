"""A run reads one version of each file, or ends."""

from __future__ import annotations

import os
from collections.abc import Iterator

from distrain.errors import DataError, Unavailable
from distrain.loader.reader import Decoded, Reader, joined
from distrain.partition import RowGroup
from distrain.storage import may_pass
from distrain.storage.identity import size_as_version

_Version = tuple[int, int, int, int]


class SameFilesReader:
    """Hands a reader's row groups on as long as the local files are those that it read first.

    A file that is replaced or written to while a run reads it would else give some rows of the
    former version and some of the later one, and footers read earlier may fit neither. Files are
    looked at before and after each row group, whether or not they are open already, and whether
    their rows come from the file or from a cache. URLs are left to whoever opens them.

    Args:
        inner: Reads the row groups.
    """

    def __init__(self, inner: Reader):
        self.name = inner.name
        self._inner = inner
        self._first: dict[str, _Version] = {}

    def read(self, group: RowGroup) -> Decoded:
        """The wanted columns of a row group.

        Raises:
            DataError: The file is not the one that was read first, or the inner reader failed.
            Unavailable: The storage does not answer.
        """
        return joined(self.read_in_parts(group))

    def read_in_parts(self, group: RowGroup) -> Iterator[Decoded]:
        """The same, some columns at a time."""
        if "://" in group.file:
            yield from self._inner.read_in_parts(group)
            return
        self._check(group)
        try:
            yield from self._inner.read_in_parts(group)
        except DataError:
            self._check(group)  # if both went wrong, that the file changed is the reason
            raise
        self._check(group)

    def close(self) -> None:
        """Close the inner reader; which versions were read first stays known."""
        self._inner.close()

    def _check(self, group: RowGroup) -> None:
        try:
            status = os.stat(group.file)
        except OSError as error:
            message = f"could not read a row group: {error.strerror}"
            where = {"file": group.file, "row group": group.index}
            if may_pass(error):
                raise Unavailable(message, where=where) from error
            raise DataError(
                message,
                where=where,
                hint="The file was removed or changed since the run began.",
            ) from error
        is_local = group.version.endswith(" bytes")
        if is_local and group.version != size_as_version(status.st_size):
            raise another_version(group)
        version = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if self._first.setdefault(group.file, version) != version:
            raise another_version(group)


def another_version(group: RowGroup) -> DataError:
    """The error for a file that is not the one that was read first."""
    return DataError(
        "the file was replaced or written to since it was first read",
        where={"file": group.file, "row group": group.index},
        hint="Start again; a run must not mix two versions of a file.",
    )
