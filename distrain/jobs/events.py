"""The events that a rank may report, as frozen dataclasses with a JSON form.

A rank writes events; its supervisor adds the job and the attempt; the coordinator merges them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, get_args

PHASES = (
    "data_wait",
    "copy",
    "forward_backward",
    "exchange",
    "optimizer",
    "evaluate",
    "checkpoint",
    "save",
    "other",
)
"""The phases of a rank's wall time, including `other`: their seconds sum to the wall time.

`docs/events.md` describes each.
"""

STEP_BOUNDS_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Upper bounds, in seconds, of a histogram of the steps' wall times.

One more bin, without an upper bound, counts longer steps.
"""


@dataclass(frozen=True)
class _OfRank:
    rank: int


@dataclass(frozen=True)
class RankStarted(_OfRank):
    """The rank's process has started, and is about to join the other ranks."""

    kind: ClassVar[str] = "rank_started"
    pid: int
    host: str
    device: str  # as torch names it, such as `cuda:0`
    hardware: str = ""  # the name of the GPU's or CPU's model


@dataclass(frozen=True)
class TrainingStarted(_OfRank):
    """Model and data are ready, and all ranks are connected."""

    kind: ClassVar[str] = "training_started"
    num_steps: int  # steps this job will take in all
    rows_per_epoch: int  # rows of one epoch over all ranks
    total_rows: int  # rows of the whole job over all ranks
    parameters: int  # trainable values, embeddings included
    reader: str = ""  # which reader decodes row groups, and why it was chosen
    first_step: int = 0  # training steps in the checkpoint that it continues from; 0 without one
    rows_before: int = 0  # rows that were trained in these steps, over all ranks
    elapsed_before_s: float = 0.0  # wall time that these steps took
    # this rank's rows that the checkpoint has metrics of and that no report had contained: the next
    # report's metrics include them
    open_rows: int = 0
    checkpoint: str | None = None  # the checkpoint from which training continues


@dataclass(frozen=True)
class Heartbeat(_OfRank):
    """The current work of a running rank; sent by a separate thread."""

    kind: ClassVar[str] = "heartbeat"
    step: int  # steps begun since the start of the job
    # A counter of steps, validation batches, and pieces of checkpoints and models that were read or
    # written
    progress: int
    doing: str  # what the training thread does: a phase of `PHASES`, or `setup`
    # what it waits for: `peers` in a collective operation, `reader` for rows, `storage` for files
    # that cannot be read now and are tried again; "" while it works
    waiting_for: str = ""


@dataclass(frozen=True)
class CheckpointSaved(_OfRank):
    """A checkpoint is complete; rank 0 reports it."""

    kind: ClassVar[str] = "checkpoint_saved"
    step: int  # training steps in it
    path: str  # where it is: a folder or URL
    size_bytes: int  # its size, over all ranks
    stood_still_s: float  # seconds for which it paused training, on rank 0
    write_s: float  # how long it took to write, from the first byte to the manifest
    auc: float | None = None  # of the validation rows at this step, if they were scored


@dataclass(frozen=True)
class CheckpointTrouble(_OfRank):
    """A checkpoint could not be written, or is damaged and skipped; training continues."""

    kind: ClassVar[str] = "checkpoint_trouble"
    message: str  # what happened to which checkpoint, in words
    # training steps of the checkpoint that could not be written; null for other trouble
    step: int | None = None


@dataclass(frozen=True)
class RecordsTrouble(_OfRank):
    """The supervisor of rank 0 cannot write the attempt's records; it retries."""

    kind: ClassVar[str] = "records_trouble"
    message: str  # what failed, in words


@dataclass(frozen=True)
class StopNoticed(_OfRank):
    """The rank's process received a signal to end that the coordinator had not caused."""

    kind: ClassVar[str] = "stop_noticed"
    signal: str  # its name


@dataclass(frozen=True)
class RankStopped(_OfRank):
    """The rank stopped as requested; its process will end."""

    kind: ClassVar[str] = "rank_stopped"
    step: int  # steps taken since the start of the job
    saved: bool  # whether a checkpoint contains all these steps


