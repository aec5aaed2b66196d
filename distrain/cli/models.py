"""The saved model and the data that a person names, found without loading torch.

That takes seconds, and a mistyped path should be told at once.
"""

from collections.abc import Sequence
from pathlib import Path

from distrain.errors import DataError
from distrain.run_paths import RunPaths


def find_model(path: Path) -> Path:
    """The model folder of a run directory, or the path itself.

    Raises:
        DataError: There is none.
    """
    inside = RunPaths(path).model
    found = inside if inside.is_dir() else path
    if found.is_dir() and (found / "model.json").is_file():
        return found
    if RunPaths(path).run.is_file():
        raise DataError(
            "the run has no saved model",
            where={"path": str(path)},
            hint="It has one when it has succeeded; `distrain report` shows how it stands.",
        )
    raise DataError(
        "not a saved model: it lacks model.json" if found.is_dir() else "no such saved model",
        where={"path": str(path)},
        hint="Give a run directory, or the folder `model` in it; check its name.",
    )


def check_data(patterns: Sequence[str]) -> None:
    """Raise now if patterns name no files.

    Raises:
        DataError: They do not.
    """
    from distrain.partition.footers import PARQUET_SUFFIXES
    from distrain.storage import list_inputs

    list_inputs(patterns, suffixes=PARQUET_SUFFIXES)
