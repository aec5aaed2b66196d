"""Tests whether a small table has effects that a linear model would miss."""

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from distrain.loader.partition.footers import read_footers
from distrain.loader.partition.scanning import Columns, scan_columns
from distrain.loader.partition.table import RowGroup
from distrain.schema.column import Tags
from distrain.schema.schema import Schema

Matrix: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

MOST_ROWS = 1_000
"""The largest table that is tested, which takes one second. With more rows, a neural network is
at least as good as a linear model."""

_KERNEL_WIDTHS = 0.2, 1.0
_PENALTIES = np.logspace(-4, 3, 15)
_CHANCE_ERRORS = 2.0
"""The number of standard errors by which the better of two models must be ahead."""


def has_only_linear_effects(train: Path, schema: Schema) -> bool:
    """Return True if a small table has no effects that a linear model would miss.

    The result is False, without a test, for a table with lists, weights, several targets, a
    multiclass target, labels that may be unknown, or no features. Memory grows with the square of
    the number of rows, and time with its cube.

    Args:
        train: A folder of prepared rows.

    Raises:
        DistrainError: The rows cannot be read.
        ValueError: A column of the schema is missing, or has no numbers.
    """
    targets = schema.select_by_tag(Tags.TARGET).columns
    inputs = [*schema.categorical, *schema.continuous]
    is_tested = (
        len(targets) == 1
        and targets[0].target_kind != "multiclass"
        and targets[0].known is None
        and not schema.select_by_tag(Tags.WEIGHT).columns
        and inputs
        and not any(column.holds_lists for column in inputs)
    )
    if not is_tested:
        return False

    def of_group(_: RowGroup, columns: Columns, __: int) -> dict[str, Matrix]:
        if missing := [name for name in names if name not in columns]:
            raise ValueError(f"no column {missing[0]}")
        return {name: columns[name].to_numpy().astype(np.float64) for name in names}

    names = [targets[0].name, *(column.name for column in inputs)]
    table = read_footers(str(train), schema)
    parts = scan_columns(table.row_groups, names, of_group)
    values = {name: np.concatenate([part[name] for part in parts]) for name in names}
    ids = [values[column.name] for column in schema.categorical]
    numbers = [values[column.name] for column in schema.continuous]
    return is_linear(ids, numbers, values[targets[0].name])


def is_linear(ids: list[Matrix], numbers: list[Matrix], target: Matrix) -> bool:
    """Return True if a kernel regression predicts rows no better than a linear regression.

    Both are ridge regressions, which predict each row from all other rows. The kernels are
    Gaussian; the better of two widths counts. The kernel regression is better if its mean squared
    error is smaller by more than two standard errors of the difference. Labels 0 and 1 are also
    predicted by regression, so the result may be False for a target with linear but large logits,
    since its probabilities are not linear.

    Args:
        ids: The categorical columns, each `[num_rows]`, one-hot in both regressions.
        numbers: The continuous columns, each `[num_rows]`; NaN and infinities count as the mean.
        target: `[num_rows]`; the result is False if a value is infinite or NaN.
    """
    if not np.isfinite(target).all():
        return False
    products = np.zeros((len(target), len(target)))
    for one in ids:
        products += one[:, None] == one
    for one in numbers:
        known = np.isfinite(one)
        if known.any() and (std := one[known].std()) > 0:
            scaled = np.where(known, (one - one[known].mean()) / std, 0.0)
            products += np.outer(scaled, scaled)
    products /= max(1, len(ids) + len(numbers))
    lengths = np.diag(products)
    distances = lengths[:, None] + lengths - 2 * products
    linear = _least_errors(products, target)
    kernels = (_least_errors(np.exp(-width * distances), target) for width in _KERNEL_WIDTHS)
    gain = linear - min(kernels, key=np.mean)
    return bool(gain.mean() <= _CHANCE_ERRORS * gain.std() / np.sqrt(len(target)))


def _least_errors(kernel: Matrix, target: Matrix) -> Matrix:
    """Return each row's squared error, `[num_rows]`, of a ridge regression on all other rows.

    Uses the penalty with the least mean error. `kernel` is `[num_rows, num_rows]`.
    """
    rest = target - target.mean()
    values, vectors = np.linalg.eigh(kernel)
    found = []
    for penalty in _PENALTIES:
        inverse = 1 / (np.maximum(values, 0) + penalty)
        weights = vectors @ (inverse * (vectors.T @ rest))
        found.append(np.square(weights / (np.square(vectors) @ inverse)))
    return min(found, key=np.mean)
