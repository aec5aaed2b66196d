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
from distrain.monitor.documents import Watched, eta_s
from distrain.monitor.observer import Monitor
from distrain.monitor.prometheus_ranks import add_known, ranks_of

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
        yield from _all(jobs)
        shown = shown_jobs(jobs)
        yield from _lives(shown)
        yield from _progress(shown)
        yield from _checkpoints(shown)
        yield from _scores(shown)
        yield from _times(shown)
        yield from ranks_of(shown)


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


def _all(jobs: list[Watched]) -> Iterator[Metric]:
    count = Counter(job.view.state for job in jobs)
    family = GaugeFamily(
        "distrain_jobs", "Jobs that the scheduler knows, by state", labels=["state"]
    )
    for state in JobState:
        family.add_metric([str(state)], count[state])
    yield family
    waits_s = [job.now_s - job.history.state_since_s for job in jobs if _is_pending(job)]
    yield GaugeFamily(
        "distrain_jobs_longest_pending_seconds",
        "How long that pending job has waited that waits longest; 0 if none is pending",
        value=max([0.0, *waits_s]),
    )


def _is_pending(job: Watched) -> bool:
    return job.view.state is JobState.PENDING


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
    yield from (info, state, ended, moved, ranks, restarts)


def _progress(jobs: list[Watched]) -> Iterator[Metric]:
    rows = CounterFamily(
        "distrain_job_rows", "Rows trained, also in steps that were taken again", labels=JOB
    )
    speed = GaugeFamily("distrain_job_rows_per_second", "Rows trained per second", labels=JOB)
    steps = GaugeFamily("distrain_job_steps_done", "Steps taken that count", labels=JOB)
    planned = GaugeFamily("distrain_job_steps_planned", "Steps the job will take", labels=JOB)
    left = GaugeFamily(
        "distrain_job_eta_seconds",
        "How much longer a running job takes at its speed of late, validations included",
        labels=JOB,
    )
    for job in jobs:
        job_id = [job.view.job_id]
        rows.add_metric(job_id, job.history.rows_trained)
        steps.add_metric(job_id, job.history.step)
        add_known(planned, job_id, job.view.num_steps)
        add_known(left, job_id, eta_s(job))
        add_known(speed, job_id, job.history.rows_per_s)
    yield from (rows, speed, steps, planned, left)


def _checkpoints(jobs: list[Watched]) -> Iterator[Metric]:
    saved = CounterFamily("distrain_job_checkpoints", "Checkpoints written", labels=JOB)
    write = CounterFamily(
        "distrain_job_checkpoint_write_seconds",
        "How long writing checkpoints took, while training went on",
        labels=JOB,
    )
    stood = CounterFamily(
        "distrain_job_checkpoint_stall_seconds",
        "How long training stood still for checkpoints, on rank 0",
        labels=JOB,
    )
    size = GaugeFamily("distrain_job_checkpoint_bytes", "Size of the last checkpoint", labels=JOB)
    at = GaugeFamily(
        "distrain_job_checkpoint_timestamp_seconds",
        "When the last checkpoint was whole, in unix time",
        labels=JOB,
    )
    for job in jobs:
        job_id, told = [job.view.job_id], job.view.checkpoints
        saved.add_metric(job_id, told.count)
        write.add_metric(job_id, told.write_s)
        stood.add_metric(job_id, told.stood_still_s)
        add_known(size, job_id, job.history.checkpoint_bytes)
        add_known(at, job_id, job.history.checkpoint_s)
    yield from (saved, write, stood, size, at)


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
                add_known(loss, labels, record.loss)
                add_known(auc, labels, record.auc)
                add_known(bound, labels, record.auc_bound)
    yield from (loss, auc, bound)


def _times(jobs: list[Watched]) -> Iterator[Metric]:
    phases = CounterFamily(
        "distrain_job_phase_seconds",
        "Wall time of all ranks by what it was spent on; data_wait is waiting for rows",
        labels=["job_id", "phase"],
    )
    steps = HistogramFamily(
        "distrain_job_step_duration_seconds",
        "Wall time of each of the ranks' steps, without validation and checkpoints",
        labels=JOB,
    )
    for job in jobs:
        for phase, seconds in sorted(job.history.phase_seconds.items()):
            phases.add_metric([job.view.job_id, phase], seconds)
        times = job.history.step_times
        buckets = [("+Inf" if s == float("inf") else f"{s:g}", n) for s, n in times.cumulative()]
        steps.add_metric([job.view.job_id], buckets, times.sum_s)
    yield from (phases, steps)
