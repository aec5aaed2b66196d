"""A rank's checkpoints: when they are due, their content, and resuming from them."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from distrain.errors import DataError, SpecError
from distrain.jobs.events import CheckpointTrouble, Event
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec.data import READING
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.paths import absolute
from distrain.jobs.spec.resuming import (
    MAY_DIFFER_WITHOUT_DECAY,
    decaying_course,
    different_fields,
)
from distrain.metrics.targets import TargetMetrics
from distrain.train.checkpoint.checkpoint_dir import CheckpointDir
from distrain.train.checkpoint.loading import LoadResult, load_newest
from distrain.train.checkpoint.training_state import TrainingState
from distrain.train.checkpoint.writer import CheckpointWriter
from distrain.train.control.control import Control
from distrain.train.data.inputs import find_vocabularies
from distrain.train.data.job_tables import Inputs
from distrain.train.data.vocabularies import Vocabularies
from distrain.train.loop.early_stopping import Validations, read_best_weights
from distrain.train.loop.model_folder import keep_workflow
from distrain.train.loop.refit import Refit, is_of
from distrain.train.step.graphed_step import GraphedStep
from distrain.train.step.open_report import OpenReport
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import waiting


@dataclass(frozen=True)
class Progressive:
    """Progressive validation: the merged metrics of all windows scored before their training.

    Every rank computes it from the same merged metrics, and each checkpoint contains it. So an
    interrupted training ends with the same values as an uninterrupted one.
    """

    windows: int = 0  # the number of windows scored so far
    step: int | None = None  # steps before the last scored window
    metrics: TargetMetrics = field(default_factory=lambda: TargetMetrics({}))

    @classmethod
    def resume(cls, saved: Mapping[str, Any] | None) -> "Progressive":
        if saved is None:
            return cls()
        return cls(saved["windows"], saved["step"], TargetMetrics.from_json(saved["metrics"]))

    def to_json(self) -> dict[str, Any] | None:
        if not self.windows:
            return None
        metrics = self.metrics.to_json()
        return {"windows": self.windows, "step": self.step, "metrics": metrics}

    def after(self, step: int, merged: TargetMetrics) -> "Progressive":
        """Return the result with one more window, scored after `step` steps.

        `merged` has the metrics of the window's rows, merged over the ranks.
        """
        return Progressive(self.windows + 1, step, self.metrics.merge(merged))

    def figures(self) -> dict[str, float | None]:
        """Return the metrics over all windows so far, by name, and the counts `windows` and `rows`.

        `rows` are the rows of these windows. `auc_bound` is the maximum error of `auc`. Metrics of
        targets other than the main target are called `TARGET.METRIC`.
        """
        main = self.metrics.main
        of_main = {} if main is None else main.compute().figures()
        others = self.metrics.figures().items()
        of_targets = {f"{name}.{metric}": v for name, one in others for metric, v in one.items()}
        return {"windows": self.windows, "rows": self.metrics.rows, **of_main, **of_targets}


@dataclass(frozen=True)
class TrainingStart:
    """The point from which an attempt trains: the beginning, or the content of a checkpoint."""

    step: int = 0
    validated: bool = True  # whether the validation due after these steps, if any, is done
    open_steps: int = 0  # steps of the report that was open when the checkpoint was saved
    elapsed_s: float = 0.0
    checkpoint: str | None = None  # `None` at the start of a training without a checkpoint
    validations: Validations | None = None
    progressive: Progressive = field(default_factory=Progressive)

    def reduced_by(self, reduction: float) -> "TrainingStart":
        """Return the start with the learning rate's reduction of another run."""
        if self.validations is None:
            return self
        return replace(self, validations=replace(self.validations, reduction=reduction))


def checkpoint_dir(spec: JobSpec, paths: RunPaths, job_id: str) -> CheckpointDir:
    """Return the directory of a job's checkpoints; `job_id` is "" for a rank outside of a run."""
    url = spec.checkpoint.dir
    url = paths.place_of(paths.checkpoints) if url is None else url.replace("{run_id}", job_id)
    return CheckpointDir(url, job_id or None)


