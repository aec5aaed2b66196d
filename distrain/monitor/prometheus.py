"""The jobs on the scheduler's `/metrics`, with stable names and few label values.

A job has series of its own while it has ranks, and as one of the last `ENDED_JOBS` that ended; a
rank while its job runs. What waits in the queue is only counted.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily as CounterFamily
from prometheus_client.core import GaugeMetricFamily as GaugeFamily
from prometheus_client.core import HistogramMetricFamily as HistogramFamily
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from distrain.coordinator.states import JobState
from distrain.monitor.documents import Watched
from distrain.monitor.observer import Monitor
from distrain.monitor.shown_ranks import SHOWN_RANKS

LIVE_JOBS = 100
ENDED_JOBS = 20

JOB = ("job_id",)
SPLITS = ("job_id", "split")


class JobsCollector(Collector):
    """Turns what a monitor knows into metrics whenever somebody asks.

    Attributes:
        monitor: The one that is asked; `None` before there is a scheduler.
    """

    def __init__(self) -> None:
        self.monitor: Monitor | None = None

    def describe(self) -> Iterable[Metric]:
        """Nothing: it is not asked before there is a job."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All families, with or without series."""
        if self.monitor is None:
            return
        jobs = list(self.monitor.watched())
        yield _states(jobs)
        shown = shown_jobs(jobs)
        yield from _lives(shown)
        yield from _progress(shown)
        yield from _scores(shown)
        yield from _times(shown)
        yield from _ranks(shown)


def export(monitor: Monitor) -> None:
    """Serve this monitor's jobs from now on, in this process's registry."""
    if _collector.monitor is None:
        REGISTRY.register(_collector)
    _collector.monitor = monitor


_collector = JobsCollector()


def shown_jobs(jobs: Iterable[Watched]) -> list[Watched]:
    """Those that have series of their own.

    Args:
        jobs: The newest first.
    """
    jobs = list(jobs)
    live = (job for job in jobs if not job.view.state.is_final and job.view.attempt > 0)
    ended = (job for job in jobs if job.view.state.is_final)
    return [*islice(live, LIVE_JOBS), *islice(ended, ENDED_JOBS)]


def _states(jobs: Iterable[Watched]) -> Metric:
    count = Counter(job.view.state for job in jobs)
    family = GaugeFamily(
        "distrain_jobs", "Jobs that the scheduler knows, by state", labels=["state"]
    )
    for state in JobState:
        family.add_metric([str(state)], count[state])
    return family


def _lives(jobs: list[Watched]) -> Iterator[Metric]:
    info = GaugeFamily("distrain_job_info", "1, with the job's name", labels=["job_id", "name"])
    state = GaugeFamily(
        "distrain_job_state",
        "1 for the state that the job is in, else 0",
        labels=["job_id", "state"],
    )
    ended = GaugeFamily(
        "distrain_job_ended_timestamp_seconds",
        "When a job ended, in unix time",
        labels=["job_id", "state", "reason"],
    )
    moved = GaugeFamily(
        "distrain_job_progress_timestamp_seconds",
        "When a rank last took a step, or the job changed its state, in unix time",
        labels=JOB,
    )
    ranks = GaugeFamily("distrain_job_ranks", "Ranks of the job", labels=JOB)
    restarts = CounterFamily(
        "distrain_job_restarts", "Attempts that ended early and were followed by others", labels=JOB
    )
    saved = CounterFamily("distrain_job_checkpoints", "Checkpoints written", labels=JOB)
    for job in jobs:
        view, job_id = job.view, job.view.job_id
        info.add_metric([job_id, view.name], 1)
        for one in JobState:
            state.add_metric([job_id, str(one)], int(view.state is one))
        if view.state.is_final:
            labels = [job_id, str(view.state), view.reason or ""]
            ended.add_metric(labels, job.history.state_since_s)
        moved.add_metric([job_id], job.history.progressed_s)
        ranks.add_metric([job_id], len(view.pids) or view.num_ranks)
        restarts.add_metric([job_id], len(view.restarts))
        saved.add_metric([job_id], view.checkpoints.count)
    yield from (info, state, ended, moved, ranks, restarts, saved)


