"""Finds the saved model and the data given on the command line, without importing torch.

Importing torch takes seconds, and a mistyped path should be reported at once.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from distrain.cli.options import PATH, POSITIVE, bad_lines_options
from distrain.errors import DataError, InputError
from distrain.jobs.run_paths import RunPaths
from distrain.storage.urls import url_of

Function = TypeVar("Function", bound=Callable[..., Any])

model_argument = click.argument("model", metavar="RUN_OR_MODEL", type=PATH)

checkpoint_option = click.option(
    "--checkpoint",
    metavar="WHICH",
    help="Use a checkpoint of the run instead of its model: a step, best or newest.",
)


def scoring_options(function: Function) -> Function:
    """Add RUN_OR_MODEL, DATA and `--batch-size`."""
    help_text = "Rows scored at once; default: 4,096 on a CPU, 65,536 on a GPU."
    batch_size = click.option("--batch-size", type=POSITIVE, help=help_text)
    data = click.argument("data", nargs=-1, required=True)
    return model_argument(data(batch_size(function)))


def raw_options(function: Function) -> Function:
    """Add `--raw`, `--prepared`, `--bad-lines` and `--max-bad`."""
    kind = click.option(
        "--raw/--prepared",
        "is_raw",
        default=None,
        help="The kind of DATA. Default: files other than parquet are raw; for parquet, schema and "
        "columns decide.",
    )
    return kind(bad_lines_options(function))


def find_model(path: Path, checkpoint: str | None = None) -> Path | str:
    """Return the folder or URL of a saved model, or of a checkpoint.

    Args:
        path: A run folder; without `checkpoint`, also the folder of a model or checkpoint itself.
        checkpoint: A step, `best` or `newest`, for that checkpoint of the run; `None` for its
            model.

    Raises:
        DataError: There is no model, or `path` is a URL.
        InputError: There is no run, or no such checkpoint.
    """
    if (url := url_of(path)) is not None:
        raise DataError(
            "a model is read from a local folder, not from a URL",
            where={"path": url},
            hint="Copy the run's folder `model` to this machine.",
        )
    if checkpoint is not None:
        return _find_checkpoint(path, checkpoint)
    inside = RunPaths(path).model
    folder = inside if inside.is_dir() else path
    if any((folder / name).is_file() for name in ("model.json", "manifest.json")):
        return folder
    if RunPaths(path).run.is_file():
        raise DataError(
            "the run has no saved model",
            where={"path": str(path)},
            hint="A run has one once it has succeeded; `distrain report` shows its state.",
        )
    raise DataError(
        "neither a saved model nor a checkpoint: it lacks model.json"
        if folder.is_dir()
        else "no such saved model",
        where={"path": str(path)},
        hint="Give a run folder, its folder `model`, or a checkpoint's folder; check the name.",
    )


def check_data(patterns: Sequence[str]) -> None:
    """Raise `DataError` for patterns that match no files, or an empty file.

    Raises `Unavailable` if the storage does not answer.
    """
    from distrain.storage.inputs import list_inputs

    list_inputs(patterns)


def validation_of(runs: Sequence[Path]) -> tuple[str, ...]:
    """Return the paths of the validation data, `data.valid`, which are the same in all runs.

    Raises `InputError` if a run has none or filters its rows, if the runs differ, or if a path is
    not a run folder.
    """
    from distrain.runs.run_file import read_run_and_spec

    hint = "Give labelled rows with --valid."
    named: dict[tuple[str, ...], Path] = {}
    for run in runs:
        if not RunPaths(run).run.is_file():
            raise InputError(f"{run} is not a run folder with validation data", hint=hint)
        _, spec = read_run_and_spec(run)
        if not spec.data.valid or spec.data.filter:
            why = "filters rows (data.filter)" if spec.data.valid else "has no validation data"
            raise InputError(f"{run} {why}", hint=hint)
        named.setdefault(spec.data.valid, run)
    if len(named) > 1:
        raise InputError(
            "the runs were validated on different data",
            where={str(run): ", ".join(data) for data, run in named.items()},
            hint=hint,
        )
    return next(iter(named))


def _find_checkpoint(root: Path, which: str) -> Path | str:
    from distrain.runs.run_file import read_run_and_spec
    from distrain.storage.urls import is_remote
    from distrain.train.checkpoint.checkpoint_dir import entry_of_step
    from distrain.train.loop.checkpoints import checkpoint_dir

    run, spec = read_run_and_spec(root)
    place = checkpoint_dir(spec, RunPaths(root), run.job_id)
    entries = place.list()
    steps = ", ".join(str(entry.step) for entry in reversed(entries)) or "none"
    where = {"location": place.url, "steps of its checkpoints": steps}
    if which in ("best", "newest"):
        newest = entries[0] if entries else None
        step = None if newest is None else newest.step
        if newest is not None and which == "best":
            step = (newest.values.get("validations") or {}).get("best_step")
    elif which.isdecimal():
        step = int(which)
    else:
        raise InputError(f"--checkpoint {which}: not a step, best or newest", where=where)
    entry = entry_of_step(entries, step)
    if entry is None:
        which_text = f"of step {which}" if which.isdecimal() else f"that is the {which}"
        hint = "Train with checkpoint.keep_best to keep the best." if which == "best" else None
        raise InputError(f"there is no complete checkpoint {which_text}", where=where, hint=hint)
    return entry.url if is_remote(entry.url) else Path(entry.url)
