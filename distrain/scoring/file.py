"""Score one parquet file; the rank side of a prediction, without Dask."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from distrain.checkpoint.manifest import MANIFEST_FILE
from distrain.loader import Dataset, Loader
from distrain.models import SavedModel
from distrain.models.saved_files import WEIGHTS_FILE
from distrain.scoring.side_columns import side_columns
from distrain.storage import whole_file
from distrain.train.checkpoint_model import open_model

SCORE_COLUMN = "probability"


def score_file(
    model_dir: str, source: str, target: Path, keep: tuple[str, ...], batch_rows: int
) -> int:
    """Write one row of scores per row of a file, in its order.

    Args:
        model_dir: A saved model, or a checkpoint.
        source: The parquet file to score; labels are not needed.
        target: The parquet file to write, whole or not at all: the columns of `keep`, then
            `probability`, float32, between 0 and 1.
        keep: Columns to copy over, such as an id.
        batch_rows: Rows scored at once.

    Returns:
        How many rows were scored.

    Raises:
        DataError: The file cannot be used; it names row group, column and value.
        OutputError: The target could not be written.
    """
    saved, device = _model(model_dir, _version(model_dir))
    dataset = Dataset(source, saved.schema, need_label=False)
    loader = Loader(dataset, batch_size=batch_rows, lanes=1, shuffle="none", decode_threads=1)
    kept = side_columns([source], keep, batch_rows)
    with whole_file(target, make_folder=False) as partial:
        writer = None
        try:
            with loader.epoch(0) as batches:
                for batch in batches:
                    with torch.no_grad():
                        probability = torch.sigmoid(saved.model(batch.to(device))).cpu().numpy()
                    rows = _scored_rows(next(kept, None), probability)
                    writer = writer or pq.ParquetWriter(partial, rows.schema, compression="lz4")
                    writer.write_table(rows)
        finally:
            if writer is not None:
                writer.close()
    return len(dataset)


def _version(model_dir: str) -> tuple[int, int, int] | None:
    """Which weights lie there now: a worker outlives them, if the folder is written anew."""
    for name in (WEIGHTS_FILE, MANIFEST_FILE):  # of a model, of a checkpoint
        try:
            weights = (Path(model_dir) / name).stat()
        except OSError:
            continue
        return weights.st_ino, weights.st_mtime_ns, weights.st_size
    return None  # `open_model` says what is wrong


@lru_cache(maxsize=1)
def _model(model_dir: str, version: tuple[int, int, int] | None) -> tuple[SavedModel, torch.device]:
    """The model on the worker's GPU, where it has one; kept for the worker's next file."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    saved = open_model(model_dir)
    saved.model.to(device).eval()
    return saved, device


def _scored_rows(kept: pa.RecordBatch | None, probability: np.ndarray) -> pa.Table:
    scores = pa.array(probability.astype(np.float32, copy=False))
    if kept is None:
        return pa.table({SCORE_COLUMN: scores})
    return pa.Table.from_batches([kept]).append_column(SCORE_COLUMN, scores)
