"""Rows at even distances: what one rank holds of a table, and what two such sets have in common."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Rows:
    """Rows `first`, `first + stride`, ..., `count` of them.

    >>> Rows(1, 3, 4).numbers()
    range(1, 13, 3)
    """

    first: int
    stride: int
    count: int

    def numbers(self) -> range:
        """The rows' numbers."""
        return range(self.first, self.first + self.count * self.stride, self.stride)

    def part(self, start: int, stop: int) -> "Rows":
        """The `start`-th to the `stop`-th of them, without that."""
        return Rows(self.first + start * self.stride, self.stride, stop - start)

    def meet(self, other: "Rows") -> tuple[slice, slice] | None:
        """Where the common rows stand among these and among the others.

        >>> Rows(0, 2, 5).meet(Rows(1, 3, 3))  # 0 2 4 6 8 and 1 4 7
        (slice(2, 3, 3), slice(1, 2, 2))
        """
        if not self.count or not other.count:
            return None
        common = math.gcd(self.stride, other.stride)
        apart = other.first - self.first
        if apart % common:
            return None
        distance = self.stride // common * other.stride
        # The least place among these, counted from 0, that is a row of the others' pattern, too.
        place = apart // common * pow(self.stride // common, -1, other.stride // common)
        row = self.first + self.stride * (place % (other.stride // common))
        row += -(-max(0, other.first - row) // distance) * distance
        last = min(self.numbers()[-1], other.numbers()[-1])
        if row > last:
            return None
        count = (last - row) // distance + 1
        return self._slice(row, distance, count), other._slice(row, distance, count)

    def _slice(self, row: int, distance: int, count: int) -> slice:
        start, step = (row - self.first) // self.stride, distance // self.stride
        return slice(start, start + (count - 1) * step + 1, step)
