"""A job as the coordinator shows it: frozen data that travels as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import Any

from distrain.jobs.states import JobState

JSON_VERSION = 1  # raised when a key changes its meaning or goes; new keys need no new version


def known_fields(record: type, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a document, perhaps of another version, that are fields of a dataclass.

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
    """One merged progress report of all ranks, a line in the records of its attempt."""

    # `train` (rows scored before their update, since the last record), `valid`, or `next_window`
    # (a window of the training rows, scored before it is trained)
    split: str
    epoch: int  # from 0
    step: int  # steps taken since the start of the job
    rows: int  # rows of this record: trained since the last one, or validated
    rows_total: int  # rows trained since the start, each counted once per epoch
    # wall time since training started, of the slowest rank; of the attempts before, what led to the
    # checkpoint that was resumed from
    elapsed_s: float
    rows_per_s: float | None  # rows trained per second since the last record; `None` for validation
    loss: float | None  # mean log loss in nats
    normalised_entropy: float | None  # log loss over that of predicting the mean click rate
    auc: float | None  # area under the ROC curve; `None` where one class is absent
    auc_bound: float | None  # what counting in bins may put `auc` off that of the same rows, sorted
    # per rank, the share of wall time spent waiting for data, in percent; empty with more than 64
    # ranks
    stall_pct: tuple[float, ...] = ()
    # per phase, seconds of the mean rank since the last record
    seconds: Mapping[str, float] | None = None
    lr: float | None = None  # learning rate of the last step; `None` for validation
    # what the ranks' loaders did since the last record, added up over the ranks; `None` for
    # validation
    loader: Mapping[str, float] | None = None
    # what the ranks looked up in the tables and sent each other since the last record, added up
    # over the ranks; `None` for validation
    exchange: Mapping[str, float] | None = None
    # per phase, seconds of the mean rank's GPU since the last record; empty on CPUs, `None` for
    # validation
    device_seconds: Mapping[str, float] | None = None
    # of groups of validated rows, in the order of their predictions: the mean `predicted` and the
    # `observed` click rate, and how many `rows`; `None` for training
    reliability: Mapping[str, Sequence[float]] | None = None
    attempt: int = 0  # the attempt that took these steps; 0 in files of earlier versions
    reports: int = 1  # how many reports of each rank were joined in it
    # with more than 64 ranks, of their `stall_pct` the `mean`, the `max`, and the `worst`: the 8
    # highest, each with its rank before it; else `None`
    stall_summary: Mapping[str, Any] | None = None
    # the metrics of `evaluate.metrics`, by name; `None` for training
    own: Mapping[str, float | None] | None = None
    # of each target but the first binary one, by name, its metrics by name, of the same rows;
    # absent where there is no such target
    targets: Mapping[str, Mapping[str, float | None]] | None = None
    window: str | None = None  # the window's name; absent but for `next_window`
    # of all windows that were scored so far, as one: how many `windows` and `rows`, `auc`,
    # `auc_bound`, `log_loss`, `normalised_entropy`, `calibration`; absent but for `next_window`
    progressive: Mapping[str, float | None] | None = None

    def figures(self) -> dict[str, Any]:
        """Return the fields that are one text or number, or None, and `TARGET.METRIC`."""
        plain = {k: v for k, v in self.to_json().items() if not isinstance(v, Mapping | tuple)}
        return {**plain, **(self.own or {}), **self.of_targets()}

    def of_targets(self) -> dict[str, float | None]:
        """Return the metrics of further targets, by `TARGET.METRIC`."""
        by_target = (self.targets or {}).items()
        return {f"{name}.{metric}": v for name, found in by_target for metric, v in found.items()}

    def value(self, name: str) -> float | None:
        """Return a figure by name, also of `own`, and `TARGET.METRIC` of a further target."""
        if name in vars(self):
            found: float | None = getattr(self, name)
            return found
        return {**(self.own or {}), **self.of_targets()}.get(name)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values that share the record's data and must not be changed."""
        return {
            name: value
            for name, value in vars(self).items()
            if value is not None or name not in ("targets", "window", "progressive")
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
    """An attempt began to train. Earlier records are valid up to its step."""

    attempt: int
    step: int  # steps that its checkpoint brought along; 0: from the beginning
    num_ranks: int  # the ranks of the attempt
    # one word for why the attempt before it ended; "" for a job's first attempt here
    reason: str = ""
    message: str = ""  # the same for people


@dataclass(frozen=True)
class Notice:
    """A message for users that does not end the attempt."""

    text: str  # the text for them
    is_warning: bool = True  # whether it may need something done


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
    message: str  # the same for people
    step: int  # the furthest step that it reported
    after_s: float  # seconds from the job's submission to its end


@dataclass(frozen=True)
class Checkpoints:
    count: int = 0  # checkpoints that were written
    step: int | None = None  # steps that the last one holds
    path: str | None = None  # folder or URL of the last one
    stood_still_s: float = 0.0  # how long training stood still for all of them, on rank 0
    write_s: float = 0.0  # how long writing all of them took
    failed: int = 0  # how many could not be written

    @property
    def outcome(self) -> str:
        """The numbers of written and failed checkpoints; "" if none failed.

        >>> Checkpoints(count=1, failed=2).outcome
        '1 written, 2 failed'
        """
        return f"{self.count} written, {self.failed} failed" if self.failed else ""


def record_of_model(valid: Sequence[Record], model_step: int | None) -> Record | None:
    """Return the validation of the saved model; without one, the last validation.

    A run that keeps its best model ends with another validation than that of the model.
    """
    of_model = [record for record in valid if record.step == model_step]
    return next((records[-1] for records in (of_model, valid) if records), None)


def steps_of_refit(refit: Mapping[str, Any] | None) -> int | None:
    """Return the steps of a refit, from `RefitStarted` as JSON values."""
    return None if refit is None else refit["num_steps"] - refit["step"]


@dataclass(frozen=True)
class JobView:
    job_id: str
    name: str
    state: JobState  # where it is in its life
    attempt: int  # the current or last attempt, from 1
    num_ranks: int  # ranks that it wants; `pids` has as many as it has
    reason: str | None = None  # one word for why it ended badly
    message: str | None = None  # the same for people: the culprit, its account, its log's end
    # why it does not run yet, or not again; of one that runs, that ranks wait for storage that does
    # not answer
    why_pending: str = ""
    num_steps: int | None = None  # steps it will take, once known
    total_rows: int | None = None  # rows it will train, once known
    parameters: int | None = None
    reader: str | None = None  # who reads row groups, and why, once known
    pids: tuple[int | None, ...] = ()  # per rank, the process id, where known
    # what happened since the entry that the viewer had last, in order: records, attempts that began
    # to train, notices
    progress: tuple[Entry, ...] = ()
    next_record: int = 0  # what to pass as `since` in the next call: how many entries there are
    restarts: tuple[Restart, ...] = ()  # attempts that ended early and were followed by others
    recorded: bool = False  # of a job that has ended: whether its run folder has the summary
    record_error: str = ""  # why it has none
    checkpoints: Checkpoints = Checkpoints()  # what was written of them
    rows_before: int = 0  # rows that the last attempt's checkpoint brought along
    elapsed_before_s: float = 0.0  # wall time that they took
    model_path: str | None = None  # where rank 0 saved the model
    # steps of training that this model has had; after a refit, those of the best validation before
    model_step: int | None = None
    # why it ended before all its steps; see `StoppedEarly`
    stopped_early: Mapping[str, Any] | None = None
    # the second training with the validation rows, once it began; see `RefitStarted`
    refit: Mapping[str, Any] | None = None
    warm_start: Mapping[str, Any] | None = None  # with whose weights it began; see `WeightsTaken`
    # per rank of the last attempt, its `host`, its `device` and that device's `hardware`, by name;
    # empty until all have reported
    rank_places: tuple[Mapping[str, str], ...] = ()
    # per rank, the share of the whole training spent waiting for data
    rank_stall_pct: tuple[float, ...] = ()
    # per rank, wall time by phase over the whole training
    rank_seconds: tuple[Mapping[str, float], ...] = ()
    # per rank, wall time between meeting its peers and training
    rank_setup_s: tuple[float, ...] = ()
    # per rank, what its loader did over the whole training
    rank_loader: tuple[Mapping[str, float], ...] = ()
    # per rank, what it looked up and sent over the whole training
    rank_exchange: tuple[Mapping[str, float], ...] = ()
    # per rank, its GPU's time by phase over the whole training
    rank_device_seconds: tuple[Mapping[str, float], ...] = ()
    # per rank, the most memory it ever held, in bytes: `host_bytes` and `device_bytes`
    rank_peak_memory: tuple[Mapping[str, int], ...] = ()

    @cached_property
    def records(self) -> tuple[Record, ...]:
        return tuple(entry for entry in self.progress if isinstance(entry, Record))

    def to_json(self) -> dict[str, Any]:
        """Return JSON values that share the view's data and must not be changed."""
        # Not `asdict`: its copies of what many ranks reported took most of a scheduler's answer.
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
    """Return a record from JSON values of any version."""
    known = known_fields(Record, values)
    known["stall_pct"] = tuple(known.get("stall_pct", ()))
    return Record(**known)


def entry_to_json(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON values, which share its data and must not be changed."""
    values = entry.to_json() if isinstance(entry, Record) else vars(entry)
    return {"entry": _KIND_OF_ENTRY[type(entry)], **values}


def entry_from_json(document: Mapping[str, Any]) -> Entry | None:
    """Return an entry from JSON values of any version; `None` for an unknown kind."""
    values = dict(document)
    kind = _ENTRY_KINDS.get(values.pop("entry", ""))
    if kind is None:
        return None
    return record_from_json(values) if kind is Record else kind(**known_fields(kind, values))
