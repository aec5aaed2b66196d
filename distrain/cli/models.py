"""The saved model and the data that a person names, found without loading torch.

That takes seconds, and a mistyped path should be told at once.
"""

from collections.abc import Sequence
from pathlib import Path

from distrain.errors import DataError, InputError
from distrain.run_paths import RunPaths


def find_model(path: Path, checkpoint: str | None = None) -> Path | str:
    """The folder of a saved model or of a checkpoint, or its URL.

    Args:
        path: A run directory, a saved model's folder, or the folder of one checkpoint.
        checkpoint: Which checkpoint of the run: a number of steps, `best` or `newest`; `None` for
            the run's model.

    Raises:
        DataError: There is none.
        InputError: The run has no such checkpoint.
    """
    if checkpoint is not None:
        return _find_checkpoint(path, checkpoint)
    inside = RunPaths(path).model
    found = inside if inside.is_dir() else path
    if any((found / name).is_file() for name in ("model.json", "manifest.json")):
        return found
    if RunPaths(path).run.is_file():
        raise DataError(
            "the run has no saved model",
            where={"path": str(path)},
            hint="It has one when it has succeeded; `distrain report` shows how it stands.",
        )
    raise DataError(
        "neither a saved model nor a checkpoint: it lacks model.json"
        if found.is_dir()
        else "no such saved model",
        where={"path": str(path)},
        hint="Give a run directory, the folder `model` in it, or that of a checkpoint; check its "
        "name.",
    )


def check_data(patterns: Sequence[str]) -> None:
    """Raise now if patterns name no files.

    Raises:
        DataError: They do not.
    """
    from distrain.partition.footers import PARQUET_SUFFIXES
    from distrain.storage import list_inputs

    list_inputs(patterns, suffixes=PARQUET_SUFFIXES)


def _find_checkpoint(root: Path, which: str) -> Path | str:
    from distrain.checkpoint.retention import entry_of_step
    from distrain.report import read_run
    from distrain.train.saving import checkpoint_place

    run, spec = read_run(root)
    place = checkpoint_place(spec, RunPaths(root), run.job_id, resumed=True)
    entries = place.list()
    steps = ", ".join(str(entry.step) for entry in reversed(entries)) or "none"
    where = {"place": place.url, "steps of its checkpoints": steps}
    if which in ("best", "newest"):
        newest = entries[0] if entries else None
        step = None if newest is None else newest.step
        if newest is not None and which == "best":
            step = (newest.values.get("validations") or {}).get("best_step")
    elif which.isdecimal():
        step = int(which)
    else:
        raise InputError(f"--checkpoint {which}: neither a step nor best nor newest", where=where)
    entry = entry_of_step(entries, step)
    if entry is None:
        what = f"of step {which}" if which.isdecimal() else f"that is the {which}"
        hint = "Train with checkpoint.keep_best to keep the best." if which == "best" else None
        raise InputError(f"there is no whole checkpoint {what}", where=where, hint=hint)
    return entry.url if "://" in entry.url else Path(entry.url)
