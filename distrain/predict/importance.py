"""Permutation importance: how much worse a saved model scores with a column shuffled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from distrain.jobs.spec.training import JUDGING_METRICS, MORE_IS_BETTER
from distrain.loader.batch import Batch, Ragged, ranges
from distrain.metrics.report import BinaryReport
from distrain.models.click_model import ClickModel
from distrain.models.heads.targets import Target
from distrain.models.heads.tasks import Task
from distrain.models.saved_model import SavedModel
from distrain.predict.evaluation import MAX_AUC_BOUND, OnProgress, evaluate_saved
from distrain.predict.logits import ScorerInProcess


@dataclass(frozen=True)
class Importance:
    """The deterioration of a metric when a column is shuffled, the most important column first.

    Attributes:
        metric: The name of a metric of the first target, such as `auc`.
        loss: The deterioration by column of the raw rows, above 0 if the metric is worse, NaN if
            the metric is undefined. All features of a column are shuffled together; a feature of
            several columns (a cross) is shuffled with each of them. Several list columns of one
            event sequence (such as items and their times) are shuffled together. They have one
            entry, under the event's name, without other features of their columns.
    """

    metric: str
    loss: Mapping[str, float]


def column_importance(
    scorer: ScorerInProcess,
    report: BinaryReport,
    sources: Mapping[str, Sequence[str]],
    seed: int = 0,
    max_auc_bound: float = MAX_AUC_BOUND,
    on_progress: OnProgress | None = None,
) -> Importance:
    """Return the permutation importance of each raw column, or of all lists of one event together.

    See Breiman 2001, "Random Forests", section 10.

    The values of a column's features are shuffled within each batch of rows; all other columns are
    unchanged. The metric is that of the first target: `auc`, `rmse` or `accuracy`, by its kind. For
    each entry all rows are scored once, or twice if the AUC's bound exceeds `max_auc_bound`.

    Args:
        report: The metrics of the same rows, unshuffled.
        sources: The raw columns of each feature, as from `sources_of`; a feature without an entry
            is a column of its own.
        seed: The seed of the shuffles.
        max_auc_bound: As in `evaluate_saved`.
        on_progress: As in `evaluate_saved`.
    """
    saved = scorer.saved
    target = saved.model.task.targets[0]
    metric = JUDGING_METRICS[target.kind][0]
    own, sign = _value(report, target, metric), 1 if metric in MORE_IS_BETTER else -1
    loss = {}
    for name, columns in _units(saved, sources).items():
        shuffled = replace(saved, model=_Shuffled(saved.model, columns, seed))
        report_shuffled = evaluate_saved(
            replace(scorer, saved=shuffled), max_auc_bound, on_progress
        )
        loss[name] = sign * (own - _value(report_shuffled, target, metric))
    return Importance(metric, dict(sorted(loss.items(), key=lambda one: -one[1])))


def _value(report: BinaryReport, target: Target, metric: str) -> float:
    of_others = report.targets.get(target.name, {})
    value = of_others[metric] if metric in of_others else getattr(report, metric)
    return float("nan") if value is None else float(value)


def _units(saved: SavedModel, sources: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the features to shuffle together, by raw column, or by the event of several lists.

    Lists that describe the same events (such as items and their times) have equal lengths in each
    row, so they are shuffled together.
    """
    inputs, events, units = saved.model.inputs, dict[str, list[str]](), dict[str, list[str]]()
    for name in (*inputs.list_names, *inputs.number_names):
        events.setdefault(saved.schema[name].event, []).append(name)
    flat = {name: [name] for name in (*inputs.categorical_names, *inputs.continuous_names)}
    for name, features in (*flat.items(), *events.items()):
        of_one = sources.get(features[0], (name,)) if len(features) == 1 else (name,)
        for column in of_one:
            units.setdefault(column, []).extend(features)
    return units


class _Shuffled(ClickModel):
    """A model that shuffles the values of `columns` within each batch before it scores them."""

    def __init__(self, model: ClickModel, columns: Sequence[str], seed: int):
        nn.Module.__init__(self)
        self.model, self.columns = model, columns
        self.inputs = model.inputs
        self.seed = seed

    @property
    def task(self) -> Task:
        return self.model.task

    def scores(self, batch: Batch) -> tuple[Tensor, ...]:
        # The order is the same each time, since a batch may be scored twice.
        draws = torch.Generator().manual_seed(self.seed)
        order = torch.randperm(batch.num_rows, generator=draws)
        return self.model.scores(_reordered(batch, self.columns, order.to(batch.continuous.device)))


def _reordered(batch: Batch, columns: Sequence[str], order: Tensor) -> Batch:
    lists = {name: _taken(batch.lists[name], order) for name in columns if name in batch.lists}
    return replace(
        batch,
        categorical=_moved(batch.categorical, batch.categorical_names, columns, order),
        continuous=_moved(batch.continuous, batch.continuous_names, columns, order),
        lists={**batch.lists, **lists},
    )


def _moved(values: Tensor, names: Sequence[str], columns: Sequence[str], order: Tensor) -> Tensor:
    places = [place for place, name in enumerate(names) if name in columns]
    if not places:
        return values
    moved = values.clone()
    for place in places:
        moved[:, place] = values[order, place]
    return moved


def _taken(lists: Ragged, order: Tensor) -> Ragged:
    """Return the lists reordered: row `i` of the result is row `order[i]`."""
    lengths = lists.lengths.long()[order]
    ends = lengths.cumsum(0)
    values = lists.values[ranges(lists.offsets[:-1].long()[order], lengths, len(lists.values))]
    return Ragged(values, torch.cat([ends.new_zeros(1), ends]).to(lists.offsets.dtype))
