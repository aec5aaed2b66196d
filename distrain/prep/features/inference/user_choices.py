"""The user's decisions about an inferred features document: targets, weight and validation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from distrain.errors import DataError, InputError
from distrain.formatting import join_names
from distrain.prep.features.bad_values import guess
from distrain.prep.features.inference.column_facts import FEW_NUMBERS, FEW_VALUES, Facts
from distrain.prep.features.inference.suggest import (
    DROP,
    UNKNOWN,
    MissingTargets,
    Target,
    pair_target,
    split_by,
    split_of,
    target_of_many,
    weight_of,
)
from distrain.prep.features.numerals import EXACT_DOUBLES
from distrain.prep.features.table_file import SHOWN_COLUMNS
from distrain.prep.operators.spelling import category_texts

Task = Literal["binary", "regression", "multiclass"]

_MOST_CLASSES = 10_000
_UNIQUE = 0.9
"""A column with more different values than this share of its rows identifies rows."""


@dataclass(frozen=True)
class UserChoices:
    """The user's decisions; everything else is inferred from the sample."""

    targets: tuple[str, ...] = ()  # columns to predict, the first one first; guessed if empty
    task: Task | None = None  # the kind of all `targets`; `None`: inferred from their values
    # validation rows: a share of all, at random or with `time` the latest; a number of last rows;
    # or a section `split` of the document; `False` for no rows of this table; `None` for a tenth,
    # or the rows that a column names
    valid: float | Mapping[str, Any] | None = None
    time: str | None = None  # a column of times: the latest rows are for validation, or testing
    # the column of the rows' weights; `False` for none, `None` to look for one by its name
    weight: str | Literal[False] | None = None
    # test rows, for a final evaluation only, in the forms of `valid`; `None` for none
    test: float | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name, share in (("valid", self.valid), ("test", self.test)):
            if isinstance(share, float) and not 0 < share < 1:
                raise InputError(
                    f"{name} {share} is not between 0 and 1",
                    hint="Give a share of the rows such as 0.1, or a number of rows.",
                )
            if isinstance(share, int) and not isinstance(share, bool) and share < 1:
                raise InputError(
                    f"{name} {share} is not a number of rows",
                    hint="Give 1 or more rows, a share such as 0.1, or False for none.",
                )
            if share is True:
                raise InputError(
                    f"{name} is True, not rows",
                    hint="Give a share of the rows such as 0.1, or a number of rows.",
                )
        if len({*self.targets}) < len(self.targets):
            raise InputError(
                "a target is named twice",
                where={"column": join_names(self.targets, SHOWN_COLUMNS)},
                hint="Name each target once.",
            )
        roles = [*self.targets, *(name for name in (self.time, self.weight) if name)]
        if twice := sorted({name for name in roles if roles.count(name) > 1}):
            raise InputError(
                "a column has two roles: targets, time and weight are different columns",
                where={"column": ", ".join(twice)},
                hint="Name each column once.",
            )
        if self.task is not None and self.task not in get_args(Task):
            raise InputError(
                f"no task {self.task!r}", hint=f"Choose one of {', '.join(get_args(Task))}."
            )
        if self.task is not None and not self.targets:
            raise InputError("task is the kind of the target, and no target is named")

    @property
    def ignores_parts(self) -> bool:
        """Whether `valid` selects rows of the table regardless of a column such as `split`."""
        return self.valid is not None and self.valid is not False

    def split_of(
        self, columns: Sequence[Facts], taken: Collection[str]
    ) -> tuple[dict[str, Any] | None, str]:
        """Return the section `split` (`None` for no validation rows), and the reason for it.

        Args:
            taken: The targets and the weight.

        Raises:
            DataError: The column `time` is missing, does not hold times, or lacks a row's time.
        """
        if self.valid is None and self.time is None:
            return split_of(columns, taken)
        later = self.test if isinstance(self.test, float) else 0.0
        return self._section(0.1 if self.valid is None else self.valid, columns, later)

    def test_of(self, columns: Sequence[Facts]) -> dict[str, Any] | None:
        """Return the section `test`; `None` for no test rows of this table.

        Raises the errors of `split_of`.
        """
        return None if self.test is None else self._section(self.test, columns)[0]

    def _section(
        self, rows: float | Mapping[str, Any], columns: Sequence[Facts], later: float = 0.0
    ) -> tuple[dict[str, Any] | None, str]:
        """Return the section that selects rows, in the forms of `valid`, and the reason for it.

        `later` is the share of rows that are later than those of a share.
        """
        match rows:
            case False:
                return None, "no rows, as asked for"
            case Mapping():
                return dict(rows), "as asked for"
            case int():
                return {"by": "rows", "last": rows}, "the last rows, as asked for"
        if self.time is None:
            drawn = {"by": "random", "share": rows}
            return drawn, f"{rows:.4g} of the rows, drawn at random, as asked for"
        times = _named(columns, self.time)
        if times.kind != "time":
            raise DataError(
                "rows cannot be split by this column: its values are not times",
                where={"column": self.time, "type": times.stored, "value": times.top},
                hint="Name a column of times, dates, or numbers that count from 1970, in one form "
                "or also in ISO 8601; or use another kind of split.",
            )
        if times.has_gaps:
            raise DataError(
                "rows cannot be split by this column: some rows have no time",
                where={
                    "column": self.time,
                    "type": times.stored,
                    "missing": times.missing + len(times.odd),
                },
                hint="Name another column, or use another kind of split.",
            )
        return split_by(times, rows, later)

    def targets_of(
        self, columns: Sequence[Facts], values: Mapping[str, pa.Array]
    ) -> tuple[Target, list[Target]]:
        """Return the first target and the list of further targets.

        Args:
            values: The values of the targets' columns, from which classes get their numbers.

        Raises:
            DataError: A column is missing, or cannot be a target of the wanted kind.
        """
        first, *others = (
            _target(_named(columns, name), self.task, values[name], UNKNOWN if place else DROP)
            for place, name in enumerate(self.targets)
        )
        return first, others

    def weight_of(self, columns: Sequence[Facts]) -> tuple[str, str] | None:
        """Return the name of the column of weights and why it was chosen; `None` without weights.

        Raises a `DataError` if the wanted column is missing or holds texts, or if all rows were
        read and all weights are 0.
        """
        if self.weight is False:
            return None
        if self.weight is None:
            taken = set(self.targets)
            return weight_of([facts for facts in columns if facts.name not in taken])
        weights = _named(columns, self.weight)
        is_number = weights.kind == "number"
        if weights.kind in ("text", "list", "other") and not weights.odd:
            raise DataError(
                f"the column contains {weights.stored}, which cannot be weights",
                where={"column": weights.name, "type": weights.stored},
                hint="Name a column of numbers, 0 or more.",
            )
        if weights.is_of_all_rows and is_number and not weights.numbers.any():
            raise DataError(
                "all weights are 0, so no row would contribute to training",
                where={"column": weights.name},
                hint="Name another column of weights, or none.",
            )
        return weights.name, "as asked for"


