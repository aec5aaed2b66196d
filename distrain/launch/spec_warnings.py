"""Warns about valid specs whose training will probably not be as intended."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from distrain.formatting import join_names
from distrain.jobs.optimizers import optimizer_facts
from distrain.jobs.spec.data import DataSpec
from distrain.jobs.spec.fit_to_table import is_retrieval
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.training import TrainSpec, batch_for
from distrain.prep.report_file import report_of

if TYPE_CHECKING:
    from distrain.loader.partition.table import Table
    from distrain.train.data.job_tables import Inputs

_MANY_STEPS = 10_000  # a validation with more steps takes minutes
_FEW_STEPS = 100  # a job with fewer steps learns little
_SOME_STEPS = 300  # after these, models usually predict better than a constant
_WINDOW_STEPS = 20  # fewest steps to learn the new patterns of a window
_SMALL_BATCH = 512
_MOST_UNKNOWN = 0.5
_GROWN = 0.1
_SHOWN = 5


def spec_warnings(spec: JobSpec, inputs: "Inputs") -> list[str]:
    """Return a text for each setting or property of the rows that the user may not expect.

    The texts are about labels and out-of-vocabulary values, numbers of steps, windows, validations
    that take long or are not reached, `checkpoint.keep_best` without validations, columns that the
    model ignores, and settings without effect.
    """
    retrieves = is_retrieval(spec.model.model_dump())
    notes = _data_notes(spec.data, inputs, learnable=(1,) if retrieves else ())
    batch, rows = spec.train.batch_rows, inputs.train.num_rows
    notes += _steps_notes(spec, rows)
    notes += _window_notes(spec, inputs.train)
    steps = -(-inputs.valid.num_rows // batch) if inputs.valid is not None else 0
    if steps > _MANY_STEPS:
        notes.append(
            f"each validation takes {steps:,} steps of train.global_batch_size ({batch:,}) rows: "
            "larger batches validate faster"
        )
    best = spec.checkpoint.keep_best
    if best is not None and not spec.evaluate.every_steps:
        at_end = spec.data.valid and spec.evaluate.at_end
        notes.append(
            f"checkpoint.keep_best is {best}, but evaluate.every_steps is null: "
            f"{'only the last step is' if at_end else 'nothing is'} validated, and the last "
            "model is saved"
        )
    numbers = [column.name for column in inputs.schema.continuous if column.holds_lists]
    if numbers and not hasattr(spec.model, "max_length") and spec.model.kind != "custom":
        notes.append(
            f"{spec.model.kind} ignores numbers of events, which din, bst, sasrec and hstu "
            f"read: {join_names(numbers, _SHOWN)}"
        )
    return [*notes, *_late_notes(spec, rows), *_idle_options(spec.train)]


def _late_notes(spec: JobSpec, rows: int) -> Iterator[str]:
    """Yield warnings about validations and schedules at steps that the job does not reach.

    These steps were often chosen for smaller batches, with which the job takes more steps. Yields
    nothing with `data.windows`.
    """
    if spec.data.windows is not None:  # each has a partial step, which `_steps_of` does not count
        return
    train, steps = spec.train, _steps_of(spec, rows)
    if train.max_steps is not None:
        steps = min(steps, train.max_steps)
    every = spec.evaluate.every_steps
    if spec.best_metric is not None and every is not None and every > steps:
        yield (
            f"evaluate.every_steps is {every:,}, and the job takes {steps:,} steps: no validation "
            f"before the last step can stop it, or select a model by {spec.best_metric}"
        )
    schedule = train.schedule
    if schedule.decay != "none" and schedule.last_peak_step >= steps:
        yield (
            f"train.schedule.decay begins at step {schedule.last_peak_step:,}, and the job takes "
            f"{steps:,} steps: its learning rate never decreases"
        )


def _steps_of(spec: JobSpec, rows: int) -> int:
    """Return the number of steps of all epochs, ignoring `train.max_steps` and windows."""
    batch = spec.train.batch_rows
    return spec.train.num_epochs * (rows // batch if spec.data.drop_last else -(-rows // batch))


def _idle_options(train: TrainSpec) -> Iterator[str]:
    if train.table_optimizer is not None and train.table_optimizer.weight_decay:
        yield (
            "train.table_optimizer.weight_decay has no effect: rows of tables do not decay; set "
            "train.optimizer.weight_decay for dense parameters"
        )
    if train.clip_groups == "apart" and train.clip_grad_norm is None:
        yield "train.clip_groups apart has no effect while train.clip_grad_norm is null"


def _steps_notes(spec: JobSpec, rows: int) -> Iterator[str]:
    train = spec.train
    batch, epochs = train.batch_rows, train.num_epochs
    steps = _steps_of(spec, rows)
    smaller = min(batch, max(rows // _SOME_STEPS, min(_SMALL_BATCH, rows // 8), 1))
    smaller = 1 << (smaller.bit_length() - 1)
    more = max(epochs, -(-_SOME_STEPS // max(1, -(-rows // smaller))))
    is_free = train.max_steps is None and train.init_from is None  # few steps may be intended
    comes_again = spec.data.windows is None  # else the oldest window would follow the newest window
    better = [f"train.global_batch_size to {smaller:,}"] if smaller < batch else []
    better += [f"train.epochs to {more:,}"] if more > epochs and is_free and comes_again else []
    if is_free and not optimizer_facts(train.optimizer.kind).dense_state:  # slow in the first steps
        better.append("train.optimizer to {kind: adam, lr: 0.002}")
    remedy = f"set {', '.join(better)}"
    if batch > rows:
        yield (
            f"train.global_batch_size {batch:,} exceeds the {rows:,} training rows: an epoch "
            f"is one step of all rows; {remedy}"
        )
    elif better and steps < _FEW_STEPS and is_free:
        yield (
            f"the job takes {steps:,} steps, but models need several hundred steps to learn: "
            f"{remedy}"
        )


def _window_notes(spec: JobSpec, table: "Table") -> Iterator[str]:
    if spec.data.windows is None or table.windows is None or len(table.windows.names) < 2:
        return
    rows = sorted(table.of_window(n).num_rows for n in range(len(table.windows.names)))
    middle, batch = rows[len(rows) // 2], spec.train.batch_rows
    if spec.data.drop_last and rows[0] < batch:
        yield (
            f"{sum(n < batch for n in rows):,} windows have fewer rows than "
            f"train.global_batch_size ({batch:,}), and data.drop_last drops them"
        )
    steps, smaller = -(-middle // batch), batch_for(middle)
    if steps < _WINDOW_STEPS:
        better = f"train.global_batch_size to {smaller:,}, or " if smaller < batch else ""
        yield (
            f"half of the windows have {steps:,} steps or fewer, too few to learn their new "
            f"patterns: set {better}train.optimizer.lr or data.windows.size larger"
        )


def _data_notes(data: DataSpec, inputs: "Inputs", learnable: Sequence[int]) -> list[str]:
    """Return notes on rows that all have the same label, and on out-of-vocabulary values.

    The latter need the rows' `prep.json`. `learnable` has the labels that all rows may have without
    a note: retrieval models learn from rows with label 1 only.
    """
    notes: list[str] = []
    tables = (("training", data.train, inputs.train), ("validation", data.valid, inputs.valid))
    for role, patterns, table in tables:
        if table is not None and table.only_label not in (None, *learnable):
            notes.append(f"all {table.num_rows:,} {role} rows have the label {table.only_label:g}")
        preparation = report_of(patterns)
        if preparation is not None:
            with suppress(AttributeError, KeyError, TypeError):  # written by another version
                notes += _unknown_notes(role, *preparation)
    return notes


def _unknown_notes(role: str, split: str, document: Mapping[str, Any]) -> Iterator[str]:
    shares = document["unknown_share"]
    fitted = shares["train"] if split == "valid" else {}
    most = _GROWN if split == "valid" else _MOST_UNKNOWN
    columns = [
        f"{column} ({share:.0%})"
        for column, share in shares[split].items()
        if share - fitted.get(column, 0) > most
    ]
    if columns:
        names = join_names(columns, _SHOWN)
        yield (
            f"many values of {role} rows are out of vocabulary and the model learns nothing from "
            f"them: {names}"
        )
