"""How a finished batch gets from the producer's thread to the consumer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from distrain.batch import Batch

Transform = Callable[[Any], Any]


class Delivery(Protocol):
    """The last steps of a batch."""

    def prepare(self, batch: Batch) -> Any:
        """In the producer's thread: what is put into the queue."""
        ...

    def hand_over(self, item: Any) -> Any:
        """In the consumer's thread: what the consumer gets."""
        ...

    def close(self) -> None:
        """In the producer's thread, after the last batch: let go of what was held."""
        ...


class HostDelivery:
    """Applies transforms in the producer's thread; the batch stays where it is.

    Args:
        transforms: Applied one after another.
    """

    def __init__(self, transforms: Sequence[Transform] = ()):
        self._transforms = tuple(transforms)

    def prepare(self, batch: Batch) -> Any:
        """The batch, transformed."""
        item: Any = batch
        for transform in self._transforms:
            item = transform(item)
        return item

    def hand_over(self, item: Any) -> Any:
        """The same."""
        return item

    def close(self) -> None:
        """Nothing is held."""
