"""Checks a job before anything starts; every command uses the same checks.

`distrain train`, its `--dry-run` and `distrain plan` all use `JobChecks`, so their answers agree.
The checks list files, read footers, test whether output directories can be written, and compute the
memory of a rank. They leave no files behind. Independent mistakes are reported together.

Properties of machines in another cluster are not checked, and the notes say so.
"""

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from distrain.errors import DistrainError, ErrorCollector, OutputError, SpecError, Unavailable
from distrain.jobs.assignment import World
from distrain.jobs.job_view import Record
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.models.kinds import CustomSpec
from distrain.jobs.spec.training import RETRIEVAL_METRIC
from distrain.launch.spec_warnings import spec_warnings
from distrain.runs.run_file import check_new_run, why_never_trained
from distrain.runs.sinks.base import Sink
from distrain.runs.sinks.choosing import open_sinks
from distrain.schema.schema import Schema
from distrain.storage.folder import open_folder
from distrain.storage.inputs import PARQUET_SUFFIXES, list_inputs
from distrain.storage.outputs import check_place

if TYPE_CHECKING:
    import torch

    from distrain.launch.resuming import Resumption
    from distrain.train.data.job_tables import Inputs


@dataclass
class JobChecks:
    """A job to check; after `run`, also the results of the checks."""

    spec: JobSpec
    job_id: str = "job"  # used in paths
    run_dir: Path | None = None  # `None` for no run folder
    scheduler: object = None  # the cluster; `None` for this machine
    resumed: "Resumption | None" = None  # the run that the job resumes
    sinks: "Sequence[str | Sink]" = ()
    overwrite: bool = False  # whether an existing run may be replaced
    notes: list[str] = field(default_factory=list)  # skipped checks, and warnings
    # the ranks' device on this machine, once chosen; `None` if workers are elsewhere
    device: "torch.device | None" = None
    inputs: "Inputs" = field(init=False)  # the job's data, once read

    @property
    def elsewhere(self) -> bool:
        """Whether the job's workers may be on other machines than this process."""
        return self.scheduler is not None and self.spec.resources.backend == "dask"

    def run(self) -> "JobChecks":
        """Check data, output directories, devices and model; return these checks with the results.

        Raises one error that lists all mistakes. If data files or the schema are missing, only
        the output directories and the sinks are checked besides. If the data cannot be read, checks
        that need it are skipped. The results are `inputs`, `device`, `notes`, and `spec` with
        values that depend on the number of rows.
        """
        mistakes = ErrorCollector()

        def passes(*checks: Callable[[JobChecks], None]) -> bool:
            before = len(mistakes.found)
            for check in checks:
                with mistakes.collected():
                    check(self)
            return len(mistakes.found) == before

        data = self.spec.data
        files_exist = passes(
            lambda _: _check_files(data.train), lambda _: _check_files(data.valid), _check_schema
        )
        passes(_check_run_dir, _check_checkpoint_dir, _check_cache_dir, _check_sinks)
        if not files_exist:  # later checks read the data, and their imports take seconds
            mistakes.raise_collected()
        model_can_be_built = passes(_choose_device, _check_function)
        passes(_check_owner)
        fields_are_good = passes(_check_fields)
        if passes(_read_inputs):
            if fields_are_good:
                passes(_check_loading)
            if model_can_be_built:
                passes(_check_model, _check_warm_start)
            passes(_check_metrics, _check_resumable)
        mistakes.raise_collected()
        unchecked = _not_checked(self.spec) if self.elsewhere else []
        self.notes = [
            *unchecked,
            *self.notes,
            *spec_warnings(self.spec, self.inputs),
            *_replaced(self),
        ]
        return self


# Each check raises its mistake, and does nothing if it does not apply.


def _check_files(patterns: Sequence[str]) -> None:
    """Raise `DataError` if a pattern matches no files; passes if their storage does not answer.

    Does not import slow libraries, so that mistyped paths are reported at once.
    """
    # If the storage does not answer now, the later check that reads footers retries.
    with suppress(Unavailable):
        list_inputs(patterns, suffixes=PARQUET_SUFFIXES)


def _check_schema(job: JobChecks) -> None:
    if job.spec.data.schema_path not in ("auto", "criteo"):
        Schema.load(job.spec.data.schema_path)


def _check_run_dir(job: JobChecks) -> None:
    if job.run_dir is not None:
        check_place(job.run_dir)
        if job.resumed is None:
            check_new_run(RunPaths(job.run_dir), overwrite=job.overwrite)


def _check_checkpoint_dir(job: JobChecks) -> None:
    if job.elsewhere or job.spec.checkpoint.dir is None:
        return
    url = job.spec.checkpoint.dir.replace("{run_id}", job.job_id)
    with _field_named("checkpoint.dir"):
        try:
            folder = open_folder(url)
        except OSError as error:
            raise OutputError(
                f"cannot be opened: {error}",
                where={"url": url},
                hint="Check the URL, and that the package of its filesystem is installed.",
            ) from None
        if folder.local:
            check_place(folder.url)


def _check_cache_dir(job: JobChecks) -> None:
    folder = job.spec.data.cache_dir
    if not job.elsewhere and folder is not None:
        with _field_named("data.cache_dir"):
            check_place(folder)


def _check_sinks(job: JobChecks) -> None:
    open_sinks(job.sinks)


