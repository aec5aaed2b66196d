"""Looks at the same thing at about the same time: one look serves them all."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Seen = TypeVar("Seen")
HOLDS_S = 1.0


class SharedLooks(Generic[Seen]):
    """The looks of the last moments, by key; one serves others for `holds_s` from its begin."""

    def __init__(self, holds_s: float = HOLDS_S):
        self._holds_s = holds_s
        self._looks: dict[Hashable, asyncio.Future[Seen]] = {}

    async def get(self, key: Hashable, look: Callable[[], Awaitable[Seen]]) -> Seen:
        """The result of a look with this key, or its error.

        A caller who leaves ends no look that others wait for.
        """
        found = self._looks.get(key)
        if found is None:
            found = self._looks[key] = asyncio.ensure_future(look())
            found.add_done_callback(_take_error)
            asyncio.get_running_loop().call_later(self._holds_s, self._looks.pop, key, None)
        return await asyncio.shield(found)


def _take_error(look: "asyncio.Future[Seen]") -> None:
    """Python warns of errors that nobody takes; the waiting callers may be gone."""
    if not look.cancelled():
        look.exception()
