"""The base classes of operators.

An operator works on one column at a time and is independent of files and of Dask. For a column of
lists it gets the items, one after another; only ListSlice gets the lists. The first operator of a
column that has `takes` defines what the column holds: numbers by default. Operators that fit
statistics add three pure functions: `fit` makes a state from some rows, `merge` joins states
(associative, so rows may be cut anywhere), and `finish` turns the state of all rows into the fitted
state, which `transform` uses. A saved workflow creates an operator from its settings as keyword
arguments, or by `from_json(settings)`.

Other modules read these class attributes: `kind`, for saved workflows, and `key`, if features
documents support the operator.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa

from distrain.errors import DataError
from distrain.prep.steps import STEPS, Values

Takes = Literal["numbers", "categories", "presence"]
"""What operators take: numbers, categories, or only whether a value is present."""


@dataclass(frozen=True)
class Operator:
    """Base of all operators: a step that changes a column's values."""

    kind: ClassVar[str]

    def transform(self, column: str, values: pa.Array) -> pa.Array:
        """Return the values after this step, in the same order.

        Raises:
            DataError: The operator cannot use a value.
        """
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Return the settings, and the fitted state unless it has its own files, as JSON values."""
        return asdict(self)

    def served(self, column: str) -> dict[str, Any]:
        """Return the settings with which the function `prep.steps.STEPS[kind]` repeats `transform`.

        Exported models use that function. The settings are JSON values, passed as its argument
        `step`.
        """
        return asdict(self)


class FittedByColumn(Operator):
    """Base of operators that fit one state per column from the training rows.

    The fitted states are in the field that `FITTED_FIELD` names, by column.
    """

    FITTED_FIELD: ClassVar[str]

    def fit(self, values: pa.Array) -> Any:
        """Return what the operator learns from some of a column's training values.

        The result is a state, as `merge` and `finish` take it.
        """
        raise NotImplementedError

    def merge(self, *states: Any) -> Any:
        """Return the state of the values of all `states`, in this order."""
        raise NotImplementedError

    def finish(self, state: Any) -> Any:
        """Return the fitted state of a column, from the merged state of all its training values."""
        raise NotImplementedError

    def with_fitted(self, fitted: Mapping[str, Any]) -> Self:
        """Return the operator with fitted states: the results of `finish`, by column."""
        known: Mapping[str, Any] = getattr(self, self.FITTED_FIELD)
        return replace(self, **{self.FITTED_FIELD: {**known, **fitted}})

    def is_fitted(self, column: str) -> bool:
        """Return True if the operator is fitted for the column."""
        return column in getattr(self, self.FITTED_FIELD)


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Folds or times, and labels, of training rows; for operators that learn from labels."""

    places: np.ndarray[Any, Any]  # `[rows]`: the rows' folds, or their times
    labels: np.ndarray[Any, np.dtype[np.float64]] | None = None  # `[rows]`, for a fit

    def of_items(self, lengths: np.ndarray[Any, np.dtype[np.int64]]) -> "TrainingRows":
        """Return the fold or time, and the label, of each item of the rows' lists.

        They are those of the item's row. `lengths`, `[rows]`, are the lengths of the lists.
        """
        labels = None if self.labels is None else np.repeat(self.labels, lengths)
        return TrainingRows(np.repeat(self.places, lengths), labels)


@dataclass(frozen=True)
class DocumentKey:
    """A key of a features document's continuous column, which adds an operator to the column."""

    name: str
    values: Any  # the type of the key's values, which pydantic checks
    description: str  # the description in the published JSON Schema
    make: Callable[[Any], Operator]  # returns the operator for a value of the key
    default: bool | None = None  # the value without an operator: `None` or `False`
    # returns why a column's keys, by name, cannot be used together; `None` if they can
    mistake_in: Callable[[Mapping[str, Any]], str | None] = lambda keys: None


class OnNumbers(Operator):
    """Base of operators that apply the step of their `kind` (`prep.steps`) to an Arrow array.

    Where possible, the step gets a view of the array's buffers.
    """

    def transform(self, column: str, values: pa.Array) -> pa.Array:
        """Return the values after the step; nulls stay nulls unless the step fills them."""
        return as_arrow(STEPS[self.kind](as_values(values), self.served(column), {}), values)


def as_values(values: pa.Array) -> Values:
    """Return an Arrow array of numbers or booleans as `Values`, the input of a step (`prep.steps`).

    Copies the data only where it must. float32 and float64 keep their type, with NaN for null.
    Integers become int64, or uint64 if a value does not fit, with a mask for nulls. Other types
    become float64: booleans are 0 and 1.
    """
    types = pa.types
    is_float = types.is_float32(values.type) or types.is_float64(values.type)
    if not (is_float or types.is_integer(values.type)):
        values = as_doubles(values)
    if not pa.types.is_integer(values.type):
        return Values(values.to_numpy(zero_copy_only=False))
    if pa.types.is_uint64(values.type):
        with suppress(pa.ArrowInvalid):
            values = values.cast(pa.int64())
    elif values.type != pa.int64():
        values = values.cast(pa.int64())
    if not values.null_count:
        return Values(values.to_numpy())
    missing = values.is_null().to_numpy(zero_copy_only=False)
    return Values(values.fill_null(0).to_numpy(), missing)


def as_arrow(made: Values, given: pa.Array) -> pa.Array:
    """Return `made`, the output of a step on `given`, as an Arrow array.

    Masked values become null. Without a mask, a NaN becomes null in rows where `given` is null.
    """
    missing = made.missing
    if missing is None and given.null_count and made.x.dtype.kind == "f":
        missing = np.isnan(made.x) & given.is_null().to_numpy(zero_copy_only=False)
    return pa.array(made.x, mask=missing)


def takes_of(operators: Sequence[Operator]) -> Takes:
    """Return the kind of values that a raw column must hold for these operators."""
    takes: Takes = next((one.takes for one in operators if hasattr(one, "takes")), "numbers")
    return takes


def as_doubles(values: pa.Array) -> pa.Array:
    """Return numbers as float64; integers beyond 2^53 are rounded.

    This does not affect training, which uses float32: it is exact only up to 2^24.

    >>> as_doubles(pa.array([2**53 + 1, None])).to_pylist()
    [9007199254740992.0, None]
    """
    return values.cast(pa.float64(), safe=False)


def concrete(values: pa.Array) -> pa.Array:
    """Return values, in chunks or not, as one array; values of a dictionary are decoded."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values


@contextmanager
def in_column(name: str) -> Iterator[None]:
    """Context manager that adds the name of a column or domain to a `DataError` raised inside."""
    try:
        yield
    except DataError as error:
        where = {"column": name, **error.where}
        raise DataError(error.message, where=where, hint=error.hint) from None