def _choose_device(job: JobChecks) -> None:
    if job.elsewhere:
        return
    from distrain.train.control.rank_setup import choose_backend, choose_device
    from distrain.train.step.graph_conditions import check_graph
    from distrain.train.step.precision import check_precision
    from distrain.workers.open_cluster import ClusterRequest, check_cluster

    resources = job.spec.resources
    device = choose_device(resources)
    if resources.backend == "dask":
        check_cluster(ClusterRequest(num_workers=resources.num_ranks, device=resources.device))
    check_precision(job.spec.train.precision, device)
    if job.spec.train.cuda_graph is True:
        check_graph(job.spec.train, device)
    choose_backend(device)
    job.device = device


def _check_function(job: JobChecks) -> None:
    from distrain.models.custom import check_function

    metrics = job.spec.evaluate.metrics
    taken = dict.fromkeys(Record.__dataclass_fields__, "a field of every record")
    taken[RETRIEVAL_METRIC] = "the metric of retrieval models"
    for name in metrics:
        if name in taken:
            raise SpecError(
                f"{name!r} is {taken[name]}, and cannot be a metric's name",
                where={"evaluate.metrics": metrics[name]},
                hint="Choose another name for the metric.",
            )
    if not job.elsewhere:
        for field, name in job.spec.functions.items():
            check_function(name, field, here=job.spec.resources.backend == "inline")


def _check_owner(job: JobChecks) -> None:
    """Raise `SpecError` if another run owns `checkpoint.dir`.

    If the storage does not answer, a note is added instead.
    """
    from distrain.train.checkpoint.ownership import check_owner
    from distrain.train.loop.checkpoints import checkpoint_dir

    if job.run_dir is None or job.spec.checkpoint.dir is None:
        return  # inside the run folder, which belongs to this run
    paths = RunPaths(job.run_dir)
    place = checkpoint_dir(job.spec, paths, job.job_id)
    try:
        check_owner(place)
    except Unavailable as error:
        job.notes.append(f"the owner of checkpoint.dir is not checked: {error.message}")


def _check_fields(job: JobChecks) -> None:
    from distrain.train.data.inputs import check_fields

    check_fields(job.spec)


def _read_inputs(job: JobChecks) -> None:
    from distrain.train.data.inputs import read_inputs

    job.inputs = read_inputs(job.spec)
    job.spec = job.spec.for_rows(job.inputs.train.num_rows)


def _check_loading(job: JobChecks) -> None:
    import torch

    from distrain.train.data.job_extent import JobSpan
    from distrain.train.data.loaders import job_loader

    spec, inputs, device = job.spec, job.inputs, torch.device("cpu")
    if spec.data.needs_gpu:  # a loader on a GPU allocates memory there
        if job.device is None:
            return  # it decodes on a worker's GPU
        device = job.device
    else:  # the cache has its own check, which must not hide others
        spec = spec.model_copy(update={"data": spec.data.model_copy(update={"cache_dir": None})})
    world, shuffle = World(0, spec.resources.num_ranks), spec.data.shuffle
    loader = job_loader(spec, inputs.schema, inputs.train, world, device, shuffle=shuffle)
    span = JobSpan.of(spec, loader)
    if job.resumed is not None and job.resumed.newest is not None:
        span.check_start(job.resumed.newest.step, job.resumed.newest.name)
    if inputs.valid is not None:
        job_loader(spec, inputs.schema, inputs.valid, world, device, shuffle="none")


def _check_model(job: JobChecks) -> None:
    from distrain.train.planning.tables_plan import check_fits

    model = job.spec.model
    if job.elsewhere and isinstance(model, CustomSpec):
        return
    try:
        check_fits(job.spec, job.inputs.schema, job.device)
    except DistrainError:
        raise
    except Exception as error:
        if not isinstance(model, CustomSpec):
            raise
        frame = traceback.extract_tb(error.__traceback__)[-1]
        at = f"{frame.filename}:{frame.lineno}, in {frame.name}"
        raise SpecError(
            f"the model's function failed: {type(error).__name__}: {error}",
            where={"model.function": model.function, "at": at},
            hint="It is called with the schema and model.options; correct one of them.",
        ) from error


def _check_metrics(job: JobChecks) -> None:
    from distrain.train.loop.evaluation import own_metrics

    if not job.elsewhere:
        own_metrics(job.spec, job.inputs.schema)


def _check_warm_start(job: JobChecks) -> None:
    if job.elsewhere and isinstance(job.spec.model, CustomSpec):
        return
    if job.resumed is None and job.spec.train.init_from is not None:
        from distrain.train.warm_start.transfer import (
            check_warm_start,  # late: its imports take seconds
        )

        check_warm_start(job.spec, job.inputs)


def _check_resumable(job: JobChecks) -> None:
    if job.resumed is not None:
        job.resumed.check(job.spec, job.inputs)


def _not_checked(spec: JobSpec) -> list[str]:
    depends = {
        "resources.device": True,
        "memory for the tables": spec.embeddings.memory_gib is None,
        "data.cache_dir": spec.data.cache_dir is not None,
        "checkpoint.dir": spec.checkpoint.dir is not None,
        ", ".join(spec.functions): bool(spec.functions),
        "data.reader": spec.data.needs_gpu,
    }
    names = ", ".join(name for name, is_asked in depends.items() if is_asked)
    return [f"not checked, because workers may be on other machines: {names}"]


def _replaced(job: JobChecks) -> list[str]:
    if job.run_dir is None or job.resumed is not None:
        return []
    reason = why_never_trained(RunPaths(job.run_dir))
    if reason is None:
        return []
    message = f"{job.run_dir} contains a job that ended before its first step ({reason})"
    return [f"{message}, and is replaced"]


@contextmanager
def _field_named(field: str) -> Iterator[None]:
    try:
        yield
    except OutputError as error:
        message = f"{field}: {error.message}"
        raise OutputError(message, where=error.where, hint=error.hint) from None
