"""Score many parquet files on a Dask cluster."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distrain.errors import DataError
from distrain.partition import PARQUET_SUFFIXES, read_footers
from distrain.scoring.file import SCORE_COLUMN, score_file
from distrain.scoring.side_columns import check_side_columns
from distrain.storage import InputFile, check_free, list_inputs, whole_dir
from distrain.train.checkpoint_model import open_model


@dataclass(frozen=True)
class PredictRequest:
    """What to score.

    Attributes:
        model_dir: A saved model or a checkpoint, on a filesystem that every worker sees.
        inputs: Parquet files, folders, globs or URLs.
        out: The folder to write: one file of scores per input file.
        keep: Columns to copy over from the input.
        batch_rows: Rows scored at once.
        overwrite: Whether `out` may be replaced.
    """

    model_dir: Path | str
    inputs: tuple[str, ...]
    out: Path
    keep: tuple[str, ...] = ()
    batch_rows: int = 65536
    overwrite: bool = False


@dataclass(frozen=True)
class PredictResult:
    """What was scored."""

    rows: int
    files: int


def predict(
    request: PredictRequest, client: Any, on_progress: Callable[[int, int, int], None] | None = None
) -> PredictResult:
    """Score files on the client's cluster, one task per file; outputs appear together.

    Args:
        request: What to score.
        client: A `distributed.Client`.
        on_progress: Called with files done, files in all, and rows so far.

    Raises:
        DataError: An input cannot be used: told before anything is scored where footers tell.
        OutputError: The folder exists, or cannot be written.
    """
    from distributed import as_completed

    files = check_request(request)
    with whole_dir(request.out, replace=request.overwrite) as partial:
        targets = _target_names(files)
        futures = [
            client.submit(
                score_file,
                _absolute(request.model_dir),
                file.path,
                partial.absolute() / target,
                request.keep,
                request.batch_rows,
                pure=False,
            )
            for file, target in zip(files, targets, strict=True)
        ]
        rows = 0
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                rows += future.result()
                if on_progress:
                    on_progress(done, len(files), rows)
        finally:
            client.cancel(futures)
    return PredictResult(rows, len(files))


def check_request(request: PredictRequest) -> list[InputFile]:
    """Find the files to score, and refuse what footers show to be unusable; needs no cluster.

    Raises:
        DataError: Model, files or kept columns cannot be used.
        OutputError: The output folder exists already.
    """
    check_free(request.out, request.overwrite)
    saved = open_model(request.model_dir)
    files = list_inputs(request.inputs, suffixes=PARQUET_SUFFIXES)
    read_footers([file.path for file in files], saved.schema, need_label=False)
    if SCORE_COLUMN in request.keep:
        raise DataError(f"cannot keep a column named {SCORE_COLUMN}: the scores have that name")
    for file in files:
        check_side_columns(file.path, request.keep, "to keep")
    return files


def _target_names(files: list[InputFile]) -> list[str]:
    """One name per file: its own where names are distinct, numbered where they are not."""
    own = [file.path.rsplit("/", 1)[-1] for file in files]
    if len(set(own)) == len(own):
        return own
    return [f"{number:05d}-{name}" for number, name in enumerate(own)]


def _absolute(model_dir: Path | str) -> str:
    return str(model_dir) if "://" in str(model_dir) else str(Path(model_dir).absolute())
