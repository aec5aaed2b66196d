"""How often a step bothers torch's dispatcher, the GPU, and the host that waits for it."""

import threading
import warnings
from collections.abc import Callable
from typing import Any


def count_step(step: Callable[[], None], cuda: bool) -> dict[str, Any]:
    """Take steps and count.

    On a CPU only operations that go through torch's dispatcher can be counted, backward ones and
    optimizers included; views count too, C++ inside an operation and own kernels do not.

    Returns:
        `dispatched_ops`; on a GPU also `kernels` (launched, memory copies and fills left out; of
        a replayed graph they count as well), `launches` (what the host asked for: a graph is one)
        `host_syncs` and `host_syncs_beside`. `None` on a CPU, where there is nothing to launch or
        to wait for.
    """
    counts: dict[str, Any] = {"kernels": None, "launches": None, "host_syncs": None}
    if cuda:
        counts |= host_syncs(step) | launches(step)
    return counts | {"dispatched_ops": dispatched_ops(step)}


def dispatched_ops(step: Callable[[], None]) -> int:
    """Operations that torch dispatches in one step, in this thread."""
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
    """How often torch makes the host wait for the GPU in one step.

    Returns:
        `host_syncs` of the calling thread, and `host_syncs_beside` of all others meanwhile, such as
        the one that makes routes: the training waits for those only if it runs out of routes.
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
            torch.cuda.set_sync_debug_mode("warn")  # of which torch warns, in words of a wait
            warnings.simplefilter("always")
            warnings.showwarning = note
            step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return counts


def launches(step: Callable[[], None]) -> dict[str, int]:
    """Kernels that run in one step, and how many launches the host made for them."""
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
