"""Waiting for a file to change: however many wait for one file, one task looks at it."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Seen = TypeVar("Seen")
EVERY_S = 0.2


@dataclass
class _Watch(Generic[Seen]):
    waiters: int = 0
    task: asyncio.Task[None] | None = None
    seen: Seen | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Watches(Generic[Seen]):
    """Tasks that look at something again and again while anybody waits for it to change.

    Args:
        every_s: How often each looks.
    """

    def __init__(self, every_s: float = EVERY_S):
        self._every_s = every_s
        self._watches: dict[Hashable, _Watch[Seen]] = {}

    async def until_other(
        self,
        key: Hashable,
        look: Callable[[], Awaitable[Seen]],
        known: Seen,
        within_s: float,
    ) -> None:
        """Wait until what is seen differs from what is known, at most `within_s`.

        Args:
            key: Whoever waits with the same key waits for the same thing.
            look: Sees it; if it raises, whoever waits goes on and meets the error itself.
        """
        watch = self._watches.setdefault(key, _Watch())
        watch.waiters += 1
        try:
            if watch.task is None:
                watch.task = asyncio.create_task(self._look(watch, look))
            async with asyncio.timeout(max(within_s, 0.0)):
                while True:  # at least one look from now on: what was seen before may be old
                    await watch.news.wait()
                    if watch.seen != known:
                        return
        except TimeoutError:
            return
        finally:
            watch.waiters -= 1
            if not watch.waiters:
                self._watches.pop(key, None)
                if watch.task is not None:
                    watch.task.cancel()

    async def _look(self, watch: _Watch[Seen], look: Callable[[], Awaitable[Seen]]) -> None:
        while True:
            try:
                watch.seen = await look()
            except Exception:
                watch.seen = None
            news, watch.news = watch.news, asyncio.Event()
            news.set()
            await asyncio.sleep(self._every_s)
