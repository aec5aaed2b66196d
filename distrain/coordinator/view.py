"""What the coordinator shows of a job: plain frozen data that travels as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from distrain.coordinator.states import JobState


@dataclass(frozen=True)
class Record:
    """One merged progress report of all ranks: a line of `metrics.jsonl`.

    Attributes:
        split: `train` (rows scored before their update, since the last record) or `valid`.
        epoch: From 0.
        step: Steps taken since the start of the job.
        rows: Rows of this record: trained since the last one, or validated.
        rows_total: Rows trained since the start, each counted once per epoch.
        elapsed_s: Wall time since training started, of the slowest rank.
        rows_per_s: Rows trained per second since the last record; `None` for validation.
        loss: Mean log loss in nats.
        normalised_entropy: Log loss over that of predicting the mean click rate.
        auc: Area under the ROC curve; `None` where one class is absent.
        auc_bound: The true AUC lies within +- this.
        stall_pct: Per rank, the share of wall time spent waiting for data, in percent.
        seconds: Per phase, seconds of the mean rank since the last record.
        lr: Learning rate of the last step; `None` for validation.
        loader: What the ranks' loaders did since the last record, added up over the ranks;
            `None` for validation.
        exchange: What the ranks looked up in the tables and sent each other since the last record,
            added up over the ranks; `None` for validation.
        device_seconds: Per phase, seconds of the mean rank's GPU since the last record; empty on
            CPUs, `None` for validation.
    """

    split: str
    epoch: int
    step: int
    rows: int
    rows_total: int
    elapsed_s: float
    rows_per_s: float | None
    loss: float | None
    normalised_entropy: float | None
    auc: float | None
    auc_bound: float | None
    stall_pct: tuple[float, ...] = ()
    seconds: Mapping[str, float] | None = None
    lr: float | None = None
    loader: Mapping[str, float] | None = None
    exchange: Mapping[str, float] | None = None
    device_seconds: Mapping[str, float] | None = None


@dataclass(frozen=True)
class JobView:
    """A job at one moment.

    Attributes:
        state: Where it is in its life.
        reason: One word for why it ended badly.
        message: The same for people: the culprit, its account, its log's end.
        why_pending: Why it has not started yet.
        num_steps: Steps it will take, once known.
        total_rows: Rows it will train, once known.
        reader: Who reads row groups, and why, once known.
        pids: Per rank, the process id, where known.
        records: Progress since the record that the viewer had last.
        next_record: What to pass as `since` in the next call.
        model_path: Where rank 0 saved the model.
        rank_stall_pct: Per rank, the share of the whole training spent waiting for data.
        rank_seconds: Per rank, wall time by phase over the whole training.
        rank_setup_s: Per rank, wall time between meeting its peers and training.
        rank_loader: Per rank, what its loader did over the whole training.
        rank_exchange: Per rank, what it looked up and sent over the whole training.
        rank_device_seconds: Per rank, its GPU's time by phase over the whole training.
        rank_peak_memory: Per rank, the most memory it ever held, in bytes: `host_bytes` and
            `device_bytes`.
    """

    job_id: str
    name: str
    state: JobState
    attempt: int
    num_ranks: int
    reason: str | None = None
    message: str | None = None
    why_pending: str = ""
    num_steps: int | None = None
    total_rows: int | None = None
    parameters: int | None = None
    reader: str | None = None
    pids: tuple[int | None, ...] = ()
    records: tuple[Record, ...] = ()
    next_record: int = 0
    model_path: str | None = None
    rank_stall_pct: tuple[float, ...] = ()
    rank_seconds: tuple[Mapping[str, float], ...] = ()
    rank_setup_s: tuple[float, ...] = ()
    rank_loader: tuple[Mapping[str, float], ...] = ()
    rank_exchange: tuple[Mapping[str, float], ...] = ()
    rank_device_seconds: tuple[Mapping[str, float], ...] = ()
    rank_peak_memory: tuple[Mapping[str, int], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "JobView":
        """The inverse of `to_json`."""
        fields = dict(document)
        fields["state"] = JobState(fields["state"])
        fields["records"] = tuple(
            Record(**{**record, "stall_pct": tuple(record["stall_pct"])})
            for record in fields["records"]
        )
        for name in ("pids", *(name for name in fields if name.startswith("rank_"))):
            fields[name] = tuple(fields[name])
        return cls(**fields)
