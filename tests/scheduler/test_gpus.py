"""Figures of GPUs come with the heartbeats of Dask's workers."""

import asyncio

import pytest
from distributed import Scheduler, Worker
from distributed.diagnostics import nvml

from distrain.scheduler.gpus import gpu_name, gpu_of
from distrain.scheduler.history.job_json import Gpu


@pytest.mark.parametrize("num_gpus", [0, 1])
def test_a_workers_heartbeat_has_its_gpus_figures(
    monkeypatch: pytest.MonkeyPatch, num_gpus: int
) -> None:
    monkeypatch.setattr(nvml, "device_get_count", lambda: num_gpus)
    monkeypatch.setattr(nvml, "one_time", lambda: {"memory-total": 2**36, "name": "made"})
    monkeypatch.setattr(nvml, "real_time", lambda: {"utilization": 75, "memory-used": 2**30})

    async def story() -> None:
        async with (
            Scheduler(
                port=0, dashboard=False, dashboard_address="127.0.0.1:0", host="127.0.0.1"
            ) as scheduler,
            Worker(scheduler.address, nthreads=1),
        ):
            (state,) = scheduler.workers.values()
            expected = (Gpu(75, 2**30, 2**36), "GPU") if num_gpus else (None, None)
            assert (gpu_of(state), gpu_name(state)) == expected

    asyncio.run(story())


def test_a_worker_that_left_has_no_gpu() -> None:
    assert gpu_of(None) is gpu_name(None) is None