@dataclass(frozen=True)
class StacksTaken(_OfRank):
    """The state and stacks of a rank's process during a hang, reported by its supervisor."""

    kind: ClassVar[str] = "stacks_taken"
    # the kernel's letter and word, such as `T (stopped)`; `gone` if it has ended
    process_state: str
    stacks: str  # the Python stacks of its threads; "" if the process could not write them


@dataclass(frozen=True)
class StepsDone(_OfRank):
    """A rank's report of the steps since its last report; these steps are the report's window."""

    kind: ClassVar[str] = "steps_done"
    epoch: int  # the epoch of the last step, from 0
    step: int  # steps taken since the start of the job
    elapsed_s: float  # wall time since training started on this rank
    seconds: Mapping[str, float]  # this window's wall time by phase (`PHASES`)
    # metrics of this rank's rows, scored before their update: a `BinaryMetrics` state as JSON, or a
    # `TargetMetrics` state if there are several targets or the target is not binary
    metrics: Mapping[str, Any]
    lr: float  # learning rate of the last step
    # what the rank's loader did in this window: `LoaderStats` by field, and the mean queue depth
    loader: Mapping[str, float] = field(default_factory=dict)
    # what the rank looked up and sent in this window: `ExchangeStats` by field, the unique ratio,
    # and the bytes sent per step
    exchange: Mapping[str, float] = field(default_factory=dict)
    # the GPU's seconds by phase, for work that ended in this window; empty on the CPU
    device_seconds: Mapping[str, float] = field(default_factory=dict)
    # numbers of this process's steps in this window by their wall time: one for each bin that ends
    # at one of `STEP_BOUNDS_S`, and one for longer steps. Times exclude validation, checkpoints and
    # waits between steps; with a GPU they are the host's
    step_counts: Sequence[int] = ()
    # what the process holds now: `host_bytes` and, on a GPU, `device_bytes` of its tensors
    memory: Mapping[str, int] = field(default_factory=dict)
    windows: int = 1  # number of the rank's reports that were merged into this one
    cpu_s: float = 0.0  # CPU seconds of the rank's process in this window, of all its threads


@dataclass(frozen=True)
class EvaluationDone(_OfRank):
    """This rank has scored its share of the validation rows, or of a window before training it."""

    kind: ClassVar[str] = "evaluation_done"
    epoch: int
    step: int  # steps taken when it was scored
    elapsed_s: float
    metrics: Mapping[str, Any]  # in the form of `StepsDone.metrics`
    # the AUC of the rows of all ranks, from sorted scores; `None` if the bins of `metrics` are
    # exact enough
    auc: float | None = None
    auc_bound: float | None = None  # maximum error of `auc` due to bins; 0: it is exact
    # the metrics of `evaluate.metrics` and, for retrieval, `recall_at_10`, by name, of the rows of
    # all ranks
    own: Mapping[str, float | None] = field(default_factory=dict)
    # pairs of `auc` and `auc_bound` of further binary targets, by name; absent if empty
    target_aucs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    # the window of the training rows that was scored, before it was trained; absent for the
    # validation rows
    window: str = ""
    # over all windows scored so far and all ranks: the number of `windows` and `rows`, `auc`,
    # `auc_bound`, `log_loss`, `normalised_entropy`, `calibration`; absent for the validation rows
    progressive: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class StoppedEarly(_OfRank):
    """Training ends early because validations no longer improve; rank 0 reports it."""

    kind: ClassVar[str] = "stopped_early"
    step: int  # steps taken
    rows: int  # rows that were trained in them, over all ranks
    metric: str  # the metric by which validations are compared
    best_step: int | None  # steps that had been taken at the best validation
    best_value: float | None  # the metric's value at the best validation
    waited: int  # validations since the last improvement


@dataclass(frozen=True)
class RefitStarted(_OfRank):
    """The job trains again from the start, with the validation rows; rank 0 reports it."""

    kind: ClassVar[str] = "refit_started"
    step: int  # steps of the first training; those of the refit follow
    found_step: int  # steps at its best validation; without validations, all its steps
    num_steps: int  # steps of the job, including the refit
    total_rows: int  # rows of the job over all ranks, including the refit


