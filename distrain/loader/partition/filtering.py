"""Applies row filters: to the statistics in footers where possible, otherwise to the values.

Arrow evaluates the comparisons. A comparison with null is null, and a row is selected only if the
filter is true. NaN is unequal to every number, and neither less nor greater.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from difflib import get_close_matches
from functools import reduce
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from distrain.errors import SpecError
from distrain.jobs.spec.row_filter import (
    ColumnName,
    ColumnTest,
    Condition,
    Value,
    parse_filter,
    tests_in,
)
from distrain.loader.partition.hive import folder_number
from distrain.loader.partition.scanning import Columns, scan_columns
from distrain.loader.partition.table import RowGroup, Table
from distrain.schema.folders import NULL_FOLDER, folder_values
from distrain.storage.retrying import first_line

if TYPE_CHECKING:
    from pyarrow import DataType, Scalar, Schema as ArrowSchema
    from pyarrow.dataset import Expression, ParquetFileFragment

_COMPARE = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_TOO_FINE = re.compile(r"[.,][0-9]{7}")
_TRUTHS = {"true": True, "false": False}
_HINT = "Put texts and dates in quotes: '2026-11-30'. Write numbers, true and false without quotes."


class RowFilter:
    """A condition that selects rows of a table.

    Args:
        text: A condition in the syntax of `distrain.jobs.spec.row_filter.parse_filter`.
        hive: Whether folders named `key=value` define columns.

    Attributes:
        columns: The names of the columns in the condition.

    Raises:
        SpecError: The text is not a condition.
    """

    def __init__(self, text: str, *, hive: bool = False):
        self.text = text
        self._condition = parse_filter(text)
        self._hive = hive
        self._tests = tuple(tests_in(self._condition))
        others = (t.value.name for t in self._tests if isinstance(t.value, ColumnName))
        self.columns = tuple(dict.fromkeys([*(t.column.name for t in self._tests), *others]))

    def outcomes(self, file: str, handle: IO[bytes], schema: ArrowSchema) -> list[bool | None]:
        """Return, for each row group, True if all rows match, False if none, `None` if unknown.

        Only the footer of `handle`, the open file, is read. `schema` is the file's Arrow schema.

        Raises:
            SpecError: The filter names a column that the file lacks, or compares unlike types.
        """
        import pyarrow as pa
        import pyarrow.dataset as ds

        taken = self._expression(self._condition, file, schema)
        fragment = ds.ParquetFileFormat().make_fragment(handle)
        floats = [c for c in self.columns if c in schema.names and _is_float(schema.field(c).type)]
        # Statistics ignore NaN. Tests with `!=` or `not` are true for NaN.
        hold_for_nan = any(
            side.name in floats and (test.operator == "!=" or test.negated)
            for test in self._tests
            for side in (test.column, test.value)
            if isinstance(side, ColumnName)
        )
        all_groups = set(range(fragment.num_row_groups))
        try:
            some = all_groups if hold_for_nan else _row_groups(fragment, taken)
            rest = all_groups if floats else _row_groups(fragment, ~taken | taken.is_null())
        except pa.ArrowInvalid:  # Arrow does not compare integer bounds above 2^53 with floats
            some = rest = all_groups
        return [None if n in some & rest else n in some for n in sorted(all_groups)]

    def applied(self, table: Table, taken: Sequence[bool | None], retry_s: float = 0.0) -> Table:
        """Return a table of the matching rows; reads the row groups whose outcome is `None`.

        Args:
            taken: The outcome of each row group of the table, as from `outcomes`.
            retry_s: How long to retry if the storage does not answer, for each file.

        Raises:
            SpecError: No row matches, or the filter does not fit a file.
            DataError: A file cannot be read.
            Unavailable: The storage does not answer.
        """
        unsure = [group for group, is_taken in zip(table.row_groups, taken, strict=True)
                  if is_taken is None]  # fmt: skip
        read = iter(scan_columns(unsure, self.columns, self._chosen, retry_s))
        kept = [
            next(read) if is_taken is None else group if is_taken else None
            for group, is_taken in zip(table.row_groups, taken, strict=True)
        ]
        if not any(kept):
            raise SpecError(
                f"the filter selects none of {table.num_rows} rows",
                where={"data.filter": self.text, "file": table.row_groups[0].file},
                hint="Check the columns' values; null passes only the test `is null`.",
            )
        return table.taking(kept)

    def _chosen(self, group: RowGroup, columns: Columns, _: int) -> RowGroup | None:
        import pyarrow as pa

        table = pa.table(dict(columns))
        taken = _values(self._expression(self._condition, group.file, table.schema), table)
        mask: NDArray[np.bool_] = taken.fill_null(False).to_numpy(zero_copy_only=False)
        return group.taking(mask)

    def _expression(self, condition: Condition, file: str, schema: ArrowSchema) -> Expression:
        if isinstance(condition, ColumnTest):
            return self._expression_of_test(condition, file, schema)
        parts = [self._expression(part, file, schema) for part in condition.conditions]
        join = operator.and_ if condition.word == "and" else operator.or_
        while len(parts) > 1:  # as a balanced tree, since Arrow evaluates expressions by recursion
            pairs = [parts[n : n + 2] for n in range(0, len(parts), 2)]
            parts = [reduce(join, pair) for pair in pairs]
        return parts[0]

    def _expression_of_test(self, test: ColumnTest, file: str, schema: ArrowSchema) -> Expression:
        import pyarrow as pa

        column, kind = self._operand(test.column, test.value, file, schema)
        try:
            expression = self._compared(column, kind, test, file, schema)
            _values(expression, schema.empty_table())
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            name, value = test.column.name, test.value
            other = f"column {value.name!r}" if isinstance(value, ColumnName) else repr(value)
            message = f"column {name!r} has type {kind}, which does not compare with {other}"
            raise self._error(f"{message}: {first_line(error)}", test.column, file, _HINT) from None
        return expression

    def _compared(
        self, column: Expression, kind: DataType, test: ColumnTest, file: str, schema: ArrowSchema
    ) -> Expression:
        import pyarrow as pa

        if test.operator == "is":
            return ~column.is_null() if test.negated else column.is_null()
        if isinstance(test.value, tuple):
            literals = [_literal(value, kind) for value in test.value]
            for one in {literal.type: literal for literal in literals}.values():
                _values(operator.eq(*_sides(column, kind, one, one.type)), schema.empty_table())
            if pa.types.is_decimal(kind):
                column, kind = column.cast(pa.float64(), safe=False), pa.float64()
            same = _equal_values(literals, pa.float64() if _is_float(kind) else kind)
            expression = column.isin(_equal_floats(same, kind) if _is_float(kind) else same)
            return ~expression & column.is_valid() if test.negated else expression
        if isinstance(test.value, ColumnName):
            other, other_kind = self._operand(test.value, test.column, file, schema)
        else:
            other = _literal(test.value, kind)
            other_kind = other.type
        expression = _COMPARE[test.operator](*_sides(column, kind, other, other_kind))
        return ~expression if test.negated else expression

    def _operand(
        self, column: ColumnName, other: Any, file: str, schema: ArrowSchema
    ) -> tuple[Expression, DataType]:
        """Return one side of a comparison as an Arrow expression and its type.

        It is a column of the file, or the value in the name of a folder above it.

        `other` is the value, or the column, that it is compared with.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        folders = dict(folder_values(file)) if self._hive else {}
        if column.name in folders:
            value = _folder_value(folders[column.name], other)
            return pc.scalar(value), value.type
        if column.name not in schema.names:
            known = [*schema.names, *folders]
            near = get_close_matches(column.name, known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known[:50])}."
            message = f"the filter names column {column.name!r}, which is missing"
            raise self._error(message, column, file, hint)
        kind = schema.field(column.name).type
        if pa.types.is_dictionary(kind):
            return pc.field(column.name).cast(kind.value_type), kind.value_type
        return pc.field(column.name), kind

    def _error(self, message: str, column: ColumnName, file: str, hint: str) -> SpecError:
        where = {"data.filter": self.text, "character": column.place, "file": file}
        return SpecError(message, where=where, hint=hint)


