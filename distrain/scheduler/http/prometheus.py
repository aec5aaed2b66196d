"""Exports the jobs as Prometheus metrics on the scheduler's `/metrics`.

A job has its own series from its first attempt to its end, if it is one of the newest `_LIVE_JOBS`,
and afterwards if it is one of the newest `ENDED_JOBS` that have ended. A rank has series while its
job runs. Jobs before their first attempt are only counted.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from prometheus_client import REGISTRY
from prometheus_client.core import (
    CounterMetricFamily as CounterFamily,
    GaugeMetricFamily as GaugeFamily,
    HistogramMetricFamily as HistogramFamily,
    Metric,
)
from prometheus_client.registry import Collector

from distrain.jobs.api_answers import FIGURES
from distrain.jobs.figures import SHOWN
from distrain.jobs.states import JobState
from distrain.jobs.status import targets_in
from distrain.scheduler.history.job_json import Gpu, Watched
from distrain.scheduler.history.ranks import SHOWN_RANKS
from distrain.scheduler.monitor import Monitor

_LIVE_JOBS = 100
ENDED_JOBS = 20

JOB = ("job_id",)
RANK = ("job_id", "rank")
STATE = ("state",)

_SCORES = (
    ("loss", "distrain_job_loss_nats", "Mean log loss of the last report, by split"),
    ("auc", "distrain_job_auc_ratio", "Area under the ROC curve, by split"),
    ("auc_bound", "distrain_job_auc_bound_ratio",
     "Largest error of the AUC due to binned scores; not a confidence interval"),
)  # fmt: skip
_SINGLE_VALUES: tuple[tuple[Any, str, str, Callable[[Watched], float | None]], ...] = (
    (GaugeFamily, "distrain_job_progress_timestamp_seconds",
     "Unix time of a rank's last step, or of the job's last change of state",
     lambda job: job.history.progressed_s),
    (GaugeFamily, "distrain_job_ranks", "Ranks of the job",
     lambda job: len(job.view.pids) or job.view.num_ranks),
    (CounterFamily, "distrain_job_rows", "Rows trained, including those of repeated steps",
     lambda job: job.history.rows_trained),
    (GaugeFamily, "distrain_job_rows_per_second", "Rows trained per second",
     lambda job: job.history.rows_per_s),
    (CounterFamily, "distrain_job_checkpoint_write_seconds",
     "Time for writing checkpoints while training continued",
     lambda job: job.view.checkpoints.write_s),
    (CounterFamily, "distrain_job_checkpoint_stall_seconds",
     "Time for which checkpoints stopped training, on rank 0",
     lambda job: job.view.checkpoints.stood_still_s),
    (GaugeFamily, "distrain_job_checkpoint_bytes", "Size of the last checkpoint",
     lambda job: job.history.checkpoint_bytes),
    (GaugeFamily, "distrain_job_checkpoint_timestamp_seconds",
     "Unix time at which the last checkpoint was complete",
     lambda job: job.history.checkpoint_s),
    *(
        (CounterFamily if one.is_counter else GaugeFamily, f"distrain_job_{one.metric}",
         str(FIGURES[one.name].description), lambda job, name=one.name: getattr(job.document, name))
        for one in SHOWN if one.metric
    ),
)  # fmt: skip
"""The metrics with one value per job; unknown values are left out."""
_RANK_FIGURES = (
    ("step_time_s", "distrain_rank_step_duration_seconds",
     "A rank's own work per step, without waits for other ranks"),
    ("rows_per_s", "distrain_rank_rows_per_second", "Rows trained per second"),
    ("stall_pct", "distrain_rank_data_wait_ratio", "Share of wall time spent waiting for data"),
)  # fmt: skip
_GPU_FIGURES: tuple[tuple[str, str, Callable[[Gpu], float | None]], ...] = (
    ("distrain_rank_gpu_utilisation_ratio",
     "Share of time in which the rank's GPU ran a kernel, as NVML reports",
     lambda gpu: _share(gpu.utilisation_pct)),
    ("distrain_rank_gpu_memory_used_bytes",
     "Memory of the rank's GPU in use by all processes, as NVML reports",
     lambda gpu: gpu.memory_used_bytes),
    ("distrain_rank_gpu_memory_total_bytes", "Memory of the rank's GPU",
     lambda gpu: gpu.memory_total_bytes),
)  # fmt: skip


class JobsCollector(Collector):
    """Makes the metrics of a monitor's jobs, and of certificates' expiry, at each scrape.

    There are no metrics while `monitor` is `None`.
    """

    def __init__(self) -> None:
        self.monitor: Monitor | None = None
        self.certificate_ends_s: Mapping[str, float] = {}

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering the collector does not collect metrics."""
        return []

    def collect(self) -> Iterator[Metric]:
        if self.monitor is None:
            return
        jobs = list(self.monitor.watched())
        yield from _all(jobs)
        shown = _shown_jobs(jobs)
        yield from _lives(shown)
        yield from _single_values(shown)
        yield from _scores(shown)
        yield from _of_targets(shown)
        yield from _times(shown)
        yield from _ranks_of(shown)
        yield _family(
            GaugeFamily,
            "distrain_certificate_end_timestamp_seconds",
            "Unix time of the expiry of a certificate that the scheduler read at its start",
            ("certificate",),
            (([name], end_s) for name, end_s in self.certificate_ends_s.items()),
        )


