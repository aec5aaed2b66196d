"""The metrics of a saved model on labelled files; no cluster is needed."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from distrain.loader import Dataset, Loader
from distrain.metrics import BinaryReport, GroupedReport, grouped_auc
from distrain.models import SavedModel
from distrain.scoring.side_columns import check_side_columns, common_type, side_columns
from distrain.train.loop import count_scores, evaluate, scored_batches

MAX_AUC_BOUND = 1e-3
SHOWN_GROUPS = 20

OnProgress = Callable[[str, int, int], None]
"""Called with the phase (`scoring`, `ordering`, `grouping`), rows done and rows in all."""


@dataclass(frozen=True)
class Groups:
    """AUC within the groups of a column.

    Attributes:
        column: The column's name.
        report: The groups' figures, numbered as `names`.
        names: The column's values, null among them if there are nulls.
    """

    column: str
    report: GroupedReport
    names: Sequence[Any]

    def to_json(self) -> dict[str, Any]:
        """The means as JSON values, and the largest groups."""
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
    saved: SavedModel,
    dataset: Dataset,
    batch_rows: int,
    max_auc_bound: float = MAX_AUC_BOUND,
    on_progress: OnProgress | None = None,
) -> BinaryReport:
    """Every metric of a saved model on the CPU, on labelled rows, `batch_rows` at once.

    Where the bins' bound on the AUC or the average precision is wider than `max_auc_bound`, the
    rows are scored once more and ordered by their scores. `on_progress` is called before each batch
    and at the end.

    Raises:
        ModelError: A logit is not finite.
        DataError: The rows cannot be used.
    """
    loader, device = _in_order(dataset, batch_rows), torch.device("cpu")
    count = _batch_counter(dataset, "scoring", batch_rows, on_progress)
    report = evaluate(saved.model, loader, device, count).compute()
    count()
    bounds = (report.auc_bound or 0.0, report.average_precision_bound or 0.0)
    if max(bounds) <= max_auc_bound:
        return report
    count = _batch_counter(dataset, "ordering", batch_rows, on_progress)
    ranked = count_scores(saved.model, loader, device, count)
    count()
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


def check_group(dataset: Dataset, column: str) -> pa.DataType:
    """The type of a column that rows can be grouped by; only footers are read.

    Raises:
        DataError: A file lacks the column, or it holds lists or structs, or values that cannot be
            compared with those of another file.
    """
    files = _files(dataset)
    for file in files:
        check_side_columns(file, [column], "to group by")
    return common_type(files, column)


def evaluate_groups(
    saved: SavedModel,
    dataset: Dataset,
    column: str,
    batch_rows: int,
    on_progress: OnProgress | None = None,
) -> Groups:
    """The AUC of a saved model within the groups that a column of the files makes.

    It holds a score, a label and a group number of every row: 13 bytes a row, three times as much
    while they are sorted. `column` is any column that `check_group` takes; null is a value. The
    other arguments are those of `evaluate_saved`.
    """
    files, schema = _files(dataset), pa.schema([(column, check_group(dataset, column))])
    loader = _in_order(dataset, batch_rows)
    values: list[pa.Array] = []
    scores: list[np.ndarray[Any, Any]] = []
    labels: list[np.ndarray[Any, Any]] = []
    count = _batch_counter(dataset, "grouping", batch_rows, on_progress)
    batches = scored_batches(saved.model, loader, torch.device("cpu"), count)
    for piece, (logits, targets) in zip(
        side_columns(files, [column], batch_rows, schema), batches, strict=True
    ):
        values.append(piece.column(0).dictionary_encode())
        scores.append(logits.float().numpy())
        labels.append(targets.numpy() != 0)
    count()
    encoded = pa.chunked_array(values).unify_dictionaries().combine_chunks()
    groups = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()
    held, groups = np.unique(groups, return_inverse=True)
    known = [*encoded.dictionary.to_pylist(), None]
    report = grouped_auc(groups, np.concatenate(scores), np.concatenate(labels))
    return Groups(column, report, [known[index] for index in held])


def _files(dataset: Dataset) -> list[str]:
    return list(dict.fromkeys(group.file for group in dataset.table.row_groups))


def _in_order(dataset: Dataset, batch_rows: int) -> Loader:
    """Batches of all rows in the files' order."""
    return Loader(dataset, batch_size=batch_rows, lanes=1, shuffle="none")


def _batch_counter(
    dataset: Dataset, phase: str, batch_rows: int, on_progress: OnProgress | None
) -> Callable[[], None]:
    """Reports the rows done; to be called before each batch, and after the last one."""
    rows, done = len(dataset), -batch_rows

    def count() -> None:
        nonlocal done
        done += batch_rows
        if on_progress:
            on_progress(phase, min(done, rows), rows)

    return count


def _plain(value: Any) -> Any:
    """A column's value as JSON takes it, which knows no NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
