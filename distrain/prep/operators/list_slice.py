"""Slices of lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from distrain.errors import DataError, InputError
from distrain.prep.lists import Lists, holds_lists, offsets_of
from distrain.prep.operators.operator import Operator


@dataclass(frozen=True)
class ListSlice(Operator):
    """Keeps a slice of each list, with Python's semantics; shorter lists stay shorter.

    `ListSlice(10)` keeps the first ten items, `ListSlice(-10)` the last ten, `ListSlice(2, 5)` the
    third to the fifth. Before Categorify, only kept items count for the vocabulary.

    >>> ListSlice(2).transform("clicks", pa.array([[1, 2, 3], [], [4]])).to_pylist()
    [[1, 2], [], [4]]
    >>> ListSlice(-2).transform("clicks", pa.array([[1, 2, 3], None])).to_pylist()
    [[2, 3], []]

    Attributes:
        start: The first index; if it is positive and there is no `end`, it is the end instead.
        end: One past the last index; `None` is the end of the list.
    """

    kind: ClassVar[str] = "ListSlice"
    start: int
    end: int | None = None

    def __post_init__(self) -> None:
        if self.end is None and self.start == 0:
            raise InputError("ListSlice(0) keeps nothing", hint="ListSlice(10) keeps ten items.")

    def transform(self, column: str, values: pa.Array) -> pa.Array:
        """Return the shorter lists; the items keep their type.

        Raises:
            DataError: The column does not hold lists.
        """
        if not holds_lists(values.type):
            raise DataError(
                f"ListSlice needs lists, but the column has type {values.type}",
                where={"column": column},
            )
        lists = Lists.of(values)
        lengths = lists.lengths
        has_start = self.end is not None or self.start < 0
        first, last = (self.start, self.end) if has_start else (0, self.start)
        begin = _places(first, lengths)
        count = np.maximum((lengths if last is None else _places(last, lengths)) - begin, 0)
        offsets = offsets_of(count)
        moves = np.repeat(lists.offsets[:-1] + begin - offsets[:-1], count)
        kept = lists.items.take(pa.array(np.arange(offsets[-1]) + moves))
        return Lists(kept, offsets).to_arrow()


def _places(place: int, lengths: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.clip(place if place >= 0 else lengths + place, 0, lengths)