def _named(columns: Sequence[Facts], name: str) -> Facts:
    for facts in columns:
        if facts.name == name:
            return facts
    known = [facts.name for facts in columns]
    raise DataError(
        f"the table has no column {name!r}{guess(name, known)}",
        where={"column": name, "columns": join_names(known, SHOWN_COLUMNS)},
        hint="Name one of its columns.",
    )


def _target(facts: Facts, task: Task | None, values: pa.Array, gaps: MissingTargets) -> Target:
    is_pair = bool(facts.pair)
    are_classes = facts.is_whole and not facts.is_clipped
    is_few = are_classes and facts.distinct <= FEW_NUMBERS
    kind = task or (
        "binary"
        if is_pair or facts.kind == "truth"
        else "multiclass"
        if facts.kind == "text" or is_few
        else "regression"
    )
    usable = {
        "binary": is_pair and facts.kind in ("truth", "number", "text"),
        # Rows after the sample may have other values.
        "regression": facts.kind == "number" and (facts.distinct > 1 or not facts.is_of_all_rows),
        "multiclass": (facts.kind == "text" or are_classes)
        and 2 <= facts.distinct <= _MOST_CLASSES,
    }
    if facts.kind not in ("truth", "number", "text"):
        raise DataError(
            "the column has no values"
            if facts.kind == "empty"
            else f"the column contains {facts.stored}, which cannot be predicted",
            where={"column": facts.name, "type": facts.stored},
            hint="Name a column of booleans, numbers or texts, or make one of this column.",
        )
    if facts.distinct == 1 and facts.is_of_all_rows:
        raise DataError(
            "all rows have the same target, so nothing can be learnt",
            where={"column": facts.name, "value": facts.top},
            hint="Name another target, or add rows with other values.",
        )
    if not usable[kind]:
        raise DataError(
            f"the column cannot be predicted as {_KINDS[kind]}",
            where={
                "column": facts.name,
                "type": facts.stored,
                "different values": f"{facts.distinct:,}",
            },
            hint="Name another target or task. A features document turns any column into 0 and 1 "
            "by a comparison: target: {column: NAME, at_least: NUMBER}.",
        )
    if kind == "regression" and facts.distinct > 1:
        low, high = float(facts.numbers.min()), float(facts.numbers.max())
        if np.float32(low) == np.float32(high):
            raise DataError(
                "the target's values differ only beyond the 24 bits of float32, so they would be "
                "equal in training",
                where={"column": facts.name, "lowest": repr(low), "highest": repr(high)},
                hint="Subtract a constant from the column, such as its lowest value.",
            )
    if kind == "multiclass" and facts.distinct > max(FEW_VALUES, _UNIQUE * facts.num_values):
        raise DataError(
            "nearly every row has a class of its own, so no class can be learnt",
            where={
                "column": facts.name,
                "classes": f"{facts.distinct:,}",
                "rows": f"{facts.num_values:,}",
            },
            hint="Name a column whose values repeat, or one of numbers with the task regression.",
        )
    if kind == "binary":
        return pair_target(facts, "two values", gaps)
    classes = None
    if kind == "multiclass":
        classes = sorted(set(_values_of(facts, values)))
    return target_of_many(facts, classes, f"{facts.distinct:,} ", gaps)


def _values_of(facts: Facts, values: pa.Array) -> Iterable[Any]:
    """Return a target's values without nulls: texts, or numbers.

    Numbers are floats. They are integers if float64 would round them and all values are whole.
    """
    if facts.kind != "number":
        texts: list[str] = values.drop_null().to_pylist()
        return texts
    if abs(facts.numbers).max() > EXACT_DOUBLES:
        with suppress(ValueError):  # of texts that mean a missing value
            return {int(text) for text in category_texts(values.drop_null().unique()).to_pylist()}
    numbers: Iterable[Any] = facts.numbers
    return numbers


_KINDS = {
    "binary": "0 and 1: it must have exactly two distinct values",
    "regression": "a number: it must have at least two distinct numbers",
    "multiclass": f"a class: it must have 2 to {_MOST_CLASSES:,} distinct integers or strings",
}
