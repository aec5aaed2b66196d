"""Rows by the chunk: each a pure function of (seed, split, chunk index, scale).

All randomness is raw 64-bit words of one generator per chunk, drawn in a fixed order, because
numpy promises the stream of a bit generator for good, and that of its distributions not.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from distrain.synth.columns import CATEGORIES, INTEGERS, CategoryColumn, IntegerColumn

CHUNK_ROWS = 65_536
SPLITS = {"train": 0, "valid": 1, "pilot": 2}

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Features:
    """The features of `CHUNK_ROWS` rows, by column name.

    Attributes:
        integers: The integer columns, int32 `[rows]`; meaningless where missing.
        ids: The categories by rank of frequency (0 is the most frequent), int32 `[rows]`;
            meaningless where missing.
        missing: Where a column has no value, bool `[rows]`; only columns that can be missing.
        coin: A uniform number in [0, 1) per row, for the label, float64 `[rows]`.
    """

    integers: dict[str, Ints]
    ids: dict[str, Ints]
    missing: dict[str, Flags]
    coin: Floats


def draw_features(seed: int, split: str, chunk: int, scale: float) -> Features:
    """Draw the features of one chunk, always `CHUNK_ROWS` rows."""
    source = np.random.SFC64(np.random.SeedSequence((seed, SPLITS[split], chunk)))
    coin = _uniform(source)
    missing = _draw_missing(source)
    integers = {column.name: integer_values(column, _uniform(source)) for column in INTEGERS}
    ids = {c.name: category_ids(c, scale, _uniform(source)) for c in CATEGORIES}
    return Features(integers, ids, missing, coin)


def integer_values(column: IntegerColumn, uniform: Floats) -> Ints:
    """The values of an integer column at quantiles `uniform`, each in [0, 1)."""
    odds = uniform / (1.0 - uniform)
    values = np.minimum(column.median * odds**column.spread, column.cap - column.shift)
    result: Ints = values.astype(np.int32) + np.int32(column.shift)
    return result


def category_ids(column: CategoryColumn, scale: float, uniform: Floats) -> Ints:
    """The ids of a category at quantiles `uniform`, each in [0, 1); the frequent ones come first.

    A continuous power law on [1, cardinality + 1), rounded down: its quantile function is closed,
    so no table grows with the cardinality.
    """
    cardinality, power = column.cardinality(scale), 1.0 - column.exponent
    ranks = (1.0 + uniform * ((cardinality + 1.0) ** power - 1.0)) ** (1.0 / power)
    ids: Ints = np.minimum(ranks.astype(np.int32) - 1, cardinality - 1)
    return ids


def _draw_missing(source: np.random.SFC64) -> dict[str, Flags]:
    groups: dict[str, Floats] = {}
    missing = {}
    for column in (*INTEGERS, *CATEGORIES):
        if column.missing_with is None:
            continue
        if column.missing_with not in groups:
            groups[column.missing_with] = _uniform(source)
        # One number for the group: equal shares coincide, smaller ones nest, as in the real logs.
        missing[column.name] = groups[column.missing_with] < column.missing
    return missing


def _uniform(source: np.random.SFC64) -> Floats:
    words: npt.NDArray[np.uint64] = np.asarray(source.random_raw(CHUNK_ROWS))
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
