"""Merge what the ranks of one attempt report into records of the whole job. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeVar

from distrain.coordinator.view import Record
from distrain.events import (
    PHASES,
    EvaluationDone,
    Event,
    ModelSaved,
    RankFinished,
    StepsDone,
    TrainingStarted,
)
from distrain.metrics import BinaryMetrics
from distrain.train.exchange_stats import add_up_exchanges

Report = TypeVar("Report", StepsDone, EvaluationDone)


class Collector:
    """Progress of one gang.

    A record appears when every rank has reported the same step. States are merged in rank order,
    so the same reports give the same record whatever order they arrive in.

    Args:
        num_ranks: Ranks of the gang.
    """

    def __init__(self, num_ranks: int):
        self.num_ranks = num_ranks
        self.num_steps: int | None = None
        self.total_rows: int | None = None
        self.parameters: int | None = None
        self.reader: str | None = None
        self.model_path: str | None = None
        self.records: list[Record] = []
        self._windows: dict[int, dict[int, StepsDone]] = defaultdict(dict)
        self._evaluations: dict[int, dict[int, EvaluationDone]] = defaultdict(dict)
        self._finished: dict[int, RankFinished] = {}
        self._rows_total = 0

    def add(self, event: Event) -> None:
        """Take in one rank's event."""
        match event:
            case TrainingStarted():
                self.num_steps = event.num_steps
                self.total_rows = event.total_rows
                self.parameters = event.parameters
                self.reader = event.reader
            case StepsDone():
                self._windows[event.step][event.rank] = event
                if len(self._windows[event.step]) == self.num_ranks:
                    self._merge_window(_in_rank_order(self._windows.pop(event.step)))
            case EvaluationDone():
                self._evaluations[event.step][event.rank] = event
                if len(self._evaluations[event.step]) == self.num_ranks:
                    self._merge_evaluation(_in_rank_order(self._evaluations.pop(event.step)))
            case ModelSaved():
                self.model_path = event.path
            case RankFinished():
                self._finished[event.rank] = event
            case _:
                pass

    @property
    def rank_seconds(self) -> tuple[Mapping[str, float], ...]:
        """Per rank, wall time by phase over the whole training; empty before all finished."""
        return tuple(event.seconds for event in self._all_finished())

    @property
    def rank_setup_s(self) -> tuple[float, ...]:
        """Per rank, wall time between meeting its peers and training; empty before all finished."""
        return tuple(event.setup_s for event in self._all_finished())

    @property
    def rank_loader(self) -> tuple[Mapping[str, float], ...]:
        """Per rank, what its loader did; empty before all finished."""
        return tuple(event.loader for event in self._all_finished())

    @property
    def rank_exchange(self) -> tuple[Mapping[str, float], ...]:
        """Per rank, what it looked up and sent; empty before all finished."""
        return tuple(event.exchange for event in self._all_finished())

    @property
    def rank_device_seconds(self) -> tuple[Mapping[str, float], ...]:
        """Per rank, its GPU's time by phase over the whole training; empty before all finished."""
        return tuple(event.device_seconds for event in self._all_finished())

    @property
    def rank_peak_memory(self) -> tuple[Mapping[str, int], ...]:
        """Per rank, the most memory it ever held; empty before all finished."""
        return tuple(event.peak_memory for event in self._all_finished())

    def _all_finished(self) -> list[RankFinished]:
        if len(self._finished) < self.num_ranks:
            return []
        return [self._finished[rank] for rank in range(self.num_ranks)]

    def _merge_window(self, reports: Sequence[StepsDone]) -> None:
        last = reports[-1]
        merged = _merge([report.metrics for report in reports])
        result = merged.compute()
        elapsed_s = max(report.elapsed_s for report in reports)
        window_s = max(_training_s(report.seconds) for report in reports)
        self._rows_total += result.rows
        self.records.append(
            Record(
                split="train",
                epoch=last.epoch,
                step=last.step,
                rows=result.rows,
                rows_total=self._rows_total,
                elapsed_s=elapsed_s,
                rows_per_s=result.rows / window_s if window_s > 0 else None,
                loss=result.log_loss,
                normalised_entropy=result.normalised_entropy,
                auc=result.auc,
                auc_bound=result.auc_bound,
                stall_pct=tuple(stall_pct(report.seconds) for report in reports),
                seconds=_mean_seconds([report.seconds for report in reports], PHASES),
                lr=last.lr,
                loader=add_up_loaders([report.loader for report in reports]),
                exchange=add_up_exchanges([report.exchange for report in reports]),
                device_seconds=_mean_device_seconds([report.device_seconds for report in reports]),
            )
        )

    def _merge_evaluation(self, reports: Sequence[EvaluationDone]) -> None:
        result = _merge([report.metrics for report in reports]).compute()
        self.records.append(
            Record(
                split="valid",
                epoch=reports[0].epoch,
                step=reports[0].step,
                rows=result.rows,
                rows_total=self._rows_total,
                elapsed_s=max(report.elapsed_s for report in reports),
                rows_per_s=None,
                loss=result.log_loss,
                normalised_entropy=result.normalised_entropy,
                auc=result.auc,
                auc_bound=result.auc_bound,
            )
        )


def stall_pct(seconds: Mapping[str, float]) -> float:
    """The share of wall time spent waiting for data, in percent.

    >>> stall_pct({"data_wait": 1.0, "forward_backward": 3.0})
    25.0
    """
    total_s = sum(seconds.values())
    return 100.0 * seconds.get("data_wait", 0.0) / total_s if total_s > 0 else 0.0


def add_up_loaders(per_rank: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """What several loaders did together.

    >>> add_up_loaders([{"batches": 2, "queue_depth_sum": 6}, {"batches": 1, "queue_depth_sum": 0}])
    {'batches': 3, 'queue_depth_sum': 6, 'mean_queue_depth': 2.0}
    """
    names = dict.fromkeys(name for of_rank in per_rank for name in of_rank)
    total = {name: sum(of_rank.get(name, 0) for of_rank in per_rank) for name in names}
    if "queue_depth_sum" in total:  # a mean of means would not be one of batches
        depth_sum, batches = total["queue_depth_sum"], total.get("batches", 0)
        total["mean_queue_depth"] = depth_sum / max(1, batches)
    return total


def _training_s(seconds: Mapping[str, float]) -> float:
    """Wall time that was not spent on validation: rows/s counts rows trained."""
    return sum(seconds.values()) - seconds.get("evaluate", 0.0)


def _in_rank_order(reports: Mapping[int, Report]) -> list[Report]:
    return [reports[rank] for rank in sorted(reports)]


def _merge(states: Sequence[Mapping[str, object]]) -> BinaryMetrics:
    merged = BinaryMetrics()
    for state in states:
        merged = merged.merge(BinaryMetrics.from_json(dict(state)))
    return merged


def _mean_seconds(
    per_rank: Sequence[Mapping[str, float]], phases: Sequence[str]
) -> dict[str, float]:
    return {
        phase: sum(seconds.get(phase, 0.0) for seconds in per_rank) / len(per_rank)
        for phase in phases
    }


def _mean_device_seconds(per_rank: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of the phases that a device told of: empty on CPUs."""
    told = [phase for phase in PHASES if any(phase in seconds for seconds in per_rank)]
    return _mean_seconds(per_rank, told)
