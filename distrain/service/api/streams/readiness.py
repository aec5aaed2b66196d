"""Whether the service can do its work: its database, the tables, the reconcilers' leases."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

LAG_S = 30.0
LEASE_S = 15.0  # what a lease is taken for; its owner prolongs it each third of that
DATABASE_S = 2.0


class NoAnswer(Exception):
    pass


class Look:
    """Calls functions that may hang, one at a time, in a thread of its own."""

    def __init__(self, name: str):
        self._threads = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._running: asyncio.Future[object] | None = None
        self._began_s = 0.0

    async def result(self, work: Callable[[], Result], within_s: float) -> Result:
        """The result, after earlier callers'; raises NoAnswer, also while an earlier call hangs."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        while self._running is not None and not self._running.done():
            if loop.time() >= min(until_s, self._began_s + within_s):
                raise NoAnswer
            await asyncio.wait({self._running}, timeout=until_s - loop.time())
        self._began_s = loop.time()
        running = loop.run_in_executor(self._threads, work)
        self._running = running  # type: ignore[assignment]  # a future of any result
        running.add_done_callback(lambda future: future.cancelled() or future.exception())
        try:
            return await asyncio.wait_for(asyncio.shield(running), until_s - loop.time())
        except TimeoutError:
            raise NoAnswer from None


def lag_limit_s(ttl_s: float = LEASE_S) -> float:
    """The lag from which a reconciler counts as gone; one that renews in time is far below."""
    return max(LAG_S, 2 * ttl_s)


def lease_ages_s(ends: Mapping[str, float], ttl_s: float = LEASE_S) -> dict[str, float]:
    """The time since each lease was renewed; `ends` are the seconds until each ends."""
    return {name: max(0.0, ttl_s - end_s) for name, end_s in ends.items()}


def reconcile_lag_s(
    ends: Mapping[str, float], clusters: Collection[str], ttl_s: float = LEASE_S
) -> float | None:
    """The time since the slowest reconciler renewed its lease, in seconds.

    `None`: a cluster never had a reconciler; `ends` are the seconds until each lease ends.

    >>> reconcile_lag_s({"cluster:a": 12.0, "cluster:b": -20.0}, ["a", "b"])
    35.0
    """
    names = [f"cluster:{cluster}" for cluster in clusters]
    if any(name not in ends for name in names):
        return None
    ages_s = lease_ages_s(ends, ttl_s)
    return max((ages_s[name] for name in names), default=0.0)


def reconcile_trouble(ends: Mapping[str, float], clusters: Collection[str], ttl_s: float) -> str:
    """Why the reconcilers count as gone; "" if all are at work."""
    lag_s = reconcile_lag_s(ends, clusters, ttl_s)
    if lag_s is None:
        return "a cluster never had a reconciler"
    late = lag_s >= lag_limit_s(ttl_s)
    return f"the last word of a reconciler is {lag_s:.0f} s old" if late else ""
