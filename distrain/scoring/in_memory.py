"""Scores and metrics of rows in memory."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from distrain.cluster import ClusterRequest, open_cluster
from distrain.errors import DistrainError, InputError
from distrain.etl import FILE
from distrain.metrics import BinaryReport
from distrain.scoring.evaluation import evaluate_saved
from distrain.scoring.logits import ScorerInProcess
from distrain.scoring.prediction import PredictRequest, predict
from distrain.scoring.raw import RawOptions, labelled_rows
from distrain.train.saving import open_model

_HERE = ClusterRequest(num_workers=1, in_process=True)
_NAMED = (str, Path, list, tuple)
_OF_ROWS = {
    "Mend the features document, or leave the file out. A workflow takes files": "The model's "
    "workflow takes rows",
    ", or leave the file out": "",
    "Check the files.": "Check the rows given.",
}


def score_rows(
    model_dir: Path | str,
    rows: Any,
    *,
    keep: Sequence[str] = (),
    raw: RawOptions = RawOptions(),  # noqa: B008
) -> pa.Table:
    """The scores of rows: the table that `predict` writes.

    Args:
        rows: What Arrow makes a table of, or files as in `PredictRequest.inputs`.
        keep, raw: As in `PredictRequest`.
    """
    with _files(rows) as (folder, inputs):
        out = folder / "scores"
        request = PredictRequest(model_dir, inputs, out, tuple(keep), raw=raw)
        with open_cluster(_HERE) as client:
            result = predict(request, client)
        scores = pa.concat_tables([pq.read_table(out / name) for name in result.names])
    names_file = (
        FILE in scores.column_names and FILE not in keep
    )  # prepared rows may keep their own
    return scores.drop_columns([FILE]) if names_file and not isinstance(rows, _NAMED) else scores


def evaluate_rows(
    model_dir: Path | str,
    rows: Any,
    *,
    raw: RawOptions = RawOptions(),  # noqa: B008
) -> BinaryReport:
    """The metrics of labelled rows; arguments as of `score_rows`."""
    saved = open_model(model_dir)
    with (
        _files(rows) as (_, inputs),
        labelled_rows(model_dir, saved, inputs, raw, lambda: open_cluster(_HERE)) as (dataset, *_),
    ):
        return evaluate_saved(ScorerInProcess(saved, dataset))


@contextmanager
def _files(rows: Any) -> Iterator[tuple[Path, tuple[str, ...]]]:
    with TemporaryDirectory(prefix="distrain-rows-") as name:
        folder = Path(name)
        names = [rows] if isinstance(rows, str | Path) else rows
        if isinstance(names, list | tuple) and all(isinstance(one, str | Path) for one in names):
            yield folder, tuple(map(str, names))
            return
        file = str(folder / "rows.parquet")
        pq.write_table(_table(rows), file)
        try:
            yield folder, (file,)
        except DistrainError as error:
            for one in (error, *error.parts):
                _tell_of_rows(one, file)
            raise


def _table(rows: Any) -> pa.Table:
    try:
        return pa.table(rows)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise InputError(
            f"the {type(rows).__name__} given cannot be read as a table: {error}",
            hint="A DataFrame or an Arrow table is needed, whose columns hold values of one type "
            "each, or the paths of files.",
        ) from None


def _tell_of_rows(error: DistrainError, file: str) -> None:
    """Replace the temporary file in an error by words about the rows."""
    words = {file: "the rows given", **_OF_ROWS}
    for old, new in words.items():
        error.message = error.message.replace(old, new)
        error.hint = error.hint and error.hint.replace(old, new)
    error.args = (error.message,)
    error.where = {
        place: re.sub("^missing", "missing in the rows given", str(said))
        for place, said in error.where.items()
        if str(said) != file
    }
