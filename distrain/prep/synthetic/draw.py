"""Random features: the distribution of each column, and rows by chunk.

Each chunk is a pure function of (seed, split, chunk index, scale). All randomness comes from raw
64-bit words of one generator per chunk, drawn in a fixed order: numpy guarantees the stream of a
bit generator, but not that of its distributions.

Integers follow a log-logistic law, `floor(median * odds(u) ** spread)`, where `u` is uniform in
[0, 1) and `odds(u) = u / (1 - u)`. It is fitted by eye to the quartiles of the first rows of
Criteo's 1TB click logs. Categories follow a bounded Zipf law with the cardinalities in NVTabular's
Criteo notebooks (which cap them at 10,000,000). Columns of one `missing_with` group are missing
together, as in Criteo's rows.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Scaling does not go below this cardinality: a column with fewer values is a short list (a country,
# a device) at any scale.
LEAST_SCALED_CARDINALITY = 100


@dataclass(frozen=True)
class IntegerColumn:
    """The distribution of a generated integer column: counts with a long tail."""

    name: str
    median: float  # the median before rounding down; below 1 most values are 0
    spread: float  # log-logistic scale; q75 / q25 = 9 ** spread
    shift: int  # added to every value; `cap` is the maximum after that
    cap: int
    missing: float = 0.0  # the share of rows without a value
    missing_with: str | None = None  # columns of the same group are missing in the same rows


@dataclass(frozen=True)
class CategoryColumn:
    """The distribution of a generated categorical column."""

    name: str
    full_cardinality: int  # number of values at scale 1
    # the Zipf exponent: the share of rank k is about proportional to `k ** -exponent`
    exponent: float
    missing: float = 0.0  # the share of rows without a value
    missing_with: str | None = None  # columns of the same group are missing in the same rows

    def cardinality(self, scale: float) -> int:
        """Return the number of values at `scale`.

        >>> CategoryColumn("C1", 10_000_000, 1.3).cardinality(0.01)
        100000
        >>> CategoryColumn("C9", 63, 1.3).cardinality(0.01)
        63
        """
        floor = min(self.full_cardinality, LEAST_SCALED_CARDINALITY)
        return max(floor, round(self.full_cardinality * scale))


INTEGERS = (
    IntegerColumn("I1", 6.5, 1.05, 1, 50_000, 0.24, "I1"),
    IntegerColumn("I2", 200.0, 0.95, 1, 50_000, 0.10, "I2"),
    IntegerColumn("I3", 3.0, 0.85, 0, 5_000, 0.25, "I3"),
    IntegerColumn("I4", 36.0, 1.10, 0, 100_000, 0.50, "I4"),
    IntegerColumn("I5", 4.5, 0.95, 1, 30_000, 0.46, "I5"),
    IntegerColumn("I6", 0.25, 0.95, 0, 5_000, 0.09, "I6"),
    IntegerColumn("I7", 0.18, 0.52, 0, 500, 0.03, "I6"),
    IntegerColumn("I8", 8.0, 1.50, -1, 50_000),
    IntegerColumn("I9", 5.0, 1.10, 0, 49),
    IntegerColumn("I10", 0.57, 0.36, 0, 50, 0.09, "I6"),
    IntegerColumn("I11", 1.4, 0.90, 1, 2_000, 0.46, "I5"),
    IntegerColumn("I12", 3_600.0, 1.40, 0, 20_000_000, 0.02, "I12"),
    IntegerColumn("I13", 4.2, 0.80, 0, 5_000, 0.25, "I3"),
)

CATEGORIES = (
    CategoryColumn("C1", 10_000_000, 1.3, 0.03, "C1"),
    CategoryColumn("C2", 29_612, 1.1),
    CategoryColumn("C3", 15_050, 1.01),
    CategoryColumn("C4", 7_190, 1.4),
    CategoryColumn("C5", 19_547, 1.25),
    CategoryColumn("C6", 4, 2.5),
    CategoryColumn("C7", 6_492, 1.02),
    CategoryColumn("C8", 1_317, 1.2),
    CategoryColumn("C9", 63, 1.7),
    CategoryColumn("C10", 10_000_000, 1.3, 0.03, "C1"),
    CategoryColumn("C11", 707_291, 1.4, 0.03, "C1"),
    CategoryColumn("C12", 218_510, 1.15),
    CategoryColumn("C13", 11, 1.1),
    CategoryColumn("C14", 2_209, 1.9, 0.47, "C14"),
    CategoryColumn("C15", 9_798, 1.15),
    CategoryColumn("C16", 72, 2.2, 0.47, "C14"),
    CategoryColumn("C17", 4, 1.8, 0.47, "C14"),
    CategoryColumn("C18", 954, 1.7),
    CategoryColumn("C19", 15, 1.8),
    CategoryColumn("C20", 10_000_000, 1.3, 0.03, "C1"),
    CategoryColumn("C21", 4_553_157, 1.35, 0.03, "C1"),
    CategoryColumn("C22", 10_000_000, 1.3, 0.03, "C1"),
    CategoryColumn("C23", 291_641, 1.5, 0.47, "C14"),
    CategoryColumn("C24", 10_904, 1.01),
    CategoryColumn("C25", 91, 1.8),
    CategoryColumn("C26", 35, 1.4),
)


CHUNK_ROWS = 65_536
SPLITS = {"train": 0, "valid": 1, "pilot": 2}

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class DrawnFeatures:
    """The randomly drawn features of one chunk of `CHUNK_ROWS` rows, by column name."""

    integers: dict[str, Ints]  # the integer columns, int32 `[rows]`; arbitrary where missing
    # the categories by frequency rank (0 is the most frequent), int32 `[rows]`; arbitrary
    # where missing
    ids: dict[str, Ints]
    # whether a column has no value, bool `[rows]`; only columns that can be missing
    missing: dict[str, Flags]
    coin: Floats  # a uniform number in [0, 1) per row, for the label, float64 `[rows]`


def draw_features(seed: int, split: str, chunk: int, scale: float) -> DrawnFeatures:
    """Return the random features of a chunk of `CHUNK_ROWS` rows.

    Equal arguments give equal features: the seed, the split's name, the chunk's index, and the
    scale of the columns' cardinalities.
    """
    source = np.random.SFC64(np.random.SeedSequence((seed, SPLITS[split], chunk)))
    coin = _uniform(source)
    missing = _draw_missing(source)
    integers = {column.name: integer_values(column, _uniform(source)) for column in INTEGERS}
    ids = {c.name: category_ids(c, scale, _uniform(source)) for c in CATEGORIES}
    return DrawnFeatures(integers, ids, missing, coin)


def integer_values(column: IntegerColumn, uniform: Floats) -> Ints:
    """Return a column's values at the quantiles `uniform`, in [0, 1): int32 `[rows]`."""
    odds = uniform / (1.0 - uniform)
    values = np.minimum(column.median * odds**column.spread, column.cap - column.shift)
    result: Ints = values.astype(np.int32) + np.int32(column.shift)
    return result


