"""Replaces lost workers of a local cluster, or ends the cluster with a reason."""

import asyncio
import time
from contextlib import suppress
from typing import Any

from distrain.workers.shared_context import SharedContext

CHECK_S = 1.0
START_S = 300.0
"""Seconds that a worker process may take to start before it is killed and restarted."""
GIVE_UP_S = 900.0
"""Seconds a worker may be missing before the cluster is closed, if all other workers are idle."""
MAX_WAIT_S = 60.0
"""The longest pause, in seconds, between attempts to start a worker that fails immediately."""

_KEEP_NANNIES = {"distributed.deploy.lost-worker-timeout": "1000 days"}
"""A Dask setting: the time after which Dask gives up a worker that restarts.

The value means never; the default is 15 s.
"""


def _set_keep_nannies() -> Any:
    import dask

    return dask.config.set(_KEEP_NANNIES)


nannies_kept = SharedContext(_set_keep_nannies)
"""A context in which Dask keeps the nannies of lost workers, so that they can be restarted."""


class WorkerReplacer:
    """Restarts workers that have ended, and kills worker processes that hang while they start.

    Usually a nanny restarts its worker process. But it gives up if the process cannot be started at
    all, and waits without limit for a process that hangs, even when the nanny itself is closed. If
    a worker is missing for `GIVE_UP_S` and the others are idle, the cluster is closed; `why_lost`
    is the reason, `None` before.
    """

    def __init__(self, cluster: Any):
        self._cluster = cluster
        self._missing_since_s: dict[Any, float] = {}
        self._kill_at_s: dict[Any, float] = {}
        self._try_at_s = 0.0
        self._pause_s = CHECK_S
        self._error: BaseException | None = None
        self._starting: set[asyncio.Task[None]] = set()
        self.why_lost: str | None = None

    async def run(self) -> None:
        """Call `check` every `CHECK_S`, in the cluster's event loop, until the cluster ends.

        Then kill the worker processes that are still starting, for which Dask would wait.
        """
        while self._cluster.status.name == "running" and self.why_lost is None:
            await self.check(time.monotonic())
            await asyncio.sleep(CHECK_S)
        for nanny in list(self._cluster.workers.values()):
            if nanny.process is not None and nanny.process.status.name == "starting":
                await _kill(nanny)

    async def check(self, now_s: float) -> None:
        """Restart or kill workers that are missing from the scheduler, or close the cluster.

        `now_s` is the time by `time.monotonic`. While workers are missing, the pause after each
        restart is twice the previous one, up to `MAX_WAIT_S`.
        """
        workers = self._cluster.scheduler.workers.values()
        present = {worker.name for worker in workers}
        missing = [name for name in self._cluster.worker_spec if name not in present]
        since_s = self._missing_since_s
        self._missing_since_s = {name: since_s.get(name, now_s) for name in missing}
        if not missing:
            self._pause_s, self._error = CHECK_S, None
            return
        longest = min(missing, key=lambda name: self._missing_since_s[name])
        missing_s = now_s - self._missing_since_s[longest]
        if missing_s >= GIVE_UP_S and not any(worker.processing for worker in workers):
            cause = f": {self._error}" if self._error else ", and its process does not start"
            self.why_lost = f"worker {longest} is missing for {missing_s:.0f} s{cause}"
            await self._cluster.scheduler.close(reason="distrain-worker-missing")
            return
        await self._kill_hung(missing, now_s)
        ended = [name for name in missing if self._has_ended(name)]
        if ended and now_s >= self._try_at_s:
            for name in ended:
                # Not awaited: a hanging process must not delay the checks of others.
                task = asyncio.ensure_future(self._start(name))
                self._starting.add(task)
                task.add_done_callback(self._starting.discard)
            self._try_at_s = now_s + self._pause_s
            self._pause_s = min(2 * self._pause_s, MAX_WAIT_S)

    def _has_ended(self, name: Any) -> bool:
        nanny = self._cluster.workers.get(name)
        return nanny is None or nanny.status.name in ("closed", "failed")

    async def _kill_hung(self, missing: list[Any], now_s: float) -> None:
        at_s = self._kill_at_s
        self._kill_at_s = {name: at_s.get(name, now_s + START_S) for name in missing}
        for name in missing:
            nanny = self._cluster.workers.get(name)
            if now_s >= self._kill_at_s[name] and nanny is not None:
                self._kill_at_s[name] = now_s + START_S
                await _kill(nanny)

    async def _start(self, name: Any) -> None:
        """Start a nanny for a worker, in place of one that has ended, and wait for the worker.

        Never raises; an error is kept for `why_lost`.
        """
        spec, scheduler = self._cluster.worker_spec[name], self._cluster.scheduler
        try:
            address = scheduler.contact_address or scheduler.address
            nanny = spec["cls"](address, **{"name": name, **spec.get("options", {})})
            self._cluster.workers[name] = nanny  # before it starts, so that it is also closed
            await nanny
        except Exception as error:
            self._error = error


async def _kill(nanny: Any) -> None:
    process = getattr(getattr(nanny, "process", None), "process", None)
    if process is not None:
        with suppress(OSError, ValueError):  # it has ended meanwhile
            await process.kill()


def why_lost(client: Any) -> str | None:
    """Return why `WorkerReplacer` closed the client's local cluster; `None` if it did not.

    Also `None` for clusters for which `replace_workers` was not called.
    """
    replacer = getattr(getattr(client, "cluster", None), "distrain_replacer", None)
    return replacer.why_lost if replacer is not None else None


def replace_workers(cluster: Any) -> None:
    """Have lost workers of a running `LocalCluster` replaced, until the cluster ends."""
    cluster.distrain_replacer = replacer = WorkerReplacer(cluster)
    cluster.loop.add_callback(replacer.run)
