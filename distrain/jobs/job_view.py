"""A job's state and progress as the coordinator reports them: dataclasses with a JSON form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import Any

from distrain.jobs.states import JobState

JSON_VERSION = 1  # raised when a key changes its meaning or is removed, not for new keys


def known_fields(record: type, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a document that are fields of a dataclass; other keys are dropped.

    The document may come from another version.

    >>> known_fields(Checkpoints, {"count": 2, "of_a_later_version": True})
    {'count': 2}
    """
    names = _names(record)
    return {name: value for name, value in {**document}.items() if name in names}


@cache
def _names(record: type) -> frozenset[str]:
    return frozenset(field.name for field in fields(record))


@dataclass(frozen=True)
class Record:
    """One progress report or validation, merged over all ranks.

    It is a line in the records of its attempt.
    """

    # `train` (rows scored before their update, since the last record), `valid`, or `next_window`
    # (a window of the training rows, scored before it is trained)
    split: str
    epoch: int  # from 0
    step: int  # steps taken since the start of the job
    rows: int  # rows of this record: trained since the last one, or validated
    rows_total: int  # rows trained since the start, each counted once per epoch
    # wall time of training on the slowest rank, plus that of earlier attempts up to the checkpoint
    # from which this attempt continued
    elapsed_s: float
    rows_per_s: float | None  # rows trained per second since the last record; `None` for validation
    loss: float | None  # mean log loss of the first binary target, in nats; `None` without one
    normalised_entropy: float | None  # log loss divided by that of the mean label
    auc: float | None  # area under the ROC curve; `None` where one class is absent
    auc_bound: float | None  # the largest error of `auc` that counting scores in bins may cause
    # per rank, the share of wall time spent waiting for data, in percent; empty with more than 64
    # ranks
    stall_pct: tuple[float, ...] = ()
    # seconds by phase since the last record, mean over the ranks
    seconds: Mapping[str, float] | None = None
    lr: float | None = None  # learning rate of the last step; `None` for validation
    # counters of the loaders since the last record, summed over the ranks; `None` for validation
    loader: Mapping[str, float] | None = None
    # counters of table lookups and of data sent between ranks since the last record, summed over
    # the ranks (`steps`: the largest); `None` for validation
    exchange: Mapping[str, float] | None = None
    # seconds of GPU time by phase since the last record, mean over the ranks; empty on CPUs, `None`
    # for validation
    device_seconds: Mapping[str, float] | None = None
    # validated rows in groups of similar predictions, ascending: for each group the mean
    # `predicted` and the `observed` click rate, and the number of `rows`; `None` for training
    reliability: Mapping[str, Sequence[float]] | None = None
    attempt: int = 0  # the attempt that took these steps; 0 in files of earlier versions
    reports: int = 1  # number of reports of each rank merged into this record
    # with more than 64 ranks, the `mean` and `max` of their `stall_pct`, and the `worst`: the 8
    # highest, each as rank and value; else `None`
    stall_summary: Mapping[str, Any] | None = None
    # what the processes of the ranks use, a value for each rank: `cpu_pct` (100 is one core) and
    # `gpu_pct` since the last record, `host_bytes` and `device_bytes` (tensors on the GPU) now;
    # keys that are 0 for all ranks are left out; absent for validation, and with more than 64 ranks
    usage: Mapping[str, Sequence[float]] | None = None
    # the metrics of `evaluate.metrics` and, for retrieval, `recall_at_10`, by name; `None` for
    # training
    own: Mapping[str, float | None] | None = None
    # metrics of the same rows, by target and metric, for all targets except the first binary one,
    # whose metrics are in the fields above; absent if there are no other targets
    targets: Mapping[str, Mapping[str, float | None]] | None = None
    window: str | None = None  # the window's name; absent unless `split` is `next_window`
    # over all windows scored so far: the number of `windows` and `rows`, `auc`, `auc_bound`,
    # `log_loss`, `normalised_entropy`, `calibration`; absent unless `split` is `next_window`
    progressive: Mapping[str, float | None] | None = None

    def figures(self) -> dict[str, Any]:
        """Return the record's single values by name, and further metrics.

        Fields that are mappings or tuples are left out. The further metrics are those in `own`, and
        those in `targets` as `TARGET.METRIC`.
        """
        plain = {k: v for k, v in self.to_json().items() if not isinstance(v, Mapping | tuple)}
        return {**plain, **(self.own or {}), **self.target_metrics()}

    def target_metrics(self) -> dict[str, float | None]:
        """Return the metrics of all targets except the first binary one, by `TARGET.METRIC`."""
        by_target = (self.targets or {}).items()
        return {f"{name}.{metric}": v for name, found in by_target for metric, v in found.items()}

    def value(self, name: str) -> float | None:
        """Return the number in a field, in `own`, or (as `TARGET.METRIC`) in `targets`, by name.

        `None` if there is no such number, or it is unknown.
        """
        if name in vars(self):
            found: float | None = getattr(self, name)
            return found
        return {**(self.own or {}), **self.target_metrics()}.get(name)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values, which share the record's data and must not be changed.

        `usage`, `targets`, `window` and `progressive` are absent if they are `None`.
        """
        return {
            name: value
            for name, value in vars(self).items()
            if value is not None or name not in ("usage", "targets", "window", "progressive")
        }

    @property
    def stall_mean_pct(self) -> float | None:
        if self.stall_summary is not None:
            return float(self.stall_summary["mean"])
        return sum(self.stall_pct) / len(self.stall_pct) if self.stall_pct else None

    @property
    def stall_max_pct(self) -> float | None:
        if self.stall_summary is not None:
            return float(self.stall_summary["max"])
        return max(self.stall_pct, default=None)


@dataclass(frozen=True)
class AttemptStarted:
    """An attempt began to train. Records of earlier attempts count only up to its step."""

    attempt: int
    step: int  # training steps in the checkpoint that it started from; 0 without a checkpoint
    num_ranks: int  # the ranks of the attempt
    # why the previous attempt ended, one of `Reason`; "" for the first attempt of a submission
    reason: str = ""
    message: str = ""  # the same in words


@dataclass(frozen=True)
class Notice:
    """A message for users that does not end the attempt."""

    text: str  # the message
    is_warning: bool = True  # whether the user may have to act


Entry = Record | AttemptStarted | Notice

_ENTRY_KINDS: dict[str, type[Entry]] = {
    "record": Record,
    "resumed": AttemptStarted,
    "notice": Notice,
}
_KIND_OF_ENTRY = {cls: kind for kind, cls in _ENTRY_KINDS.items()}


@dataclass(frozen=True)
class Restart:
    """An attempt that ended early and was followed by another."""

    attempt: int  # the attempt that ended
    reason: str  # one of `Reason`
    message: str  # the same in words
    step: int  # the furthest step that it reported
    after_s: float  # seconds from the job's submission to the attempt's end


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a job, over all attempts of its last submission."""

    count: int = 0  # checkpoints that were written
    step: int | None = None  # training steps in the last one
    path: str | None = None  # folder or URL of the last one
    stood_still_s: float = 0.0  # seconds for which all of them paused training, on rank 0
    write_s: float = 0.0  # how long writing all of them took
    failed: int = 0  # how many could not be written

    @property
    def outcome(self) -> str:
        """The numbers of written and failed checkpoints as a text; "" if none failed.

        >>> Checkpoints(count=1, failed=2).outcome
        '1 written, 2 failed'
        """
        return f"{self.count} written, {self.failed} failed" if self.failed else ""


