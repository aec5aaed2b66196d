"""Row groups of a storage that does not always answer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from distrain.loader.reader import Decoded, Reader, joined
from distrain.partition import RowGroup
from distrain.storage import patiently


class PatientReader:
    """Has another reader read a row group again as long as its storage does not answer.

    Parts that were handed out before a failure are not handed out again: a reader gives the same
    ones each time.

    Args:
        inner: Reads the row groups; raises `Unavailable` for what may pass.
        retry_s: How long to try again, from the first failure of a part on.
    """

    def __init__(self, inner: Reader, retry_s: float):
        self.name = inner.name
        self._inner = inner
        self._retry_s = retry_s

    def read(self, group: RowGroup) -> Decoded:
        """The wanted columns of a row group.

        Raises:
            DataError: The inner reader failed.
            Unavailable: The storage did not answer for all that time.
        """
        return joined(self.read_in_parts(group))

    def read_in_parts(self, group: RowGroup) -> Iterator[Decoded]:
        """The same, some columns at a time."""
        where = {"file": group.file, "row group": group.index}
        parts = self._inner.read_in_parts(group)
        given = 0

        def following() -> Decoded | None:
            nonlocal parts
            try:
                return next(parts, None)
            except BaseException:  # which ends a generator: the next try needs a new one
                parts = islice(self._inner.read_in_parts(group), given, None)
                raise

        while (part := patiently(following, where, self._retry_s)) is not None:
            yield part
            given += 1

    def close(self) -> None:
        """Close the inner reader."""
        self._inner.close()
