"""Finds values that are probably mistakes: texts among numbers, and classes of very few rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from distrain.prep.features.bad_values import Places
from distrain.prep.features.inference.column_facts import Facts

_MANY_ROWS = 1000  # in fewer rows, a class of few rows is usual
_FEW_ROWS = 10
_RARE = 0.001  # of three classes or more; one of two is often rarer, as fraud is


@dataclass(frozen=True, eq=False)
class Origin:
    """The file of some consecutive rows."""

    file: str
    unit: str  # what `numbers` count, as in errors of `prep`
    numbers: Places  # the line of each row, from 1, or its row in the file, from 0


@dataclass(frozen=True)
class OddValues:
    """Some values of a column that differ from nearly all others."""

    column: str
    count: int  # the number of rows with such values
    first: str  # the first such value
    where: Mapping[str, object]  # the file of `first`, and its line or row; empty if unknown
    # the kind of the column's feature or target; `time`, `weight`, or `nothing` if it is left out
    read_as: str
    problem: str
    is_rejected: bool  # whether `prep` stops at such values

    @property
    def told(self) -> str:
        """The warning about these values, as text."""
        place = "".join(f", {key} {value}" for key, value in self.where.items())
        found = f"{self.column} is read as {self.read_as}: {self.problem}: {self.first!r}{place}"
        if not self.is_rejected:
            return f"{found}; correct it if it is a mistake"
        return (
            f"{found}; prep stops at such values: correct them; or, in a features document, list "
            "them in format.null_values or make the column categorical; or drop their rows with "
            "--bad-lines skip"
        )


def odd_values_of(
    facts: Facts, values: pa.Array, read_as: str, origins: Sequence[Origin], *, is_target: bool
) -> list[OddValues]:
    """Return the texts among a column's numbers (or times); without any, a target's rarest class.

    The list has one item or none. `read_as` is as in `OddValues`; `origins` are those of all rows
    of `values`.
    """
    texts = _texts_among(facts, values, read_as, origins)
    return texts or (_rare_class(facts, values, read_as, origins) if is_target else [])


def _texts_among(
    facts: Facts, values: pa.Array, read_as: str, origins: Sequence[Origin]
) -> list[OddValues]:
    """Return a column's texts that are not numbers (or times), although nearly all others are."""
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
    """Return the rarest class of a target with up to 30 classes, if it has very few rows.

    A class has very few rows if these are fewer than 10, or (unless the target is binary) fewer
    than 0.1 % of all; tables of fewer than 1,000 rows are not checked.
    """
    if read_as == "regression" or not facts.few or facts.num_values < _MANY_ROWS:
        return []
    value, rows = facts.few[-1], facts.counts[-1]
    if rows >= max(_FEW_ROWS, 0 if read_as == "binary" else _RARE * facts.num_values):
        return []
    # Arrow needs the type of unsigned integers of 64 bits.
    typed = values.type if pa.types.is_integer(values.type) else None
    row = pc.index(values, pa.scalar(value, typed).cast(values.type)).as_py()
    where = _place(origins, row) if row >= 0 else {}
    told = f"a class has only {rows:,} of {facts.num_values:,} rows"
    return [OddValues(facts.name, rows, str(value), where, read_as, told, is_rejected=False)]


def _place(origins: Sequence[Origin], row: int) -> dict[str, object]:
    for origin in origins:
        if row < len(origin.numbers):
            return {"file": origin.file, origin.unit: int(origin.numbers[row])}
        row -= len(origin.numbers)
    return {}
