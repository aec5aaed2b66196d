"""Finds columns that alone predict the target nearly perfectly, since they probably reveal it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from distrain.metrics.exact import DistinctScores
from distrain.prep.features.inference.column_facts import Facts
from distrain.prep.features.inference.later_rows import Rows
from distrain.prep.features.inference.learnable import (
    Codes,
    Labels,
    Tested,
    codes_of,
    halves,
    means_of,
    rows_of_code,
)

_NEARLY_ALL = 0.999
_FEWEST_OF_CLASS = 10
"""With fewer tested rows of a class, a good feature may separate the classes by chance."""


def reveals_target(
    facts: Facts, values: pa.Array, labels: Labels, target_kind: str, order: Rows | None
) -> bool:
    """Return True if a column alone predicts nearly all labels of rows that nothing was learnt of.

    The bounds are an AUC or R2 of 0.999, and 99.9 % of the rows for a multiclass target. The number
    itself, the labels of other rows with the same value, or whether the value is missing predicts.

    Args:
        labels: `[num_rows]`, float64; NaN where missing; of a multiclass target, class numbers.
        order: As in `is_learnable`.
    """
    tested = halves(labels, order)
    others = labels[tested[1]]
    if len(others) < 2 * _FEWEST_OF_CLASS or facts.kind == "list":
        return False
    codes = (codes_of(values), codes_of(values.is_null()))
    if target_kind == "multiclass":
        return any(_share_right(of, labels, tested) >= _NEARLY_ALL for of in codes)
    is_binary = target_kind == "binary"
    if is_binary and np.bincount(others.astype(int), minlength=2).min() < _FEWEST_OF_CLASS:
        return False
    strength = _auc if is_binary else _r2
    return any(
        strength(numbers, others) >= _NEARLY_ALL
        for numbers in _predictions(facts, codes, labels, tested)
    )


def _predictions(
    facts: Facts, codes: tuple[Codes, ...], labels: Labels, tested: Tested
) -> Iterator[Labels]:
    if facts.kind == "number" and not facts.has_gaps:
        yield facts.numbers[tested[1]]
    for of in codes:
        yield means_of(of, labels, tested)


def _share_right(codes: Codes, classes: Labels, tested: Tested) -> float:
    """Return the share of tested rows that have the class of all other rows with their value.

    The other rows are `tested[0]`. A row whose value does not occur there does not count as right.
    """
    learnt, others = tested
    of_class = codes * (int(np.nanmax(classes)) + 1) + np.nan_to_num(classes).astype(np.int64)
    same = rows_of_code(of_class[learnt], of_class[others])
    equal = rows_of_code(codes[learnt], codes[others])
    return float(((same == equal) & (equal > 0)).mean())


def _auc(scores: Labels, labels: Labels) -> float:
    """Return the AUC, or that of the negative scores if it is larger."""
    counted = DistinctScores()
    counted.update(scores, labels)
    auc = counted.auc()
    assert auc is not None  # both classes occur
    return max(auc.value, 1 - auc.value)


def _r2(scores: Labels, labels: Labels) -> float:
    """Return the R2 of a linear regression of the labels on the scores; 0 if it is undefined."""
    if not (np.ptp(scores) and np.ptp(labels)):
        return 0.0
    return float(np.corrcoef(scores, labels)[0, 1]) ** 2
