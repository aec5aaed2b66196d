"""Notices to leave: a worker that is told to go lets its ranks save a checkpoint first.

Spot instances, Slurm and Kubernetes send SIGTERM and kill some time later. A nanny that gets it
closes its worker; Dask lets the nanny's plugins finish before, and here is one that takes its time.
"""

import asyncio
import contextlib
from typing import Any

from distributed import NannyPlugin
from distributed.core import Status

from distrain.coordinator.supervisor import LEAVE_RPC, RANKS_RPC

ANSWER_S = 3.0
"""How long the worker's answers are waited for: one that hangs must not keep its nanny."""

POLL_S = 0.1


class NoticePlugin(NannyPlugin):  # type: ignore[misc]  # distributed is untyped
    """Has the ranks of a nanny's worker stopped before the nanny closes it."""

    name = "distrain-notices"

    async def teardown(self, nanny: Any) -> None:
        """The nanny was told to close."""
        if nanny.status is not Status.closing or not nanny.is_alive():
            return
        # Whatever fails here, the worker is closed all the same, and its ranks die with it.
        with contextlib.suppress(OSError, TimeoutError, AttributeError):
            async with nanny.rpc(nanny.worker_address) as worker:
                await leave(worker)


async def leave(worker: Any) -> None:
    """Tell a worker to go, and wait until its ranks have ended, as long as they may take.

    Args:
        worker: Takes the remote calls.
    """
    why = "its nanny was told to close"
    grace_s = await asyncio.wait_for(getattr(worker, LEAVE_RPC)(why=why), ANSWER_S)
    loop = asyncio.get_running_loop()
    until_s = loop.time() + grace_s
    while grace_s and loop.time() < until_s:
        if not await asyncio.wait_for(getattr(worker, RANKS_RPC)(), ANSWER_S):
            return
        await asyncio.sleep(POLL_S)
