"""Counts the torch operations of a step, its kernel launches, and its waits for the GPU."""

import threading
import warnings
from collections.abc import Callable
from typing import Any


def count_step(step: Callable[[], None], cuda: bool) -> dict[str, Any]:
    """Take steps and count.

    On a CPU only operations that go through torch's dispatcher can be counted, including those of
    backward and of optimizers. Views count too; C++ within an operation and distrain's own kernels
    do not.

    Returns:
        `dispatched_ops`; on a GPU also `kernels` (launched, without memory copies and fills; those
        of a replayed graph count), `launches` (calls by the host: a graph is one), `host_syncs` and
        `host_syncs_beside`. On a CPU, where nothing is launched, the first three of these are
        `None`, and the last is missing.
    """
    counts: dict[str, Any] = {"kernels": None, "launches": None, "host_syncs": None}
    if cuda:
        counts |= host_syncs(step) | launches(step)
    return counts | {"dispatched_ops": dispatched_ops(step)}


def dispatched_ops(step: Callable[[], None]) -> int:
    """Return the number of operations that torch dispatches in one step, in this thread."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):
        count: int = 0

        def __torch_dispatch__(  # type: ignore[no-untyped-def]
            self, func, types, args=(), kwargs=None
        ):
            self.count += 1
            return func(*args, **(kwargs or {}))

    with Counter() as counter:
        step()
    return int(counter.count)


def host_syncs(step: Callable[[], None]) -> dict[str, int]:
    """Return how often torch makes the host wait for the GPU in one step.

    Returns:
        `host_syncs` of the calling thread, and `host_syncs_beside` of all other threads during the
            step, such as the one that makes routes: the training waits for it only if routes run
            out.
    """
    import torch

    caller = threading.get_ident()
    counts = {"host_syncs": 0, "host_syncs_beside": 0}

    def note(message: Any, *_: Any, **__: Any) -> None:
        if "synchroniz" in str(message):
            own = threading.get_ident() == caller
            counts["host_syncs" if own else "host_syncs_beside"] += 1

    with warnings.catch_warnings():
        try:
            warnings.simplefilter("ignore")
            torch.cuda.set_sync_debug_mode("warn")  # ignore its warning: a prototype
            warnings.simplefilter("always")
            warnings.showwarning = note
            step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return counts


def launches(step: Callable[[], None]) -> dict[str, int]:
    """Return the kernels that run in one step, and the host's launch calls for them."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, acc_events=True) as profiler:
        step()
        torch.cuda.synchronize()
    events = profiler.events() or []
    on_gpu = [e for e in events if e.device_type == torch.autograd.DeviceType.CUDA]
    kernels = [e for e in on_gpu if not e.name.startswith(("Memcpy", "Memset"))]
    asked = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch")
    return {
        "kernels": len(kernels),
        "launches": sum(e.name.startswith(asked) for e in events),
    }
