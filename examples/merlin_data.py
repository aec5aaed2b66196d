"""Generates rows for a Merlin schema: users, items, and labels drawn from users' tastes."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distrain.schema import ColumnSchema, Schema, Tags

MOVIES = Schema(
    (
        ColumnSchema("movieId", "int32", (Tags.CATEGORICAL, Tags.ITEM, Tags.ITEM_ID), 600),
        ColumnSchema("userId", "int32", (Tags.CATEGORICAL, Tags.USER, Tags.USER_ID), 900),
        ColumnSchema(
            "genres", "int32", (Tags.CATEGORICAL, Tags.ITEM), 21, is_list=True, value_count=(1, 10)
        ),
        ColumnSchema("TE_movieId_rating", "float32", (Tags.CONTINUOUS, Tags.ITEM)),
        ColumnSchema("userId_count", "float32", (Tags.CONTINUOUS, Tags.USER)),
        ColumnSchema("rating_binary", "int32", (Tags.TARGET, Tags.BINARY_CLASSIFICATION)),
    )
)
"""MovieLens 25M as in Merlin, with fewer users and movies."""

TASTES = 4
"""The length of the vectors that describe users' tastes and items."""


def prepared(schema, target, most_ids=None):
    """Return the schema with one target, and with tables small enough for an example.

    Args:
        schema: Merlin's schema.
        target: The target to keep.
        most_ids: The largest cardinality; `None` keeps all.
    """
    others = [c.name for c in schema.select_by_tag(Tags.TARGET) if c.name != target]
    kept = [_cut(column, most_ids) for column in schema.remove(others)]
    return Schema(tuple(kept))


def _cut(column, most_ids):
    if most_ids is None or column.cardinality is None:
        return column
    return replace(column, cardinality=min(column.cardinality, most_ids))


def write_rows(schema, folder, rows, seed=0):
    """Write `folder/train`, `folder/valid` (a fifth as many rows) and the schema.

    Returns:
        The AUC of the true probabilities on the validation rows: the highest expected AUC.
    """
    folder.mkdir(parents=True)
    schema.save(folder / "schema.pbtxt")
    rng = np.random.default_rng(seed)
    tastes = {
        column.name: rng.normal(0, 1, (column.cardinality, TASTES))
        for column in schema.remove_by_tag(Tags.TARGET).categorical
    }
    for split, count in (("valid", rows // 5), ("train", rows)):
        (folder / split).mkdir()
        table, logits, labels = draw(schema, tastes, count, rng)
        pq.write_table(table, folder / split / "part-0.parquet", row_group_size=4096)
        if split == "valid":
            best_auc = auc(logits, labels)
    return best_auc


def draw(schema, tastes, rows, rng):
    """Return rows, the true logits, and the labels drawn from them."""
    users, items = np.zeros((rows, TASTES)), np.zeros((rows, TASTES))
    columns = {}
    for column in schema.remove_by_tag(Tags.TARGET).select_by_tag(Tags.CATEGORICAL):
        taste = tastes[column.name]
        if column.holds_lists:
            least, most = column.value_count or (1, 4)
            lengths = rng.integers(max(1, least or 1), min(most or 4, 4) + 1, rows)
            ids = rng.integers(0, column.cardinality, lengths.sum())
            starts = np.concatenate([[0], np.cumsum(lengths)])
            values = np.add.reduceat(taste[ids], starts[:-1]) / lengths[:, None]
            columns[column.name] = pa.ListArray.from_arrays(
                pa.array(starts, pa.int32()), pa.array(ids.astype(np.int32))
            )
        else:
            # A few ids are frequent and most are rare, as in every click log.
            ids = (column.cardinality * rng.random(rows) ** 2).astype(np.int32)
            values, columns[column.name] = taste[ids], pa.array(ids)
        side = items if column.has_tag(Tags.ITEM) else users
        side += values
    users, items = users / max(users.std(), 1e-9), items / max(items.std(), 1e-9)
    # Some users like more items than others, and some items are liked more.
    logits = (users * items).sum(1) / TASTES**0.5 + users[:, 0] + items[:, 0]
    for column in schema.continuous:
        columns[column.name] = rng.normal(0, 1, rows).astype(np.float32)
        logits = logits + 0.2 * columns[column.name]
    labels = rng.random(rows) < 1 / (1 + np.exp(-logits))
    columns[schema.target.name] = labels.astype(np.int32)
    return pa.table(columns), logits, labels


def auc(scores, labels):
    """Return the area under the ROC curve for distinct scores."""
    ranks = np.argsort(np.argsort(scores)) + 1
    positives = labels.sum()
    below = ranks[labels].sum() - positives * (positives + 1) / 2
    return float(below / (positives * (len(labels) - positives)))
