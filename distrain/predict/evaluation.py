"""Computes the metrics of a saved model on labelled files."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from distrain.errors import DataError, ModelError, Unavailable
from distrain.jobs.spec.paths import absolute
from distrain.loader.dataset import Dataset
from distrain.metrics.exact import Bounded, DistinctScores
from distrain.metrics.grouped import GroupedReport, grouped_metrics
from distrain.metrics.report import BinaryReport
from distrain.metrics.targets import TargetMetrics
from distrain.models.saved_model import SavedModel
from distrain.predict.logits import RowsOfPiece, Scored, Scorer, on_host
from distrain.predict.side_columns import check_side_columns, common_type, side_columns
from distrain.storage.inputs import PARQUET_SUFFIXES, InputFile, list_inputs
from distrain.train.loop.evaluation import aucs_above_bound, count_in, finite_metrics, main_rows
from distrain.train.step.device_metrics import DeviceTargets

MAX_AUC_BOUND = 1e-3
SHOWN_GROUPS = 20
_VALUES_AT_ONCE = 65536

Array = np.ndarray[Any, Any]

OnProgress = Callable[[str, int, int], None]
"""Called with the phase (`scoring`, `ordering`, `grouping`), rows done and rows in all."""


def has_seen(saved: SavedModel, dataset: Dataset) -> bool:
    """Return True if the model was refitted (`train.refit`) on a file of the dataset.

    Returns False if the files of the refit cannot be found or listed any more.
    """
    patterns = saved.about.get("refitted_on", ())
    found: list[InputFile] = []
    with suppress(DataError, Unavailable):  # the files may be gone
        found = list_inputs(patterns, suffixes=PARQUET_SUFFIXES) if patterns else []
    seen = {absolute(file.path) for file in found}
    return any(absolute(file) in seen for file in dataset.table.compact.files)


@dataclass(frozen=True)
class Groups:
    """The metrics of the groups of rows that have equal values in a column."""

    column: str
    report: GroupedReport  # the groups' figures, in the order of `names`
    names: Sequence[Any]  # the column's values, null among them if there are nulls

    def to_json(self) -> dict[str, Any]:
        report = self.report
        shown = np.argsort(-report.rows, kind="stable")[:SHOWN_GROUPS].tolist()
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
                    "auc": _defined(report.auc[index]),
                    "log_loss": _defined(report.log_loss[index]),
                    "calibration": _defined(report.calibration[index]),
                }
                for index in shown
            ],
        }


def evaluate_saved(
    scorer: Scorer, max_auc_bound: float = MAX_AUC_BOUND, on_progress: OnProgress | None = None
) -> BinaryReport:
    """Return the metrics of a saved model on labelled rows.

    The report's own metrics are those of the first binary target, and `None` if there is none.
    `targets` has the metrics of all other targets. AUC and average precision are computed from bins
    of scores. If the bound of an error exceeds `max_auc_bound`, the rows are scored a second time,
    and exact values are computed from the ordered scores: AUC and average precision of the first
    binary target, and the AUC of other targets.

    Raises:
        ModelError: A logit is not finite.
        DataError: The rows cannot be used.
        ClusterError: Workers died.
    """
    binned = _binned(scorer, _rows_counter(scorer.dataset, "scoring", on_progress))
    main, name = binned.main, binned.main_name or ""
    report = BinaryReport(binned.rows, 0) if main is None else main.compute()
    report = replace(report, targets=binned.figures())
    wide = aucs_above_bound(binned, max_auc_bound)
    if main is not None and (report.average_precision_bound or 0.0) > max_auc_bound:
        wide[name] = main.counted is not None
    if not wide:
        return report
    ranked = {target: DistinctScores(weighted=has) for target, has in wide.items()}
    on_rows = _rows_counter(scorer.dataset, "ordering", on_progress)
    for _, of_piece in scorer.states(partial(_order, wide), on_rows):
        for target, state in of_piece.items():
            ranked[target].add_all(state)
    aucs = {target: one.auc() for target, one in ranked.items()}
    targets = {target: dict(metrics) for target, metrics in report.targets.items()}
    for target in aucs.keys() & targets.keys():
        targets[target] |= _exact("auc", aucs[target])
    exact: dict[str, Any] = {"targets": targets}
    if name in ranked:
        exact |= _exact("auc", aucs[name])
        exact |= _exact("average_precision", ranked[name].average_precision())
    return replace(report, **exact)


def _exact(name: str, bounded: Bounded | None) -> dict[str, float | None]:
    assert bounded is not None  # the bins had both classes
    return {name: bounded.value, f"{name}_bound": bounded.bound}


def _binned(scorer: Scorer, on_rows: Callable[[int], None]) -> TargetMetrics:
    total: TargetMetrics | None = None
    sums: dict[int, list[Array]] = {}
    for place, of_piece in scorer.states(_bin, on_rows):
        total = of_piece if total is None else total.merge(of_piece)
        sums[place] = [state.parts().sums for state in of_piece.states.values()]
    assert total is not None  # a data set has rows
    # In the order of the rows, so that sums do not depend on which piece was scored first.
    in_order = [sums[place] for place in sorted(sums)]
    added = (sum(of_target) for of_target in zip(*in_order, strict=True))
    return TargetMetrics(
        {
            name: state.of_parts(state.parts()._replace(sums=of_target))
            for (name, state), of_target in zip(total.states.items(), added, strict=True)
        }
    )


def _bin(_: RowsOfPiece, scored: Scored) -> TargetMetrics:
    metrics = None
    for rows in scored:
        targets = [one.target for one in rows]
        metrics = metrics or DeviceTargets(targets, rows[0].scores.device)
        metrics.add(rows)
    assert metrics is not None  # a piece has rows
    return finite_metrics(metrics)


def _order(weighted: dict[str, bool], _: RowsOfPiece, scored: Scored) -> dict[str, DistinctScores]:
    counted = {name: DistinctScores(weighted=has) for name, has in weighted.items()}
    for rows in on_host(scored):
        count_in(counted, rows)
    return counted


def type_of_group(dataset: Dataset, column: str) -> pa.DataType:
    """Return a column's type, into which its values fit in all files; reads only footers.

    Raises a `DataError` if rows cannot be grouped by the column (see `evaluate_groups`).
    """
    files = dataset.table.compact.files
    for file in files:
        check_side_columns(file, [column], "--group")
    return common_type(files, column)


def evaluate_groups(scorer: Scorer, column: str, on_progress: OnProgress | None = None) -> Groups:
    """Return the metrics of a saved model within groups: rows with equal values in a column.

    The metrics are those of the first binary target. Rows with a null form a group, too. The score,
    the label, the group number and the weight (if any) of all rows are held in memory: up to 17
    bytes a row, and several times that while sorting.

    Raises:
        DataError: A file lacks the column; or the column holds lists, structs, or values that
            cannot be compared with those of another file. Errors of `evaluate_saved`, too.
        ModelError: The model has no binary target, or a logit is not finite.
    """
    schema = pa.schema([(column, type_of_group(scorer.dataset, column))])
    on_rows = _rows_counter(scorer.dataset, "grouping", on_progress)
    states = dict(scorer.states(partial(_with_values, schema), on_rows))
    values, rows = zip(*(states.pop(place) for place in sorted(states)), strict=True)
    encoded = pa.chunked_array(values).unify_dictionaries().combine_chunks()
    groups = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()
    group_values = [*encoded.dictionary.to_pylist(), None]
    report = grouped_metrics(groups, *_joined(rows))
    names = [group_values[number] for number in report.numbers.tolist()]
    return Groups(column, report, names)


def _with_values(
    schema: pa.Schema, rows: RowsOfPiece, scored: Scored
) -> tuple[pa.DictionaryArray, list[Array]]:
    """Return the column's values in a piece, and the logits, labels and weights of its rows.

    A piece is some row groups of one file, the work of one task.

    The second item is a list of arrays, `[rows]` each; weights are missing if rows have none.
    Raises `ModelError` if the model has no binary target.
    """
    piece = rows.piece
    read = side_columns(
        piece.file, schema.names, _VALUES_AT_ONCE, schema, row_groups=piece.row_groups
    )
    values = [batch.column(0).dictionary_encode() for batch in read]
    batches = []
    for rows_of_batch in on_host(scored):
        main = main_rows(rows_of_batch)
        if main is None:
            raise ModelError(
                "the model has no binary target, so there is no AUC within groups",
                hint="Leave --group out.",
            )
        weights = () if main.weights is None else (main.weights.numpy(),)
        batches.append((main.scores.numpy(), main.labels.numpy() != 0, *weights))
    encoded = pa.chunked_array(values).unify_dictionaries().combine_chunks()
    return encoded, _joined(batches)


def _joined(parts: Sequence[Sequence[Array]]) -> list[Array]:
    return [np.concatenate(of_parts) for of_parts in zip(*parts, strict=True)]


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


def _defined(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