def _row_groups(fragment: ParquetFileFragment, holds: Expression) -> set[int]:
    """Return the numbers of row groups in which an expression may be true for some row."""
    return {group.id for group in fragment.subset(holds).row_groups}


def _values(expression: Expression, table: Any) -> Any:
    """Return the value of an expression for each row of an Arrow table."""
    import pyarrow.dataset as ds

    return ds.dataset(table).to_table(columns={"": expression})[""]


def _is_float(kind: DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_floating(kind))


def _sides(column: Any, kind: DataType, other: Any, other_kind: DataType) -> tuple[Any, Any]:
    """Return both operands (expressions or scalars) in types that Arrow can compare.

    They are cast to float64 if one is an integer and the other a float, or if one is a decimal.
    """
    import pyarrow as pa

    kinds, types = (kind, other_kind), pa.types
    mixed = any(map(_is_float, kinds)) and any(map(types.is_integer, kinds))
    if not mixed and not any(map(types.is_decimal, kinds)):
        return column, other
    # Without the casts, Arrow would reject integers above 2^53 and some decimals.
    first, second = (side.cast(pa.float64(), safe=False) for side in (column, other))
    return first, second


def _equal_values(literals: Sequence[Scalar], kind: DataType) -> Any:
    """Return the values of type `kind` that are equal to any of the literals.

    Literals that cannot be values of this type are omitted.
    """
    import pyarrow as pa

    arrays = []
    for own in {literal.type for literal in literals}:
        some = pa.array([literal for literal in literals if literal.type == own], own)
        try:
            arrays.append(some.cast(kind))
        except pa.ArrowInvalid:  # some literals cannot be values of the type
            for number in range(len(some)):
                with suppress(pa.ArrowInvalid):
                    arrays.append(some[number : number + 1].cast(kind))
    return pa.concat_arrays([pa.array([], kind), *arrays])


