"""Makes the events that a rank reports while it trains: steps, times, counts and memory."""

import re
import resource
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import torch

from distrain.jobs.events import (
    STEP_BOUNDS_S,
    EvaluationDone,
    RankFinished,
    RefitStarted,
    StepsDone,
    StoppedEarly,
    TrainingStarted,
)
from distrain.jobs.spec.training import ScheduleSpec, TrainSpec
from distrain.loader.delivery.stats import LoaderStats
from distrain.loader.loader import Loader
from distrain.models.click_model import ClickModel
from distrain.train.data.job_extent import JobSpan
from distrain.train.loop.checkpoints import TrainingStart
from distrain.train.loop.early_stopping import Validations
from distrain.train.loop.evaluation import Evaluation
from distrain.train.loop.refit import Refit
from distrain.train.step.learning_rate import lr_at, reduced
from distrain.train.step.open_report import ClosedReport, OpenReport
from distrain.train.timing.phases import PEERS, PhaseClock, waiting


class StepCounts:
    """A histogram of the steps' wall times; `STEP_BOUNDS_S` are the upper bounds of its bins.

    >>> counts = StepCounts()
    >>> counts.add(0.004)
    >>> counts.add(60.0)
    >>> taken = counts.take()
    >>> taken[STEP_BOUNDS_S.index(0.005)], taken[-1], sum(taken), sum(counts.take())
    (1, 1, 2, 0)
    """

    def __init__(self) -> None:
        self._counts = [0] * (len(STEP_BOUNDS_S) + 1)

    def add(self, step_s: float) -> None:
        self._counts[bisect_left(STEP_BOUNDS_S, step_s)] += 1

    def take(self) -> list[int]:
        """Return the counts since the last call, and reset them.

        There is one count for each upper bound, and a last one for longer steps.
        """
        taken, self._counts = self._counts, [0] * len(self._counts)
        return taken


@dataclass(frozen=True)
class PendingSteps:
    """A rank's report of its last steps, whose metrics are still being copied from the device."""

    closed: ClosedReport
    without_metrics: StepsDone

    @property
    def is_ready(self) -> bool:
        return self.closed.is_ready

    def event(self) -> StepsDone:
        """Return the report with its metrics; waits for the device, which may wait for peers.

        Raises `NonFiniteLoss` if a loss is not finite.
        """
        with waiting(PEERS):
            metrics = self.closed.read()
        return replace(self.without_metrics, metrics=metrics)


@dataclass(frozen=True)
class RankEvents:
    """Makes a rank's events about one training: the first training of a job, or its refit."""

    rank: int
    device: torch.device
    train: TrainSpec
    span: JobSpan
    open_report: OpenReport
    steps_before: int = 0  # steps of earlier runs whose optimizer state this run began with
    reduction: float = 1.0  # the product of the factors of `reduce_on_plateau`
    step_counts: StepCounts = field(default_factory=StepCounts)

    def started(self, model: ClickModel, loader: Loader, start: TrainingStart) -> TrainingStarted:
        dense = sum(p.numel() for p in model.dense.parameters())
        sparse = sum(w.numel() for w in model.embeddings.weights)
        return TrainingStarted(
            self.rank,
            self.span.num_steps,
            self.span.rows_per_epoch,
            self.span.rows_in(self.span.num_steps),
            dense + sparse,
            ": ".join(loader.reader_choice),
            start.step,
            self.span.rows_in(start.step),
            start.elapsed_s,
            self.open_report.restored_rows,
            start.checkpoint,
        )

    def lr_of(self, step: int) -> float:
        """Return the dense layers' learning rate in a step; steps count from 0."""
        return self._lr_at(step, self.train.optimizer.lr, self.train.schedule)

    def table_lr_of(self, step: int) -> float:
        """Return the learning rate of the embedding tables in a step; steps count from 0."""
        train = self.train
        return self._lr_at(step, train.of_tables.lr, train.table_schedule or train.schedule)

    def _lr_at(self, step: int, peak_lr: float, schedule: ScheduleSpec) -> float:
        before = self.steps_before
        place, length = self.span.schedule_position(step)
        lr = lr_at(before + place, before + length, peak_lr, schedule)
        return reduced(lr, self.reduction, self.train.reduce_on_plateau)

    def steps_done(self, taken: int, stats: LoaderStats, clock: PhaseClock) -> PendingSteps:
        """End the current report after `taken` steps, and return it; does not wait for the device.

        The next step begins a new report.
        """
        closed, loader, exchange = self.open_report.close(taken, stats)
        seconds, device_seconds = clock.lap(), clock.device_lap()
        event = StepsDone(
            self.rank,
            self.span.epoch_after(taken),
            taken,
            clock.elapsed_s,
            seconds,
            {},
            self.lr_of(taken - 1),
            loader,
            exchange,
            device_seconds,
            self.step_counts.take(),
            memory_now(self.device),
            cpu_s=clock.cpu_lap(),
        )
        return PendingSteps(closed, event)

    def evaluated(self, taken: int, found: Evaluation, clock: PhaseClock) -> EvaluationDone:
        epoch, metrics = self.span.epoch_after(taken), found.metrics.to_json()
        others: dict[str, Sequence[float]] = dict(found.from_scores)
        auc, bound = others.pop(found.metrics.main_name or "", (None, None))
        seen_s, own = clock.running_s, found.own
        return EvaluationDone(self.rank, epoch, taken, seen_s, metrics, auc, bound, own, others)

    def stopped_early(self, taken: int, validations: Validations | None) -> StoppedEarly:
        assert validations is not None
        rows, best = self.span.rows_in(taken), (validations.best_step, validations.best_value)
        return StoppedEarly(self.rank, taken, rows, validations.metric, *best, validations.waited)

    def refit_started(self, refit: Refit) -> RefitStarted:
        last = self.span.num_steps
        return RefitStarted(self.rank, refit.taken, refit.found, last, self.span.rows_in(last))

    def finished(
        self, taken: int, setup_s: float, stats: LoaderStats, clock: PhaseClock
    ) -> RankFinished:
        """Return the event that ends the training, after `taken` steps; waits for the device.

        `setup_s` is the time of the set-up, in seconds.
        """
        clock.lap()
        clock.device_lap(wait=True)
        return RankFinished(
            self.rank,
            taken,
            self.open_report.rows_trained,
            clock.elapsed_s,
            dict(clock.totals),
            setup_s,
            stats.to_json(),
            self.open_report.exchanged_in_all.to_json(),
            clock.device_totals,
            peak_memory(self.device),
        )


STATUS_FILE = Path("/proc/self/status")


def peak_memory(device: torch.device) -> dict[str, int]:
    """Return the peak memory of the process: `host_bytes` and `device_bytes`.

    `host_bytes` is its largest resident size since its start. `device_bytes` is the largest total
    size of tensors on its GPU, without other memory of CUDA and torch; 0 on the CPU.
    """
    device_bytes = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    return {"host_bytes": _peak_resident_bytes(), "device_bytes": device_bytes}


def memory_now(device: torch.device) -> dict[str, int]:
    """Return the process's current memory.

    `host_bytes` is its resident size. `device_bytes` is the total size of tensors on its GPU;
    absent on the CPU.
    """
    found = {"host_bytes": psutil.Process().memory_info().rss}
    if device.type == "cuda":
        found["device_bytes"] = torch.cuda.memory_allocated(device)
    return found


def _peak_resident_bytes() -> int:
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB$", STATUS_FILE.read_text(), re.MULTILINE)
    except OSError:
        found = None
    if found:
        return 1024 * int(found[1])
    # Without /proc. Includes the parent's size at the fork, if that was larger.
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