@dataclass(frozen=True)
class WeightsTaken(_OfRank):
    """A new run begins with the weights of another run (`train.init_from`); rank 0 reports it."""

    kind: ClassVar[str] = "weights_taken"
    path: str  # the saved model or checkpoint with these weights
    step: int | None  # training steps of these weights; `None` if `path` does not record them
    # by name of each embedding table: its `columns`, `by` (how its rows were found: `id`, `value`
    # or `fresh`), and how many rows were `matched`, are `fresh`, and were `dropped`
    tables: Mapping[str, Mapping[str, Any]]
    dense: int  # number of dense tensors that were copied
    left: Sequence[str] = ()  # descriptions of parameters that did not fit: initial values remain
    state: str = ""  # `all` if the optimizers' state was copied, too; else absent


@dataclass(frozen=True)
class ModelSaved(_OfRank):
    """Rank 0 wrote the model."""

    kind: ClassVar[str] = "model_saved"
    path: str  # its folder
    # training steps of the model: those at the best validation, if the best model is kept
    step: int | None = None


@dataclass(frozen=True)
class RankFinished(_OfRank):
    """The rank has done all its work; its exit code no longer matters."""

    kind: ClassVar[str] = "rank_finished"
    steps: int  # steps taken
    rows: int  # rows this rank trained, each counted once per epoch
    elapsed_s: float  # wall time of training
    seconds: Mapping[str, float]  # wall time by phase, summing to `elapsed_s`
    setup_s: float = 0.0  # wall time before training: opening the data and building the model
    # what the rank's loader did in all, like `StepsDone.loader`
    loader: Mapping[str, float] = field(default_factory=dict)
    # what the rank looked up and sent in all, like `StepsDone.exchange`
    exchange: Mapping[str, float] = field(default_factory=dict)
    # the GPU's time by phase; empty on the CPU
    device_seconds: Mapping[str, float] = field(default_factory=dict)
    # peak memory: `host_bytes` of the rank's process, and `device_bytes` of its tensors on the GPU
    # (0 on the CPU)
    peak_memory: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RankFailed(_OfRank):
    """The rank's own report of its failure."""

    kind: ClassVar[str] = "rank_failed"
    reason: str  # one of `distrain.jobs.reasons.Reason`
    message: str  # what failed, where, and a hint, in words
    # the step at which a loss was not finite, from 1; `None` for other reasons
    step: int | None = None
    traceback: str | None = None  # Python's, if it helps


@dataclass(frozen=True)
class RankExited(_OfRank):
    """The rank's process ended; its supervisor reports it."""

    kind: ClassVar[str] = "rank_exited"
    exit_code: int  # the process's exit code; if negative, the number of the signal that killed it
    stopped: bool  # whether the supervisor had stopped the process
    log_tail: str = ""  # the last lines that the process printed


Event = (
    RankStarted
    | TrainingStarted
    | Heartbeat
    | StepsDone
    | EvaluationDone
    | CheckpointSaved
    | CheckpointTrouble
    | StoppedEarly
    | RefitStarted
    | WeightsTaken
    | RecordsTrouble
    | ModelSaved
    | StopNoticed
    | RankStopped
    | StacksTaken
    | RankFinished
    | RankFailed
    | RankExited
)

EVENT_TYPES: dict[str, type[Event]] = {cls.kind: cls for cls in get_args(Event)}


_ABSENT_IF_EMPTY = ("target_aucs", "window", "progressive", "state")
"""Fields that `to_json` omits if they are empty."""


def to_json(event: Event) -> dict[str, Any]:
    """Return an event as JSON values, with its kind as `kind`.

    >>> to_json(ModelSaved(rank=0, path="runs/a/model"))
    {'kind': 'model_saved', 'rank': 0, 'path': 'runs/a/model', 'step': None}
    """
    fields = asdict(event)
    for name in _ABSENT_IF_EMPTY:
        if not fields.get(name, True):
            del fields[name]
    return {"kind": event.kind, **fields}


def from_json(document: Mapping[str, Any]) -> Event:
    """Return the event for the JSON values of `to_json`.

    Raises:
        ValueError: The kind is unknown, a required field is missing, or a field is unknown.
    """
    fields = dict(document)
    kind = fields.pop("kind", None)
    if not isinstance(kind, str) or kind not in EVENT_TYPES:
        raise ValueError(f"unknown event kind {kind!r}; known: {', '.join(EVENT_TYPES)}")
    try:
        return EVENT_TYPES[kind](**fields)
    except TypeError as error:
        raise ValueError(f"not a {kind} event: {error}") from None
