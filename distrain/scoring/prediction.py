"""Scores of many parquet files, a Dask task for some row groups of one."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow.parquet as pq
from pyarrow import ArrowInvalid

from distrain.errors import DataError, InputError, OutputError
from distrain.partition import PARQUET_SUFFIXES, Table, read_footers
from distrain.scoring.files import SCORE_COLUMN, join_pieces, model_files, score_file
from distrain.scoring.pieces import Piece, cut_into_pieces
from distrain.scoring.resuming import (
    is_finished,
    name_of_scores,
    open_scored,
    scored_folder,
    write_finished,
)
from distrain.scoring.side_columns import check_side_columns
from distrain.scoring.tasks import results
from distrain.storage import (
    RETRY_S,
    InputFile,
    check_apart,
    check_output,
    is_remote,
    list_inputs,
    open_folder,
    whole_output,
    with_retries,
)
from distrain.train.saving import open_model

_PIECES = ".pieces"


@dataclass(frozen=True)
class PredictRequest:
    """What to score.

    Attributes:
        model_dir: A saved model or a checkpoint, on a filesystem that every worker sees.
        inputs: Parquet files, folders, globs or URLs.
        out: The folder to write, or the URL of a prefix in an object store: one file of scores per
            input file.
        keep: Columns to copy over from the input.
        batch_rows: Rows scored at once.
        overwrite: Whether `out` may be replaced.
        device: `auto` takes the first GPU that a worker sees, `cpu` none.
        resume: Whether what is scored stays when the work ends early, and what such work left is
            used; for a folder.
    """

    model_dir: Path | str
    inputs: tuple[str, ...]
    out: Path | str
    keep: tuple[str, ...] = ()
    batch_rows: int = 65536
    overwrite: bool = False
    device: str = "auto"
    resume: bool = False


@dataclass(frozen=True)
class PredictResult:
    """What was scored.

    Attributes:
        resumed_rows: How many of the rows were scored before, by work that had ended early.
    """

    rows: int
    files: int
    resumed_rows: int = 0


def predict(
    request: PredictRequest, client: Any, on_progress: Callable[[int, int, int], None] | None = None
) -> PredictResult:
    """Score files on the client's cluster; outputs, one for each file, appear together.

    A file of more than a million rows is scored by several tasks, of some row groups each. With
    `resume`, nothing is done where `finished_scores` finds that all is.

    Args:
        client: A `distributed.Client`.
        on_progress: Called with tasks done, tasks in all, and rows done.

    Raises:
        DataError: An input cannot be used; what footers show is raised before any row is scored.
        OutputError: The folder exists, or cannot be written.
    """
    if (finished := finished_scores(request)) is not None:
        return finished
    files, table = _checked(request)
    cuts = _cut(files, table)
    # Workers may have another working directory.
    out = request.out if is_remote(request.out) else Path(request.out).absolute()
    with whole_output(out, replace=request.overwrite) as folder:
        scored = None
        if request.resume:
            scored = open_scored(scored_folder(Path(out)), _name_of_scores(request, cuts))
        work = _Work.of(cuts, folder, scored)
        open_folder(work.pieces).make()
        found = work.done()
        rows = resumed_rows = sum(found.values())
        waiting = [task for task in work.tasks if task.target not in found]
        count = len(found)
        if count and on_progress:
            on_progress(count, len(work.tasks), rows)
        arguments = [(_absolute(request.model_dir), *task.arguments(request)) for task in waiting]
        with closing(results(client, score_file, arguments)) as found_rows:
            for done, (_, of_task) in enumerate(found_rows, start=count + 1):
                rows += of_task
                if on_progress:
                    on_progress(done, len(work.tasks), rows)
        joins = [(pieces, target, scored is not None) for target, pieces in work.joins.items()]
        with closing(results(client, join_pieces, joins)) as joined:
            for _ in joined:
                pass
        if scored is None:
            pieces = open_folder(work.pieces)
            with_retries(pieces.remove, {"folder": work.pieces}, RETRY_S)
        else:
            write_finished(Path(folder), scored.name, [cut.name for cut in cuts])
    if isinstance(out, Path):
        shutil.rmtree(scored_folder(out), ignore_errors=True)
    return PredictResult(rows, len(files), resumed_rows)


def finished_scores(request: PredictRequest) -> PredictResult | None:
    """What is in `out` already, if this request has written it; looks at footers only.

    `None` where there is no such folder, without `resume`, and with `overwrite`.

    Raises:
        OutputError: The folder holds something else.
    """
    out = request.out
    if not request.resume or request.overwrite or is_remote(out) or not Path(out).is_dir():
        return None
    files, table = _inputs(request)
    cuts = _cut(files, table)
    name = _name_of_scores(request, cuts)
    if not is_finished(Path(out), name, [cut.name for cut in cuts]):
        raise OutputError(
            "the output exists already, and is not known to be of this model, data and options",
            where={"path": out},
            hint="Name another folder with --out, or replace it with --overwrite.",
        )
    return PredictResult(table.num_rows, len(files), table.num_rows)


@dataclass(frozen=True)
class _Cut:
    """A file, the name of its scores, and its pieces, one for each task."""

    source: str
    name: str
    pieces: list[Piece]


def _cut(files: list[InputFile], table: Table) -> list[_Cut]:
    pieces_of: dict[str, list[Piece]] = {}
    for piece in cut_into_pieces(table.row_groups):
        pieces_of.setdefault(piece.file, []).append(piece)
    return [
        _Cut(file.path, name, pieces_of[file.path])
        for file, name in zip(files, _target_names(files), strict=True)
    ]


def _name_of_scores(request: PredictRequest, cuts: Sequence[_Cut]) -> str:
    settings = {
        "keep": list(request.keep),
        "batch_rows": request.batch_rows,
        "device": request.device,
    }
    pieces = [(cut.source, piece.row_groups) for cut in cuts for piece in cut.pieces]
    return name_of_scores(model_files(_absolute(request.model_dir)), settings, pieces)


@dataclass(frozen=True)
class _Task:
    source: str
    target: str
    row_groups: tuple[int, ...] | None

    def arguments(self, request: PredictRequest) -> tuple[Any, ...]:
        settings = (request.keep, request.batch_rows, request.device)
        return (self.source, self.target, *settings, self.row_groups)


@dataclass(frozen=True)
class _Work:
    """The files to make.

    Attributes:
        pieces: The folder of the pieces.
        tasks: What each task scores.
        joins: For each file that is made of pieces, these.
    """

    pieces: str
    tasks: list[_Task]
    joins: dict[str, tuple[str, ...]]

    @classmethod
    def of(cls, cuts: Sequence[_Cut], folder: str, scored: Path | None) -> Self:
        work = cls(f"{folder}/{_PIECES}" if scored is None else str(scored), [], {})
        for cut in cuts:
            target = f"{folder}/{cut.name}"
            targets = [target]
            if len(cut.pieces) > 1 or scored is not None:
                targets = [
                    f"{work.pieces}/{number:05d}-{cut.name}" for number in range(len(cut.pieces))
                ]
                work.joins[target] = tuple(targets)
            work.tasks.extend(
                _Task(cut.source, to, piece.row_groups)
                for to, piece in zip(targets, cut.pieces, strict=True)
            )
        return work

    def done(self) -> dict[str, int]:
        """The rows of each piece that is there already; one that was damaged is made anew."""
        found: dict[str, int] = {}
        if not is_remote(self.pieces):
            for task in self.tasks:
                with suppress(OSError, ArrowInvalid):
                    found[task.target] = int(pq.read_metadata(task.target).num_rows)
        return found


def check_request(request: PredictRequest) -> list[InputFile]:
    """The files to score, after a look at their footers; needs no cluster.

    Raises:
        DataError: Model, files or kept columns cannot be used.
        OutputError: The output folder exists already, or holds the model or an input.
    """
    return _checked(request)[0]


def _checked(request: PredictRequest) -> tuple[list[InputFile], Table]:
    if request.resume and is_remote(request.out):
        raise InputError(
            "scores in an object store cannot be resumed",
            where={"path": request.out},
            hint="Leave --resume out, or score into a folder and copy it.",
        )
    check_output(request.out, request.overwrite)
    return _inputs(request)


def _inputs(request: PredictRequest) -> tuple[list[InputFile], Table]:
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
