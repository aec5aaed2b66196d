"""`Selection`: the rows of a row group that a job uses, if it does not use all of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Selection:
    """Some rows of a row group, at least one; stored in one bit for each row of the row group."""

    group_rows: int  # rows of the whole row group
    num_rows: int  # rows that are selected
    bits: bytes = field(repr=False)  # whether each row is selected, as from `numpy.packbits`

    @classmethod
    def of(cls, is_taken: NDArray[np.bool_]) -> Selection:
        """Return the selection of the rows where a mask, `[group_rows]`, is True.

        >>> Selection.of(np.array([True, False, True])).places.tolist()
        [0, 2]
        """
        packed = np.packbits(is_taken).tobytes()
        return cls(len(is_taken), int(np.count_nonzero(is_taken)), packed)

    @property
    def is_taken(self) -> NDArray[np.bool_]:
        """Whether each row is selected, `[group_rows]`."""
        packed = np.frombuffer(self.bits, np.uint8)
        return np.unpackbits(packed, count=self.group_rows).view(np.bool_)

    @property
    def places(self) -> NDArray[np.int64]:
        """The indices of the selected rows in the row group, `[num_rows]`."""
        return np.flatnonzero(self.is_taken)

    @cached_property
    def digest(self) -> str:
        return hashlib.blake2b(self.bits, digest_size=16).hexdigest()