def record_of_model(valid: Sequence[Record], model_step: int | None) -> Record | None:
    """Return the validation of the saved model, or else the last one; `None` if there are none.

    `valid` are the records of validations in order, and `model_step` is the model's number of
    training steps. In a run that keeps its best model, the last validation may be of later steps.
    """
    of_model = [record for record in valid if record.step == model_step]
    return next((records[-1] for records in (of_model, valid) if records), None)


def steps_of_refit(refit: Mapping[str, Any] | None) -> int | None:
    """Return the number of steps of the second training, given `RefitStarted` as JSON values.

    `None` if the job has no second training (`None` is given).
    """
    return None if refit is None else refit["num_steps"] - refit["step"]


@dataclass(frozen=True)
class JobView:
    """The state and progress of a job, merged over its ranks, as the coordinator reports it."""

    job_id: str
    name: str
    state: JobState  # its current state
    attempt: int  # the current or last attempt, from 1
    num_ranks: int  # ranks that the spec requests; it may run with fewer: `pids` has one per rank
    reason: str | None = None  # why it failed or was cancelled, one of `Reason`
    message: str | None = None  # the same in words: the failed rank, its error, its log's end
    # why a job waits for its first or next attempt; of a running job, which ranks wait for storage
    # that does not answer; else ""
    why_pending: str = ""
    num_steps: int | None = None  # steps it will take, once known
    total_rows: int | None = None  # rows it will train, once known
    parameters: int | None = None
    reader: str | None = None  # which reader decodes row groups, and why, once known
    pids: tuple[int | None, ...] = ()  # per rank, the process id, where known
    # the entries from number `since` of the call on, in order: records, attempts that began to
    # train, notices
    progress: tuple[Entry, ...] = ()
    next_record: int = 0  # the number of entries so far; pass it as `since` in the next call
    restarts: tuple[Restart, ...] = ()  # attempts that ended early and were followed by others
    recorded: bool = False  # of a job that has ended: whether its run folder has the summary
    record_error: str = ""  # why the summary could not be written; "" otherwise
    checkpoints: Checkpoints = Checkpoints()  # numbers and times of its checkpoints
    rows_before: int = 0  # rows trained before the checkpoint that the last attempt started from
    elapsed_before_s: float = 0.0  # wall time in which they were trained
    model_path: str | None = None  # where rank 0 saved the model
    # training steps of this model; after a refit, the steps at the first training's best validation
    model_step: int | None = None
    # `StoppedEarly` as JSON, if training ended before all its steps
    stopped_early: Mapping[str, Any] | None = None
    # `RefitStarted` as JSON, once the second training, with the validation rows, began
    refit: Mapping[str, Any] | None = None
    # `WeightsTaken` as JSON, if the run began with the weights of another
    warm_start: Mapping[str, Any] | None = None
    # per rank of the last attempt: its `host`, its `device`, and the device's name as `hardware`;
    # empty until all ranks have reported
    rank_places: tuple[Mapping[str, str], ...] = ()
    # per rank of the last attempt, the percentage of wall time spent waiting for data; like all
    # fields below, over the whole attempt, and empty until all its ranks have finished
    rank_stall_pct: tuple[float, ...] = ()
    # per rank, wall time by phase
    rank_seconds: tuple[Mapping[str, float], ...] = ()
    # per rank, wall time before training, for opening the data and building the model
    rank_setup_s: tuple[float, ...] = ()
    # per rank, counters of its loader
    rank_loader: tuple[Mapping[str, float], ...] = ()
    # per rank, counters of table lookups and of data sent
    rank_exchange: tuple[Mapping[str, float], ...] = ()
    # per rank, its GPU's time by phase
    rank_device_seconds: tuple[Mapping[str, float], ...] = ()
    # per rank, the most memory it ever held, in bytes: `host_bytes` and `device_bytes`
    rank_peak_memory: tuple[Mapping[str, int], ...] = ()

    @cached_property
    def records(self) -> tuple[Record, ...]:
        return tuple(entry for entry in self.progress if isinstance(entry, Record))

    def to_json(self) -> dict[str, Any]:
        """Return JSON values, which share the view's data and must not be changed."""
        # Not `asdict`: with many ranks, most of the time of a scheduler's answer went into copies.
        return {
            "version": JSON_VERSION,
            **{field.name: getattr(self, field.name) for field in fields(self)},
            "progress": [entry_to_json(entry) for entry in self.progress],
            "restarts": [dict(vars(restart)) for restart in self.restarts],
            "checkpoints": dict(vars(self.checkpoints)),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "JobView":
        """Return the view for JSON values of any version; unknown keys and entries are ignored.

        Raises `TypeError` or `ValueError` if a field is missing, or the state is unknown.
        """
        values = known_fields(cls, document)
        values["state"] = JobState(values.get("state", "missing"))
        entries = map(entry_from_json, values.get("progress", ()))
        values["progress"] = tuple(entry for entry in entries if entry is not None)
        values["restarts"] = tuple(
            Restart(**known_fields(Restart, restart)) for restart in values.get("restarts", ())
        )
        values["checkpoints"] = Checkpoints(
            **known_fields(Checkpoints, values.get("checkpoints", {}))
        )
        for name in _SEQUENCES & values.keys():
            values[name] = tuple(values[name])
        return cls(**values)


_SEQUENCES = {
    name for name in JobView.__dataclass_fields__ if name == "pids" or name.startswith("rank_")
}


def record_from_json(values: Mapping[str, Any]) -> Record:
    """Return a record from JSON values of any version; `TypeError` if a field is missing."""
    known = known_fields(Record, values)
    known["stall_pct"] = tuple(known.get("stall_pct", ()))
    return Record(**known)


def entry_to_json(entry: Entry) -> dict[str, Any]:
    """Return a record, start of an attempt or notice as JSON values, which share its data.

    They must not be changed.
    """
    values = entry.to_json() if isinstance(entry, Record) else vars(entry)
    return {"entry": _KIND_OF_ENTRY[type(entry)], **values}


def entry_from_json(document: Mapping[str, Any]) -> Entry | None:
    """Return a record, start of an attempt or notice from JSON values of any version.

    `None` if its kind is unknown. Raises `TypeError` if a field is missing.
    """
    values = dict(document)
    kind = _ENTRY_KINDS.get(values.pop("entry", ""))
    if kind is None:
        return None
    return record_from_json(values) if kind is Record else kind(**known_fields(kind, values))