def _equal_floats(numbers: Any, kind: DataType) -> Any:
    """Return the values of float type `kind` that equal any of `numbers`, float64, for `isin`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rounded = numbers.cast(kind, safe=False)
    equal = rounded.filter(pc.equal(rounded.cast(pa.float64()), numbers))
    zeros = [-0.0, 0.0] if 0.0 in equal.to_pylist() else []  # `isin` distinguishes the two
    return pa.concat_arrays([equal, pa.array(zeros, pa.float64()).cast(kind)])


def _literal(value: Value, kind: DataType) -> Scalar:
    """Return a filter's value as a scalar that can be compared with a column of type `kind`.

    Raises a `ValueError` for a text that is not a date or time, or has digits below microseconds,
    if the column has dates or times.
    """
    import pyarrow as pa

    types = pa.types
    if isinstance(value, str) and types.is_date(kind):
        return pa.scalar(date.fromisoformat(value), kind)
    if isinstance(value, str) and types.is_timestamp(kind):
        if _TOO_FINE.search(value):  # Python would truncate it
            raise ValueError("timestamps in a filter have at most microsecond precision")
        moment = datetime.fromisoformat(value)
        if kind.tz is not None and moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return pa.scalar(moment, pa.timestamp("us", kind.tz))
    if isinstance(value, float) and value.is_integer() and types.is_integer(kind):
        value = int(value)
    if type(value) is not int:
        return pa.scalar(value)
    # Arrow does not cast uint64 to int64.
    own, bits = (kind, 64) if types.is_uint64(kind) else (pa.int64(), 63)
    fits = (0 if bits == 64 else -(2**63)) <= value < 2**bits
    return pa.scalar(value, own) if fits and not _is_float(kind) else pa.scalar(float(value))


def _folder_value(text: str, other: Any) -> Scalar:
    """Return the value in the name of a folder `KEY=VALUE`, to be compared with `other`.

    The type depends on `other`, or on its first value if it is a tuple. If that is a number or a
    column, the result is a number if `text` can be read as one. If it is a boolean, the result is a
    boolean if `text` can be read as one. Otherwise the result is `text`. For the folder of null
    values, it is null.
    """
    import pyarrow as pa

    first = other[0] if isinstance(other, tuple) and other else other
    wanted = int if isinstance(first, ColumnName) else type(first)
    if text == NULL_FOLDER:
        return pa.scalar(None, pa.float64() if wanted in (int, float) else pa.string())
    if wanted is bool and text.lower() in _TRUTHS:
        return pa.scalar(_TRUTHS[text.lower()])
    number = folder_number(text) if wanted in (int, float) else None
    if number is None:
        return pa.scalar(text)
    return pa.scalar(number if abs(number) < 2**63 else float(number))
