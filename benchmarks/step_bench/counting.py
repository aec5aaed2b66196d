"""How often a step bothers torch's dispatcher, the GPU, and the host that waits for it."""

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
        and `host_syncs`. `None` on a CPU, where there is nothing to launch or to wait for.
    """
    counts: dict[str, Any] = {"kernels": None, "launches": None, "host_syncs": None}
    if cuda:
        counts |= {"host_syncs": host_syncs(step)} | launches(step)
    return counts | {"dispatched_ops": dispatched_ops(step)}


def dispatched_ops(step: Callable[[], None]) -> int:
    """Operations that torch dispatches in one step, in this thread."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(  # type: ignore[no-untyped-def]
            self, func, types, args=(), kwargs=None
        ):
            self.count += 1
            return func(*args, **(kwargs or {}))

    with Counter() as counter:
        step()
    return counter.count


def host_syncs(step: Callable[[], None]) -> int:
    """How often torch makes the host wait for the GPU in one step."""
    import torch

    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(warning.message) for warning in caught)


def launches(step: Callable[[], None]) -> dict[str, int]:
    """Kernels that run in one step, and how many launches the host made for them."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
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
