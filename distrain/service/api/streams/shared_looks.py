"""Looks at something that many want to see at about the same time: one look serves them all."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Seen = TypeVar("Seen")
HOLDS_S = 1.0


class SharedLooks(Generic[Seen]):
    """What was seen within the last moments, by key.

    Args:
        holds_s: How long after its begin a look serves others too.
    """

    def __init__(self, holds_s: float = HOLDS_S):
        self._holds_s = holds_s
        self._looks: dict[Hashable, asyncio.Future[Seen]] = {}

    async def get(self, key: Hashable, look: Callable[[], Awaitable[Seen]]) -> Seen:
        """What a look with this key sees; its error where it fails.

        Whoever goes away ends no look that others wait for.
        """
        found = self._looks.get(key)
        if found is None:
            found = self._looks[key] = asyncio.ensure_future(look())
            found.add_done_callback(_take_error)
            asyncio.get_running_loop().call_later(self._holds_s, self._looks.pop, key, None)
        return await asyncio.shield(found)


def _take_error(look: "asyncio.Future[Seen]") -> None:
    """Python warns of errors that nobody takes; whoever waited may be gone."""
    if not look.cancelled():
        look.exception()
