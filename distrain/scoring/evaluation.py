"""The metrics of a saved model on labelled files."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from distrain.loader import Dataset
from distrain.metrics import (
    BinaryMetrics,
    BinaryReport,
    DistinctScores,
    GroupedReport,
    grouped_auc,
)
from distrain.scoring.logits import RowsOfPiece, Scored, Scorer, on_host
from distrain.scoring.side_columns import check_side_columns, common_type, side_columns
from distrain.train.loop import finite_metrics
from distrain.train.step import DeviceBinaryMetrics

MAX_AUC_BOUND = 1e-3
SHOWN_GROUPS = 20
_VALUES_AT_ONCE = 65536

Array = np.ndarray[Any, Any]

OnProgress = Callable[[str, int, int], None]
"""Called with the phase (`scoring`, `ordering`, `grouping`), rows done and rows in all."""


@dataclass(frozen=True)
class Groups:
    """AUC within the groups of a column.

    Attributes:
        report: The groups' figures, numbered as `names`.
        names: The column's values, null among them if there are nulls.
    """

    column: str
    report: GroupedReport
    names: Sequence[Any]

    def to_json(self) -> dict[str, Any]:
        report = self.report
        largest = np.argsort(-report.rows, kind="stable")[:SHOWN_GROUPS]
        return {
            "group": self.column,
            "groups": report.groups,
            "scored_groups": report.scored_groups,
            "scored_rows": report.scored_rows,
            "grouped_auc": report.grouped_auc,
            "mean_group_auc": report.mean_auc,
            "largest_groups": [
                {
                    "value": _plain(self.names[index]),
                    "rows": int(report.rows[index]),
                    "positives": int(report.positives[index]),
                    "auc": None if np.isnan(report.auc[index]) else float(report.auc[index]),
                }
                for index in largest
            ],
        }


def evaluate_saved(
    scorer: Scorer, max_auc_bound: float = MAX_AUC_BOUND, on_progress: OnProgress | None = None
) -> BinaryReport:
    """Every metric of a saved model on labelled rows.

    Where the bins' bound on the AUC or the average precision is wider than `max_auc_bound`, the
    rows are scored once more, or their kept scores read, and ordered by them.

    Raises:
        ModelError: A logit is not finite.
        DataError: The rows cannot be used.
        ClusterError: Workers died.
    """
    report = _binned(scorer, _rows_counter(scorer.dataset, "scoring", on_progress))
    bounds = (report.auc_bound or 0.0, report.average_precision_bound or 0.0)
    if max(bounds) <= max_auc_bound:
        return report
    ranked = DistinctScores()
    on_rows = _rows_counter(scorer.dataset, "ordering", on_progress)
    for _, of_piece in scorer.states(_order, on_rows):
        ranked.add_all(of_piece)
    auc, precision = ranked.auc(), ranked.average_precision()
    assert auc is not None  # the bins had both classes
    assert precision is not None
    return replace(
        report,
        auc=auc.value,
        auc_bound=auc.bound,
        average_precision=precision.value,
        average_precision_bound=precision.bound,
    )


def _binned(scorer: Scorer, on_rows: Callable[[int], None]) -> BinaryReport:
    total, sums = BinaryMetrics(), {}
    for place, of_piece in scorer.states(_bin, on_rows):
        total = total.merge(of_piece)
        sums[place] = (of_piece.log_loss_sum, of_piece.prediction_sum)
    # In the rows' order: so the sums do not depend on which piece was done first.
    in_order = [sums[place] for place in sorted(sums)]
    total.log_loss_sum = sum(log_loss for log_loss, _ in in_order)
    total.prediction_sum = sum(prediction for _, prediction in in_order)
    return total.compute()


def _bin(_: RowsOfPiece, scored: Scored) -> BinaryMetrics:
    metrics = None
    for logits, labels in scored:
        metrics = metrics or DeviceBinaryMetrics(logits.device)
        metrics.update(logits, labels)
    assert metrics is not None  # a piece has rows
    return finite_metrics(metrics)


def _order(_: RowsOfPiece, scored: Scored) -> DistinctScores:
    counted = DistinctScores()
    for logits, labels in on_host(scored):
        counted.update(logits.numpy(), labels.numpy())
    return counted


def check_group(dataset: Dataset, column: str) -> pa.DataType:
    """The type of a column for groups, from footers alone.

    Raises:
        DataError: A file lacks the column, or it holds lists or structs, or values that cannot be
            compared with those of another file.
    """
    files = _files(dataset)
    for file in files:
        check_side_columns(file, [column], "--group")
    return common_type(files, column)


def evaluate_groups(scorer: Scorer, column: str, on_progress: OnProgress | None = None) -> Groups:
    """The AUC of a saved model within the groups of a column of the files.

    It holds a score, a label and a group number of every row: 13 bytes a row, three times as much
    while they are sorted. Null is a group too. Errors as of `evaluate_saved`.
    """
    schema = pa.schema([(column, check_group(scorer.dataset, column))])
    on_rows = _rows_counter(scorer.dataset, "grouping", on_progress)
    found = dict(scorer.states(partial(_with_values, schema), on_rows))
    values, scores, labels = zip(*(found.pop(place) for place in sorted(found)), strict=True)
    encoded = pa.chunked_array(values).unify_dictionaries().combine_chunks()
    groups = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()
    held, groups = np.unique(groups, return_inverse=True)
    known = [*encoded.dictionary.to_pylist(), None]
    report = grouped_auc(groups, np.concatenate(scores), np.concatenate(labels))
    return Groups(column, report, [known[index] for index in held])


def _with_values(
    schema: pa.Schema, rows: RowsOfPiece, scored: Scored
) -> tuple[pa.DictionaryArray, Array, Array]:
    """Each row's value of the column, its logit, and whether it is positive."""
    piece = rows.piece
    read = side_columns(
        [piece.file], schema.names, _VALUES_AT_ONCE, schema, row_groups=piece.row_groups
    )
    values = [batch.column(0).dictionary_encode() for batch in read]
    pairs = [(logits.numpy(), labels.numpy() != 0) for logits, labels in on_host(scored)]
    logits, labels = zip(*pairs, strict=True)
    encoded = pa.chunked_array(values).unify_dictionaries().combine_chunks()
    return encoded, np.concatenate(logits), np.concatenate(labels)


def _files(dataset: Dataset) -> list[str]:
    return list(dict.fromkeys(group.file for group in dataset.table.row_groups))


def _rows_counter(
    dataset: Dataset, phase: str, on_progress: OnProgress | None
) -> Callable[[int], None]:
    rows, done = len(dataset), 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        if on_progress:
            on_progress(phase, done, rows)

    count(0)
    return count


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