def _progress(jobs: list[Watched]) -> Iterator[Metric]:
    rows = CounterFamily(
        "distrain_job_rows", "Rows trained, also in steps that were taken again", labels=JOB
    )
    speed = GaugeFamily("distrain_job_rows_per_second", "Rows trained per second", labels=JOB)
    steps = GaugeFamily("distrain_job_steps_done", "Steps taken that count", labels=JOB)
    planned = GaugeFamily("distrain_job_steps_planned", "Steps the job will take", labels=JOB)
    for job in jobs:
        job_id, last = [job.view.job_id], job.history.last_train
        rows.add_metric(job_id, job.history.rows_trained)
        steps.add_metric(job_id, job.history.step)
        _add(planned, job_id, job.view.num_steps)
        if job.view.state is JobState.RUNNING and last is not None:
            _add(speed, job_id, last.rows_per_s)
    yield from (rows, speed, steps, planned)


def _scores(jobs: list[Watched]) -> Iterator[Metric]:
    loss = GaugeFamily("distrain_job_loss_nats", "Mean log loss of the last report", labels=SPLITS)
    auc = GaugeFamily("distrain_job_auc_ratio", "Area under the ROC curve", labels=SPLITS)
    bound = GaugeFamily(
        "distrain_job_auc_bound_ratio",
        "How far binning may put the AUC off that of the same rows sorted; no confidence interval",
        labels=SPLITS,
    )
    for job in jobs:
        for record in (job.history.last_train, job.history.last_valid):
            if record is not None:
                labels = [job.view.job_id, record.split]
                _add(loss, labels, record.loss)
                _add(auc, labels, record.auc)
                _add(bound, labels, record.auc_bound)
    yield from (loss, auc, bound)


def _times(jobs: list[Watched]) -> Iterator[Metric]:
    phases = CounterFamily(
        "distrain_job_phase_seconds",
        "Wall time of all ranks by what it was spent on; data_wait is waiting for rows",
        labels=["job_id", "phase"],
    )
    steps = HistogramFamily(
        "distrain_job_step_duration_seconds", "Wall time of the ranks' steps", labels=JOB
    )
    for job in jobs:
        for phase, seconds in sorted(job.history.phase_seconds.items()):
            phases.add_metric([job.view.job_id, phase], seconds)
        times = job.history.step_times
        buckets = [("+Inf" if s == float("inf") else f"{s:g}", n) for s, n in times.cumulative()]
        steps.add_metric([job.view.job_id], buckets, times.sum_s)
    yield from (phases, steps)


def _ranks(jobs: list[Watched]) -> Iterator[Metric]:
    labels = ("job_id", "rank")
    step = GaugeFamily(
        "distrain_rank_step_duration_seconds",
        "A rank's own work per step, without waits for other ranks",
        labels=labels,
    )
    speed = GaugeFamily("distrain_rank_rows_per_second", "Rows trained per second", labels=labels)
    stall = GaugeFamily(
        "distrain_rank_data_wait_ratio", "Share of wall time spent waiting for data", labels=labels
    )
    for job in jobs:
        if job.view.state is not JobState.RUNNING:
            continue
        job_id, history = job.view.job_id, job.history
        if len(history.now) > SHOWN_RANKS:
            for name, series in history.ranks.items():
                if not name.isdecimal():
                    _add(step, [job_id, name], series.tail().get("step_time_s"))
                    _add(speed, [job_id, name], series.tail().get("rows_per_s"))
            continue
        for rank, now in sorted(history.now.items()):
            _add(step, [job_id, str(rank)], now.step_time_s)
            _add(speed, [job_id, str(rank)], now.rows_per_s)
            _add(stall, [job_id, str(rank)], None if now.stall_pct is None else now.stall_pct / 100)
    yield from (step, speed, stall)


def _add(family: GaugeFamily, labels: list[str], value: float | None) -> None:
    if value is not None:
        family.add_metric(labels, value)
