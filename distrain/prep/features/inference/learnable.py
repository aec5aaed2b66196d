"""Tests whether target means, from some rows, predict the labels of other rows.

The means are those of the values of a column, or of the combined values of two columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distrain.prep.features.bad_values import BadValues
from distrain.prep.features.document import FormatSpec
from distrain.prep.features.inference.later_rows import Rows
from distrain.prep.features.rows import labels_of
from distrain.prep.features.targets import TargetSpec

Labels = np.ndarray[Any, np.dtype[np.float64]]
Codes = np.ndarray[Any, np.dtype[np.int64]]
Tested = tuple[Rows, Rows]
"""The rows that target means are computed from, and the rows that they are tested on."""

_SMOOTHING = 20
_LEAST_SD = 1e-9  # below it, differences are rounding errors
_CHANCE_SD = 3.0
"""Values predict the labels if `_strength` is above this number of standard deviations."""


def sampled_labels(values: pa.Array, target: object, text: FormatSpec | None) -> Labels | None:
    """Return the target's labels in the sample, NaN where missing: of classes, their numbers.

    `None` if the target is a placeholder, or has unusable values.
    """
    spec = TargetSpec.model_validate(target)
    if spec.placeholder:
        return None
    known = values.is_valid()
    try:
        labels = labels_of(values.filter(known), spec, text)
    except BadValues:  # `prep` reports them
        return None
    found = np.full(len(values), np.nan)
    found[known.to_numpy(zero_copy_only=False)] = labels.to_numpy(zero_copy_only=False)
    return found


_PAIRS_CHANCE_SD = 5.0  # hundreds of pairs are tested
_MOST_PAIRS = 30
_MOST_CLASSES = 100  # pairs take 40 MB for each column and 100 classes
_MOST_PAIRS_OF_CLASSES = 10  # each becomes an embedding
_MOST_COLUMNS = 40
"""Maximum number of columns whose pairs are tested, 5 ms a pair: those that predict best alone."""
_PAIR_BUCKETS = 65_521  # a prime, so that pairs of ids do not collide regularly


def is_learnable(values: pa.Array, labels: Labels, order: Rows | None) -> bool:
    """Return True if target means of half of the rows correlate with the labels of the others.

    The test is Pearson's correlation r of these means with the labels of the other n rows,
    which must be above 3 / sqrt(n). If the values predict nothing, r sqrt(n) is about standard
    normal.

    Args:
        labels: `[num_rows]`, float64; NaN where missing.
        order: The rows in the order of their times, `[num_rows]`: the means are computed from the
            earlier half, since a model is used on later rows. `None`: from every second row.
    """
    tested = halves(labels, order)
    return _strength(means_of(codes_of(values), labels, tested), labels[tested[1]]) > _CHANCE_SD


def predicts_classes(values: pa.Array, classes: Labels, order: Rows | None) -> bool:
    """Return True if the classes of half of the rows, by value, predict the classes of the others.

    The logarithm of the probability of each row's class must be larger than that of the class's
    share of all rows, by more than 3 standard errors of the mean difference.

    Args:
        classes: The number of each row's class, `[num_rows]`, float64; NaN where missing.
        order: As in `is_learnable`.
    """
    numbers, tested = _numbers(classes), halves(classes, order)
    shares = _shares(numbers, tested)
    own = shares[numbers[tested[1]]]
    return _gain(_with_rows(codes_of(values), numbers, tested, own), own) > _CHANCE_SD


def strongest_pairs_of_classes(
    columns: Mapping[str, pa.Array], classes: Labels, order: Rows | None
) -> list[tuple[str, str]]:
    """Return the pairs of columns whose combined values predict classes better than each alone.

    These are at most 10 pairs of the 40 columns that predict best alone, the strongest first. The
    test is that of `predicts_classes`, with the bound 5 instead of 3. The gain is that over the
    product of both columns' own predictions. With more than 100 classes, there are no pairs.
    `classes` and `order` are as in `predicts_classes`.
    """
    numbers, tested = _numbers(classes), halves(classes, order)
    shares = _shares(numbers, tested)
    if len(shares) > _MOST_CLASSES:
        return []
    others = numbers[tested[1]]
    codes = {name: codes_of(values) for name, values in columns.items()}
    own = shares[others]
    alone = {name: _gain(_with_rows(of, numbers, tested, own), own) for name, of in codes.items()}

    @cache
    def chances_of(name: str) -> Labels:
        return _chances(codes[name], numbers, tested, shares)

    def gain(one: str, other: str, both: Codes) -> float:
        product = chances_of(one) * chances_of(other) / shares
        of_both = product[np.arange(len(others)), others] / product.sum(axis=1)
        return _gain(_with_rows(both, numbers, tested, of_both), of_both)

    return _strongest(codes, alone, gain, _MOST_PAIRS_OF_CLASSES)


def strongest_pairs(
    columns: Mapping[str, pa.Array], labels: Labels, order: Rows | None
) -> list[tuple[str, str]]:
    """Return the pairs of columns whose combination predicts more than the two columns alone.

    These are at most 30 pairs of the 40 columns that predict best alone, the strongest first. The
    test is that of `is_learnable`, for combined values, with the bound 5 instead of 3. A linear
    model of the two columns' own target means is first subtracted from the pair's target means and
    from the labels. `labels` and `order` are as in `is_learnable`.
    """
    tested_on = halves(labels, order)
    codes = {name: codes_of(values) for name, values in columns.items()}
    means = {name: means_of(one, labels, tested_on) for name, one in codes.items()}
    others = labels[tested_on[1]]
    alone = {name: _strength(one, others) for name, one in means.items()}

    def strength(one: str, other: str, both: Codes) -> float:
        single = np.stack([np.ones(len(others)), means[one], means[other]], axis=1)
        of_pair = _without(single, means_of(both, labels, tested_on))
        return _strength(of_pair, _without(single, others))

    return _strongest(codes, alone, strength, _MOST_PAIRS)


def _strongest(
    codes: Mapping[str, Codes],
    alone: Mapping[str, float],
    strength: Callable[[str, str, Codes], float],
    most: int,
) -> list[tuple[str, str]]:
    """Return the pairs of columns with a strength above the bound, at most `most`.

    Only the 40 columns that predict best alone are combined; the strongest pairs are first.

    Args:
        codes: Each row's category as a number from 0 on, by column.
        alone: How well each column predicts alone.
        strength: Returns the strength of two columns, given also the codes of their combinations.
    """
    tested = sorted(alone, key=lambda name: -alone[name])[:_MOST_COLUMNS]
    found = {}
    for one, other in combinations([name for name in codes if name in tested], 2):
        both = (codes[one] * (int(codes[other].max()) + 1) + codes[other]) % _PAIR_BUCKETS
        found[one, other] = strength(one, other, both)
    strong = [pair for pair, of_pair in found.items() if of_pair > _PAIRS_CHANCE_SD]
    return sorted(strong, key=lambda pair: -found[pair])[:most]


def codes_of(values: pa.Array) -> Codes:
    encoded = pc.dictionary_encode(values, null_encoding="encode")
    codes: Codes = encoded.indices.to_numpy().astype(np.int64)
    return codes


def halves(labels: Labels, order: Rows | None) -> Tested:
    """Return two halves of the labelled rows: even and odd, or by `order`, earlier and later."""
    if order is None:
        known = np.flatnonzero(np.isfinite(labels))
        return known[::2], known[1::2]
    known = order[np.isfinite(labels[order])]
    half = len(known) - len(known) // 2
    return known[:half], known[half:]


def means_of(codes: Codes, labels: Labels, tested: Tested) -> Labels:
    """Return for each row of `tested[1]` the smoothed mean label of rows with the same code.

    The mean is over the rows `tested[0]`. `codes` has each row's category as a number from 0 on.
    """
    learnt, others = tested
    if not len(others):
        return np.zeros(0)
    made, mean = codes[learnt], float(labels[learnt].mean())
    size = int(codes.max()) + 1
    counts = np.bincount(made, minlength=size)
    sums = np.bincount(made, labels[learnt], size)
    means: Labels = ((sums + _SMOOTHING * mean) / (counts + _SMOOTHING))[codes[others]]
    return means


def _numbers(classes: Labels) -> Codes:
    """Return the classes as integers; any number where they are missing."""
    return np.where(np.isfinite(classes), classes, 0).astype(np.int64)


def _shares(numbers: Codes, tested: Tested) -> Labels:
    """Return the share of each class in the rows `tested[0]`, `[classes]`, none of them 0.

    `numbers` has the number of each row's class.
    """
    counts = np.bincount(numbers[tested[0]], minlength=int(numbers.max()) + 1) + 1.0
    shares: Labels = counts / counts.sum()
    return shares


def _chances(codes: Codes, numbers: Codes, tested: Tested, shares: Labels) -> Labels:
    """Return the probability of each class for the rows `tested[1]`, `[rows, classes]`.

    It is the share of the class in those rows of `tested[0]` that have the same code, smoothed by
    `shares`, the classes' shares of all rows. `numbers` has the number of each row's class, and
    `codes` its category.
    """
    learnt, others = tested
    places = codes[learnt] * len(shares) + numbers[learnt]
    size = (int(codes.max()) + 1) * len(shares)
    counts = np.bincount(places, minlength=size).reshape(-1, len(shares))[codes[others]]
    rows = counts.sum(axis=1, keepdims=True)
    chances: Labels = (counts + _SMOOTHING * shares) / (rows + _SMOOTHING)
    return chances


def _with_rows(codes: Codes, numbers: Codes, tested: Tested, before: Labels) -> Labels:
    """Return the probability that each row of `tested[1]` has the class that it has, `[rows]`.

    It is the share of that class in those rows of `tested[0]` that have the same code, smoothed by
    `before`, the probability without knowledge of the code. `numbers` has the number of each row's
    class, and `codes` its category.
    """
    learnt, others = tested
    of_class = codes * (int(numbers.max()) + 1) + numbers
    rows, equal = (rows_of_code(one[learnt], one[others]) for one in (codes, of_class))
    chances: Labels = (equal + _SMOOTHING * before) / (rows + _SMOOTHING)
    return chances


def rows_of_code(values: Codes, of: Codes) -> Codes:
    """Return how often each number of the array `of` occurs in `values`."""
    known, counts = np.unique(values, return_counts=True)
    places = np.minimum(np.searchsorted(known, of), len(known) - 1)
    found: Codes = np.where(known[places] == of, counts[places], 0)
    return found


def _gain(after: Labels, before: Labels) -> float:
    """Return the mean gain in log probability from `before` to `after`, in standard errors.

    0 if it is undefined.
    """
    if len(after) < 2 or (sd := np.log(after / before).std()) < _LEAST_SD:
        return 0.0
    return float(np.log(after / before).mean() / sd) * math.sqrt(len(after))


def _without(explained: Labels, values: Labels) -> Labels:
    """Return the residuals of a linear regression of `values` on the columns of `explained`."""
    squares = explained.T @ explained
    weights = np.linalg.lstsq(squares, explained.T @ values, rcond=None)[0]
    rest: Labels = values - explained @ weights
    return rest


def _strength(means: Labels, labels: Labels) -> float:
    """Return r * sqrt(n): r is the correlation of n means with n labels; 0 if r is undefined.

    If the means predict nothing, the result is about standard normal.
    """
    if len(labels) < 2 or means.std() < _LEAST_SD or labels.std() < _LEAST_SD:
        return 0.0
    return float(np.corrcoef(means, labels)[0, 1]) * math.sqrt(len(labels))
