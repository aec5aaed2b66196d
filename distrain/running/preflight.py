"""What can be told of a job before anything starts, by one function for every command.

`distrain train`, its `--dry-run` and `distrain plan` call it, so they say the same. It reads names
of files and footers, tries whether places can be written, and computes what a rank must hold. It
leaves nothing behind. Mistakes that do not depend on each other are told together.

What depends on the machines of another cluster is not checked, and the answer says so.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distrain.errors import DistrainError, Mistakes, OutputError, SpecError, Unavailable
from distrain.run_paths import RunPaths
from distrain.spec import CustomSpec, JobSpec

if TYPE_CHECKING:
    import torch

    from distrain.running.resuming import Resumption
    from distrain.sinks import Sink
    from distrain.train.inputs import Inputs


@dataclass(frozen=True)
class Checked:
    """A job that can be started, as far as can be told.

    Attributes:
        inputs: What it reads.
        device: Where its ranks train on this machine; `None` for those of another cluster.
        notes: What was not checked, and what may surprise, as people should read it.
    """

    inputs: "Inputs"
    device: "torch.device | None"
    notes: tuple[str, ...] = ()


def preflight(
    spec: JobSpec,
    *,
    job_id: str = "job",
    run_dir: Path | None = None,
    scheduler: str | None = None,
    resumed: "Resumption | None" = None,
    sinks: "Sequence[str | Sink]" = (),
) -> Checked:
    """Check a job against its data, its places and the machines that are known.

    Args:
        spec: The job.
        job_id: Its id, which may be part of a path.
        run_dir: Its run directory; `None` if it will have none.
        scheduler: The cluster's address, if its ranks are not to run on this machine.
        resumed: What it goes on from; `None` for a new one.
        sinks: Who else shall get its records.

    Raises:
        DistrainError: What was found; of several mistakes one that tells all.
    """
    elsewhere = scheduler is not None and spec.resources.backend != "inline"
    mistakes = Mistakes()
    _check_files(spec, mistakes)
    data_is_there = not mistakes.found
    _check_places(spec, job_id, run_dir, elsewhere, resumed is not None, mistakes)
    with mistakes.collected():
        _check_sinks(sinks)
    if not data_is_there:  # all that follows looks into the data, and takes seconds to load
        mistakes.raise_found()

    from distrain.train.inputs import check_fields, read_inputs

    device = None
    if not elsewhere:
        with mistakes.collected():
            device = _device_here(spec)
        with mistakes.collected():
            _check_function(spec)
    unseen = []
    if run_dir is not None and spec.checkpoint.dir is not None:  # else it is as new as that
        with mistakes.collected():
            unseen = _check_owner(spec, job_id, run_dir, resumed is not None)
    knows_where = elsewhere or device is not None
    knows_model = not any("model.function" in error.where for error in mistakes.found)
    inputs, fields_are_good = None, False
    with mistakes.collected():
        check_fields(spec)
        fields_are_good = True
    with mistakes.collected():
        inputs = read_inputs(spec)
    if inputs is not None:
        if fields_are_good:
            with mistakes.collected():
                _check_loading(spec, inputs, device)
        if knows_where and knows_model and not (elsewhere and isinstance(spec.model, CustomSpec)):
            with mistakes.collected():
                _check_model(spec, inputs, device)
            if resumed is None:  # else its own checkpoint has the weights
                with mistakes.collected():
                    _check_warm_start(spec, inputs)
        if resumed is not None:
            with mistakes.collected():
                resumed.check(spec, inputs)
    mistakes.raise_found()
    assert inputs is not None
    replaced = () if run_dir is None or resumed is not None else _replaced(run_dir)
    notes = (*_left_out(spec, elsewhere), *unseen, *_surprises(spec, inputs), *replaced)
    return Checked(inputs, device, notes)


def _check_files(spec: JobSpec, mistakes: Mistakes) -> None:
    """Whether data and schema are there, by their names alone: that takes no time to load."""
    from distrain.partition.footers import PARQUET_SUFFIXES
    from distrain.schema import Schema
    from distrain.schema.files import find_schema
    from distrain.storage import list_inputs

    for patterns in (spec.data.train, spec.data.valid):
        # Whoever reads the footers waits for a storage that does not answer now.
        with suppress(Unavailable), mistakes.collected():
            list_inputs(patterns, suffixes=PARQUET_SUFFIXES)
    if spec.data.schema_path not in ("auto", "criteo"):
        with mistakes.collected():
            path = Path(spec.data.schema_path)
            Schema.load(find_schema(path) if path.is_dir() else path)


def _check_places(
    spec: JobSpec,
    job_id: str,
    run_dir: Path | None,
    elsewhere: bool,
    is_resumed: bool,
    mistakes: Mistakes,
) -> None:
    """Whether what will be written can be written."""
    from distrain.report.recorder import check_new_run
    from distrain.storage import check_place

    if run_dir is not None:
        with mistakes.collected():
            check_place(run_dir)
            if not is_resumed:
                check_new_run(RunPaths(run_dir))
    if elsewhere:
        return
    with mistakes.collected():
        _check_checkpoint_dir(spec, job_id)
    if spec.data.cache_dir is not None:
        with mistakes.collected(), _field_named("data.cache_dir"):
            check_place(spec.data.cache_dir)


def _check_checkpoint_dir(spec: JobSpec, job_id: str) -> None:
    from distrain.storage import check_place, open_folder
    from distrain.storage.local_folder import LocalFolder

    if spec.checkpoint.dir is None:
        return
    url = spec.checkpoint.dir.replace("{run_id}", job_id)
    with _field_named("checkpoint.dir"):
        try:
            folder = open_folder(url)
        except OSError as error:
            raise OutputError(
                f"cannot be opened: {error}",
                where={"url": url},
                hint="Check the URL, and that the package of its filesystem is installed.",
            ) from None
        if isinstance(folder, LocalFolder):
            check_place(folder.url)


def _check_owner(spec: JobSpec, job_id: str, run_dir: Path, is_resumed: bool) -> list[str]:
    """Whether the place of checkpoints is no other run's; a note, if that cannot be seen here."""
    from distrain.checkpoint import Unavailable, check_owner
    from distrain.train.saving import checkpoint_place

    place = checkpoint_place(spec, RunPaths(run_dir), job_id, resumed=is_resumed)
    try:
        check_owner(place)
    except Unavailable as error:
        return [f"not checked, whose checkpoint.dir is: {error.message}"]
    return []


