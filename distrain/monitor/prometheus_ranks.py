"""The ranks of running jobs on the scheduler's `/metrics`: their work, their memory, their GPUs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily as GaugeFamily
from prometheus_client.core import Metric

from distrain.coordinator.states import JobState
from distrain.monitor.documents import Watched
from distrain.monitor.shown_ranks import SHOWN_RANKS

RANK = ("job_id", "rank")


def ranks_of(jobs: Iterable[Watched]) -> Iterator[Metric]:
    """All families of the ranks of those jobs that run."""
    running = [job for job in jobs if job.view.state is JobState.RUNNING]
    yield from _work(running)
    yield from _memory(running)
    yield from _gpus(running)


def add_known(family: GaugeFamily, labels: Sequence[str], value: float | None) -> None:
    """Add a series, unless nothing is known."""
    if value is not None:
        family.add_metric(labels, value)


def _work(jobs: Iterable[Watched]) -> Iterator[Metric]:
    step = GaugeFamily(
        "distrain_rank_step_duration_seconds",
        "A rank's own work per step, without waits for other ranks",
        labels=RANK,
    )
    speed = GaugeFamily("distrain_rank_rows_per_second", "Rows trained per second", labels=RANK)
    stall = GaugeFamily(
        "distrain_rank_data_wait_ratio", "Share of wall time spent waiting for data", labels=RANK
    )
    for job in jobs:
        job_id, history = job.view.job_id, job.history
        if len(history.now) > SHOWN_RANKS:
            for name, series in history.ranks.items():
                if not name.isdecimal():
                    add_known(step, [job_id, name], series.tail().get("step_time_s"))
                    add_known(speed, [job_id, name], series.tail().get("rows_per_s"))
            continue
        for rank, now in sorted(history.now.items()):
            add_known(step, [job_id, str(rank)], now.step_time_s)
            add_known(speed, [job_id, str(rank)], now.rows_per_s)
            add_known(stall, [job_id, str(rank)], _share(now.stall_pct))
    yield from (step, speed, stall)


def _memory(jobs: Iterable[Watched]) -> Iterator[Metric]:
    family = GaugeFamily(
        "distrain_rank_memory_bytes",
        "Memory that a rank's process holds: host, or device (tensors on its GPU)",
        labels=(*RANK, "kind"),
    )
    for job in jobs:
        for kind in ("host", "device"):
            held = {r: now.memory.get(f"{kind}_bytes") for r, now in job.history.now.items()}
            for rank, size_bytes in _bounded(held).items():
                family.add_metric([job.view.job_id, rank, kind], size_bytes)
    yield family


def _gpus(jobs: Iterable[Watched]) -> Iterator[Metric]:
    busy = GaugeFamily(
        "distrain_rank_gpu_utilisation_ratio",
        "Share of time in which the rank's GPU ran a kernel, as NVML tells",
        labels=RANK,
    )
    used = GaugeFamily(
        "distrain_rank_gpu_memory_used_bytes",
        "Memory of the rank's GPU in use by all processes, as NVML tells",
        labels=RANK,
    )
    total = GaugeFamily(
        "distrain_rank_gpu_memory_total_bytes", "Memory of the rank's GPU", labels=RANK
    )
    for job in jobs:
        gpus = {rank: job.gpus.get(place.worker) for rank, place in job.places.items()}
        known = {rank: gpu for rank, gpu in gpus.items() if gpu is not None}
        for family, values in (
            (busy, {rank: _share(gpu.utilisation_pct) for rank, gpu in known.items()}),
            (used, {rank: gpu.memory_used_bytes for rank, gpu in known.items()}),
            (total, {rank: gpu.memory_total_bytes for rank, gpu in known.items()}),
        ):
            for rank, value in _bounded(values).items():
                family.add_metric([job.view.job_id, rank], value)
    yield from (busy, used, total)


def _bounded(values: Mapping[int, float | None]) -> dict[str, float]:
    """What is known, by rank; of more than `SHOWN_RANKS`, the `least` and the `greatest`."""
    known = {str(rank): value for rank, value in sorted(values.items()) if value is not None}
    if len(known) <= SHOWN_RANKS:
        return known
    return {"least": min(known.values()), "greatest": max(known.values())}


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100
