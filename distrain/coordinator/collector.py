"""Merge what the ranks report into the progress of the whole job. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from distrain.coordinator.kept_entries import KeptEntries
from distrain.coordinator.merging import (
    add_up_loaders,
    mean_device_seconds,
    mean_seconds,
    merge,
    stall_pct,
    stalls_of,
    training_s,
)
from distrain.coordinator.telling import facts_of, stopped_early_text, weights_taken_text
from distrain.coordinator.view import Checkpoints, Entry, Notice, Record, Resumed
from distrain.events import (
    PHASES,
    CheckpointSaved,
    CheckpointTrouble,
    EvaluationDone,
    Event,
    KeepingTrouble,
    ModelSaved,
    RankFinished,
    RankStarted,
    StepsDone,
    StoppedEarly,
    TrainingStarted,
    WeightsTaken,
)
from distrain.metrics.reliability import reliability
from distrain.train.exchange_stats import add_up_exchanges

Report = TypeVar("Report", StepsDone, EvaluationDone)


class Collector:
    """Progress of one job, attempt by attempt.

    A record appears when every rank has reported the same step. States are merged in rank order,
    so the same reports give the same record whatever order they arrive in. Nothing is ever taken
    back: an attempt that goes on from a checkpoint says which of the records before still count.

    Args:
        limit_bytes: What its progress may take in memory, about; `None` keeps all of it.

    Attributes:
        entries: Its progress, under numbers.
        rows_total: Rows trained up to the last record of training.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        self.entries = KeptEntries(limit_bytes)
        self.checkpoints = Checkpoints()
        self.num_steps: int | None = None
        self.total_rows: int | None = None
        self.parameters: int | None = None
        self.reader: str | None = None
        self.warm_start: Mapping[str, Any] | None = None
        self.begin_attempt(0, 0)

    def begin_attempt(
        self, attempt: int, num_ranks: int, reason: str = "", message: str = ""
    ) -> None:
        """A new gang is launched: forget what the one before left half reported.

        Args:
            attempt: Its number.
            num_ranks: Its ranks.
            reason: Why the attempt before it ended; "" for the first.
            message: The same for people.
        """
        self.attempt = attempt
        self.num_ranks = num_ranks
        self.model_path: str | None = None
        self.model_step: int | None = None
        self.stopped_early: Mapping[str, Any] | None = None
        self.rows_before = 0
        self.elapsed_before_s = 0.0
        self._why = (reason, message)
        self._trains = False
        self._told_of_ordered_scores = False
        self._windows: dict[int, dict[int, StepsDone]] = defaultdict(dict)
        self._evaluations: dict[int, dict[int, EvaluationDone]] = defaultdict(dict)
        self._started: dict[int, RankStarted] = {}
        self._known_places: tuple[dict[str, str], ...] = ()
        self._finished: dict[int, RankFinished] = {}
        self.rows_total = 0
        self._open_rows = 0

    def add(self, event: Event) -> None:
        """Take in an event of one of this attempt's ranks."""
        match event:
            case RankStarted():
                self._started[event.rank] = event
            case TrainingStarted():
                self._begin_training(event)
            case StepsDone():
                self._windows[event.step][event.rank] = event
                if len(self._windows[event.step]) == self.num_ranks:
                    self._merge_window(_in_rank_order(self._windows.pop(event.step)))
            case EvaluationDone():
                self._evaluations[event.step][event.rank] = event
                if len(self._evaluations[event.step]) == self.num_ranks:
                    self._merge_evaluation(_in_rank_order(self._evaluations.pop(event.step)))
            case CheckpointSaved():
                self._count_checkpoint(event)
            case CheckpointTrouble() | KeepingTrouble():
                self.entries.append(Notice(event.message))
                if isinstance(event, CheckpointTrouble) and event.step is not None:
                    failed = self.checkpoints.failed + 1
                    self.checkpoints = replace(self.checkpoints, failed=failed)
            case WeightsTaken():
                self.warm_start = facts_of(event)
                self.entries.append(Notice(weights_taken_text(event)))
            case StoppedEarly():
                self._stop_early(event)
            case ModelSaved():
                self.model_path, self.model_step = event.path, event.step
            case RankFinished():
                self._finished[event.rank] = event
            case _:
                pass

    @property
    def progress(self) -> list[Entry]:
        """All of its progress that is kept."""
        return self.entries.since(0)

    @property
    def records(self) -> list[Record]:
        """The records in it, also those that no longer count."""
        return [entry for entry in self.progress if isinstance(entry, Record)]

    def shown(self) -> dict[str, Any]:
        """The fields of a `JobView` that are known here; those of ranks when all have finished."""
        finished = self._all_finished()
        return {
            "num_steps": self.num_steps,
            "total_rows": self.total_rows,
            "parameters": self.parameters,
            "reader": self.reader,
            "next_record": len(self.entries),
            "checkpoints": self.checkpoints,
            "rows_before": self.rows_before,
            "elapsed_before_s": self.elapsed_before_s,
            "model_path": self.model_path,
            "model_step": self.model_step,
            "stopped_early": self.stopped_early,
            "warm_start": self.warm_start,
            "rank_places": self._places(),
            "rank_stall_pct": tuple(stall_pct(event.seconds) for event in finished),
            "rank_seconds": tuple(event.seconds for event in finished),
            "rank_setup_s": tuple(event.setup_s for event in finished),
            "rank_loader": tuple(event.loader for event in finished),
            "rank_exchange": tuple(event.exchange for event in finished),
            "rank_device_seconds": tuple(event.device_seconds for event in finished),
            "rank_peak_memory": tuple(event.peak_memory for event in finished),
        }

    def _all_finished(self) -> list[RankFinished]:
        if len(self._finished) < self.num_ranks:
            return []
        return [self._finished[rank] for rank in range(self.num_ranks)]

    def _places(self) -> tuple[dict[str, str], ...]:
        if len(self._started) < self.num_ranks:
            return ()
        if not self._known_places:
            started = [self._started[rank] for rank in range(self.num_ranks)]
            self._known_places = tuple(
                {"host": e.host, "device": e.device, "hardware": e.hardware} for e in started
            )
        return self._known_places

    def _begin_training(self, event: TrainingStarted) -> None:
        if not self._trains:  # the first rank that tells
            self._trains = True
            told = Resumed(self.attempt, event.first_step, self.num_ranks, *self._why)
            self.entries.append(told)
            self.rows_total = event.rows_before
            if self.checkpoints.path and not event.first_step:
                gone = "found no checkpoint that can be used, and begins anew; the last one was"
                self.entries.append(
                    Notice(f"attempt {self.attempt} {gone} {self.checkpoints.path}")
                )
        self.num_steps = event.num_steps
        self.total_rows = event.total_rows
        self.parameters = event.parameters
        self.reader = event.reader
        self.rows_before = event.rows_before
        self.elapsed_before_s = event.elapsed_before_s
        self._open_rows += event.open_rows

    def _stop_early(self, event: StoppedEarly) -> None:
        self.num_steps, self.total_rows = event.step, event.rows  # there will be no more
        self.stopped_early = facts_of(event)
        self.entries.append(Notice(stopped_early_text(event)))

    def _count_checkpoint(self, event: CheckpointSaved) -> None:
        before = self.checkpoints
        self.checkpoints = replace(
            before,
            count=before.count + 1,
            step=event.step,
            path=event.path,
            stood_still_s=before.stood_still_s + event.stood_still_s,
            write_s=before.write_s + event.write_s,
        )

    def _merge_window(self, reports: Sequence[StepsDone]) -> None:
        last = reports[-1]
        merged = merge([report.metrics for report in reports])
        result = merged.compute()
        window_s = max(training_s(report.seconds) for report in reports)
        trained_rows = result.rows - self._open_rows  # the others were trained before
        self._open_rows = 0
        self.rows_total += trained_rows
        self.entries.append(
            Record(
                split="train",
                epoch=last.epoch,
                step=last.step,
                rows=result.rows,
                rows_total=self.rows_total,
                elapsed_s=self._elapsed_s(reports),
                rows_per_s=trained_rows / window_s if window_s > 0 else None,
                loss=result.log_loss,
                normalised_entropy=result.normalised_entropy,
                auc=result.auc,
                auc_bound=result.auc_bound,
                **stalls_of([stall_pct(report.seconds) for report in reports]),
                seconds=mean_seconds([report.seconds for report in reports], PHASES),
                lr=last.lr,
                attempt=self.attempt,
                loader=add_up_loaders([report.loader for report in reports]),
                exchange=add_up_exchanges([report.exchange for report in reports]),
                device_seconds=mean_device_seconds([report.device_seconds for report in reports]),
            )
        )

    def _merge_evaluation(self, reports: Sequence[EvaluationDone]) -> None:
        merged = merge([report.metrics for report in reports])
        result = merged.compute()
        auc, auc_bound = result.auc, result.auc_bound
        if reports[0].auc is not None:
            self._tell_of_ordered_scores(reports[0].step, auc_bound)
            auc, auc_bound = reports[0].auc, reports[0].auc_bound
        self.entries.append(
            Record(
                split="valid",
                epoch=reports[0].epoch,
                step=reports[0].step,
                rows=result.rows,
                rows_total=self.rows_total,
                elapsed_s=self._elapsed_s(reports),
                rows_per_s=None,
                loss=result.log_loss,
                normalised_entropy=result.normalised_entropy,
                auc=auc,
                auc_bound=auc_bound,
                reliability=reliability(merged.negatives, merged.positives),
                attempt=self.attempt,
            )
        )

    def _tell_of_ordered_scores(self, step: int, bound: float | None) -> None:
        if self._told_of_ordered_scores:
            return
        self._told_of_ordered_scores = True
        self.entries.append(
            Notice(
                f"validation at step {step}: counted in bins, the AUC would be certain to "
                f"{bound:.1e} only, so the rows were ordered by their scores, in a second pass"
            )
        )

    def _elapsed_s(self, reports: Sequence[StepsDone] | Sequence[EvaluationDone]) -> float:
        return self.elapsed_before_s + max(report.elapsed_s for report in reports)


def _in_rank_order(reports: Mapping[int, Report]) -> list[Report]:
    return [reports[rank] for rank in sorted(reports)]
