"""`LazySequence`: a sequence whose items are created from arrays when they are accessed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar, overload

ItemT = TypeVar("ItemT")


class LazySequence(Sequence[ItemT]):
    """A sequence that stores numbers instead of its items, which would take ten times the memory.

    It is equal to any sequence of the same items.
    """

    @abstractmethod
    def _make(self, place: int) -> ItemT:
        pass

    @overload
    def __getitem__(self, place: int) -> ItemT: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[ItemT, ...]: ...
    def __getitem__(self, place: int | slice) -> ItemT | tuple[ItemT, ...]:
        places = range(len(self))[place]
        return self._make(places) if isinstance(places, int) else tuple(map(self._make, places))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({tuple(self)!r})"
