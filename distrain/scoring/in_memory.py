"""Scores and metrics of rows in memory."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from distrain.cluster import ClusterRequest, open_cluster
from distrain.etl import FILE
from distrain.metrics import BinaryReport
from distrain.scoring.evaluation import evaluate_saved
from distrain.scoring.logits import ScorerInProcess
from distrain.scoring.prediction import PredictRequest, predict
from distrain.scoring.raw import RawOptions, labelled_rows
from distrain.train.saving import open_model

_HERE = ClusterRequest(num_workers=1, in_process=True)
_NAMED = (str, Path, list, tuple)


def score_rows(
    model_dir: Path | str,
    rows: Any,
    *,
    keep: Sequence[str] = (),
    raw: RawOptions = RawOptions(),  # noqa: B008
) -> pa.Table:
    """The scores of rows: what `predict` writes, as a table.

    Args:
        rows: A table of Arrow's or pandas', or files as `PredictRequest.inputs` names them.
        keep, raw: As in `PredictRequest`.
    """
    with _files(rows) as (folder, inputs):
        out = folder / "scores"
        request = PredictRequest(model_dir, inputs, out, tuple(keep), raw=raw)
        with open_cluster(_HERE) as client:
            result = predict(request, client)
        scores = pa.concat_tables([pq.read_table(out / name) for name in result.names])
    of_memory = FILE in scores.column_names and not isinstance(rows, _NAMED)
    return scores.drop_columns([FILE]) if of_memory else scores


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
    """A folder for a while, and the files of the rows, which are written there if need be."""
    with TemporaryDirectory(prefix="distrain-rows-") as name:
        folder = Path(name)
        if isinstance(rows, _NAMED):
            names = [rows] if isinstance(rows, str | Path) else rows
            yield folder, tuple(map(str, names))
        else:
            pq.write_table(pa.table(rows), folder / "rows.parquet")
            yield folder, (str(folder / "rows.parquet"),)
