"""Logits and labels of a dataset's pieces: of a model, or kept by work that ended early.

Pieces are scored one after another in this process, or as tasks of a cluster. What is made of a
piece is the same either way, and whichever of its logits were kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from distrain.host_memory import in_turn
from distrain.loader import Dataset
from distrain.models import SavedModel
from distrain.partition import Table
from distrain.scoring.files import model_for_worker, scoring_loader
from distrain.scoring.pieces import FilePiece, cut_into_pieces, results
from distrain.storage import whole_file
from distrain.train.loop import scored_batches

ROWS_AT_ONCE = {"cpu": 4096, "cuda": 65536}
"""Rows scored at once, by device: on a CPU what a core's caches hold of a layer's values; 65,536
took 42 % more processor time there."""

_SCHEMA = pa.schema([("logit", pa.float32()), ("label", pa.bool_())])

State = TypeVar("State")
Scored = Iterator[tuple[Tensor, Tensor]]
"""Logits, float32, and labels of each batch, `[rows]` each."""

Count = Callable[["RowsOfPiece", Scored], State]
"""Makes a state of a piece's scores; a function that can be pickled."""


@dataclass(frozen=True)
class RowsOfPiece:
    """A piece of a dataset.

    Attributes:
        dataset: The rows of the piece alone.
        batch_rows: Rows scored at once; `None` chooses by device.
        kept: The file for logits and labels; `None` keeps none.
    """

    piece: FilePiece
    dataset: Dataset
    batch_rows: int | None
    kept: str | None


@dataclass(frozen=True)
class ScorerInProcess:
    """Scores in this process, on its CPU; the pieces come in order.

    Attributes:
        folder: The folder for logits meanwhile; `None` keeps none.
    """

    saved: SavedModel
    dataset: Dataset
    batch_rows: int | None = None
    folder: Path | None = None

    def states(
        self, count: Count[State], on_rows: Callable[[int], None]
    ) -> Iterator[tuple[int, State]]:
        """Each piece's place in the dataset and its state; `on_rows` gets newly scored rows."""
        device = torch.device("cpu")
        for place, rows in enumerate(_rows_of_pieces(self.dataset, self.batch_rows, self.folder)):
            yield place, count(rows, _scored(rows, self.saved, device, on_rows))


@dataclass(frozen=True)
class ScorerOnCluster:
    """Scores on a cluster's workers, which see the model, the files and the folder.

    Attributes:
        client: A `distributed.Client`.
        device: `auto` takes the first GPU that a worker sees, `cpu` none.
        folder: As of `ScorerInProcess`.
    """

    client: Any
    model_dir: str
    dataset: Dataset
    batch_rows: int | None = None
    device: str = "auto"
    folder: Path | None = None

    def states(
        self, count: Count[State], on_rows: Callable[[int], None]
    ) -> Iterator[tuple[int, State]]:
        """As of `ScorerInProcess`, in any order."""
        pieces = _rows_of_pieces(self.dataset, self.batch_rows, self.folder)
        tasks = ((self.model_dir, self.device, rows, count) for rows in pieces)
        with closing(results(self.client, _count_on_worker, tasks)) as found:
            for place, state in found:
                on_rows(pieces[place].piece.num_rows)
                yield place, state


Scorer = ScorerInProcess | ScorerOnCluster


def _count_on_worker(model_dir: str, device: str, rows: RowsOfPiece, count: Count[State]) -> State:
    saved, on = model_for_worker(model_dir, device)
    return count(rows, _scored(rows, saved, on, lambda _: None))


def _rows_of_pieces(
    dataset: Dataset, batch_rows: int | None, folder: Path | None
) -> list[RowsOfPiece]:
    found = []
    for place, piece in enumerate(cut_into_pieces(dataset.table.row_groups)):
        rows = Dataset.of(Table(piece.groups, dataset.table.fingerprint), dataset.schema)
        kept = None if folder is None else str(folder / f"{place:06d}.arrow")
        found.append(RowsOfPiece(piece, rows, batch_rows, kept))
    return found


def _scored(
    rows: RowsOfPiece, saved: SavedModel, on: torch.device, on_rows: Callable[[int], None]
) -> Scored:
    batches = None if rows.kept is None else _kept(rows.kept)
    if batches is None:
        batch_rows = rows.batch_rows or ROWS_AT_ONCE[on.type]
        loader = scoring_loader(rows.dataset, batch_rows, on, threads=2)
        batches = scored_batches(saved.model, loader, on)
        if rows.kept is not None:
            batches = _keeping(batches, rows.kept)
    for logits, labels in batches:
        yield logits.float(), labels
        on_rows(len(logits))


def on_host(scored: Scored) -> Scored:
    """The same, float32, on the host, while a GPU scores the next batch."""
    for both in in_turn(torch.stack([logits.float(), labels]) for logits, labels in scored):
        yield both[0], both[1]


def _kept(path: str) -> Scored | None:
    try:
        with pa.memory_map(path) as file:
            table = pa.ipc.open_file(file).read_all()
    except (OSError, pa.ArrowInvalid):
        return None
    return (
        (torch.from_numpy(batch["logit"].to_numpy().copy()), _labels(batch["label"]))
        for batch in table.to_batches()
    )


def _labels(column: pa.Array) -> Tensor:
    return torch.from_numpy(column.to_numpy(zero_copy_only=False).astype(np.float32))


def _keeping(batches: Scored, path: str) -> Scored:
    """The same batches, on the host; after the last they are kept."""
    with (
        whole_file(path, make_folder=False) as partial,
        pa.OSFile(str(partial), "wb") as file,
        pa.ipc.new_file(file, _SCHEMA) as to,
    ):
        for logits, labels in on_host(batches):
            columns = [logits.numpy(), labels.numpy() != 0]
            to.write_batch(pa.record_batch([pa.array(c) for c in columns], schema=_SCHEMA))
            yield logits, labels