def category_ids(column: CategoryColumn, scale: float, uniform: Floats) -> Ints:
    """Return a column's ids at the quantiles `uniform`, in [0, 1): int32 `[rows]`, 0 most frequent.

    A continuous power law on [1, cardinality + 1), rounded down. Its quantile function has a closed
    form, so no table grows with the cardinality.
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
        # One number for the group: columns with equal shares are missing in the same rows, columns
        # with smaller shares in some of these rows, as in the real logs.
        missing[column.name] = groups[column.missing_with] < column.missing
    return missing


def _uniform(source: np.random.SFC64) -> Floats:
    words: npt.NDArray[np.uint64] = np.asarray(source.random_raw(CHUNK_ROWS))
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


Words32 = npt.NDArray[np.uint32]

_GOLDEN = 0x9E3779B97F4A7C15


def raw_category(column: int, ids: Ints) -> Words32:
    """Return the 32-bit raw value of each id, uint32 `[rows]`.

    `column` is the index of the ids' column among the category columns, from 0. Different ids of
    a column get different values: by an exclusive or with the column's key, and then the finaliser
    of MurmurHash3, which is a permutation of 32-bit words.

    >>> ["%08x" % word for word in raw_category(0, np.arange(3, dtype=np.int32))]
    ['92ca2f0e', '36deb503', 'b4421bbb']
    """
    key = np.uint32(((column + 1) * _GOLDEN >> 32) & 0xFFFFFFFF)
    word = ids.astype(np.uint32) ^ key
    word ^= word >> np.uint32(16)
    word *= np.uint32(0x85EBCA6B)
    word ^= word >> np.uint32(13)
    word *= np.uint32(0xC2B2AE35)
    word ^= word >> np.uint32(16)
    return word


def pseudo_normal(seed: int, name: str, ids: npt.NDArray[np.int64]) -> Floats:
    """Return a pseudo standard normal number per (seed, name, id), float64 `[rows]`.

    It is the standardised sum of the four 16-bit parts of a SplitMix64 hash. All arithmetic before
    the last division is on integers, so it is the same on every machine. Its range is about +-3.5.
    """
    word = ids.astype(np.uint64) * np.uint64(_GOLDEN) + np.uint64(_key(seed, name))
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word ^= word >> np.uint64(31)
    low = np.uint64(0xFFFF)
    total = (word & low) + (word >> np.uint64(16) & low)
    total += (word >> np.uint64(32) & low) + (word >> np.uint64(48))
    effects: Floats = (total.astype(np.float64) - 2 * 0xFFFF) / (0x10000 * (4 / 12) ** 0.5)
    return effects


def _key(seed: int, name: str) -> int:
    # Python's hash() of a text differs between processes; this does not.
    parts = np.random.SeedSequence((seed, *name.encode())).generate_state(1, np.uint64)
    return int(parts[0])
