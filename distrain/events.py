"""Everything that a rank may report, as frozen dataclasses that travel as JSON.

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
"""Where a rank's wall time goes; the phases of a report sum to its elapsed time."""

STEP_BOUNDS_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Steps are counted by their wall time, in seconds: up to each of these, and longer."""

KEEP_S = 30.0
"""How long a checkpoint waits until the reports before it are kept; then it is given up."""


@dataclass(frozen=True)
class _OfRank:
    rank: int


@dataclass(frozen=True)
class RankStarted(_OfRank):
    """The rank's process lives and is about to join its gang.

    Attributes:
        device: As torch names it, such as `cuda:0`.
        hardware: The device's own name, such as its CPU's model.
    """

    kind: ClassVar[str] = "rank_started"
    pid: int
    host: str
    device: str
    hardware: str = ""


@dataclass(frozen=True)
class TrainingStarted(_OfRank):
    """Model and data are ready and all ranks have met.

    Attributes:
        num_steps: Steps this job will take in all.
        rows_per_epoch: Rows of one epoch over all ranks.
        total_rows: Rows of the whole job over all ranks.
        parameters: Trainable values, embeddings included.
        reader: Who reads row groups, and why it was chosen.
        first_step: Steps that a checkpoint brought along; 0 without one.
        rows_before: Rows that were trained in these steps, over all ranks.
        elapsed_before_s: Wall time that they took.
        open_rows: Of these rows, this rank's in the report window that the checkpoint left open:
            the next report's metrics hold them again.
        checkpoint: The checkpoint that the training goes on from.
        open_steps: Steps of that window; all before them have been reported.
        scored: Whether a validation after `first_step` has been reported.
    """

    kind: ClassVar[str] = "training_started"
    num_steps: int
    rows_per_epoch: int
    total_rows: int
    parameters: int
    reader: str = ""
    first_step: int = 0
    rows_before: int = 0
    elapsed_before_s: float = 0.0
    open_rows: int = 0
    checkpoint: str | None = None
    open_steps: int = 0
    scored: bool = False


@dataclass(frozen=True)
class Heartbeat(_OfRank):
    """The rank's process runs, and this is what its training is at; a thread of its own sends it.

    Attributes:
        step: Steps begun since the start of the job.
        progress: A number that grows with every step, validation batch and saved piece. Ranks in
            the same place of the same program have the same number.
        doing: What the training thread does: a phase of `PHASES`, or `setup`.
        waiting_for: Who it waits for, if it does: `peers` in a collective operation, `reader` for
            rows, `storage` for files that cannot be read at the moment and are tried again; ""
            while it works.
    """

    kind: ClassVar[str] = "heartbeat"
    step: int
    progress: int
    doing: str
    waiting_for: str = ""


@dataclass(frozen=True)
class CheckpointSaved(_OfRank):
    """A checkpoint is whole; rank 0 reports it.

    Attributes:
        step: Steps that it holds.
        path: Where it is: a folder or URL.
        size_bytes: Its size, over all ranks.
        stood_still_s: How long training stood still for it, on rank 0.
        write_s: How long it took to write, from the first byte to the manifest.
        auc: Of the validation rows at this step, if they were scored.
    """

    kind: ClassVar[str] = "checkpoint_saved"
    step: int
    path: str
    size_bytes: int
    stood_still_s: float
    write_s: float
    auc: float | None = None


@dataclass(frozen=True)
class CheckpointTrouble(_OfRank):
    """A checkpoint could not be written, or was found damaged and left aside; training goes on.

    Attributes:
        message: What happened to which one, as people should read it.
        step: Steps that a checkpoint would have held that was not written; null for other trouble.
    """

    kind: ClassVar[str] = "checkpoint_trouble"
    message: str
    step: int | None = None


@dataclass(frozen=True)
class KeepingTrouble(_OfRank):
    """The supervisor could not keep reports beside the logs; training goes on.

    Attributes:
        message: How many, and why, as people should read it.
    """

    kind: ClassVar[str] = "keeping_trouble"
    message: str


@dataclass(frozen=True)
class ReportsAwaited(_OfRank):
    """The rank completes a checkpoint once its supervisor, for whom this is, has kept all before.

    Attributes:
        number: Which one of the rank's it is, from 1; the answer names it.
    """

    kind: ClassVar[str] = "reports_awaited"
    number: int


@dataclass(frozen=True)
class StopNoticed(_OfRank):
    """Somebody else than the coordinator asked the rank's process to end, with a signal.

    Attributes:
        signal: Its name.
    """

    kind: ClassVar[str] = "stop_noticed"
    signal: str


@dataclass(frozen=True)
class RankStopped(_OfRank):
    """The rank stopped in order, as it was asked to; its process will end.

    Attributes:
        step: Steps taken since the start of the job.
        saved: Whether a checkpoint holds them all.
    """

    kind: ClassVar[str] = "rank_stopped"
    step: int
    saved: bool


@dataclass(frozen=True)
class StacksTaken(_OfRank):
    """What a rank's process was doing when nothing moved, as its supervisor saw it.

    Attributes:
        process_state: The kernel's letter and word, such as `T (stopped)`; `gone` if it has ended.
        stacks: The Python stacks of its threads; "" if the process could not write them.
    """

    kind: ClassVar[str] = "stacks_taken"
    process_state: str
    stacks: str


@dataclass(frozen=True)
class StepsDone(_OfRank):
    """Some steps, since the last such report.

    Attributes:
        epoch: The epoch of the last step, from 0.
        step: Steps taken since the start of the job.
        elapsed_s: Wall time since training started on this rank.
        seconds: This window's wall time by phase (`PHASES`).
        metrics: A `BinaryMetrics` state as JSON: this rank's rows, scored before their update.
        lr: Learning rate of the last step.
        loader: What the rank's loader did in this window: `LoaderStats` by field, and their mean
            queue depth.
        exchange: What the rank looked up and sent in this window: `ExchangeStats` by field, the
            unique ratio, and the bytes sent per step.
        device_seconds: The GPU's time by phase, of what it finished in this window; empty on the
            CPU.
        step_counts: The steps that this process took in this window, counted by their wall time:
            up to each of `STEP_BOUNDS_S`, and longer. Validation, checkpoints and waits between
            steps are no part of it; on a GPU it is the host's time.
        memory: What the process holds now: `host_bytes` and, on a GPU, `device_bytes` of its
            tensors.
        windows: How many reports of the rank it stands for: above 1 where they were joined.
    """

    kind: ClassVar[str] = "steps_done"
    epoch: int
    step: int
    elapsed_s: float
    seconds: Mapping[str, float]
    metrics: Mapping[str, Any]
    lr: float
    loader: Mapping[str, float] = field(default_factory=dict)
    exchange: Mapping[str, float] = field(default_factory=dict)
    device_seconds: Mapping[str, float] = field(default_factory=dict)
    step_counts: Sequence[int] = ()
    memory: Mapping[str, int] = field(default_factory=dict)
    windows: int = 1


@dataclass(frozen=True)
class EvaluationDone(_OfRank):
    """This rank's share of the validation rows was scored.

    Attributes:
        step: Steps taken when it was scored.
        metrics: A `BinaryMetrics` state as JSON.
        auc: Of the rows of all ranks, from their scores, where the bins of `metrics` are too wide;
            `None` where they serve.
        auc_bound: The true AUC lies within +- this of `auc`; 0: it is exact.
        own: The metrics of `evaluate.metrics` by name, of the rows of all ranks.
    """

    kind: ClassVar[str] = "evaluation_done"
    epoch: int
    step: int
    elapsed_s: float
    metrics: Mapping[str, Any]
    auc: float | None = None
    auc_bound: float | None = None
    own: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class StoppedEarly(_OfRank):
    """The training ends before all its steps: validations no longer get better; rank 0 reports it.

    Attributes:
        step: Steps taken.
        rows: Rows that were trained in them, over all ranks.
        metric: What validations are judged by.
        best_step: Steps that had been taken at the best one.
        best_value: The metric there.
        waited: Validations since the last improvement.
    """

    kind: ClassVar[str] = "stopped_early"
    step: int
    rows: int
    metric: str
    best_step: int | None
    best_value: float | None
    waited: int


@dataclass(frozen=True)
class WeightsTaken(_OfRank):
    """A new run begins with the weights of another; rank 0 reports it.

    Attributes:
        path: The saved model or checkpoint with these weights.
        step: Steps of training that they had; `None` if it does not say.
        tables: Of each embedding table, by its name: its `columns`, `by` (how its rows were found:
            `id`, `value` or `fresh`), and how many rows were `matched`, are `fresh`, and were
            `dropped`.
        dense: Dense tensors that were taken.
        left: In words, what did not fit and keeps its initial values.
    """

    kind: ClassVar[str] = "weights_taken"
    path: str
    step: int | None
    tables: Mapping[str, Mapping[str, Any]]
    dense: int
    left: Sequence[str] = ()


@dataclass(frozen=True)
class ModelSaved(_OfRank):
    """Rank 0 wrote the model.

    Attributes:
        path: Its folder.
        step: Steps of training that it has had: those of the best validation, if that is kept.
    """

    kind: ClassVar[str] = "model_saved"
    path: str
    step: int | None = None


@dataclass(frozen=True)
class RankFinished(_OfRank):
    """The rank did all its work; how its process then ends does not matter.

    Attributes:
        steps: Steps taken.
        rows: Rows this rank trained, each counted once per epoch.
        elapsed_s: Wall time of training.
        seconds: Wall time by phase, summing to `elapsed_s`.
        setup_s: Wall time before training: opening the data and building the model.
        loader: What the rank's loader did in all, like `StepsDone.loader`.
        exchange: What the rank looked up and sent in all, like `StepsDone.exchange`.
        device_seconds: The GPU's time by phase; empty on the CPU.
        peak_memory: `host_bytes`, the most that the rank's process ever held, and `device_bytes`,
            the most that its tensors on the GPU ever took (0 on the CPU).
    """

    kind: ClassVar[str] = "rank_finished"
    steps: int
    rows: int
    elapsed_s: float
    seconds: Mapping[str, float]
    setup_s: float = 0.0
    loader: Mapping[str, float] = field(default_factory=dict)
    exchange: Mapping[str, float] = field(default_factory=dict)
    device_seconds: Mapping[str, float] = field(default_factory=dict)
    peak_memory: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RankFailed(_OfRank):
    """The rank says why it cannot go on.

    Attributes:
        reason: One of `distrain.reasons.Reason`.
        message: What failed, where, and the hint, as people should read it.
        step: The step at which a loss was not finite, from 1; `None` for other reasons.
        traceback: Python's, if it helps.
    """

    kind: ClassVar[str] = "rank_failed"
    reason: str
    message: str
    step: int | None = None
    traceback: str | None = None


@dataclass(frozen=True)
class RankExited(_OfRank):
    """The rank's process ended, as its supervisor saw it.

    Attributes:
        exit_code: As the operating system gave it; negative: the number of a signal.
        stopped: Whether the supervisor had asked it to stop.
        log_tail: The last lines that the process printed.
    """

    kind: ClassVar[str] = "rank_exited"
    exit_code: int
    stopped: bool
    log_tail: str = ""


Event = (
    RankStarted
    | TrainingStarted
    | Heartbeat
    | StepsDone
    | EvaluationDone
    | CheckpointSaved
    | CheckpointTrouble
    | StoppedEarly
    | WeightsTaken
    | KeepingTrouble
    | ReportsAwaited
    | ModelSaved
    | StopNoticed
    | RankStopped
    | StacksTaken
    | RankFinished
    | RankFailed
    | RankExited
)

EVENT_TYPES: dict[str, type[Event]] = {cls.kind: cls for cls in get_args(Event)}


def to_json(event: Event) -> dict[str, Any]:
    """An event as JSON values.

    >>> to_json(ModelSaved(rank=0, path="runs/a/model"))
    {'kind': 'model_saved', 'rank': 0, 'path': 'runs/a/model', 'step': None}
    """
    return {"kind": event.kind, **asdict(event)}


def from_json(document: Mapping[str, Any]) -> Event:
    """The inverse of `to_json`.

    Raises:
        ValueError: The kind is unknown or a field is missing.
    """
    fields = dict(document)
    kind = fields.pop("kind", None)
    if not isinstance(kind, str) or kind not in EVENT_TYPES:
        raise ValueError(f"unknown event kind {kind!r}; known: {', '.join(EVENT_TYPES)}")
    try:
        return EVENT_TYPES[kind](**fields)
    except TypeError as error:
        raise ValueError(f"not a {kind} event: {error}") from None
