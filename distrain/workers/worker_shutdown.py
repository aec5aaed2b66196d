"""Lets ranks save a checkpoint before their worker is shut down.

Spot instances, Slurm and Kubernetes send SIGTERM, and kill the process some time later. On SIGTERM,
a nanny closes its worker after the nanny's plugins have finished; `NannyLeavePlugin` makes it wait
for the ranks. If the worker's own process gets the signal, `DeferredSigterm` delays the process's
end. Dask also closes a worker at the end of its `--lifetime`, even while it runs tasks;
`LifetimeNotice` stops the ranks before that.
"""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil
from distributed import NannyPlugin, Worker
from distributed.core import Status

from distrain.errors import STOP_SIGNALS

LEAVE_RPC = "distrain_leave"
RANKS_RPC = "distrain_ranks"

ANSWER_S = 3.0
"""Timeout for the worker's answers: a hanging worker must not delay its nanny."""

POLL_S = 0.1

BEFORE_END_S = 10.0
"""Seconds between the end of the ranks' grace period and the end of their worker's lifetime."""
CHECK_S = 5.0


class NannyLeavePlugin(NannyPlugin):  # type: ignore[misc]  # distributed is untyped
    """Stops the ranks of a nanny's worker before the nanny closes it."""

    name = "distrain-notices"

    async def teardown(self, nanny: Any) -> None:
        if nanny.status is not Status.closing or not nanny.is_alive() or not nanny.worker_address:
            return
        # On any failure here the worker is closed anyway, and its ranks die with it. Dask raises
        # many kinds of errors: closing connections, or a worker that does not have this call yet.
        with contextlib.suppress(Exception):
            async with nanny.rpc(nanny.worker_address) as worker:
                await leave(worker)


async def leave(worker: Any) -> None:
    """Ask a worker by RPC to stop its ranks, and wait for their end, at most the grace period.

    `worker` is Dask's RPC object for the worker's address. Raises `TimeoutError` if the worker does
    not answer within `ANSWER_S`.
    """
    why = "its nanny is closing"
    grace_s = await asyncio.wait_for(getattr(worker, LEAVE_RPC)(why=why), ANSWER_S)
    loop = asyncio.get_running_loop()
    until_s = loop.time() + grace_s
    while grace_s and loop.time() < until_s:
        if not await asyncio.wait_for(getattr(worker, RANKS_RPC)(), ANSWER_S):
            return
        await asyncio.sleep(POLL_S)


class DeferredSigterm:
    """Delays the effect of stop signals to a worker's process until its ranks have stopped.

    Does so only in processes that belong to a worker: a process started by a nanny, or `dask
    worker`, which has its own handler. A second signal takes effect at once.

    Args:
        worker: The Dask worker in this process.
        leave: Called with the reason at the first signal; stops the ranks, and returns the seconds
            that they may take.
        has_ranks: Returns True while ranks run.
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
            return  # the process does not belong to the worker
        old = signal.getsignal(signal.SIGTERM)
        if callable(old) or (old == signal.SIG_DFL and worker.nanny):
            self._loop = asyncio.get_running_loop()
            self._old = old
            self._holds = True
            for number in STOP_SIGNALS:
                signal.signal(number, self._received)

    def close(self) -> None:
        if self._holds and signal.getsignal(signal.SIGTERM) == self._received:
            self._restore()
        self._holds = False
        if self._task is not None:
            self._task.cancel()

    def _received(self, number: int, frame: object) -> None:
        self._restore()
        self._loop.call_soon_threadsafe(self._begin, number)

    def _restore(self) -> None:
        for number in STOP_SIGNALS:
            signal.signal(number, self._old)

    def _begin(self, number: int) -> None:
        self._task = asyncio.ensure_future(self._stop_ranks_first(number))

    async def _stop_ranks_first(self, number: int) -> None:
        grace_s = self._leave(f"its process received {signal.Signals(number).name}")
        until_s = self._loop.time() + grace_s
        while self._has_ranks() and self._loop.time() < until_s:
            await asyncio.sleep(POLL_S)
        os.kill(os.getpid(), signal.SIGTERM)


class LifetimeNotice:
    """Stops a worker's ranks before the end of the worker's lifetime.

    It does so when the ranks' grace period and `BEFORE_END_S` are left of the lifetime, but not in
    its first half. Does nothing if the worker has no lifetime, or does not run in the main thread.

    Args:
        worker: The Dask worker in this process.
        leave: Called once with the reason; stops the ranks, and keeps further ranks away.
        grace_s: Returns the seconds that the ranks may take.
    """

    def __init__(
        self, worker: Worker, leave: Callable[[str], object], grace_s: Callable[[], float]
    ):
        self._leave = leave
        self._grace_s = grace_s
        self._task: asyncio.Task[None] | None = None
        if worker.lifetime and threading.current_thread() is threading.main_thread():
            self._task = asyncio.ensure_future(self._wait(worker.lifetime, _age_s(worker)))

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _wait(self, lifetime_s: float, age_s: float) -> None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + lifetime_s - age_s
        while True:
            before_s = min(self._grace_s() + BEFORE_END_S, lifetime_s / 2)
            left_s = end_s - before_s - loop.time()
            if left_s <= 0:
                break
            await asyncio.sleep(min(left_s, CHECK_S))
        self._leave(f"its lifetime of {lifetime_s:.0f} s ends")


def _age_s(worker: Worker) -> float:
    """Return the seconds since a worker's start.

    A nanny's process runs one worker. Without a nanny the process may be older, such as a notebook;
    the oldest sample of the worker's monitor is then its start, or an hour ago if that is later.
    """
    if worker.nanny:
        began_s = psutil.Process().create_time()
    else:
        began_s = worker.monitor.quantities["time"][0]
    return float(time.time() - began_s)