@dataclass
class RankCheckpoints:
    """Loads and saves the checkpoints of one training on one rank."""

    spec: JobSpec
    inputs: Inputs
    directory: CheckpointDir
    attempt: int
    step: TrainStep | GraphedStep
    open_report: OpenReport
    control: Control
    report: Callable[[Event], None]
    refit: Refit | None = None  # `None` for checkpoints of the first training

    def __post_init__(self) -> None:
        options, tables = self.spec.checkpoint, self.step.model.embeddings
        self.steps_before = 0  # steps of earlier runs whose optimizer state this run began with
        self.state = TrainingState(
            self.step.model, self.step.sparse_optimizer, self.step.dense.optimizer.torch_optimizer
        )
        self._peers = tables.peers
        self._device = self.state.device
        self._writer = CheckpointWriter(
            self.directory,
            self.state,
            self._peers,
            self.control.store,
            keep=options.keep,
            asynchronous=options.asynchronous,
            report=self.report,
            progress=self.control.activity.count_slab,
        )
        # Only rank 0's vocabularies are saved.
        self.vocabularies = Vocabularies({})
        if self._peers.rank == 0:
            self.vocabularies = find_vocabularies(self.spec.data, self.inputs.schema)
        # step of the last checkpoint, and whether it was validated
        self._held: tuple[int, bool] | None = None
        self._last_s = time.monotonic()

    def load(self) -> tuple[TrainingStart, bool]:
        """Load the newest complete checkpoint of this training; a collective operation.

        Returns the point from which to train, and whether the model must be built again because it
        has parts of a damaged checkpoint. Without a usable checkpoint, the point is the beginning
        of the training. Raises the errors of `load_newest`, and `SpecError` for a checkpoint of
        another job.
        """
        loaded = load_newest(
            self.directory,
            self.state,
            self._peers,
            belongs=partial(is_of, refit=self.refit is not None),
            accept=lambda entry: check_resumable(entry.values, self.spec, self.inputs, entry.url),
            report=self.report,
            progress=self.control.activity.count_slab,
        )
        if loaded.entry is None:
            return self._beginning(), loaded.touched
        values = loaded.values
        self.steps_before = values.get("steps_before", 0)
        start = TrainingStart(
            step=loaded.entry.step,
            validated=values["validated"],
            open_steps=values["window_steps"],
            elapsed_s=values["elapsed_s"],
            checkpoint=loaded.entry.url,
            validations=Validations.resume(self.spec, values.get("validations")),
            progressive=Progressive.resume(values.get("progressive")),
        )
        self._restore(loaded, start)
        self._held = (start.step, start.validated)
        return start, False

    def _beginning(self) -> TrainingStart:
        refit = self.refit
        if refit is None:
            return TrainingStart(validations=Validations.begin(self.spec))
        self._held = (refit.taken, True)  # the last checkpoint of the first training is sufficient
        return TrainingStart(refit.taken, elapsed_s=refit.elapsed_s, validations=refit.validations)

    def _restore(self, loaded: LoadResult, start: TrainingStart) -> None:
        saved = loaded.rank_tensors
        self.open_report.restore(list(saved.values()), start.open_steps)
        if loaded.saved_by == self._peers.num_ranks:
            self._set_rng(saved[self._peers.rank])

    def begin_with(self, steps: int, own: Mapping[str, Tensor] | None) -> None:
        """Complete a warm start, after weights (and perhaps the optimizers' state) were copied.

        Args:
            steps: The number of steps, in other runs, after which the optimizers' state was saved;
                0 if the state was not copied.
            own: This rank's own tensors in the other run's checkpoint, such as its random state;
                `None` if there are none.
        """
        self.steps_before = steps
        if own is not None:
            self._set_rng(own)

    def _set_rng(self, own: Mapping[str, Tensor]) -> None:
        torch.set_rng_state(own["rng"])
        if self._device.type == "cuda" and "cuda_rng" in own:
            torch.cuda.set_rng_state(own["cuda_rng"], self._device)

    def due(self, steps_done: int) -> bool:
        """Return True if a checkpoint is due after `steps_done` steps, by steps or by time.

        The time is only checked without a supervisor; else the coordinator requests checkpoints
        by time.
        """
        options = self.spec.checkpoint
        if options.every_steps and steps_done % options.every_steps == 0:
            return True
        alone = self.control.stop_deadline is None and options.every_s is not None
        return alone and time.monotonic() - self._last_s >= (options.every_s or 0.0)

    def save(
        self,
        step: int,
        *,
        validated: bool,
        elapsed_s: float,
        rows: int,
        validations: Validations | None = None,
        progressive: Progressive | None = None,
        auc: float | None = None,
        wait: bool = False,
    ) -> bool | None:
        """Save the state after `step` steps; every rank calls it at the same point.

        Waits for an earlier checkpoint that is still being written and, with `wait`, also for this
        one. If this state was saved before, it is not saved again.

        Returns:
            Whether a complete checkpoint of this state exists; `None` if that is not known yet.
        """
        self._last_s = time.monotonic()
        if self._held == (step, validated):
            if not wait:
                return None
            is_whole = self.wait() is not False  # `None` if another attempt wrote it
            return None if self._writer.thread is not None else is_whole
        self._held = (step, validated)
        values: dict[str, Any] = progress_values(self.spec, self.inputs) | {
            "step": step,
            "validated": validated,
            "window_steps": self.open_report.steps,
            "elapsed_s": elapsed_s,
            "rows": rows,
            "steps_before": self.steps_before,
            "num_ranks": self._peers.num_ranks,
            "validations": None if validations is None else validations.to_json(),
            "progressive": None if progressive is None else progressive.to_json(),
            **({} if self.refit is None else {"refit": self.refit.to_json()}),
            "schema": self.inputs.schema.to_json(),
            **self.about(step),
        }
        tensors = self.open_report.tensors() | {"rng": torch.get_rng_state()}
        if self._device.type == "cuda":
            tensors["cuda_rng"] = torch.cuda.get_rng_state(self._device)
        best = None if validations is None else validations.best_step
        with self._as_its_thread():
            return self._writer.save(
                step, self.attempt, values, tensors, auc, best_step=best, wait=wait
            ).whole

    def about(self, step: int) -> dict[str, Any]:
        """Return the origin of the weights after `step` steps, as JSON values.

        These are the step, how rows are read, the vocabularies and operators of the data and, for
        a refit, the validation files that it trained on.
        """
        about = {"step": step, READING: self.spec.data.reading, **self.vocabularies.to_json()}
        if self.refit is not None:
            about["refitted_on"] = [absolute(one) for one in self.spec.data.valid]
        return about

    def keep_workflow(self, model: Path) -> None:
        progress = self.control.activity.count_slab
        keep_workflow(self.vocabularies, self.inputs.schema, model, progress)

    def restore_best(self, validations: Validations | None, taken: int) -> int:
        """Load the weights of the best validation, unless the last step, `taken`, is the best.

        A collective operation. Returns the number of steps of the model's weights. This is `taken`
        if there was no validation, the job selects no best model, or the weights cannot be read.
        """
        best_step = taken if validations is None else validations.best_step
        if best_step is None or best_step == taken:
            return taken
        return read_best_weights(
            self.directory,
            self.step.model,
            self._device,
            best_step,
            taken,
            lambda text: self.report(CheckpointTrouble(self._peers.rank, text)),
            self.control.activity.count_slab,
        )

    def wait(self) -> bool | None:
        """Wait for the writer; return whether the last checkpoint is complete.

        Returns `None` if there is no checkpoint, or writing takes too long.
        """
        with self._as_its_thread():
            return self._writer.wait()

    def _as_its_thread(self) -> AbstractContextManager[None]:
        """Return a context in which this thread waits for the thread that writes checkpoints.

        Meanwhile, heartbeats report for this thread what the writing thread waits for.
        """
        thread = self._writer.thread
        return nullcontext() if thread is None else waiting(thread)

    def close(self) -> None:
        """Stop waiting for other ranks' files, and wait briefly for this rank's file."""
        self._writer.close()


