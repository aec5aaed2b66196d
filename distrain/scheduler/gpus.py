"""Reads figures about GPUs from the heartbeats of Dask workers."""

from distributed.scheduler import WorkerState

from distrain.scheduler.history.job_json import Gpu


def gpu_of(worker: WorkerState | None) -> Gpu | None:
    """Return a worker's GPU figures from Dask's system monitor.

    `None` if `worker` is `None`, or NVML reports no GPU. The worker's own metric `gpu` is not used,
    since it may be missing: a worker copies its list of metrics before Dask initialises NVML and
    adds this metric.
    """
    if worker is None or "gpu-memory-total" not in worker.metrics:
        return None
    found = worker.metrics
    return Gpu(
        found.get("gpu_utilization"), found.get("gpu_memory_used"), found["gpu-memory-total"]
    )


def gpu_name(worker: WorkerState | None) -> str | None:
    """Return the name of a worker's GPU, `GPU` if it is unknown; `None` if there is no GPU."""
    if worker is None or gpu_of(worker) is None:
        return None
    return str((worker.extra.get("gpu") or {}).get("name") or "GPU")
