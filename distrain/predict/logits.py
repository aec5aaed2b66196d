"""Computes logits of a dataset's pieces, or reads those that an interrupted run kept.

Pieces are scored one after another in this process, or as tasks of a cluster. The result of a
piece is the same either way, and does not depend on whether its logits were kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from distrain.loader.dataset import Dataset
from distrain.loader.host_memory import in_turn
from distrain.loader.partition.table import Table
from distrain.models.heads.targets import Target
from distrain.models.saved_model import SavedModel
from distrain.predict.cluster_tasks import FilePiece, cut_into_pieces, results
from distrain.predict.score_file import ROWS_AT_ONCE, model_for_worker, scoring_loader
from distrain.storage.outputs import whole_file
from distrain.train.loop.evaluation import scored_batches
from distrain.train.step.device_metrics import TargetRows

_NUMBERS = ("", *map(str, range(1, 1000)))
"""The suffixes of the columns of the first target, the second, ..."""

State = TypeVar("State")
Scored = Iterator[tuple[TargetRows, ...]]
"""For each batch, the rows of each target, with float32 scores."""

Count = Callable[["RowsOfPiece", Scored], State]
"""A function that computes a state from the scores of a piece; it must be picklable."""


@dataclass(frozen=True)
class RowsOfPiece:
    """A piece of a dataset, and how to score it."""

    piece: FilePiece
    dataset: Dataset  # the rows of the piece alone
    batch_rows: int | None  # rows scored at once; `None` chooses by device
    kept: str | None  # the file for logits and labels; `None` keeps none


@dataclass(frozen=True)
class ScorerInProcess:
    """Scores the pieces of a dataset in order, in this process on the CPU."""

    saved: SavedModel
    dataset: Dataset
    batch_rows: int | None = None
    folder: Path | None = None  # where to keep logits in case of an interruption; `None`: nowhere

    def states(
        self, count: Count[State], on_rows: Callable[[int], None]
    ) -> Iterator[tuple[int, State]]:
        """Yield each piece's index in the dataset and its state.

        `on_rows` is called with the number of rows of each scored batch.
        """
        device = torch.device("cpu")
        for place, rows in enumerate(_rows_of_pieces(self.dataset, self.batch_rows, self.folder)):
            yield place, count(rows, _scored(rows, self.saved, device, on_rows))


@dataclass(frozen=True)
class ScorerOnCluster:
    """Scores the pieces of a dataset on the workers of a cluster.

    All workers must see the model, the dataset's files and the folder.
    """

    client: Any  # a `distributed.Client`
    model_dir: str
    dataset: Dataset
    batch_rows: int | None = None
    device: str = "auto"  # `auto` takes the first GPU that a worker sees, `cpu` none
    folder: Path | None = None  # as in `ScorerInProcess`

    def states(
        self, count: Count[State], on_rows: Callable[[int], None]
    ) -> Iterator[tuple[int, State]]:
        """Like `ScorerInProcess.states`, but in order of completion, with `on_rows` by piece."""
        pieces = _rows_of_pieces(self.dataset, self.batch_rows, self.folder)
        tasks = ((self.model_dir, self.device, rows, count) for rows in pieces)
        with closing(results(self.client, _count_on_worker, tasks)) as scored:
            for place, state in scored:
                on_rows(pieces[place].piece.num_rows)
                yield place, state


Scorer = ScorerInProcess | ScorerOnCluster


def _count_on_worker(model_dir: str, device: str, rows: RowsOfPiece, count: Count[State]) -> State:
    saved, on = model_for_worker(model_dir, device)
    return count(rows, _scored(rows, saved, on, lambda _: None))


def _rows_of_pieces(
    dataset: Dataset, batch_rows: int | None, folder: Path | None
) -> list[RowsOfPiece]:
    pieces = []
    for place, piece in enumerate(cut_into_pieces(dataset.table.row_groups)):
        rows = Dataset.of(Table(piece.groups, dataset.table.fingerprint), dataset.schema)
        kept = None if folder is None else str(folder / f"{place:06d}.arrow")
        pieces.append(RowsOfPiece(piece, rows, batch_rows, kept))
    return pieces


def _scored(
    rows: RowsOfPiece, saved: SavedModel, on: torch.device, on_rows: Callable[[int], None]
) -> Scored:
    targets = saved.model.task.targets
    batches = None if rows.kept is None else _kept(rows.kept, targets)
    if batches is None:
        batch_rows = rows.batch_rows or ROWS_AT_ONCE[on.type]
        loader = scoring_loader(rows.dataset, batch_rows, on, threads=2)
        batches = scored_batches(saved.model, loader, on)
        if rows.kept is not None:
            batches = _keeping(batches, rows.kept)
    for batch in batches:
        yield tuple(one._replace(scores=one.scores.float()) for one in batch)
        on_rows(len(batch[0].labels))


def on_host(scored: Scored) -> Scored:
    """Yield the scores of each batch as float32 on the host, while a GPU scores the next one."""
    targets: list[Target] = []
    names: list[str] = []

    def stacked() -> Iterator[Tensor]:
        for batch in scored:
            columns = _columns(batch)
            targets[:], names[:] = [one.target for one in batch], columns
            yield torch.stack(list(columns.values()))

    for values in in_turn(stacked()):
        yield _rows_of(dict(zip(names, values, strict=True)), targets)


def _columns(batch: Sequence[TargetRows]) -> dict[str, Tensor]:
    """Return the rows of all targets as float32 columns, such as `logit`, `label` and `logit1`.

    The number is the target's index; the first target's columns have none.
    """
    columns: dict[str, Tensor] = {}
    for number, (target, scores, labels, weights) in zip(_NUMBERS, batch, strict=False):
        if target.kind == "multiclass":
            columns |= {f"logit{number}.{k}": one for k, one in enumerate(scores.float().unbind(1))}
        else:
            columns[f"logit{number}"] = scores.float()
        columns[f"label{number}"] = labels.float()
        if weights is not None:
            columns[f"weight{number}"] = weights.float()
    return columns


def _rows_of(columns: Mapping[str, Tensor], targets: Sequence[Target]) -> tuple[TargetRows, ...]:
    """Return the rows of all targets from the columns that `_columns` returned."""
    rows = []
    for number, target in zip(_NUMBERS, targets, strict=False):
        scores = columns.get(f"logit{number}")
        if scores is None:
            of_classes = [columns[f"logit{number}.{k}"] for k in range(target.classes)]
            scores = torch.stack(of_classes, dim=1)
        labels, weights = columns[f"label{number}"], columns.get(f"weight{number}")
        rows.append(TargetRows(target, scores, labels, weights))
    return tuple(rows)


def _kept(path: str, targets: Sequence[Target]) -> Scored | None:
    try:
        with pa.memory_map(path) as file:
            table = pa.ipc.open_file(file).read_all()
    except (OSError, pa.ArrowInvalid):
        return None
    return (
        _rows_of({name: _values(batch[name]) for name in table.column_names}, targets)
        for batch in table.to_batches()
    )


def _values(column: pa.Array) -> Tensor:
    return torch.from_numpy(column.to_numpy(zero_copy_only=False).astype(np.float32))


def _keeping(batches: Scored, path: str) -> Scored:
    """Yield the same batches, on the host, and write them to `path`.

    The file appears after the last batch.
    """
    with ExitStack() as stack:
        partial = stack.enter_context(whole_file(path, make_folder=False))
        file = stack.enter_context(pa.OSFile(str(partial), "wb"))
        to = None
        for batch in on_host(batches):
            bits = [
                f"label{n}"
                for n, one in zip(_NUMBERS, batch, strict=False)
                if one.target.kind == "binary"
            ]
            columns = {name: values.numpy() for name, values in _columns(batch).items()}
            columns |= {name: columns[name] != 0 for name in bits}
            kept = pa.record_batch({name: pa.array(values) for name, values in columns.items()})
            to = to or stack.enter_context(pa.ipc.new_file(file, kept.schema))
            to.write_batch(kept)
            yield batch
