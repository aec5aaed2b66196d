"""Finds values that are probably mistakes: texts among numbers, and classes of very few rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from distrain.prep.features.bad_values import BadValues, Places
from distrain.prep.features.file_format import PARQUET
from distrain.prep.features.inference.column_facts import Facts
from distrain.prep.features.numerals import numbers_of

_MANY_ROWS = 1000  # in fewer rows, a class of few rows is usual
_FEW_ROWS = 10
_RARE = 0.001  # of three classes or more; one of two is often rarer, as fraud is


@dataclass(frozen=True, eq=False)
class Origin:
    """The file from which some consecutive rows of a sample come, and the rows' numbers in it."""

    file: str
    unit: str  # what `numbers` count, as in errors of `prep`
    numbers: Places  # the line of each row, from 1, or its row in the file, from 0


Remedy = Literal["null_values", "categorical", "clip", "skip"]
_REMEDIES: Mapping[Remedy, str] = {
    "null_values": 'list them, beside "", in format.null_values of the features document',
    "categorical": "replace the column's features by one with only kind: categorical",
    "clip": "set clip, with min and max, in the column's features",
    "skip": "drop their lines with --bad-lines skip",
}


@dataclass(frozen=True)
class OddValues:
    """Values of a column that are probably mistakes, because they differ from nearly all others."""

    column: str
    count: int  # the number of rows with such values
    first: str  # the first such value
    where: Mapping[str, object]  # the file of `first`, and its line or row; empty if unknown
    # the kind of the column's feature or target; `time`, `weight`, or `nothing` if it is left out
    read_as: str
    problem: str
    is_rejected: bool  # whether `prep` stops at such values
    is_dropped: bool = False  # whether `prep` drops the rows, since bad lines are skipped
    remedies: tuple[Remedy, ...] = ()  # besides corrections, if `prep` stops

    @property
    def warning_text(self) -> str:
        """The warning about these values, as text."""
        place = "".join(f", {key} {value}" for key, value in self.where.items())
        use = "left out" if self.read_as == "nothing" else f"read as {self.read_as}"
        found = f"{self.column} is {use}: {self.problem}: {self.first!r}{place}"
        if self.is_dropped:
            return f"{found}; prep drops the lines of such values"
        if not self.is_rejected:
            return f"{found}; correct it if it is a mistake"
        advice = "".join(f", or {_REMEDIES[one]}" for one in self.remedies)
        return f"{found}; prep stops at such values: correct them{advice}"


def odd_values_of(
    facts: Facts,
    values: pa.Array,
    read_as: str,
    origins: Sequence[Origin],
    *,
    is_target: bool,
    file_kind: str,
    is_dropped: bool,
) -> list[OddValues]:
    """Return the texts among a column's numbers (or times); without any, a target's rarest class.

    The list has one item or none.

    Args:
        read_as: As in `OddValues`.
        origins: The origins of all rows of `values`.
        is_target: Whether the column is a target.
        file_kind: The kind of the files, as in `TableFile`.
        is_dropped: Whether `prep` drops lines with values at which it would stop otherwise.
    """
    texts = _texts_among(facts, values, read_as, origins)
    if not texts:
        return _rare_class(facts, values, read_as, origins) if is_target else []
    (odd,) = texts
    if not odd.is_rejected:
        return texts
    if is_dropped:
        return [replace(odd, is_rejected=False, is_dropped=True)]
    infinite = odd.read_as == "continuous" and _are_infinite(values.take(pa.array(facts.odd)))
    usable: dict[Remedy, bool] = {
        "null_values": file_kind == "csv" and odd.read_as != "weight",
        "categorical": odd.read_as == "continuous",
        "clip": infinite,
        "skip": file_kind != PARQUET,
    }
    return [replace(odd, remedies=tuple(one for one, is_usable in usable.items() if is_usable))]


def _are_infinite(values: pa.Array) -> bool:
    try:
        return bool(pc.all(pc.is_inf(numbers_of(values))).as_py())
    except BadValues:
        return False


def _texts_among(
    facts: Facts, values: pa.Array, read_as: str, origins: Sequence[Origin]
) -> list[OddValues]:
    """Return a column's texts that are not numbers (or times), although nearly all others are.

    The list has one item or none. The arguments are as in `odd_values_of`.
    """
    if not facts.odd:
        return []
    is_time = facts.kind == "time"
    read_as = "time" if is_time and read_as == "categorical" else read_as
    is_rejected = read_as == "weight" or (
        facts.kind != "text" and read_as not in ("nothing", "categorical")
    )
    noun = "times" if is_time else "numbers"
    told = f"{len(facts.odd):,} of {facts.num_values:,} values are not {noun}, the first"
    first, where = values[facts.odd[0]].as_py(), _place(origins, facts.odd[0])
    return [OddValues(facts.name, len(facts.odd), first, where, read_as, told, is_rejected)]


def _rare_class(
    facts: Facts, values: pa.Array, read_as: str, origins: Sequence[Origin]
) -> list[OddValues]:
    """Return the rarest class of a target, if it has very few rows.

    A class has very few rows if these are fewer than 10, or (if there are 3 to 30 classes) fewer
    than 0.1 % of the rows with a value. Targets with fewer than 1,000 values are not checked. The
    list has one item or none. The arguments are as in `odd_values_of`.
    """
    if read_as == "regression" or facts.num_values < _MANY_ROWS:
        return []
    if not facts.few:
        return _rare_of_many(facts, values, origins) if read_as == "multiclass" else []
    value, rows = facts.few[-1], facts.counts[-1]
    if rows >= max(_FEW_ROWS, 0 if read_as == "binary" else _RARE * facts.num_values):
        return []
    # Arrow needs the type of unsigned integers of 64 bits.
    typed = values.type if pa.types.is_integer(values.type) else None
    row = pc.index(values, pa.scalar(value, typed).cast(values.type)).as_py()
    where = _place(origins, row) if row >= 0 else {}
    told = f"a class has only {rows:,} of {facts.num_values:,} rows"
    return [OddValues(facts.name, rows, str(value), where, read_as, told, is_rejected=False)]


def _rare_of_many(facts: Facts, values: pa.Array, origins: Sequence[Origin]) -> list[OddValues]:
    """Return the classes of fewer than 10 rows of a target with more than 30 classes, as one item.

    The list is empty if there are none.
    """
    counted = pc.value_counts(values.drop_null())
    classes, counts = counted.field("values"), counted.field("counts")
    is_rare = pc.less(counts, _FEW_ROWS)
    rare, rows = classes.filter(is_rare), pc.sum(counts.filter(is_rare)).as_py()
    if not len(rare):
        return []
    where = _place(origins, pc.index(values, rare[0]).as_py())
    told = (
        f"{len(rare):,} of {len(classes):,} classes have fewer than {_FEW_ROWS} of "
        f"{facts.num_values:,} rows, the first"
    )
    first = str(rare[0].as_py())
    return [OddValues(facts.name, rows, first, where, "multiclass", told, is_rejected=False)]


def _place(origins: Sequence[Origin], row: int) -> dict[str, object]:
    for origin in origins:
        if row < len(origin.numbers):
            return {"file": origin.file, origin.unit: int(origin.numbers[row])}
        row -= len(origin.numbers)
    return {}