def export(monitor: Monitor, certificate_ends_s: Mapping[str, float] | None = None) -> None:
    """Export a monitor's jobs, and the expiry of certificates, in this process's registry.

    `certificate_ends_s` are unix times by the certificates' names. A second call replaces the
    monitor.
    """
    if _collector.monitor is None:
        REGISTRY.register(_collector)
    _collector.monitor = monitor
    _collector.certificate_ends_s = certificate_ends_s or {}


_collector = JobsCollector()


def _family(
    kind: type[GaugeFamily] | type[CounterFamily],
    name: str,
    about: str,
    labels: Sequence[str],
    values: Iterable[tuple[Sequence[str], float | None]],
) -> Metric:
    """Return a metric; `values` are pairs of label values and a value, left out if it is `None`.

    `kind` is its class, and `about` its help text.
    """
    family = kind(name, about, labels=labels)
    for label_values, value in values:
        if value is not None:
            family.add_metric(label_values, value)
    return family


def _shown_jobs(jobs: list[Watched]) -> list[Watched]:
    live = (job for job in jobs if not job.view.state.is_final and job.view.attempt > 0)
    ended = (job for job in jobs if job.view.state.is_final)
    return [*islice(live, _LIVE_JOBS), *islice(ended, ENDED_JOBS)]


def _all(jobs: list[Watched]) -> Iterator[Metric]:
    count = Counter(job.view.state for job in jobs)
    states = (([str(state)], count[state]) for state in JobState)
    yield _family(GaugeFamily, "distrain_jobs", "Jobs of the scheduler, by state", STATE, states)
    pending = [job for job in jobs if job.view.state is JobState.PENDING]
    waits_s = [job.now_s - job.history.state_since_s for job in pending]
    yield GaugeFamily(
        "distrain_jobs_longest_pending_seconds",
        "Waiting time of the oldest pending job; 0 if none is pending",
        value=max([0.0, *waits_s]),
    )


def _lives(jobs: list[Watched]) -> Iterator[Metric]:
    views = [job.view for job in jobs]
    yield _family(
        GaugeFamily,
        "distrain_job_info",
        "1, with the job's name",
        ("job_id", "name"),
        (([view.job_id, view.name], 1) for view in views),
    )
    yield _family(
        GaugeFamily,
        "distrain_job_state",
        "1 for the job's state, 0 for others",
        (*JOB, *STATE),
        (([view.job_id, str(one)], view.state is one) for view in views for one in JobState),
    )
    yield _family(
        GaugeFamily,
        "distrain_job_ended_timestamp_seconds",
        "Unix time of a job's end",
        (*JOB, *STATE, "reason"),
        (
            (
                [job.view.job_id, str(job.view.state), job.view.reason or ""],
                job.history.state_since_s,
            )
            for job in jobs
            if job.view.state.is_final
        ),
    )


def _single_values(jobs: list[Watched]) -> Iterator[Metric]:
    for kind, name, about, value_of in _SINGLE_VALUES:
        yield _family(kind, name, about, JOB, (([job.view.job_id], value_of(job)) for job in jobs))


def _scores(jobs: list[Watched]) -> Iterator[Metric]:
    records = _last_records(jobs)
    for score, name, about in _SCORES:
        values = ((labels, getattr(record, score)) for labels, record in records)
        yield _family(GaugeFamily, name, about, (*JOB, "split"), values)


