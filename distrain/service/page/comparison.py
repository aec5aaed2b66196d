"""Compares jobs: which settings differ, and which job has the best value of each metric."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distrain.formatting import UNKNOWN, count, duration, main_metrics, number
from distrain.jobs.api_answers import Job as JobAnswer
from distrain.jobs.figures import shown_on
from distrain.jobs.spec.load import differences
from distrain.runs.report.comparison import best_places

_SMALLER_IS_BETTER = ("loss", "RMSE")


@dataclass(frozen=True)
class Row:
    """A line of a comparison.

    Attributes:
        values: One text per job; `-` where a job has no value.
        best: Positions of the jobs with the best value; empty if no value is better than others.
    """

    field: str
    values: tuple[str, ...]
    best: frozenset[int] = frozenset()


def setting_rows(specs: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return a row for each setting in which specs differ, except `name`, in the spec's order.

    >>> setting_rows([{"train": {"epochs": 1, "seed": 0}}, {"train": {"epochs": 2, "seed": 0}}])
    [Row(field='train.epochs', values=('1', '2'), best=frozenset())]
    """
    return [
        _setting(field, values) for field, values in differences(specs).items() if field != "name"
    ]


_COLUMNS = frozenset({"data.train", "model.kind", "resources.num_ranks"})
_OF_TRAINING = ("train.", "model.", "embeddings.", "data.")
_MOST_COLUMNS = 4


def hyperparameters(specs: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return rows for at most 4 settings of the training in which the jobs of a list differ.

    Settings that all jobs have come first. Settings with lists as values are left out, and those
    for which the page always has a column.

    >>> hyperparameters([{"train": {"lr": 0.1}, "model": {"kind": "fm"}}, {"train": {"lr": 0.2}}])
    [Row(field='train.lr', values=('0.1', '0.2'), best=frozenset())]
    """
    found = {
        field: values
        for field, values in differences(specs).items()
        if field.startswith(_OF_TRAINING)
        and field not in _COLUMNS
        and not any(isinstance(value, list) for value in values)
    }
    order = sorted(
        found, key=lambda f: (found[f].count(None), not f.startswith("train."), f.count("."), f)
    )
    return [_setting(field, found[field]) for field in order[:_MOST_COLUMNS]]


def _setting(field: str, values: Sequence[Any]) -> Row:
    return Row(field, tuple(UNKNOWN if value is None else _text(value) for value in values))


def _text(value: Any) -> str:
    if isinstance(value, list) and len(value) == 1:
        return _text(value[0])
    return value if isinstance(value, str) else json.dumps(value)


def metric_rows(jobs: Sequence[JobAnswer], lasted_s: Sequence[float | None]) -> list[Row]:
    """Return a row for each metric that any of the jobs has, and for their ranks and durations.

    `lasted_s` are the jobs' durations in seconds, `None` for a job that has not started.
    """
    rows = [
        _row("Validation AUC", [job.valid_auc for job in jobs], number, max),
        _row("Validation loss", [job.valid_loss for job in jobs], number, min),
        *_target_rows(jobs),
        *(
            _row(one.title, [job.figures.get(one.name) for job in jobs], one.text, one.best)
            for one in shown_on("comparison")
        ),
        _row("Ranks", [job.num_ranks for job in jobs], count),
        _row("Duration", list(lasted_s), lambda seconds: duration(seconds, 0)),
    ]
    return [row for row in rows if set(row.values) != {UNKNOWN}]


def _target_rows(jobs: Sequence[JobAnswer]) -> list[Row]:
    metrics = [
        {(target, name): float(value) for target, name, value in main_metrics(job.valid_targets, 5)}
        for job in jobs
    ]
    names = dict.fromkeys(name for one in metrics for name in one)
    return [
        _row(
            f"Validation {metric} of {target}",
            [one.get((target, metric)) for one in metrics],
            number,
            min if metric in _SMALLER_IS_BETTER else max,
        )
        for target, metric in names
    ]


def _row(
    field: str,
    values: Sequence[float | None],
    text: Callable[[float | None], str],
    best_of: Callable[[Iterable[float]], float] | None = None,
) -> Row:
    best = best_places(values, best_of) if best_of else frozenset()
    return Row(field, tuple(text(value) for value in values), best)
