"""`Summary`, the outcome of a run as stored in `summary.json`, and its computation; no I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter

from distrain.jobs.job_view import Checkpoints, JobView, Record, record_of_model
from distrain.runs.records.merging import training_s


@dataclass(frozen=True)
class Summary:
    """The content of `summary.json`."""

    job_id: str
    name: str
    state: str  # `succeeded`, `failed` or `cancelled`
    reason: str | None  # one word for the cause of a failure or cancellation
    message: str | None
    num_ranks: int  # ranks requested
    attempts: int  # attempts made
    # attempts that failed and were restarted: `attempt`, `reason`, `message`, the last reported
    # `step`, and `after_s` (seconds since the job was submitted)
    restarts: tuple[dict[str, Any], ...]
    # the number of checkpoints (`count`) and of failed ones (`failed`), the last checkpoint's
    # `step` and `path`, the total seconds for which training was paused (`stood_still_s`), and the
    # total seconds of writing (`write_s`)
    checkpoints: dict[str, Any]
    parameters: int | None
    reader: str | None  # the reader of row groups, and why it was chosen
    steps: int
    rows: int  # rows trained, each counted once per epoch
    # wall time of training on the slowest rank, validation included; of earlier attempts, only the
    # steps up to the checkpoint that was resumed
    wall_s: float | None
    # rows trained per second of wall time without validation, by the last attempt
    rows_per_s: float | None
    # per rank of the last attempt (as all values by rank are): its `host`, its `device`, and the
    # device's model, `hardware`
    places: tuple[dict[str, str], ...]
    # per rank, the share of wall time spent waiting for data, in percent
    stall_pct: tuple[float, ...]
    seconds: tuple[dict[str, float], ...]  # per rank, its wall time by phase
    # per rank, wall time before training: opening the data, building the model
    setup_s: tuple[float, ...]
    loader: tuple[dict[str, float], ...]  # per rank, its loader's metrics over the whole training
    # per rank, its embedding lookups and the data that it sent, over the whole training
    exchange: tuple[dict[str, float], ...]
    # per rank, its GPU's time by phase; empty on the CPU
    device_seconds: tuple[dict[str, float], ...]
    # per rank, peak `host_bytes` of its process, and peak `device_bytes` of its tensors on the GPU
    # (0 on the CPU)
    peak_memory: tuple[dict[str, int], ...]
    # mean log loss over the rows of the last epoch, each scored before the update that trains on
    # it; computed from whole records, so it may include the last rows of the epoch before
    train_loss: float | None
    # the rows of the following metrics: `valid`, or without validation rows `train` (each row
    # scored before its update). If the saved model is that of the best validation, the metrics are
    # those of the best validation, too
    scored_on: str | None
    scored_rows: int | None
    # area under the ROC curve; the exact value differs by at most `auc_bound`
    auc: float | None
    auc_bound: float | None  # the largest error of `auc` that counting scores in bins may cause
    log_loss: float | None  # mean log loss in nats
    normalised_entropy: float | None  # log loss divided by that of the mean label
    model: str | None
    scored_step: int | None = None  # the step of these metrics
    # the step whose weights were saved; after a refit, instead the first training's best step
    model_step: int | None = None
    # if training stopped early: `step`, `rows`, the `metric` of the validations,
    # `best_step` and `best_value`, and `waited`, the number of validations since then
    stopped_early: Mapping[str, Any] | None = None
    # for a refit, a second training with the validation rows: `step` (the steps of the first
    # training), `found_step` (the step of its best validation), `num_steps` and `total_rows` (of
    # both trainings together). The metrics above are those of the first training, since the saved
    # model was trained on the validation rows
    refit: Mapping[str, Any] | None = None
    # for a warm start: the other run's `path` and `step`; per table its `columns`, `by` which key
    # rows were matched (`id`, `value`, or `fresh`), and the numbers of `matched`, `fresh` and
    # `dropped` rows; `dense`, the number of dense tensors that were loaded; and `left`, the names
    # of tensors that were not loaded, because their shapes differ
    warm_start: Mapping[str, Any] | None = None
    # metrics of the scored rows by name, for each target other than the first binary target; absent
    # without such targets
    targets: Mapping[str, Mapping[str, float | None]] | None = None
    # all windows scored before they were trained, together: numbers of `windows` and `rows`, `auc`,
    # `auc_bound`, `log_loss`, `normalised_entropy`, `calibration`; absent without windows
    progressive: Mapping[str, float | None] | None = None

    # user-defined metrics (`evaluate.metrics`) of the scored rows, and `recall_at_10` of retrieval,
    # by name; absent if there are none
    own: Mapping[str, float | None] | None = None
    # the final evaluation on test rows: their number `rows`, and by target the metrics (`targets`);
    # absent without test rows
    test: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        for name in ("targets", "progressive", "own", "test"):
            if values[name] is None:
                del values[name]
        return values


def summarise(
    view: JobView, records: Sequence[Record], before: Mapping[str, Any] | None = None
) -> Summary:
    """Return the summary of a job that has ended, from its last view and its records.

    `before` has the `restarts`, `checkpoints` and `warm_start` of earlier submissions.
    """
    train = [record for record in records if record.split == "train"]
    valid = [record for record in records if record.split == "valid"]
    windows = [record for record in records if record.split == "next_window"]
    last_epoch = [record for record in train if record.epoch == train[-1].epoch]
    scored = record_of_model(valid, view.model_step) or (train[-1] if train else None)
    rows = train[-1].rows_total if train else 0
    return Summary(
        job_id=view.job_id,
        name=view.name,
        state=view.state.value,
        reason=view.reason,
        message=view.message,
        num_ranks=view.num_ranks,
        attempts=view.attempt,
        restarts=(*(before or {}).get("restarts", ()), *map(asdict, view.restarts)),
        checkpoints=all_checkpoints(before or {}, view.checkpoints),
        parameters=view.parameters,
        reader=view.reader,
        steps=train[-1].step if train else 0,
        rows=rows,
        wall_s=wall_s_of(view),
        rows_per_s=rows_per_s_of(view, rows),
        places=tuple(dict(of_rank) for of_rank in view.rank_places),
        stall_pct=view.rank_stall_pct,
        seconds=tuple(dict(of_rank) for of_rank in view.rank_seconds),
        setup_s=view.rank_setup_s,
        loader=tuple(dict(of_rank) for of_rank in view.rank_loader),
        exchange=tuple(dict(of_rank) for of_rank in view.rank_exchange),
        device_seconds=tuple(dict(of_rank) for of_rank in view.rank_device_seconds),
        peak_memory=tuple(dict(of_rank) for of_rank in view.rank_peak_memory),
        train_loss=_mean_loss(last_epoch),
        scored_on=scored.split if scored else None,
        scored_rows=scored.rows if scored else None,
        auc=scored.auc if scored else None,
        auc_bound=scored.auc_bound if scored else None,
        log_loss=scored.loss if scored else None,
        normalised_entropy=scored.normalised_entropy if scored else None,
        model=view.model_path,
        scored_step=scored.step if scored else None,
        model_step=view.model_step,
        stopped_early=view.stopped_early,
        refit=view.refit,
        warm_start=view.warm_start or (before or {}).get("warm_start"),
        targets=scored.targets if scored else None,
        progressive=windows[-1].progressive if windows else None,
        own=(scored and scored.own) or None,
    )


def wall_s_of(view: JobView) -> float | None:
    """Return the training time in seconds, as in the summary; `None` until all ranks have ended."""
    trained_s = max((sum(of_rank.values()) for of_rank in view.rank_seconds), default=None)
    return None if trained_s is None else view.elapsed_before_s + trained_s


def rows_per_s_of(view: JobView, rows: int) -> float | None:
    """Return the mean rows per second of the last attempt; `None` until all ranks have ended.

    `rows` are the rows that the job has trained, in all attempts.
    """
    busy_s = max(map(training_s, view.rank_seconds), default=0.0)
    return max(0, rows - view.rows_before) / busy_s if busy_s > 0 else None


def _mean_loss(records: Sequence[Record]) -> float | None:
    rows = sum(record.rows for record in records)
    if not rows:
        return None
    return sum((record.loss or 0.0) * record.rows for record in records) / rows


def restarts_before(before: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the restarts in a summary of earlier submissions, for the next submission's summary.

    If the last of them failed or was cancelled, its end is added as a further restart.
    """
    restarts = [dict(restart) for restart in before.get("restarts", ())]
    if before.get("reason"):
        why = {name: before.get(name) for name in ("reason", "message")}
        end = {"attempt": before.get("attempts"), "step": before.get("steps"), "after_s": None}
        restarts.append({**why, **end})
    return restarts


_CHECKPOINTS = TypeAdapter(Checkpoints)


def all_checkpoints(before: Mapping[str, Any], now: Checkpoints) -> dict[str, Any]:
    """Return the field `checkpoints`: a submission's checkpoints (`now`) and those of earlier ones.

    `before` is the summary of the earlier submissions, or an empty mapping.
    """
    earlier = _CHECKPOINTS.validate_python(before.get("checkpoints", {}))
    last = now if now.count else earlier
    return {
        "count": earlier.count + now.count,
        "step": last.step,
        "path": last.path,
        "stood_still_s": earlier.stood_still_s + now.stood_still_s,
        "write_s": earlier.write_s + now.write_s,
        "failed": earlier.failed + now.failed,
    }