def _last_records(jobs: list[Watched]) -> list[tuple[tuple[str, str], Any]]:
    """Return the last training record and the last validation record of each job.

    Each is in a pair with its labels, the job's id and the split.
    """
    return [
        ((job.view.job_id, record.split), record)
        for job in jobs
        for record in (job.history.last_train, job.history.last_valid)
        if record is not None
    ]


def _of_targets(jobs: list[Watched]) -> Iterator[Metric]:
    family = _family(
        GaugeFamily,
        "distrain_job_target_score",
        "Metrics of all targets except the first binary one, of the last report, by split",
        (*JOB, "split", "target", "metric"),
        (
            ((*labels, target, metric), value)
            for labels, record in _last_records(jobs)
            for target, metrics in (targets_in(record.targets) or {}).items()
            for metric, value in metrics.items()
        ),
    )
    if family.samples:
        yield family


def _times(jobs: list[Watched]) -> Iterator[Metric]:
    yield _family(
        CounterFamily,
        "distrain_job_phase_seconds",
        "Wall time of all ranks by phase; data_wait is waiting for rows",
        (*JOB, "phase"),
        (
            ([job.view.job_id, phase], seconds)
            for job in jobs
            for phase, seconds in sorted(job.history.phase_seconds.items())
        ),
    )
    steps = HistogramFamily(
        "distrain_job_step_duration_seconds",
        "Wall time of each of the ranks' steps, without validation and checkpoints",
        labels=JOB,
    )
    for job in jobs:
        times = job.history.step_times
        buckets = [("+Inf" if s == float("inf") else f"{s:g}", n) for s, n in times.cumulative()]
        steps.add_metric([job.view.job_id], buckets, times.sum_s)
    yield steps


def _ranks_of(jobs: Iterable[Watched]) -> Iterator[Metric]:
    running = [job for job in jobs if job.view.state is JobState.RUNNING]
    for figure, name, about in _RANK_FIGURES:
        values = (
            ([job.view.job_id, rank], _share(value) if figure.endswith("_pct") else value)
            for job in running
            for rank, value in _of_ranks(job, figure).items()
        )
        yield _family(GaugeFamily, name, about, RANK, values)
    yield _family(
        GaugeFamily,
        "distrain_rank_memory_bytes",
        "Memory that a rank's process holds: host, or device (tensors on its GPU)",
        (*RANK, "kind"),
        (
            ([job.view.job_id, rank, kind], size_bytes)
            for job in running
            for kind in ("host", "device")
            for rank, size_bytes in _bounded(
                {rank: now.memory.get(f"{kind}_bytes") for rank, now in job.history.now.items()}
            ).items()
        ),
    )
    for name, about, value_of in _GPU_FIGURES:
        values = (
            ([job.view.job_id, rank], value)
            for job in running
            for rank, value in _bounded(
                {rank: value_of(gpu) for rank, gpu in _gpus_of(job).items()}
            ).items()
        )
        yield _family(GaugeFamily, name, about, RANK, values)


def _of_ranks(job: Watched, figure: str) -> dict[str, float | None]:
    """Return a figure of a job's ranks, such as `step_time_s`, by rank; `None`: unknown.

    With more than `SHOWN_RANKS` ranks, the keys are `slowest`, `median` and `fastest` instead.
    """
    now = job.history.now
    if len(now) <= SHOWN_RANKS:
        return {str(rank): getattr(state, figure) for rank, state in sorted(now.items())}
    timed = [state for state in now.values() if state.step_time_s is not None]
    timed.sort(key=lambda state: state.step_time_s or 0.0)
    places = {"slowest": -1, "median": len(timed) // 2, "fastest": 0}
    return {name: getattr(timed[at], figure) for name, at in places.items() if timed}


def _gpus_of(job: Watched) -> dict[int, Gpu]:
    gpus = {rank: job.gpus.get(place.worker) for rank, place in job.places.items()}
    return {rank: gpu for rank, gpu in gpus.items() if gpu is not None}


def _bounded(values: Mapping[int, float | None]) -> dict[str, float]:
    """Return the values that are not `None`, by rank.

    If there are more than `SHOWN_RANKS`, returns only the smallest and the largest, as `least` and
    `greatest`.
    """
    numbers = {str(rank): value for rank, value in sorted(values.items()) if value is not None}
    if len(numbers) <= SHOWN_RANKS:
        return numbers
    return {"least": min(numbers.values()), "greatest": max(numbers.values())}


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100
