"""The shape of each column: how its values are spread and how often they are missing.

Integers follow a log-logistic law, `floor(median * odds(u) ** spread)`, fitted by eye to the
quartiles of the first rows of Criteo's 1TB click logs; categories a bounded Zipf law with the
cardinalities that NVTabular's Criteo notebooks report (10,000,000 is a cap of theirs). Columns of
one `missing_with` group are missing together, as they are in those rows.
"""

from dataclasses import dataclass

# Scaling stops here: below it a column is a short list (a country, a device), whatever the size.
LEAST_SCALED_CARDINALITY = 100


@dataclass(frozen=True)
class IntegerColumn:
    """A count with a long tail.

    Attributes:
        name: I1 .. I13.
        median: The median before rounding down; below 1 most values are 0.
        spread: The exponent of the odds; the ratio of the quartiles is `9 ** spread`.
        shift: Added to every value.
        cap: The greatest value.
        missing: The share of rows without a value.
        missing_with: Columns of the same group are missing in the same rows.
    """

    name: str
    median: float
    spread: float
    shift: int
    cap: int
    missing: float = 0.0
    missing_with: str | None = None


@dataclass(frozen=True)
class CategoryColumn:
    """A category.

    Attributes:
        name: C1 .. C26.
        full_cardinality: How many values it has at scale 1.
        exponent: The Zipf exponent: the id of rank k has a share of about `k ** -exponent`.
        missing: The share of rows without a value.
        missing_with: Columns of the same group are missing in the same rows.
    """

    name: str
    full_cardinality: int
    exponent: float
    missing: float = 0.0
    missing_with: str | None = None

    def cardinality(self, scale: float) -> int:
        """How many values it has at `scale`.

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
