"""Operators on numbers: Clip, FillMissing, LogOp, Normalize."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distrain.errors import DataError, InputError
from distrain.etl.operators.operator import SettingsOnly, as_doubles


@dataclass(frozen=True)
class Clip(SettingsOnly):
    """Raise values below `min` to it and lower values above `max` to it; gaps and NaN stay.

    >>> Clip(min=0, max=5).transform("I1", pa.array([-3, 2, None, 9])).to_pylist()
    [0, 2, None, 5]
    >>> Clip(min=0).transform("I1", pa.array([-3.0, float("nan")])).to_pylist()
    [0.0, nan]
    """

    kind: ClassVar[str] = "Clip"
    min: float | None = None
    max: float | None = None

    def __post_init__(self) -> None:
        if self.min is None and self.max is None:
            raise InputError("Clip needs min or max")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise InputError(f"Clip's min {self.min} is above its max {self.max}")

    def transform(self, column: str, values: pa.Array) -> pa.Array:
        """The bounded values; integers stay integers where the bounds are whole."""
        bounded = values
        if self.min is not None:
            bounded = pc.max_element_wise(bounded, _bound(self.min), skip_nulls=False)
        if self.max is not None:
            bounded = pc.min_element_wise(bounded, _bound(self.max), skip_nulls=False)
        if not pa.types.is_floating(values.type):
            return bounded
        # Arrow takes the bound for the larger, and for the smaller, of itself and NaN.
        return pc.if_else(pc.is_nan(values), values.cast(bounded.type), bounded)


def _bound(value: float) -> pa.Scalar:
    is_int64 = abs(value) < 2.0**63 and value == int(value)
    return pa.scalar(int(value)) if is_int64 else pa.scalar(float(value))


@dataclass(frozen=True)
class FillMissing(SettingsOnly):
    """Put `value` where there is none; NaN counts as missing.

    >>> FillMissing(7).transform("I1", pa.array([1, None, 3])).to_pylist()
    [1, 7, 3]
    """

    kind: ClassVar[str] = "FillMissing"
    value: float = 0

    def transform(self, column: str, values: pa.Array) -> pa.Array:
        """The values without gaps, same type (float64 if `value` needs it)."""
        if pa.types.is_floating(values.type):
            values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
        elif pa.types.is_null(values.type) or not abs(self.value) < 2.0**63 or self.value % 1:
            values = as_doubles(values)
        return pc.fill_null(values, pa.scalar(self.value).cast(values.type))


@dataclass(frozen=True)
class LogOp(SettingsOnly):
    """log(1 + x) as float64; gaps stay gaps.

    >>> LogOp().transform("I1", pa.array([0, None])).to_pylist()
    [0.0, None]
    """

    kind: ClassVar[str] = "LogOp"

    def transform(self, column: str, values: pa.Array) -> pa.Array:
        """The logarithms.

        Raises:
            DataError: A value is -1 or less.
        """
        values = as_doubles(values)
        lowest = pc.min(values).as_py()
        if lowest is not None and lowest <= -1:
            raise DataError(
                f"log(1 + x) of {lowest:g} does not exist",
                where={"column": column},
                hint="Put Clip(min=0) before LogOp.",
            )
        return pc.log1p(values)


_ROUNDING = 8 * float(np.finfo(np.float64).eps)
"""Relative error of a mean: values nearer to each other than this are the same."""


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations from the mean of some values.

    Merged as in Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing
    sample variances" (1979): no difference of large sums, so no cancellation.
    """

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0

    @classmethod
    def of(cls, values: np.ndarray[Any, np.dtype[np.float64]]) -> Moments:
        """The moments of `values`, `[rows]`, float64; the mean says what is not finite."""
        if len(values) == 0:
            return cls()
        if not np.isfinite(values).all():
            return cls(len(values), math.nan if np.isnan(values).any() else math.inf, math.nan)
        if (values == values[0]).all():
            return cls(len(values), float(values[0]))  # the mean of the sum may be a bit beside it
        with np.errstate(over="ignore"):  # `finish` tells
            mean = float(values.mean())
            return cls(len(values), mean, float(np.square(values - mean).sum()))

    def merged(self, other: Moments) -> Moments:
        """The moments of both together."""
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
        )

    @property
    def std(self) -> float:
        """The population's standard deviation; 1 for a constant column, which then maps to 0.

        What rounding alone may have added up to is no deviation.
        """
        rounding = _ROUNDING * abs(self.mean)
        if self.count == 0 or self.m2 <= self.count * rounding * rounding:
            return 1.0
        return math.sqrt(self.m2 / self.count)


@dataclass(frozen=True)
class Normalize:
    """(x - mean) / std with the training rows' mean and population std; gaps are left out of both.

    Attributes:
        moments: What was learnt, by column.
    """

    kind: ClassVar[str] = "Normalize"
    moments: Mapping[str, Moments] = field(default_factory=dict)

    def fit(self, values: pa.Array) -> Moments:
        """The moments of some rows; a NaN or an infinity shows up in `finish`."""
        return Moments.of(as_doubles(values.drop_null()).to_numpy(zero_copy_only=False))

    def merge(self, *states: Moments) -> Moments:
        """The moments of all rows, merged from left to right."""
        total = Moments()
        for state in states:
            total = total.merged(state)
        return total

    def finish(self, state: Moments) -> Moments:
        """The moments.

        Raises:
            DataError: A value was NaN or infinite.
        """
        if not math.isfinite(state.m2):
            raise DataError(
                f"no mean and standard deviation: {state.mean:g} and {state.m2:g}",
                hint="A value is NaN: put FillMissing before Normalize."
                if math.isnan(state.mean)
                else "A value is infinite: put Clip before Normalize.",
            )
        return state

    def with_fitted(self, fitted: Mapping[str, Moments]) -> Normalize:
        """The operator with these moments added."""
        return replace(self, moments={**self.moments, **fitted})

    def is_fitted(self, column: str) -> bool:
        """Whether the column's moments are known."""
        return column in self.moments

    def transform(self, column: str, values: pa.Array) -> pa.Array:
        """The normalised values, float64."""
        moments = self.moments[column]
        return pc.divide(pc.subtract(as_doubles(values), moments.mean), moments.std)

    def to_json(self) -> dict[str, Any]:
        """The moments by column."""
        return {"moments": {column: asdict(m) for column, m in self.moments.items()}}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Normalize:
        """The inverse of `to_json`."""
        return cls({column: Moments(**m) for column, m in document["moments"].items()})