def progress_values(spec: JobSpec, inputs: Inputs) -> dict[str, Any]:
    """Return the values of a checkpoint by which `check_resumable` recognises its job."""
    return {"spec": spec.model_dump(mode="json"), "fingerprints": _fingerprints(inputs)}


def check_resumable(
    values: Mapping[str, Any], spec: JobSpec, inputs: Inputs, checkpoint: str
) -> None:
    """Raise an error if a job may not resume from a checkpoint with these values.

    `SpecError`: The spec differs in fields that must not change. `DataError`: The data has changed.
    """
    if "spec" not in values or "fingerprints" not in values:
        raise SpecError(
            "not a checkpoint of a training job: it does not record its spec and data",
            where={"checkpoint": checkpoint},
        )
    steps = values.get("step")
    if steps is not None:
        steps += values.get("steps_before", 0)
    problems = different_fields(values["spec"], spec, steps)
    if problems:
        raise SpecError(
            "the job differs from the job of the checkpoint:\n  " + "\n  ".join(problems),
            where={"checkpoint": checkpoint},
            hint=f"Restore these fields, or start a new run.{_why_no_longer(problems, spec)}",
        )
    now = _fingerprints(inputs)
    for split, saved in values["fingerprints"].items():
        if saved is not None and now[split] is not None and saved != now[split]:
            raise DataError(
                f"the files of data.{split} are not those that the checkpoint was trained with",
                where={"checkpoint": checkpoint, "then": saved, "now": now[split]},
                hint="Files may be moved, but not changed, added or removed.",
            )


def _why_no_longer(problems: list[str], spec: JobSpec) -> str:
    course = decaying_course(spec)
    of_length = any(problem.startswith(MAY_DIFFER_WITHOUT_DECAY) for problem in problems)
    if course is None or not of_length:
        return ""
    field, decay = course
    return (
        f" The job's length cannot change: its learning rate falls until the last step ({field} "
        f"is {decay}), so earlier steps would have had different rates. A new run can start "
        "from its weights: train.init_from."
    )


def _fingerprints(inputs: Inputs) -> dict[str, str | None]:
    valid = None if inputs.valid is None else inputs.valid.fingerprint
    return {"train": inputs.train.fingerprint, "valid": valid}
