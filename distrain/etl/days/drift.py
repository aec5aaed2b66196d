"""Columns that are no longer what the workflow was fitted on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from distrain.errors import InputError
from distrain.etl.days.seen import Shares
from distrain.etl.operators import Moments, Normalize
from distrain.etl.workflow import Workflow


@dataclass(frozen=True)
class DriftBounds:
    """How far new data may be from what a workflow was fitted on before a column counts as drifted.

    Attributes:
        mean: Of the mean of a column that Normalize ends, in its fitted standard deviations.
        share: Of the shares of missing and of unknown values: how much they may have grown.
    """

    mean: float = 0.5
    share: float = 0.1

    def __post_init__(self) -> None:
        for name, bound in asdict(self).items():
            if not bound >= 0:
                raise InputError(f"the drift bound of the {name} is {bound}, below 0")


@dataclass(frozen=True)
class Drifted:
    """A figure of a column that is beyond its bound.

    Attributes:
        split: `train` or `valid`.
        what: Which figure: the mean (before Normalize), or a share of the values.
        fitted: What it was in the rows that the workflow was fitted on.
        found: What it is.
        by: How far it is from `fitted`: of a mean in fitted standard deviations, of a share the
            difference.
        bound: The bound of `by`.
    """

    split: str
    column: str
    what: Literal["mean", "missing_share", "unknown_share"]
    fitted: float
    found: float
    by: float
    bound: float


def drifted_columns(
    split: str,
    workflow: Workflow,
    found: Shares,
    shifts: Mapping[str, float],
    bounds: DriftBounds,
) -> list[Drifted]:
    """What is beyond its bound in a split; `shifts` are those of `Seen.mean_shifts`."""
    drifted = []
    for column, moments in _moments(workflow):
        by = shifts.get(column, 0.0)
        if abs(by) > bounds.mean:
            mean = moments.mean + by * moments.std
            figures = (round(moments.mean, 6), round(mean, 6), round(by, 6))
            drifted.append(Drifted(split, column, "mean", *figures, bounds.mean))
    fitted = Shares.of_fit(workflow)
    if fitted is not None:
        drifted += _grown(split, "missing_share", fitted.missing, found.missing, bounds.share)
        drifted += _grown(split, "unknown_share", fitted.unknown, found.unknown, bounds.share)
    return drifted


def _moments(workflow: Workflow) -> Iterator[tuple[str, Moments]]:
    for group in workflow.groups:
        if group.operators and isinstance(group.operators[-1], Normalize):
            for column in group.columns:
                yield column, group.operators[-1].moments[column]


def _grown(
    split: str,
    what: Literal["missing_share", "unknown_share"],
    fitted: Mapping[str, float],
    found: Mapping[str, float],
    bound: float,
) -> Iterator[Drifted]:
    for column, share in found.items():
        by = share - fitted.get(column, share)
        if by > bound:
            yield Drifted(split, column, what, fitted[column], share, round(by, 6), bound)
