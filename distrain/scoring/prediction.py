"""Scores of many parquet files, a Dask task for some row groups of one."""

import shutil
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from distributed.client import FutureCancelledError
from distributed.scheduler import KilledWorker

from distrain.checkpoint import MANIFEST_FILE
from distrain.errors import ClusterError, DataError
from distrain.loader import Dataset, Loader
from distrain.models import WEIGHTS_FILE, SavedModel
from distrain.partition import PARQUET_SUFFIXES, RowGroup, Table, read_footers
from distrain.scoring.side_columns import check_side_columns, side_columns
from distrain.storage import (
    InputFile,
    check_apart,
    check_free,
    is_remote,
    list_inputs,
    whole_dir,
    whole_file,
)
from distrain.train.saving import open_model

_PIECES = ".pieces"
_PIECE_ROWS = 1 << 20
"""Rows of a file after which the next task begins, with the next row group."""

_TASKS_PER_THREAD = 3
_FEWEST_IN_FLIGHT = 4


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
        device: `auto` takes the first GPU that a worker sees, `cpu` none.
    """

    model_dir: Path | str
    inputs: tuple[str, ...]
    out: Path
    keep: tuple[str, ...] = ()
    batch_rows: int = 65536
    overwrite: bool = False
    device: str = "auto"


@dataclass(frozen=True)
class PredictResult:
    """What was scored."""

    rows: int
    files: int


def predict(
    request: PredictRequest, client: Any, on_progress: Callable[[int, int, int], None] | None = None
) -> PredictResult:
    """Score files on the client's cluster; outputs, one for each file, appear together.

    A file of more than a million rows is scored by several tasks, of some row groups each.

    Args:
        client: A `distributed.Client`.
        on_progress: Called with tasks done, tasks in all, and rows done.

    Raises:
        DataError: An input cannot be used; what footers show is raised before any row is scored.
        OutputError: The folder exists, or cannot be written.
    """
    files, table = _checked(request)
    groups_of: dict[str, list[RowGroup]] = {}
    for group in table.row_groups:
        groups_of.setdefault(group.file, []).append(group)
    with whole_dir(request.out, replace=request.overwrite) as partial:
        pieces_dir = partial.absolute() / _PIECES
        pieces_dir.mkdir()
        tasks: list[tuple[Any, ...]] = []
        joins: list[tuple[tuple[Path, ...], Path]] = []
        for file, name in zip(files, _target_names(files), strict=True):
            target = partial.absolute() / name
            pieces = _pieces(groups_of[file.path])
            targets = [target]
            if len(pieces) > 1:
                targets = [pieces_dir / f"{number:05d}-{name}" for number in range(len(pieces))]
                joins.append((tuple(targets), target))
            tasks += [
                (
                    _absolute(request.model_dir),
                    file.path,
                    to,
                    request.keep,
                    request.batch_rows,
                    request.device,
                    groups,
                )
                for to, groups in zip(targets, pieces, strict=True)
            ]
        rows = 0
        with closing(_results(client, score_file, tasks)) as results:
            for done, of_task in enumerate(results, start=1):
                rows += of_task
                if on_progress:
                    on_progress(done, len(tasks), rows)
        with closing(_results(client, join_pieces, joins)) as results:
            for _ in results:
                pass
        shutil.rmtree(pieces_dir)
    return PredictResult(rows, len(files))


def _pieces(groups: Sequence[RowGroup]) -> list[tuple[int, ...] | None]:
    """The row groups of each task for a file; `None` is all of them.

    >>> _pieces([RowGroup("a", n, 600_000) for n in range(3)])
    [(0, 1), (2,)]
    >>> _pieces([RowGroup("a", 0, 10), RowGroup("a", 1, 10)])
    [None]
    """
    pieces: list[list[int]] = []
    rows = _PIECE_ROWS
    for group in groups:
        if rows >= _PIECE_ROWS:
            pieces.append([])
            rows = 0
        pieces[-1].append(group.index)
        rows += group.num_rows
    return [tuple(piece) for piece in pieces] if len(pieces) > 1 else [None]


def join_pieces(pieces: Sequence[Path], target: Path) -> int:
    """Write the rows of some files, in order, into one, and remove them. Returns the rows."""
    if target.exists():  # whole, by a worker that was lost before its result was known
        return int(pq.read_metadata(target).num_rows)
    rows = 0
    schema = pq.read_schema(pieces[0])
    with (
        whole_file(target, make_folder=False) as partial,
        pq.ParquetWriter(partial, schema, compression="lz4") as writer,
    ):
        for piece in pieces:
            with pq.ParquetFile(piece) as file:
                for group in range(file.num_row_groups):
                    writer.write_table(file.read_row_group(group))
                rows += file.metadata.num_rows
    for piece in pieces:
        piece.unlink(missing_ok=True)
    return rows


def _results(
    client: Any, function: Callable[..., int], tasks: Iterable[tuple[Any, ...]]
) -> Generator[int, None, None]:
    """The results as they come; the scheduler holds a few tasks for each thread of a worker.

    So it holds no more for ten thousand files than for ten, and what a failure leaves to be
    cancelled is little.
    """
    from distributed import as_completed

    waiting = iter(tasks)
    window = max(_FEWEST_IN_FLIGHT, _TASKS_PER_THREAD * sum(client.nthreads().values()))
    in_flight = {client.submit(function, *t, pure=False) for t in islice(waiting, window)}
    completed = as_completed(in_flight)
    try:
        for future in completed:
            yield _result(future)
            in_flight.discard(future)
            for task in islice(waiting, 1):
                added = client.submit(function, *task, pure=False)
                in_flight.add(added)
                completed.add(added)
    finally:
        client.cancel(list(in_flight))


def _result(future: Any) -> int:
    try:
        found: int = future.result()
    except KilledWorker as error:
        raise ClusterError(
            "workers died again and again while they scored",
            where={"last worker": getattr(error.last_worker, "address", "unknown")},
            hint="Most often for want of memory: give them more, or a smaller --batch-size.",
        ) from None
    except FutureCancelledError:
        raise ClusterError(
            "the cluster gave up tasks that score",
            hint="The scheduler may have been restarted; start again.",
        ) from None
    return found


def check_request(request: PredictRequest) -> list[InputFile]:
    """The files to score, after a look at their footers; needs no cluster.

    Raises:
        DataError: Model, files or kept columns cannot be used.
        OutputError: The output folder exists already, or holds the model or an input.
    """
    return _checked(request)[0]


def _checked(request: PredictRequest) -> tuple[list[InputFile], Table]:
    check_free(request.out, request.overwrite)
    saved = open_model(request.model_dir)
    files = list_inputs(request.inputs, suffixes=PARQUET_SUFFIXES)
    check_apart(request.out, [request.model_dir, *(file.path for file in files)])
    table = read_footers([file.path for file in files], saved.schema, need_label=False)
    with_rows = {group.file for group in table.row_groups}
    for file in files:
        if file.path not in with_rows:
            raise DataError("no rows in the file", where={"file": file.path}, hint="Leave it out.")
    if SCORE_COLUMN in request.keep:
        raise DataError(f"cannot keep a column named {SCORE_COLUMN}: the scores have that name")
    for file in files:
        check_side_columns(file.path, request.keep, "to keep")
    return files, table


def _target_names(files: list[InputFile]) -> list[str]:
    """One name per file: its own where names are distinct, numbered where they are not."""
    own = [file.path.rsplit("/", 1)[-1] for file in files]
    if len(set(own)) == len(own):
        return own
    return [f"{number:05d}-{name}" for number, name in enumerate(own)]


def _absolute(model_dir: Path | str) -> str:
    return str(model_dir) if is_remote(model_dir) else str(Path(model_dir).absolute())


SCORE_COLUMN = "probability"


def score_file(
    model_dir: str,
    source: str,
    target: Path,
    keep: tuple[str, ...],
    batch_rows: int,
    device: str = "auto",
    row_groups: Sequence[int] | None = None,
) -> int:
    """Write the columns of `keep`, then `probability` (float32), for each row of a file, in order.

    Of some of its row groups, if they are named. Returns the number of rows.
    """
    saved, on = _model(model_dir, _version(model_dir), device)
    dataset = Dataset(source, saved.schema, need_label=False)
    if row_groups is not None:
        groups = [group for group in dataset.table.row_groups if group.index in row_groups]
        table = Table(groups, dataset.table.fingerprint)
        dataset = Dataset.of(table, saved.schema, need_label=False)
    loader = Loader(dataset, batch_size=batch_rows, lanes=1, shuffle="none", decode_threads=1)
    kept = side_columns([source], keep, batch_rows, row_groups=row_groups)
    with whole_file(target, make_folder=False) as partial:
        writer = None
        try:
            with loader.epoch(0) as batches:
                for batch in batches:
                    with torch.no_grad():
                        probability = torch.sigmoid(saved.model(batch.to(on))).cpu().numpy()
                    rows = _scored_rows(next(kept, None), probability)
                    writer = writer or pq.ParquetWriter(partial, rows.schema, compression="lz4")
                    writer.write_table(rows)
        finally:
            if writer is not None:
                writer.close()
    return len(dataset)


def _version(model_dir: str) -> tuple[int, int, int] | None:
    """The version of the weights there: a worker may outlive them."""
    for name in (WEIGHTS_FILE, MANIFEST_FILE):  # of a model, of a checkpoint
        try:
            weights = (Path(model_dir) / name).stat()
        except OSError:
            continue
        return weights.st_ino, weights.st_mtime_ns, weights.st_size
    return None  # `open_model` raises


@lru_cache(maxsize=1)
def _model(
    model_dir: str, version: tuple[int, int, int] | None, device: str
) -> tuple[SavedModel, torch.device]:
    """The model on the worker's GPU, where it has one; kept for the worker's next file."""
    on = torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")
    saved = open_model(model_dir)
    saved.model.to(on).eval()
    return saved, on


def _scored_rows(kept: pa.RecordBatch | None, probability: np.ndarray) -> pa.Table:
    scores = pa.array(probability.astype(np.float32, copy=False))
    if kept is None:
        return pa.table({SCORE_COLUMN: scores})
    return pa.Table.from_batches([kept]).append_column(SCORE_COLUMN, scores)