def _check_sinks(sinks: "Sequence[str | Sink]") -> None:
    from distrain.sinks import open_sinks

    open_sinks(sinks)


def _device_here(spec: JobSpec) -> "torch.device":
    """Where ranks train on this machine, if it has what they need for that."""
    from distrain.cluster.local import check_gpus
    from distrain.train.graphed_step import check_graph
    from distrain.train.machine import choose_backend, choose_device
    from distrain.train.precision import check_precision

    resources = spec.resources
    device = choose_device(resources)
    if resources.backend != "inline":
        check_gpus(resources.num_ranks, resources.device)
    check_precision(spec.train.precision, device)
    if spec.train.cuda_graph:
        check_graph(spec.train, device)
    choose_backend(device)
    return device


def _check_function(spec: JobSpec) -> None:
    """Whether the workers of this machine can import a model of the user's own."""
    if isinstance(spec.model, CustomSpec):
        from distrain.models.custom import check_function

        check_function(spec.model.function, here=spec.resources.backend == "inline")


def _check_loading(spec: JobSpec, inputs: "Inputs", device: "torch.device | None") -> None:
    """Whether the loaders of the ranks can serve the job."""
    import torch

    from distrain.train.loaders import job_loader
    from distrain.train.span import Span
    from distrain.world import World

    if device is None and spec.data.reader == "cudf":
        return  # which GPU it decodes on, the workers know
    if spec.data.reader != "cudf":  # a cache is looked at for itself, and keeps none of the others
        spec = spec.model_copy(update={"data": spec.data.model_copy(update={"cache_dir": None})})
    # A loader for a GPU allocates there, which only this reader needs.
    host = torch.device("cpu")
    device = device if device is not None and spec.data.reader == "cudf" else host
    world = World(0, spec.resources.num_ranks)
    shuffle = spec.data.shuffle
    Span.of(spec, job_loader(spec, inputs.schema, inputs.train, world, device, shuffle=shuffle))
    if inputs.valid is not None:
        job_loader(spec, inputs.schema, inputs.valid, world, device, shuffle="none")


def _check_model(spec: JobSpec, inputs: "Inputs", device: "torch.device | None") -> None:
    """Whether the model can be built of the columns, and a rank can hold it."""
    from distrain.train.fits import check_fits

    try:
        check_fits(spec, inputs.schema, device)
    except DistrainError:
        raise
    except Exception as error:
        if not isinstance(spec.model, CustomSpec):
            raise
        raise SpecError(
            f"the model's function failed: {type(error).__name__}: {error}",
            where={"model.function": spec.model.function, "at": _last_line(error)},
            hint="It is called with the schema and model.options; mend it, or these.",
        ) from error


def _check_warm_start(spec: JobSpec, inputs: "Inputs") -> None:
    """Whether the weights that it begins with are there, and fit."""
    if spec.train.init_from is not None:
        from distrain.train.warm_start import check_warm_start

        check_warm_start(spec, inputs)


def _last_line(error: Exception) -> str:
    import traceback

    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}:{frame.lineno}, in {frame.name}"


def _left_out(spec: JobSpec, elsewhere: bool) -> list[str]:
    """What only the workers' machines can tell."""
    if not elsewhere:
        return []
    asked = {
        "resources.device": True,
        "memory for the tables": spec.embeddings.memory_gib is None,
        "data.cache_dir": spec.data.cache_dir is not None,
        "checkpoint.dir": spec.checkpoint.dir is not None,
        "model.function": isinstance(spec.model, CustomSpec),
        "data.reader": spec.data.reader == "cudf",
    }
    names = ", ".join(name for name, is_asked in asked.items() if is_asked)
    return [f"not checked, as the workers are on other machines: {names}"]


def _surprises(spec: JobSpec, inputs: "Inputs") -> list[str]:
    """What trains, though hardly as it was meant."""
    notes = []
    batch, rows = spec.train.global_batch_size, inputs.train.num_rows
    if batch > rows:
        notes.append(
            f"train.global_batch_size {batch:,} is more than the {rows:,} training rows: an epoch "
            "is one step of all rows"
        )
    best = spec.checkpoint.keep_best
    if best is not None and not spec.evaluate.every_steps:
        at_end = spec.data.valid and spec.evaluate.at_end
        notes.append(
            f"checkpoint.keep_best is {best}, but evaluate.every_steps is null: "
            f"{'the last step alone is' if at_end else 'nothing is'} validated, and the last "
            "model is saved"
        )
    return notes


def _replaced(run_dir: Path) -> tuple[str, ...]:
    """What the run directory holds now and will not any more."""
    from distrain.report.run_file import untrained

    reason = untrained(RunPaths(run_dir))
    if reason is None:
        return ()
    return (f"{run_dir} holds a job that ended before its first step ({reason}), and is replaced",)


@contextmanager
def _field_named(field: str) -> Iterator[None]:
    """Let an error say which field of the spec it is about."""
    try:
        yield
    except OutputError as error:
        message = f"{field}: {error.message}"
        raise OutputError(message, where=error.where, hint=error.hint) from None
