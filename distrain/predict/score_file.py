"""The tasks of a prediction: score a file or a piece of it, and join a file's scored pieces."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from threading import Lock

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from distrain.loader.batch import Batch
from distrain.loader.dataset import Dataset
from distrain.loader.host_memory import in_turn
from distrain.loader.loader import Loader
from distrain.models.saved_model import MODEL_FILE, WEIGHTS_FILE, SavedModel
from distrain.predict.load_model import open_model
from distrain.predict.prepared_rows import open_prepared
from distrain.predict.score_columns import score_columns, side_by_side
from distrain.predict.side_columns import side_columns
from distrain.storage.identity import file_identity
from distrain.storage.inputs import open_input
from distrain.storage.outputs import atomic_file
from distrain.storage.retrying import RETRY_S
from distrain.storage.urls import is_remote
from distrain.train.checkpoint.manifest import MANIFEST_FILE

ROWS_AT_ONCE = {"cpu": 4096, "cuda": 65536}
"""Rows scored at once, by type of device. On a CPU, 4096 rows of a layer's values fit a core's
caches; 65,536 rows took 42 % more processor time."""

_GROUP_ROWS = 65536
"""Minimum number of rows in a row group of the scores, except for the last one of a file."""

_GPU_THREADS = 4
"""Decoding threads for a GPU, which scores more rows a second than one or two threads decode."""


def score_file(
    model_dir: str,
    source: str,
    target: str,
    keep: tuple[tuple[str, str], ...],
    batch_rows: int | None,
    device: str = "auto",
    row_groups: Sequence[int] | None = None,
    classes: Mapping[str, pa.Array] | None = None,
) -> int:
    """Write the scores of each row, and the columns to keep, to a parquet file, in row order.

    The score columns are those of `score_columns`. Probabilities near 1 round to the same number,
    so rows should be ordered by logit, as in `evaluate`.

    Args:
        source: A prepared parquet file.
        target: The file to write.
        keep: Pairs of a column's name in `target` and its name in `source`.
        batch_rows: Rows scored at once; `None` chooses by device.
        row_groups: The indices of the row groups to score; `None` scores all.
        classes: The values of classes, as for `score_columns`.

    Returns:
        The number of rows in `target`.
    """
    saved, on = model_for_worker(model_dir, device)
    batch_rows = batch_rows or ROWS_AT_ONCE[on.type]
    dataset = open_prepared(saved, source, need_label=False)
    if row_groups is not None:
        groups = [group for group in dataset.table.row_groups if group.index in row_groups]
        dataset = dataset.part(groups)
    targets = saved.model.task.targets
    loader = scoring_loader(dataset, batch_rows, on, threads=1)
    columns = [column for _, column in keep]
    kept = side_columns(source, columns, batch_rows, row_groups=row_groups)
    writer, pending = None, list[pa.Table]()
    with (
        atomic_file(target, make_folder=False) as partial,
        ExitStack() as opened,
        loader.epoch(0) as batches,
    ):
        for values in in_turn(_scores(saved, on, batches)):
            scores = score_columns(targets, values, classes or {})
            beside = next(kept, None)
            held = {} if beside is None else {name: beside[c] for name, c in keep}
            pending.append(pa.table(held | scores))
            writer = writer or opened.enter_context(
                pq.ParquetWriter(partial, pending[0].schema, compression="lz4")
            )
            if sum(map(len, pending)) >= _GROUP_ROWS:
                writer.write_table(pa.concat_tables(pending))
                pending.clear()
        if writer is not None and pending:
            writer.write_table(pa.concat_tables(pending))
    return len(dataset)


def scoring_loader(dataset: Dataset, batch_rows: int, on: torch.device, threads: int) -> Loader:
    """Return a loader of batches in row order, on the device.

    The number of decoding threads is `threads` on a CPU, and `_GPU_THREADS` on a GPU.
    """
    return Loader(
        dataset,
        batch_size=batch_rows,
        lanes=1,
        shuffle="none",
        decode_threads=_GPU_THREADS if on.type == "cuda" else threads,
        device=on,
    )


def _scores(
    saved: SavedModel, on: torch.device, batches: Iterable[Batch]
) -> Iterator[torch.Tensor]:
    for batch in batches:
        with torch.no_grad():
            scores = side_by_side(saved.model.scores(batch.to(on)))
        yield scores


def _model_files(model_dir: str) -> list[str]:
    """Return the files whose versions identify the model in a saved model or a checkpoint.

    These are the descriptions and weights of a saved model (and of an ensemble's members), or the
    manifest of a checkpoint.
    """
    if not is_remote(model_dir):
        parts = Path(model_dir).rglob("*")  # an ensemble has files for each member
        if found := sorted(str(one) for one in parts if one.name in (WEIGHTS_FILE, MODEL_FILE)):
            return found
    return [f"{model_dir}/{MANIFEST_FILE}"]


def _version(model_dir: str) -> tuple[str | None, ...] | None:
    try:
        return tuple(file_identity(file) for file in _model_files(model_dir))
    except OSError:
        return None  # `open_model` raises the error


def model_for_worker(model_dir: str, device: str) -> tuple[SavedModel, torch.device]:
    """Return a model on its device, and the device.

    The device is the worker's first GPU, or the CPU if there is none or `device` is `cpu`. The last
    model is cached, until its files change.
    """
    on = torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")
    with _ONE_LOADS:  # otherwise all threads that miss the cache load the model
        return _model(model_dir, _version(model_dir), on), on


_ONE_LOADS = Lock()


@lru_cache(maxsize=1)
def _model(model_dir: str, version: tuple[str | None, ...] | None, on: torch.device) -> SavedModel:
    saved = open_model(model_dir)
    saved.model.to(on).eval()
    return saved


def join_pieces(pieces: Sequence[str], target: str) -> int:
    """Concatenate the parquet files `pieces` into `target`, in order; return the number of rows.

    The pieces are removed afterwards, unless `target` is a URL. A local `target` that exists is
    complete, and is not written again. Raises `OutputError` if the target cannot be
    written, `DataError` if a piece cannot be opened, `Unavailable` if the storage does not answer,
    and Arrow's error for a damaged piece.
    """
    local = not is_remote(target)
    if local and Path(target).exists():  # complete: a worker that was lost later wrote it
        return int(pq.read_metadata(target).num_rows)
    rows = 0
    with atomic_file(target, make_folder=False) as partial, ExitStack() as opened:
        writer = None
        for piece in pieces:
            with open_input(piece, retry_s=RETRY_S) as handle, pq.ParquetFile(handle) as file:
                writer = writer or opened.enter_context(
                    pq.ParquetWriter(partial, file.schema_arrow, compression="lz4")
                )
                for group in range(file.num_row_groups):
                    writer.write_table(file.read_row_group(group))
                rows += file.metadata.num_rows
    if local:
        for piece in pieces:
            Path(piece).unlink(missing_ok=True)
    return rows
