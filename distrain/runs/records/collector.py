"""Merges the events of ranks into the progress of the whole job."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from distrain.formatting import is_uninformative, useless_targets
from distrain.jobs.events import (
    PHASES,
    CheckpointSaved,
    CheckpointTrouble,
    EvaluationDone,
    Event,
    Heartbeat,
    ModelSaved,
    RankFinished,
    RankStarted,
    RecordsTrouble,
    RefitStarted,
    StepsDone,
    StoppedEarly,
    TrainingStarted,
    WeightsTaken,
    to_json,
)
from distrain.jobs.job_view import AttemptStarted, Checkpoints, Notice, Record
from distrain.jobs.spec.training import RETRIEVAL_METRIC
from distrain.metrics.exchange_stats import add_up_exchanges
from distrain.metrics.reliability import reliability
from distrain.metrics.targets import TargetMetrics
from distrain.runs.records.entries import EntryLog
from distrain.runs.records.merging import (
    add_up_loaders,
    join_reports,
    mean_device_seconds,
    mean_seconds,
    merge,
    stall_pct,
    stalls_of,
    training_s,
    usage_of,
)

_OF_RANKS = ("seconds", "setup_s", "loader", "exchange", "device_seconds", "peak_memory")
"""Fields of `RankFinished` that a `JobView` lists for each rank."""

_OF_START = ("num_steps", "total_rows", "parameters", "reader", "rows_before", "elapsed_before_s")
"""Fields of `TrainingStarted` that a `JobView` has."""

_OF_JOB = {"num_steps", "total_rows", "parameters", "reader", "warm_start"}
"""Fields of `JobView` that remain known while the next attempt starts."""

_SOME_WINDOWS = 3  # the model is nearly untrained when it scores the first windows


class Collector:
    """Merges the events of a job's ranks into records and notices, attempt by attempt.

    A record is added when every rank has reported the same step. Metrics are merged in rank order,
    so the record does not depend on the order in which reports arrive. Records of steps that an
    attempt repeats are not removed: the attempt's `AttemptStarted` entry has the step after which
    earlier records no longer count.
    """

    def __init__(self) -> None:
        self.entries = EntryLog()  # its progress, numbered: the newest entries
        self.checkpoints = Checkpoints()
        self._facts: dict[str, Any] = {}  # fields of `JobView` that ranks reported
        self.begin_attempt(0, 0)

    def begin_attempt(
        self, attempt: int, num_ranks: int, reason: str = "", message: str = ""
    ) -> None:
        """Begin an attempt; `reason` and `message` explain why the previous one ended."""
        self.attempt = attempt
        self.num_ranks = num_ranks
        self._facts = {name: self._facts[name] for name in _OF_JOB & self._facts.keys()}
        self._why = (reason, message)
        self._trains = False
        self._noted: set[str] = set()
        self._waiting: dict[int, list[StepsDone]] = defaultdict(list)
        self._ends: dict[int, set[int]] = defaultdict(set)
        # By step and window.
        self._evaluations: dict[tuple[int, str], dict[int, EvaluationDone]]
        self._evaluations = defaultdict(dict)
        self._started: dict[int, RankStarted] = {}
        self._places: tuple[dict[str, str], ...] = ()
        self._finished: dict[int, RankFinished] = {}
        self.rows_total = 0
        self._open_rows = 0

    def add(self, event: Event) -> None:
        """Process an event of a rank of the current attempt; kinds that are not merged are ignored.

        A training report or a validation becomes a record when it has arrived from all ranks;
        reports of the same step from the same rank count once. The new records and notices are
        appended to `entries`.
        """
        match event:  # the frequent kinds first: each `case` costs time
            case Heartbeat():
                pass
            case StepsDone():
                if event.rank not in self._ends[event.step]:
                    self._ends[event.step].add(event.rank)
                    self._waiting[event.rank].append(event)
                if len(self._ends[event.step]) == self.num_ranks:
                    self._merge_steps(self._reports_up_to(event.step))
            case RankStarted():
                self._started[event.rank] = event
            case TrainingStarted():
                self._begin_training(event)
            case EvaluationDone():
                scored = event.step, event.window
                self._evaluations[scored][event.rank] = event
                if len(self._evaluations[scored]) == self.num_ranks:
                    reports = self._evaluations.pop(scored)
                    self._merge_evaluation([reports[rank] for rank in sorted(reports)])
            case CheckpointSaved():
                self._count_checkpoint(event)
            case CheckpointTrouble() | RecordsTrouble():
                self.entries.append(Notice(event.message))
                if isinstance(event, CheckpointTrouble) and event.step is not None:
                    failed = self.checkpoints.failed + 1
                    self.checkpoints = replace(self.checkpoints, failed=failed)
            case WeightsTaken():
                self._facts["warm_start"] = _facts_of(event)
                self.entries.append(Notice(_weights_taken_text(event), is_warning=False))
            case StoppedEarly():
                self._stop_early(event)
            case RefitStarted():
                self._begin_refit(event)
            case ModelSaved():
                self._facts |= {"model_path": event.path, "model_step": event.step}
            case RankFinished():
                self._finished[event.rank] = event
            case _:
                pass

    def shown(self) -> dict[str, Any]:
        """Return the fields of `JobView` that are collected here, by name.

        `rank_places` is empty until all ranks have started. The other fields that begin with
        `rank_` are empty until all ranks have finished.
        """
        finished = [self._finished[rank] for rank in sorted(self._finished)]
        if len(finished) < self.num_ranks:
            finished = []
        return {
            **self._facts,
            "next_record": len(self.entries),
            "checkpoints": self.checkpoints,
            "rank_places": self.places(),
            "rank_stall_pct": tuple(stall_pct(event.seconds) for event in finished),
            **{f"rank_{name}": tuple(getattr(e, name) for e in finished) for name in _OF_RANKS},
        }

    def places(self) -> tuple[dict[str, str], ...]:
        """Return `JobView.rank_places`: empty until all ranks have started."""
        if len(self._started) < self.num_ranks:
            return ()
        if not self._places:
            started = [self._started[rank] for rank in range(self.num_ranks)]
            self._places = tuple(
                {"host": e.host, "device": e.device, "hardware": e.hardware} for e in started
            )
        return self._places

    def _begin_training(self, event: TrainingStarted) -> None:
        if not self._trains:  # this rank is the first that reports the start
            self._trains = True
            began = AttemptStarted(self.attempt, event.first_step, self.num_ranks, *self._why)
            self.entries.append(began)
            self.rows_total = event.rows_before
            if self.checkpoints.path and not event.first_step:
                gone = "found no usable checkpoint and starts from the beginning; the last one was"
                self.entries.append(
                    Notice(f"attempt {self.attempt} {gone} {self.checkpoints.path}")
                )
        self._facts |= {name: getattr(event, name) for name in _OF_START}
        self._open_rows += event.open_rows

    def _stop_early(self, event: StoppedEarly) -> None:
        ends = {"num_steps": event.step, "total_rows": event.rows}  # the training ends here
        self._facts |= {**ends, "stopped_early": _facts_of(event)}
        self.entries.append(Notice(_stopped_early_text(event), is_warning=False))

    def _begin_refit(self, event: RefitStarted) -> None:
        ends = {"num_steps": event.num_steps, "total_rows": event.total_rows}
        self._facts |= {**ends, "refit": _facts_of(event)}
        self.entries.append(Notice(_refit_text(event), is_warning=False))

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

    def _reports_up_to(self, step: int) -> list[StepsDone]:
        """Remove the waiting reports up to a step; return one joined report for each rank."""
        joined = []
        for rank in sorted(self._waiting):
            reports = self._waiting[rank]
            joined.append(join_reports([one for one in reports if one.step <= step]))
            self._waiting[rank] = [one for one in reports if one.step > step]
        for end in [end for end in self._ends if end <= step]:
            del self._ends[end]
        return joined

    def _merge_steps(self, reports: Sequence[StepsDone]) -> None:
        """Append the record of the ranks' reports, one per rank, which end at the same step.

        Rates are rows over the seconds of the slowest rank. Rows that an earlier attempt trained
        count in the record's metrics, but not in its rate or in `rows_total`.
        """
        last = reports[-1]
        merged = merge([report.metrics for report in reports])
        longest_s = max(training_s(report.seconds) for report in reports)
        trained_rows = merged.rows - self._open_rows  # without rows that an earlier attempt trained
        self._open_rows = 0
        self.rows_total += trained_rows
        self._note_no_weight(merged, "training")
        figures = _figures_of(merged)
        if self.rows_total == trained_rows:  # the first report of a training
            self._note_explosion(last.step, figures)
        self.entries.append(
            Record(
                split="train",
                epoch=last.epoch,
                step=last.step,
                rows=merged.rows,
                rows_total=self.rows_total,
                elapsed_s=self._elapsed_s(reports),
                rows_per_s=trained_rows / longest_s if longest_s > 0 else None,
                **figures,
                **stalls_of([stall_pct(report.seconds) for report in reports]),
                seconds=mean_seconds([report.seconds for report in reports], PHASES),
                lr=last.lr,
                attempt=self.attempt,
                loader=add_up_loaders([report.loader for report in reports]),
                exchange=add_up_exchanges([report.exchange for report in reports]),
                device_seconds=mean_device_seconds([report.device_seconds for report in reports]),
                reports=max(report.windows for report in reports),
                usage=usage_of(reports),
            )
        )

    def _note_explosion(self, step: int, figures: Mapping[str, Any]) -> None:
        entropy = figures["normalised_entropy"]
        if entropy is not None and entropy > _EXPLODED:
            self._note_once(
                "explosion",
                f"up to step {step} the training loss is {figures['loss']:.4g}, {entropy:.0f} "
                "times that of a constant prediction: the model's first values or its learning "
                "rate are too large. Stop it, then set model.number_pieces to 0, normalize the "
                "numbers in the features document, or lower train.optimizer.lr",
            )

    def _note_no_weight(self, merged: TargetMetrics, role: str) -> None:
        main = merged.main
        if main is not None and main.rows and not (main.negatives.any() or main.positives.any()):
            self._note_once(
                f"no {role} weight",
                f"{main.rows:,} {role} rows have weight 0: they affect neither training nor "
                "metrics; check the column of data.weight and data.class_weight",
            )

    def _merge_evaluation(self, reports: Sequence[EvaluationDone]) -> None:
        """Append the record of a validation or a scored window, given the reports of all ranks.

        Also appends notices: about rows without weight, about labels that are all the same, about a
        window's useless predictions, and about a second pass for an exact AUC. The same kind of
        problem is noted once.
        """
        first = reports[0]
        merged = merge([report.metrics for report in reports])
        main = merged.main
        result = None if main is None else main.compute()
        self._note_no_weight(merged, "validation")
        is_one_label = result and result.rows and result.positives in (0, result.rows)
        # Retrieval, which has a recall, often has only rows with label 1 (purchases).
        retrieves = RETRIEVAL_METRIC in (first.own or {})
        if result and is_one_label and not retrieves:
            label = int(result.positives > 0)
            self._note_once(
                "one class",
                f"the {result.rows:,} validation rows all have label {label}: AUC and normalised "
                "entropy are not defined, and cannot choose the best validation",
            )
        figures, so_far = _figures_of(merged), first.progressive
        useless = is_uninformative(so_far.get("normalised_entropy")) or useless_targets(
            figures["targets"]
        )
        if useless and not retrieves and (so_far.get("windows") or 0) >= _SOME_WINDOWS:
            self._note_once(
                "window",
                f"window {first.window}: predictions for windows before training on them are no "
                "better than a constant; lower train.global_batch_size, or raise "
                "train.optimizer.lr or data.windows.size",
            )
        if reports[0].auc is not None:
            self._note_once(
                "ordered",
                f"validation at step {first.step}: the binned AUC is certain only to "
                f"{figures['auc_bound']:.1e}, so the rows were sorted by score in a second pass "
                "for an exact AUC",
                is_warning=False,
            )
            figures |= {"auc": reports[0].auc, "auc_bound": reports[0].auc_bound}
        for name, (auc, auc_bound) in reports[0].target_aucs.items():
            figures["targets"][name] |= {"auc": auc, "auc_bound": auc_bound}
        self.entries.append(
            Record(
                split="next_window" if first.window else "valid",
                epoch=reports[0].epoch,
                step=reports[0].step,
                rows=merged.rows,
                rows_total=self.rows_total,
                elapsed_s=self._elapsed_s(reports),
                rows_per_s=None,
                **figures,
                reliability=reliability(main.negatives, main.positives) if main else None,
                attempt=self.attempt,
                own=first.own,
                window=first.window or None,
                progressive=first.progressive or None,
            )
        )

    def _note_once(self, about: str, text: str, *, is_warning: bool = True) -> None:
        if about not in self._noted:
            self._noted.add(about)
            self.entries.append(Notice(text, is_warning=is_warning))

    def _elapsed_s(self, reports: Sequence[StepsDone] | Sequence[EvaluationDone]) -> float:
        before_s: float = self._facts.get("elapsed_before_s", 0.0)
        return before_s + max(report.elapsed_s for report in reports)


def _figures_of(merged: TargetMetrics) -> dict[str, Any]:
    """Return the metric fields of a `Record`, by name, from the merged metrics of all ranks.

    The metrics of the first binary target are `None` if there is none. `targets` has the metrics of
    all other targets.
    """
    main = merged.main and merged.main.compute()
    return {
        "loss": main and main.log_loss,
        "normalised_entropy": main and main.normalised_entropy,
        "auc": main and main.auc,
        "auc_bound": main and main.auc_bound,
        "targets": merged.figures() or None,
    }


_EXPLODED = 10.0
"""Training diverges if the mean loss of its first report exceeds this multiple of the loss of a
constant prediction."""


def _facts_of(event: StoppedEarly | RefitStarted | WeightsTaken) -> Mapping[str, Any]:
    document = to_json(event)
    return {name: value for name, value in document.items() if name not in ("rank", "kind")}


def _stopped_early_text(event: StoppedEarly) -> str:
    """Describe why training stopped early.

    >>> _stopped_early_text(StoppedEarly(0, 60, 6000, "auc", 30, 0.75, 3))
    'stopped early after step 60: 3 validations without a better auc than 0.75 of step 30'
    """
    return (
        f"stopped early after step {event.step}: {event.waited} validations without a better "
        f"{event.metric} than {event.best_value:.6g} of step {event.best_step}"
    )


def _refit_text(event: RefitStarted) -> str:
    """Describe the beginning of a refit.

    >>> _refit_text(RefitStarted(0, 60, 30, 94, 9400)).partition(",")[0]
    'refit: steps 61 to 94 train a new model on training and validation rows'
    """
    return (
        f"refit: steps {event.step + 1} to {event.num_steps} train a new model on training and "
        "validation rows, for the number of epochs that the first training had at step "
        f"{event.found_step}; the metrics remain those of the first training"
    )


def _weights_taken_text(event: WeightsTaken) -> str:
    """Describe the weights loaded by a warm start, table by table.

    >>> table = {"columns": ["C1"], "by": "value", "matched": 9, "fresh": 2, "dropped": 1}
    >>> text = _weights_taken_text(WeightsTaken(0, "runs/a/model", 40, {"C1": table}, 6))
    >>> print(text.splitlines()[1].strip())
    C1 by value: 9 matched, 2 fresh, 1 dropped
    """
    tables = event.tables
    total = {
        name: sum(t[name] for t in tables.values()) for name in ("matched", "fresh", "dropped")
    }
    step = "" if event.step is None else f" (step {event.step})"
    lines = [
        f"{name} by {table['by']}: {table['matched']:,} matched, {table['fresh']:,} fresh, "
        f"{table['dropped']:,} dropped"
        for name, table in tables.items()
        if table["by"] == "value" or table["fresh"] or table["dropped"]
    ]
    return "\n  ".join(
        [
            f"starts with the weights of {event.path}{step}: {event.dense} dense tensors and "
            f"{total['matched']:,} rows of {len(tables)} tables; {total['fresh']:,} rows are "
            f"new, {total['dropped']:,} were dropped; optimizer state is "
            + ("restored" if event.state else "new"),
            *lines,
            *(f"kept its initial values: {text}" for text in event.left),
        ]
    )
