"""Training from Python: what `distrain train` does, as a function."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distrain.running.reporting import LoggedProgress, Progress
from distrain.running.run import Run, train
from distrain.spec import CustomSpec, JobSpec, load_spec, parse_spec

if TYPE_CHECKING:
    from distrain.models import Blueprint, SavedModel
    from distrain.runs import Summary
    from distrain.sinks import Sink


@dataclass(frozen=True)
class FinishedRun:
    """A run that succeeded.

    Attributes:
        summary: The contents of its `summary.json`.
        run_dir: The run directory.
        model_fn: The function that made the model; `None` for a named model.
    """

    summary: "Summary"
    run_dir: Path
    model_fn: "Callable[..., Blueprint] | None" = None

    def load_model(self) -> "SavedModel":
        """The trained model, on the CPU; see `distrain.models.load_model`."""
        from distrain.models import handed_over, load_model
        from distrain.run_paths import RunPaths

        with handed_over(self.model_fn):
            return load_model(RunPaths(self.run_dir).model)


def fit(
    spec: JobSpec | Mapping[str, Any] | str | Path,
    *,
    model_fn: "Callable[..., Blueprint] | None" = None,
    options: Mapping[str, Any] | None = None,
    run_dir: str | Path | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
    sinks: "Sequence[str | Sink]" = (),
) -> FinishedRun:
    """Train a job and wait for it.

    Args:
        spec: The job: a spec, a document as in its YAML file, or the path of that file. With
            `model_fn` a document needs no `model` section.
        model_fn: Makes the model, as `model_fn(schema, **options)`. With the inline backend it may
            be any function. Elsewhere the workers import it by its module's name, which their
            operator must have allowed (`DISTRAIN_MODEL_PACKAGES`).
        options: Keyword arguments for `model_fn`, JSON values.
        run_dir: Where the run's files go; every worker must see it. `None` for `runs/JOB`.
        scheduler: The address of a Dask cluster; `None` for a local one.
        progress: Reports how the run goes; `None` reports to the log `distrain`.
        sinks: Where the run's records go as well: `"tensorboard"`, `"mlflow:URI"`, or sinks of your
            own (`distrain.sinks.Sink`).

    Raises:
        SpecError: The spec cannot be used.
        DistrainError: The inputs cannot be used, or the job ended badly.
    """
    from distrain.models import handed_over, name_of
    from distrain.run_paths import new_job_id

    if model_fn is None:
        job = _parsed(spec)
    else:
        section = CustomSpec(function=name_of(model_fn), options=dict(options or {}))
        job = _with_model(spec, section)
    job_id = new_job_id(job.name)
    root = Path(run_dir).expanduser() if run_dir is not None else Path("runs") / job_id
    run = Run(job, root, job_id, scheduler, ":0", sinks=tuple(sinks))
    with handed_over(model_fn):
        summary = train(run, progress or LoggedProgress())
    return FinishedRun(summary, root, model_fn)


def _parsed(spec: JobSpec | Mapping[str, Any] | str | Path) -> JobSpec:
    if isinstance(spec, JobSpec):
        return spec
    return load_spec(Path(spec)) if isinstance(spec, str | Path) else parse_spec(dict(spec))


def _with_model(spec: JobSpec | Mapping[str, Any] | str | Path, section: CustomSpec) -> JobSpec:
    if isinstance(spec, Mapping):
        return parse_spec({**spec, "model": section.model_dump(mode="json")})
    return _parsed(spec).model_copy(update={"model": section})
