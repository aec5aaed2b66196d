"""Scores files on a Dask cluster, and writes a file of scores for each of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distrain.errors import DataError
from distrain.loader.partition.table import Table
from distrain.models.saved_model import SavedModel
from distrain.predict.cluster_tasks import FilePiece, cut_into_pieces, results
from distrain.predict.prepared_rows import open_prepared
from distrain.predict.raw_rows import (
    RawOptions,
    RawRows,
    check_same_workflow,
    columns_of_classes,
    files_to_score,
    taken_for_prepared,
    workflow_for,
)
from distrain.predict.score_columns import score_names
from distrain.predict.score_file import join_pieces, model_for_worker, score_file
from distrain.predict.side_columns import check_side_columns
from distrain.prep.parts import FILE, ROW_NUMBER
from distrain.storage.folder import open_folder
from distrain.storage.inputs import PARQUET_SUFFIXES, InputFile
from distrain.storage.outputs import atomic_output, check_inputs_outside, check_output
from distrain.storage.retrying import RETRY_S, with_retries
from distrain.storage.urls import is_remote

if TYPE_CHECKING:
    from distrain.prep.progress import ProgressCallback
    from distrain.prep.request import PrepResult

_PIECES = ".pieces"


@dataclass(frozen=True)
class PredictRequest:
    """Rows to score, the model that scores them, and the folder of the scores."""

    model_dir: Path | str  # a saved model or a checkpoint, on a filesystem that every worker sees
    # files, folders, globs or URLs: prepared parquet, or raw rows, which are prepared with the
    # workflow of the model's data
    inputs: tuple[str, ...]
    # the folder to write, or the URL of a prefix in an object store: one file of scores for each
    # input file. Scores of raw rows identify a row by `file` and `row_number`.
    out: Path | str
    keep: tuple[str, ...] = ()  # columns to copy over from the input
    batch_rows: int | None = None  # rows scored at once; `None` chooses by device
    overwrite: bool = False  # whether `out` may be replaced
    device: str = "auto"  # `auto` takes the first GPU that a worker sees, `cpu` none
    # whether rows are raw, and the treatment of bad rows
    raw: RawOptions = field(default_factory=RawOptions)


@dataclass(frozen=True)
class PredictResult:
    """The result of `predict`: numbers of rows, names of files, and the preparation of raw rows."""

    rows: int
    files: int
    prepared: PrepResult | None = None  # the preparation of raw rows
    names: tuple[str, ...] = ()  # the files, in the order of the inputs


def predict(
    request: PredictRequest,
    client: Any,
    on_progress: Callable[[int, int, int], None] | None = None,
    on_prepare: ProgressCallback | None = None,
    checked: CheckedInputs | None = None,
) -> PredictResult:
    """Score files on the client's cluster; the outputs, one for each file, appear together.

    A file with more than about a million rows is scored by several tasks. Each task scores a piece:
    some row groups of the file.

    Args:
        client: A `distributed.Client`; `None` scores in this process.
        on_progress: Called with tasks done, tasks in all, and rows done.
        on_prepare: Called with the progress of the preparation of raw rows.
        checked: The result of `check_request`. `None` checks the request here.

    Returns:
        The numbers of rows and files, and the names of the files of scores.

    Raises:
        InputError: The rows could be raw or prepared.
        DataError: An input cannot be used. Errors in footers are raised before any row is scored.
        OutputError: The folder `out` cannot be written, or contains the model or an input. Or it
            exists without `overwrite`.
        Unavailable: A storage does not answer.
        ClusterError: The workers are lost.
    """
    if checked is None:
        checked = check_request(request)
    # Workers may have another working directory.
    out = request.out if is_remote(request.out) else Path(request.out).absolute()
    with (
        checked.prepared(client, os.path.dirname(out), on_prepare) as rows_to_score,
        atomic_output(out, replace=request.overwrite) as folder,
    ):
        pieces = open_folder(f"{folder}/{_PIECES}")
        pieces.make()
        tasks, joins = _files_to_make(rows_to_score.cuts, folder)
        settings = (rows_to_score.keep, request.batch_rows, request.device)
        # This process has the model of the checks in its cache, under the name of the request.
        model = str(request.model_dir) if client is None else _absolute(request.model_dir)
        classes = columns_of_classes(request.model_dir, checked.saved)
        arguments = [
            (model, piece.file, target, *settings, piece.row_groups, classes)
            for target, piece in tasks.items()
        ]
        rows = 0
        with closing(results(client, score_file, arguments)) as task_rows:
            for done, (_, of_task) in enumerate(task_rows, start=1):
                rows += of_task
                if on_progress:
                    on_progress(done, len(tasks), rows)
        joined = [(files, target) for target, files in joins.items()]
        with closing(results(client, join_pieces, joined)) as joining:
            for _ in joining:
                pass
        with_retries(pieces.remove, {"folder": f"{folder}/{_PIECES}"}, RETRY_S)
    names = tuple(cut.name for cut in rows_to_score.cuts)
    return PredictResult(rows, len(names), rows_to_score.prepared, names)


@dataclass(frozen=True)
class _Cut:
    """An output file: its name, and the pieces of rows whose scores are written to it, in order."""

    name: str
    pieces: list[FilePiece]


@dataclass(frozen=True)
class _Rows:
    """The prepared rows of a request: the pieces of each input, and the columns to copy to outputs.

    `keep` has pairs of a column's name in the scores and its name in the prepared files. `prepared`
    is `None` if the input was prepared already.
    """

    cuts: list[_Cut]
    keep: tuple[tuple[str, str], ...]
    prepared: PrepResult | None = None


def _rows_of(
    table: Table,
    source_of: Callable[[str], str],
    keep: Sequence[tuple[str, str]],
    prepared: PrepResult | None = None,
) -> _Rows:
    """Return the rows of a prepared table, cut into pieces.

    `source_of` maps a file of the table to the input file from which it was prepared.
    """
    pieces_of: dict[str, list[FilePiece]] = {}
    for piece in cut_into_pieces(table.row_groups):
        pieces_of.setdefault(source_of(piece.file), []).append(piece)
    named = zip(_target_names(list(pieces_of)), pieces_of.values(), strict=True)
    return _Rows([_Cut(name, pieces) for name, pieces in named], tuple(keep), prepared)


@dataclass(frozen=True)
class CheckedInputs:
    """The model and the files of a request that has passed the checks."""

    saved: SavedModel
    files: list[InputFile]
    rows: _Rows | None = None  # prepared rows; `None` for raw rows
    raw: RawRows | None = None  # raw rows; `None` for prepared rows

    @contextmanager
    def prepared(
        self, client: Any, place: str, on_progress: ProgressCallback | None
    ) -> Iterator[_Rows]:
        """Yield the prepared rows; raw rows are first prepared in a scratch folder in `place`.

        The folder is removed at the end of the context. Raises the errors of `prepare`.
        """
        if self.raw is None:
            assert self.rows is not None
            yield self.rows
            return
        with self.raw.prepared(client, place, on_progress) as result:
            table = open_prepared(self.saved, f"{result.out}/train", need_label=False).table
            sources = dict(zip(table.compact.files, result.train.sources, strict=True))
            kept = ((column, name) for name, column in result.kept.items())
            keep = [(FILE, FILE), (ROW_NUMBER, ROW_NUMBER), *kept]
            yield _rows_of(table, sources.__getitem__, keep, result)


def _files_to_make(
    cuts: Sequence[_Cut], folder: str
) -> tuple[dict[str, FilePiece], dict[str, tuple[str, ...]]]:
    """Return the piece to score into each task's file, and the files to join into each output.

    The first mapping has the path that each task writes, the second the path of each output that is
    joined. If one task makes the whole output, the task writes the output itself. `folder` is the
    folder of the outputs.
    """
    made: dict[str, FilePiece] = {}
    joins: dict[str, tuple[str, ...]] = {}
    for cut in cuts:
        target = f"{folder}/{cut.name}"
        targets = [target]
        if len(cut.pieces) > 1:
            numbers = range(len(cut.pieces))
            targets = [f"{folder}/{_PIECES}/{number:05d}-{cut.name}" for number in numbers]
            joins[target] = tuple(targets)
        made |= zip(targets, cut.pieces, strict=True)
    return made, joins


def check_request(request: PredictRequest) -> CheckedInputs:
    """Return the inputs of a request, after checking footers or first lines; needs no cluster.

    Raises:
        InputError: The rows could be raw or prepared.
        DataError: The model, a file or a column to keep cannot be used.
        OutputError: The output folder exists and `overwrite` is false, or it holds the model or an
            input.
        Unavailable: A storage does not answer.
    """
    check_output(request.out, request.overwrite)
    saved, _ = model_for_worker(str(request.model_dir), "cpu")
    files, is_raw = files_to_score(request.inputs, saved, request.raw.is_raw)
    check_inputs_outside(request.out, [request.model_dir, *(file.path for file in files)])
    check_kept(request.keep, saved, is_raw, columns_of_classes(request.model_dir, saved))
    if is_raw:
        workflow = workflow_for(request.model_dir, saved)
        raw = RawRows(tuple(files), workflow, request.raw, request.keep)
        raw.check("--keep")
        return CheckedInputs(saved, files, raw=raw)
    with taken_for_prepared(request.raw, saved):
        table = open_prepared(saved, [file.path for file in files], need_label=False).table
    with_rows = {*table.compact.files}
    for file in files:
        if file.path not in with_rows:
            raise DataError("no rows in the file", where={"file": file.path}, hint="Leave it out.")
    for file in files:
        check_side_columns(file.path, request.keep, "--keep")
    check_same_workflow(request.model_dir, saved, [file.path for file in files])
    keep = [(column, column) for column in request.keep]
    return CheckedInputs(saved, files, _rows_of(table, str, keep))


def check_kept(
    keep: Sequence[str], saved: SavedModel, is_raw: bool, with_values: Collection[str]
) -> None:
    """Raise a `DataError` if a column to keep has the name of a score column.

    For raw rows, `file` and `row_number` are such names, too. `with_values` is as for
    `score_names`.
    """
    names = score_names(saved.model.task.targets, with_values=with_values)
    taken = {*names, *((FILE, ROW_NUMBER) if is_raw else ())} & {*keep}
    if taken:
        name = min(taken)
        raise DataError(f"cannot keep a column named {name}: the scores have that name")


def _target_names(files: Sequence[str]) -> list[str]:
    """Return the name of the output file for each input file.

    This is the input's name, with `.parquet` appended if it lacks a parquet suffix. If two names
    are equal, all names are prefixed with the index of their file.
    """
    own = [file.rsplit("/", 1)[-1] for file in files]
    own = [name if name.endswith(PARQUET_SUFFIXES) else f"{name}.parquet" for name in own]
    if len(set(own)) == len(own):
        return own
    return [f"{number:05d}-{name}" for number, name in enumerate(own)]


def _absolute(model_dir: Path | str) -> str:
    return str(model_dir) if is_remote(model_dir) else str(Path(model_dir).absolute())
