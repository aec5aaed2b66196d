"""For two-tower models: computes vectors of items, and measures the top items of users."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from distrain.errors import DataError, InputError
from distrain.loader.batch import Batch
from distrain.loader.dataset import Dataset
from distrain.metrics.ranking import ItemLists, RankingMetrics, RankingReport, TopItems
from distrain.models.export import Form, write_query
from distrain.models.negative_sampling import FIRST_VALUE_ID
from distrain.models.saved_model import SavedModel
from distrain.models.zoo.two_tower import check_towers, id_column, tower_vectors
from distrain.predict.logits import RowsOfPiece, Scored, Scorer, ScorerInProcess
from distrain.predict.prepared_rows import open_prepared
from distrain.predict.score_file import ROWS_AT_ONCE, model_for_worker, scoring_loader
from distrain.schema.column import Tags
from distrain.train.data.vocabularies import Vocabularies

SCORES_AT_ONCE = 1 << 22
"""The number of pairs of a user and an item that are scored at a time."""

Ints = NDArray[np.int64]
FindModel = Callable[[], tuple[SavedModel, torch.device]]


def item_vectors(
    saved: SavedModel, items: Dataset, on: torch.device
) -> Iterator[tuple[Ints, NDArray[np.float32]]]:
    """Yield, batch by batch, ids `[rows]` and vectors `[rows, width]` of the items in a table.

    Each row of the table is an item. The values of the users' columns do not matter.

    Raises:
        ModelError: The model does not have two towers, or no column is tagged `item_id`.
    """
    name = id_column(saved.schema, Tags.ITEM_ID, saved.spec.kind)
    for batch, vectors in _vectors(saved, items, on, "item", None):
        yield batch[name].cpu().numpy().astype(np.int64), vectors


def table_of_items(saved: SavedModel, place: Path | str) -> Dataset:
    """Open a table of items, whose rows need no label.

    Raises `ModelError` if the model does not have two towers, and the errors of `Dataset`.
    """
    check_towers(saved.model)
    return open_prepared(saved, place, need_label=False)


def write_towers(folder: Path, saved: SavedModel, to: Form, items: Dataset) -> None:
    """Write the exported user tower, in the form `to`, and the vectors of items to a folder.

    `items.parquet` has the column of ids, ascending, and `vector`, lists of float32 of one length.
    Raises `ModelError` and `DataError` as `evaluate_retrieval` does, and the errors of
    `write_query`.
    """
    name = id_column(saved.schema, Tags.ITEM_ID, saved.spec.kind)
    ids, vectors = _all_vectors(saved, items, torch.device("cpu"))
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    table = pa.table({name: pa.array(ids.astype(np.int32)), "vector": lists})
    pq.write_table(table, folder / "items.parquet")
    write_query(folder, saved, to)


def evaluate_retrieval(
    scorer: Scorer, items: Dataset, k: int = 10, seen: Sequence[str] = ()
) -> RankingReport:
    """Return ranking metrics of the top `k` of all items, for the users of rows with label 1.

    Each row with label 1 counts as a separate user with one relevant item, the row's item. A
    relevant item that is not in the table of items counts as missed. All items are scored, a chunk
    at a time: a worker holds the vectors of all items and the scores of one chunk.

    Args:
        items: The table of items, one row for each.
        seen: Columns of lists of items to exclude from the row's ranking.

    Raises:
        ModelError: As in `item_vectors`.
        DataError: The table has no item, or two rows of one item; or the rows cannot be used.
        InputError: A column of `seen` is not a column of lists of items.
    """
    schema = scorer.dataset.schema
    item = schema[id_column(schema, Tags.ITEM_ID, "ranked")]
    lists = [
        column.name
        for column in schema.categorical
        if column.holds_lists
        and (column.domain == item.domain or column.cardinality == item.cardinality)
    ]
    if unknown := [name for name in seen if name not in lists]:
        raise InputError(
            f"not columns of lists of items: {', '.join(unknown)}",
            hint=f"There are: {', '.join(lists) or 'none'}.",
        )
    find: FindModel
    if isinstance(scorer, ScorerInProcess):
        find = partial(_held, scorer.saved)
    else:
        find = partial(model_for_worker, scorer.model_dir, scorer.device)
    states = dict(scorer.states(partial(_ranked, find, items, k, tuple(seen)), lambda _: None))
    first, *others = (states[place] for place in sorted(states))
    for state in others:
        first = first.merge(state)
    return first.compute()


def _held(saved: SavedModel) -> tuple[SavedModel, torch.device]:
    return saved, torch.device("cpu")


def _ranked(
    find: FindModel, items: Dataset, k: int, seen: Sequence[str], rows: RowsOfPiece, _: Scored
) -> RankingMetrics:
    """Return the ranking metrics of those rows of a piece (some row groups) that have label 1."""
    saved, on = find()
    name = id_column(saved.schema, Tags.ITEM_ID, saved.spec.kind)
    ids, vectors = _all_vectors(saved, items, on)
    of_items = torch.from_numpy(vectors).to(on)
    metrics = RankingMetrics(k, shown=np.zeros(len(ids), np.bool_))
    for batch, users in _vectors(saved, rows.dataset, on, "user", rows.batch_rows):
        assert batch.label is not None
        wanted = np.flatnonzero(batch.label.cpu().numpy() == 1)
        top, hidden = TopItems(len(wanted), k), _seen(batch, seen, ids, wanted)
        queries = torch.from_numpy(users[wanted]).to(on)
        at_once = SCORES_AT_ONCE // max(1, len(wanted)) + 1
        for start in range(0, len(ids), at_once):
            chunk = slice(start, start + at_once)
            scores = (queries @ of_items[chunk].t()).cpu().numpy()
            top.update(scores, np.arange(len(ids))[chunk], hidden)
        own = _places(batch[name].cpu().numpy(), ids)[wanted]
        metrics.update(top.ranked, ItemLists(own, np.arange(len(own) + 1)))
    return metrics


def _all_vectors(
    saved: SavedModel, items: Dataset, on: torch.device
) -> tuple[Ints, NDArray[np.float32]]:
    """Return ids and vectors of a table's items, ordered by id.

    Rows with an id that several items share, such as that of unknown items, are left out. Raises
    `DataError` if no item remains, or an item has two rows, and the errors of `item_vectors`.
    """
    batches = list(item_vectors(saved, items, on))
    if not batches:
        raise DataError("the table of items has no rows")
    ids, vectors = map(np.concatenate, zip(*batches, strict=True))
    order = np.argsort(ids)
    name = id_column(saved.schema, Tags.ITEM_ID, saved.spec.kind)
    # Lower ids are shared by several items.
    order = order[np.searchsorted(ids[order], _first_item_id(saved, name)) :]
    if not len(order):
        raise DataError(
            "no item of the table of items occurs in the training rows",
            hint="Prepare it with the run's own workflow: distrain prep ITEMS --workflow FOLDER.",
        )
    ids, vectors = ids[order], vectors[order]
    twice = ids[1:][ids[1:] == ids[:-1]]
    if len(twice):
        raise DataError(
            f"the item with id {twice[0]} has several rows in the table of items",
            hint="Keep one row of each item.",
        )
    return ids, vectors


def _first_item_id(saved: SavedModel, name: str) -> int:
    """Return the lowest id that belongs to a single item; 0 if the column has no vocabulary.

    If the vocabulary has changed since the training, it is assumed to have one
    out-of-vocabulary id.
    """
    vocabulary = Vocabularies.from_json(saved.about).files.get(name)
    if vocabulary is None:
        return 0
    return vocabulary.read().first_value_id if vocabulary.is_unchanged else FIRST_VALUE_ID


@torch.no_grad()
def _vectors(
    saved: SavedModel, rows: Dataset, on: torch.device, side: str, batch_rows: int | None
) -> Iterator[tuple[Batch, NDArray[np.float32]]]:
    saved.model.eval()
    loader = scoring_loader(rows, batch_rows or ROWS_AT_ONCE[on.type], on, threads=2)
    with loader.epoch(0) as batches:
        for batch in batches:
            vectors = tower_vectors(saved.model, batch.to(on))[side]
            yield batch, vectors.float().cpu().numpy()


def _places(some: NDArray[np.integer], ids: Ints) -> Ints:
    """Return the index of each item of `some` in the sorted `ids`; `len(ids)` if it is missing."""
    places = np.searchsorted(ids, some).clip(max=len(ids) - 1)
    return np.where(ids[places] == some, places, len(ids))


def _seen(batch: Batch, names: Sequence[str], ids: Ints, wanted: Ints) -> ItemLists | None:
    """Return the items to exclude from the ranking of each row in `wanted`; `None` without `names`.

    These are the items in the row's list columns `names`, as indices into `ids`. `wanted` has
    indices of rows in the batch.
    """
    if not names:
        return None
    columns = [batch.lists[name] for name in names]
    rows = np.concatenate([column.row_of_values.cpu().numpy() for column in columns])
    values = np.concatenate([column.values.cpu().numpy() for column in columns])
    order = np.argsort(rows, kind="stable")
    order = order[np.isin(rows[order], wanted)]
    counts = np.bincount(rows, minlength=batch.num_rows)[wanted]
    return ItemLists(_places(values, ids)[order], np.concatenate([[0], counts.cumsum()]))
