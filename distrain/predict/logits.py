"""Computes the logits of a dataset, piece by piece (some row groups of a file, `FilePiece`).

Pieces are scored one after another in this process, or as tasks of a cluster. The result of a
piece is the same either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from distrain.loader.dataset import Dataset
from distrain.loader.host_memory import in_turn
from distrain.models.saved_model import SavedModel
from distrain.predict.cluster_tasks import FilePiece, cut_into_pieces, results
from distrain.predict.score_file import ROWS_AT_ONCE, model_for_worker, scoring_loader
from distrain.train.loop.evaluation import scored_batches
from distrain.train.step.device_metrics import TargetRows

State = TypeVar("State")
Scored = Iterator[tuple[TargetRows, ...]]
"""Yields, for each batch, its scored rows for each target; scores are float32."""

Count = Callable[["RowsOfPiece", Scored], State]
"""A function that computes a result (such as the state of metrics) from a piece and its scores.

For a cluster it must be picklable.
"""


@dataclass(frozen=True)
class RowsOfPiece:
    """A piece of a dataset, with the number of rows to score at a time."""

    piece: FilePiece
    dataset: Dataset  # the rows of the piece alone
    batch_rows: int | None  # rows scored at once; `None` chooses by device


@dataclass(frozen=True)
class ScorerInProcess:
    """Scores the pieces of a dataset in order, in this process on the CPU."""

    saved: SavedModel
    dataset: Dataset
    batch_rows: int | None = None

    def states(
        self, count: Count[State], on_rows: Callable[[int], None]
    ) -> Iterator[tuple[int, State]]:
        """Yield, for each piece in order, its index and the result of `count` for it.

        `on_rows` is called after each scored batch with its number of rows.
        """
        device = torch.device("cpu")
        for place, rows in enumerate(_rows_of_pieces(self.dataset, self.batch_rows)):
            yield place, count(rows, _scored(rows, self.saved, device, on_rows))


@dataclass(frozen=True)
class ScorerOnCluster:
    """Scores the pieces of a dataset on the workers of a cluster.

    All workers must be able to read the model and the dataset's files.
    """

    client: Any  # a `distributed.Client`
    model_dir: str
    dataset: Dataset
    batch_rows: int | None = None
    device: str = "auto"  # `auto` takes the first GPU that a worker sees, `cpu` none

    def states(
        self, count: Count[State], on_rows: Callable[[int], None]
    ) -> Iterator[tuple[int, State]]:
        """Like `ScorerInProcess.states`, but in order of completion.

        `on_rows` is called after each piece with its number of rows.
        """
        pieces = _rows_of_pieces(self.dataset, self.batch_rows)
        tasks = ((self.model_dir, self.device, rows, count) for rows in pieces)
        with closing(results(self.client, _count_on_worker, tasks)) as scored:
            for place, state in scored:
                on_rows(pieces[place].piece.num_rows)
                yield place, state


Scorer = ScorerInProcess | ScorerOnCluster


def _count_on_worker(model_dir: str, device: str, rows: RowsOfPiece, count: Count[State]) -> State:
    saved, on = model_for_worker(model_dir, device)
    return count(rows, _scored(rows, saved, on, lambda _: None))


def _rows_of_pieces(dataset: Dataset, batch_rows: int | None) -> list[RowsOfPiece]:
    pieces = cut_into_pieces(dataset.table.row_groups)
    return [RowsOfPiece(piece, dataset.part(piece.groups), batch_rows) for piece in pieces]


def _scored(
    rows: RowsOfPiece, saved: SavedModel, on: torch.device, on_rows: Callable[[int], None]
) -> Scored:
    batch_rows = rows.batch_rows or ROWS_AT_ONCE[on.type]
    loader = scoring_loader(rows.dataset, batch_rows, on, threads=2)
    for batch in scored_batches(saved.model, loader, on):
        yield tuple(one._replace(scores=one.scores.float()) for one in batch)
        on_rows(len(batch[0].labels))


def on_host(scored: Scored) -> Scored:
    """Yield the scores of each batch as float32 on the host, while a GPU scores the next one."""
    like: list[TargetRows] = []  # a batch, for the targets and the shapes of all batches

    def stacked() -> Iterator[Tensor]:
        for batch in scored:
            like[:] = batch
            yield torch.cat([_stacked(one) for one in batch])

    for values in in_turn(stacked()):
        sizes = [one.target.num_scores + (1 if one.weights is None else 2) for one in like]
        parts = torch.split(values, sizes)
        yield tuple(_unstacked(part, one) for part, one in zip(parts, like, strict=True))


def _stacked(rows: TargetRows) -> Tensor:
    """Return a target's scores, then labels and weights (if any), as float32 `[columns, rows]`."""
    scores = rows.scores.float().reshape(-1, rows.target.num_scores).T
    others = [one.float()[None] for one in (rows.labels, rows.weights) if one is not None]
    return torch.cat([scores, *others])


def _unstacked(values: Tensor, like: TargetRows) -> TargetRows:
    """Return the rows of a target from the output of `_stacked`."""
    width = like.target.num_scores
    scores = values[0] if width == 1 else values[:width].T.contiguous()
    weights = None if like.weights is None else values[-1]
    return TargetRows(like.target, scores, values[width], weights)
