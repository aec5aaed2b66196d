"""Replaces lost workers of a local cluster, or ends the cluster with a reason."""

import asyncio
import time
from contextlib import suppress
from typing import Any

from distrain.workers.shared_context import SharedContext

CHECK_S = 1.0
START_S = 300.0
"""How long a worker process may take to start before it is killed and restarted."""
GIVE_UP_S = 900.0
"""How long a worker may be missing before the cluster ends, once its other workers are idle."""
MAX_WAIT_S = 60.0
"""The longest pause between attempts to start a worker that fails immediately."""

_KEEP_NANNIES = {"distributed.deploy.lost-worker-timeout": "1000 days"}
"""The setting with which Dask never gives up a restarting worker; its default is 15 s."""


def _set_keep_nannies() -> Any:
    import dask

    return dask.config.set(_KEEP_NANNIES)


nannies_kept = SharedContext(_set_keep_nannies)
"""While it is held, nannies are kept whose workers are lost."""


class WorkerReplacer:
    """Restarts workers that ended for good, and kills worker processes that hang at start.

    A nanny restarts its worker process. It gives up if the process cannot be started at all, and
    waits without limit for a process that hangs, even when the nanny is closed. If workers are
    missing for `GIVE_UP_S`, the cluster is closed, and `why_lost` is the reason.
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
        """Call `check` periodically, in the cluster's event loop, until the cluster ends."""
        while self._cluster.status.name == "running" and self.why_lost is None:
            await self.check(time.monotonic())
            await asyncio.sleep(CHECK_S)
        for nanny in list(self._cluster.workers.values()):
            if nanny.process is not None and nanny.process.status.name == "starting":
                await _kill(nanny)

    async def check(self, now_s: float) -> None:
        """Restart or kill workers missing from the scheduler, or close the cluster.

        `now_s` is the time of `time.monotonic`.
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
        """Start a nanny in place of an ended one, and wait for its worker; never raises."""
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
    """Return why the client's local cluster was closed; `None` while it runs.

    Also `None` for clusters without `replace_workers`.
    """
    replacer = getattr(getattr(client, "cluster", None), "distrain_replacer", None)
    return replacer.why_lost if replacer is not None else None


def replace_workers(cluster: Any) -> None:
    """Start to replace the lost workers of a running cluster, until it ends."""
    cluster.distrain_replacer = replacer = WorkerReplacer(cluster)
    cluster.loop.add_callback(replacer.run)
