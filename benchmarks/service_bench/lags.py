"""Measures the delay with which many clients, one connection each, receive what they follow."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import httpx2
import numpy as np

_START_LIMIT_S = 120.0


@dataclass
class Heard:
    """The deliveries to all followers.

    Attributes:
        silent: Number of followers that have not received anything yet.
        times: For each delivery, the time of its cause and of its arrival.
        by_all: Set once every follower has received something.
    """

    silent: int
    times: list[tuple[float, float]] = field(default_factory=list)
    by_all: asyncio.Event = field(default_factory=asyncio.Event)

    def begins(self) -> None:
        """Note that a follower has received something for the first time."""
        self.silent -= 1
        if not self.silent:
            self.by_all.set()


async def lags(
    follow: Callable[[httpx2.AsyncClient], AsyncIterator[float]],
    happen: Callable[[], None],
    every_s: float,
    count: int,
    seconds: float,
) -> dict[str, float]:
    """Cause deliveries until each follower has received one, and then for `seconds` more.

    Deliveries before that moment count as start-up, because all clients connect at the same time.

    Args:
        follow: A follower; yields the time of the cause of each delivery.
        happen: Causes a delivery; called in a thread.
        every_s: Seconds between causes.
        count: Number of followers.
        seconds: How long lags are measured.
    """
    heard, stop = Heard(count), asyncio.Event()

    async def one(client: httpx2.AsyncClient) -> None:
        is_first = True
        async for happened_s in follow(client):
            heard.times.append((happened_s, time.time()))
            if is_first:
                heard.begins()
                is_first = False

    async def run() -> None:
        while not stop.is_set():
            await asyncio.to_thread(happen)
            await asyncio.sleep(every_s)

    limits = httpx2.Limits(max_connections=count, max_keepalive_connections=count)
    async with httpx2.AsyncClient(timeout=60.0, limits=limits) as client:
        happening = asyncio.create_task(run())
        following = [asyncio.create_task(one(client)) for _ in range(count)]
        try:
            async with asyncio.timeout(_START_LIMIT_S):
                await heard.by_all.wait()
            begins_s = time.time()
            await asyncio.sleep(seconds)
        finally:
            stop.set()
            await happening
            for task in following:
                task.cancel()
            ended = await asyncio.gather(*following, return_exceptions=True)
    if errors := [error for error in ended if isinstance(error, Exception)]:
        raise errors[0]
    return _figures(heard.times, begins_s)


def _figures(times: list[tuple[float, float]], begins_s: float) -> dict[str, float]:
    at_start = [came_s - happened_s for happened_s, came_s in times if happened_s < begins_s]
    later = [came_s - happened_s for happened_s, came_s in times if happened_s >= begins_s]
    return {
        "seen": len(later),
        "start_p99_s": float(np.percentile(at_start, 99)),
        "lag_p99_s": float(np.percentile(later, 99)),
        "lag_p50_s": float(np.median(later)),
    }
