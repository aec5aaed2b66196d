"""Operators on numbers: Clip, FillMissing, LogOp, Normalize; and MissingFlag, for any values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from distrain.errors import DataError, InputError
from distrain.jobs.spec.fields import Real, Section
from distrain.prep.operators.operator import (
    DocumentKey,
    FittedByColumn,
    OnNumbers,
    Operator,
    Takes,
    as_doubles,
)
from distrain.prep.raw_values import UnusableValue
from distrain.prep.steps import STEPS, Values, check_log
from distrain.prep.vocabulary import is_text


class ClipSpec(Section):
    """The bounds to which values are clipped."""

    min: Real | None = Field(None, description="The lower bound; smaller values become this.")
    max: Real | None = Field(None, description="The upper bound; larger values become this.")

    @model_validator(mode="after")
    def _in_order(self) -> ClipSpec:
        if self.min is None and self.max is None:
            raise ValueError("min or max is needed")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}")
        return self


@dataclass(frozen=True)
class Clip(OnNumbers):
    """Replaces values below `min` by `min`, and values above `max` by `max`; nulls and NaN stay.

    >>> Clip(min=0, max=5).transform("I1", pa.array([-3, 2, None, 9])).to_pylist()
    [0, 2, None, 5]
    >>> Clip(min=0).transform("I1", pa.array([-3.0, float("nan")])).to_pylist()
    [0.0, nan]
    """

    kind: ClassVar[str] = "Clip"
    key: ClassVar = DocumentKey(
        "clip", ClipSpec, "Bounds of the values.", lambda bounds: Clip(bounds.min, bounds.max)
    )
    min: float | None = None
    max: float | None = None

    def __post_init__(self) -> None:
        if self.min is None and self.max is None:
            raise InputError("Clip needs min or max")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise InputError(f"Clip's min {self.min} is above its max {self.max}")

    def served(self, _column: str) -> dict[str, Any]:
        return {"min": _whole(self.min), "max": _whole(self.max)}


@dataclass(frozen=True)
class FillMissing(OnNumbers):
    """Replaces missing values by `value`; NaN counts as missing.

    >>> FillMissing(7).transform("I1", pa.array([1, None, 3])).to_pylist()
    [1, 7, 3]
    """

    kind: ClassVar[str] = "FillMissing"
    key: ClassVar = DocumentKey(
        "fill",
        Real,
        "Replacement of missing values. Null: a missing value of a training row is an error; in "
        "rows that are prepared later, `normalize` makes it the mean of the training rows.",
        lambda value: FillMissing(value),
    )
    value: float = 0

    def served(self, _column: str) -> dict[str, Any]:
        return {"value": _whole(self.value)}

    def transform(self, column: str, values: pa.Array) -> pa.Array:
        """Return the values without nulls; integers stay integers if `value` is an integer."""
        if is_text(values.type) or pa.types.is_temporal(values.type):
            return pc.fill_null(values, pa.scalar(self.value).cast(values.type))
        return super().transform(column, values)


def _whole(value: float | None) -> float | int | None:
    """Return an integer of at most 64 bits as `int`, so that integer columns stay integers.

    Other numbers, and `None`, are returned unchanged.
    """
    is_int64 = value is not None and abs(value) < 2.0**63 and value == int(value)
    return int(value) if is_int64 else value  # type: ignore[arg-type]


def alone_mistake(name: str, *others: str) -> Callable[[Mapping[str, Any]], str | None]:
    """Return a function that checks a column's settings, given as a mapping.

    That function returns an error text if `name` is set together with one of `others`; else `None`.
    """

    def mistake_in(keys: Mapping[str, Any]) -> str | None:
        beside = [one for one in others if not (keys[one] is None or keys[one] is False)]
        return f"{name} excludes {', '.join(beside)}" if keys[name] and beside else None

    return mistake_in


@dataclass(frozen=True)
class MissingFlag(OnNumbers):
    """Replaces each value, of any type, by 1.0 if it is missing or NaN, else by 0.0.

    >>> MissingFlag().transform("C1", pa.array(["a", None])).to_pylist()
    [0.0, 1.0]
    """

    kind: ClassVar[str] = "MissingFlag"
    takes: ClassVar[Takes] = "presence"
    key: ClassVar = DocumentKey(
        "missing_flag",
        bool,
        "Whether the number is 1 where the value is missing, of any type, and else 0.",
        lambda _: MissingFlag(),
        default=False,
        mistake_in=alone_mistake("missing_flag", "fill", "clip", "log"),
    )

    def transform(self, column: str, values: pa.Array) -> pa.Array:
        gaps = values.is_null(nan_is_null=pa.types.is_floating(values.type))
        missing = Values(None, gaps.to_numpy(zero_copy_only=False))
        return pa.array(STEPS[self.kind](missing, {}, {}).x)


def _log_mistake(keys: Mapping[str, Any]) -> str | None:
    fill, clip = keys["fill"], keys["clip"]
    if not keys["log"]:
        return None
    is_clipped = clip is not None and clip.min is not None and clip.min > -1
    if fill is not None and fill <= -1 and not is_clipped:
        return f"log(1 + x) is undefined for fill {fill:g}; set clip.min above -1"
    if clip is not None and clip.max is not None and clip.max <= -1:
        return f"log(1 + x) is undefined for values up to clip.max {clip.max:g}"
    return None


@dataclass(frozen=True)
class LogOp(Operator):
    """log(1 + x) as float64; nulls stay nulls.

    >>> LogOp().transform("I1", pa.array([0, None])).to_pylist()
    [0.0, None]
    """

    kind: ClassVar[str] = "LogOp"
    key: ClassVar = DocumentKey(
        "log",
        bool,
        "Whether to take log(1 + x), which needs x above -1.",
        lambda _: LogOp(),
        default=False,
        mistake_in=_log_mistake,
    )

    def transform(self, column: str, values: pa.Array) -> pa.Array:
        """Return the logarithms; raises a `DataError` if a value is -1 or less.

        Arrow's logarithms have the same bits on all CPUs; NumPy's differ in the last bit with
        AVX-512.
        """
        values = as_doubles(values)
        try:
            check_log(values.to_numpy(zero_copy_only=False))
        except UnusableValue as bad:
            raise DataError(
                f"log(1 + x) is undefined for {values[bad.place].as_py():g}",
                where={"column": column},
                hint="Put Clip(min=0) before LogOp.",
            ) from None
        return pc.log1p(values)


_ROUNDING = 8 * float(np.finfo(np.float64).eps)
"""The relative rounding error of a mean: a column that deviates less counts as constant."""


@dataclass(frozen=True)
class Moments:
    """The count, mean, sum of squared deviations from the mean (`m2`), and range of some values.

    The range is unknown (`None`) without values, and in workflows of earlier versions.

    Means and squares are merged as in Chan, Golub, LeVeque, "Updating formulae and a pairwise
    algorithm for computing sample variances" (1979), without a difference of large sums, so without
    cancellation.
    """

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0
    least: float | None = None
    greatest: float | None = None

    @classmethod
    def of(cls, values: np.ndarray[Any, np.dtype[np.float64]]) -> Moments:
        """Return the moments of `values`, `[rows]`, float64.

        If a value is not finite, the mean is not finite either.
        """
        if len(values) == 0:
            return cls()
        if not np.isfinite(values).all():
            return cls(len(values), math.nan if np.isnan(values).any() else math.inf, math.nan)
        if (values == values[0]).all():
            only = float(values[0])  # a summed mean may differ in the last bit
            return cls(len(values), only, 0.0, only, only)
        with np.errstate(over="ignore"):  # `finish` reports an overflow
            mean = float(values.mean())
            squares = float(np.square(values - mean).sum())
            return cls(len(values), mean, squares, float(values.min()), float(values.max()))

    def merged(self, other: Moments) -> Moments:
        """Return the moments of the values of `self` and `other` together."""
        count = self.count + other.count
        if count == 0:
            return self
        if not (math.isfinite(self.mean) and math.isfinite(other.mean)):
            return Moments(count, self.mean + other.mean, math.nan)  # infinite, or NaN
        delta = other.mean - self.mean
        return Moments(
            count,
            self.mean + delta * other.count / count,
            self.m2 + other.m2 + delta * delta * self.count * other.count / count,
            *_range_of([one for one in (self, other) if one.count]),
        )

    @property
    def std(self) -> float:
        """The population standard deviation.

        1 for a column that is constant except for rounding.
        """
        rounding = _ROUNDING * abs(self.mean)
        if self.count == 0 or self.m2 <= self.count * rounding * rounding:
            return 1.0
        return math.sqrt(self.m2 / self.count)


def _range_of(parts: Sequence[Moments]) -> tuple[float | None, float | None]:
    least = [part.least for part in parts if part.least is not None]
    greatest = [part.greatest for part in parts if part.greatest is not None]
    is_known = len(least) == len(greatest) == len(parts)
    return (min(least), max(greatest)) if is_known else (None, None)


@dataclass(frozen=True)
class Normalize(OnNumbers, FittedByColumn):
    """(x - mean) / std, with mean and population std of the training rows' non-null values.

    A missing value becomes 0, the mean of the training rows. The std of a constant column counts as
    1. A later value further below or above the training rows' range than the range is wide counts
    as one at that distance: a model has learnt nothing of it, and might give an absurd score.
    Fitting raises a `DataError` (in `finish`) if a training value is NaN or infinite.
    """

    kind: ClassVar[str] = "Normalize"
    FITTED_FIELD: ClassVar[str] = "moments"
    key: ClassVar = DocumentKey(
        "normalize",
        bool,
        "Whether to subtract the training rows' mean and divide by their standard deviation.",
        lambda _: Normalize(),
        default=False,
    )
    moments: Mapping[str, Moments] = field(default_factory=dict)  # the fitted moments, by column

    def fit(self, values: pa.Array) -> Moments:
        return Moments.of(as_doubles(values.drop_null()).to_numpy(zero_copy_only=False))

    def merge(self, *states: Moments) -> Moments:
        total = Moments()
        for state in states:
            total = total.merged(state)
        return total

    def finish(self, state: Moments) -> Moments:
        """Return the moments.

        Raises a `DataError` if a value was NaN or infinite, or if the sum of squares overflows.
        """
        if not math.isfinite(state.m2):
            raise DataError(
                f"no mean and standard deviation: {state.mean:g} and {state.m2:g}",
                hint="A value is NaN: put FillMissing before Normalize."
                if math.isnan(state.mean)
                else "A value is infinite: put Clip before Normalize.",
            )
        return state

    def served(self, column: str) -> dict[str, Any]:
        of = self.moments[column]
        limits: dict[str, float | None] = {"min": None, "max": None}
        if of.least is not None and of.greatest is not None:
            width = of.greatest - of.least
            limits = {"min": of.least - width, "max": of.greatest + width}
        return {"mean": of.mean, "std": of.std, **limits}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Normalize:
        return cls({column: Moments(**m) for column, m in document["moments"].items()})
