"""SIGTERM to a Dask worker's own process: its ranks save a checkpoint before it takes effect."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from distributed import Worker

POLL_S = 0.1


class LastWill:
    """Holds SIGTERM back from a worker's process until its ranks have stopped.

    Only in processes that are a worker's own: one that a nanny started, or `dask worker`, which
    has a handler. A second SIGTERM takes effect at once.

    Args:
        worker: The worker.
        leave: Told why; says how long its ranks may take to stop.
        has_ranks: Whether ranks still run.
    """

    def __init__(
        self, worker: Worker, leave: Callable[[str], float], has_ranks: Callable[[], bool]
    ):
        self._leave = leave
        self._has_ranks = has_ranks
        self._task: asyncio.Task[None] | None = None
        self._old: Any = None
        self._holds = False
        if threading.current_thread() is not threading.main_thread():
            return  # the process belongs to somebody else
        old = signal.getsignal(signal.SIGTERM)
        if callable(old) or (old == signal.SIG_DFL and worker.nanny):
            self._loop = asyncio.get_running_loop()
            self._old = old
            self._holds = True
            signal.signal(signal.SIGTERM, self._noticed)

    def revoke(self) -> None:
        """Give the signal back to whom it belonged to."""
        if self._holds and signal.getsignal(signal.SIGTERM) == self._noticed:
            signal.signal(signal.SIGTERM, self._old)
        self._holds = False
        if self._task is not None:
            self._task.cancel()

    def _noticed(self, number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, self._old)
        self._loop.call_soon_threadsafe(self._begin, number)

    def _begin(self, number: int) -> None:
        self._task = asyncio.ensure_future(self._carry_out(number))

    async def _carry_out(self, number: int) -> None:
        grace_s = self._leave(f"its process was asked to end by {signal.Signals(number).name}")
        until_s = self._loop.time() + grace_s
        while self._has_ranks() and self._loop.time() < until_s:
            await asyncio.sleep(POLL_S)
        os.kill(os.getpid(), number)
