"""As much of pylibcudf 26.10 as operators use, played on the host with Arrow.

It has the names and signatures of the package, and refuses mixed types as libcudf does; that the
package does what this does is for `tests/gpu` to show.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


class Column:
    def __init__(self, values: pa.Array):
        self.values = values

    @staticmethod
    def from_arrow(obj: pa.Array, dtype: Any = None, stream: Any = None, mr: Any = None) -> Column:
        return Column(obj)

    def to_arrow(self, metadata: Any = None, stream: Any = None) -> pa.Array:
        return self.values


class Scalar:
    def __init__(self, value: pa.Scalar):
        self.values = value

    @staticmethod
    def from_arrow(pa_val: pa.Scalar, dtype: Any = None, stream: Any = None) -> Scalar:
        return Scalar(pa_val)

    def to_py(self, stream: Any = None) -> Any:
        return self.values.as_py()


class Table:
    def __init__(self, columns: list[Column]):
        self._columns = columns

    def columns(self) -> list[Column]:
        return self._columns


_BINARY = {
    "ADD": pc.add,
    "SUB": pc.subtract,
    "MUL": pc.multiply,
    "DIV": pc.divide,
    "LESS": pc.less,
    "GREATER": pc.greater,
    "LESS_EQUAL": pc.less_equal,
    "EQUAL": pc.equal,
}


def _cast(input: Column, data_type: pa.DataType, stream: Any = None, mr: Any = None) -> Column:
    return Column(input.values.cast(data_type, safe=False))


def _unary(input: Column, op: str, stream: Any = None, mr: Any = None) -> Column:
    assert op == "LOG"
    return Column(pc.ln(input.values))


def _is_nan(input: Column, stream: Any = None, mr: Any = None) -> Column:
    return Column(pc.fill_null(pc.is_nan(input.values), False))


def _binary(
    lhs: Column | Scalar, rhs: Column | Scalar, op: str, output_type: pa.DataType,
    stream: Any = None, mr: Any = None,
) -> Column:  # fmt: skip
    assert lhs.values.type == rhs.values.type
    result = _BINARY[op](lhs.values, rhs.values)
    assert result.type == output_type
    return Column(result)


def _copy_if_else(
    lhs: Column | Scalar, rhs: Column | Scalar, boolean_mask: Column,
    stream: Any = None, mr: Any = None,
) -> Column:  # fmt: skip
    assert lhs.values.type == rhs.values.type
    return Column(pc.if_else(pc.fill_null(boolean_mask.values, False), lhs.values, rhs.values))


def _gather(
    source_table: Table, gather_map: Column, bounds_policy: Any, stream: Any = None, mr: Any = None
) -> Table:
    return Table([Column(c.values.take(gather_map.values)) for c in source_table.columns()])


def _replace_nulls(
    source_column: Column, replacement: Scalar, stream: Any = None, mr: Any = None
) -> Column:
    assert source_column.values.type == replacement.values.type
    return Column(pc.fill_null(source_column.values, replacement.values))


def _reduce(col: Column, agg: str, data_type: pa.DataType, init: Any = None) -> Scalar:
    assert (agg, data_type) == ("any", pa.bool_())
    return Scalar(pc.any(col.values))


def _encode(input: Table, stream: Any = None, mr: Any = None) -> tuple[Table, Column]:
    """The distinct values in order, null last."""
    [column] = input.columns()
    distinct = pc.unique(column.values)
    distinct = distinct.take(pc.sort_indices(distinct))
    codes = pc.index_in(column.values, value_set=distinct)
    assert codes.null_count == 0
    return Table([Column(distinct)]), Column(codes.cast(pa.int32()))


class _Names:
    """An enumeration whose members are their names."""

    def __getattr__(self, name: str) -> str:
        return name


pylibcudf = SimpleNamespace(
    Column=Column,
    Scalar=Scalar,
    Table=Table,
    DataType=SimpleNamespace(from_arrow=lambda pa_typ: pa_typ),
    unary=SimpleNamespace(
        UnaryOperator=_Names(), cast=_cast, unary_operation=_unary, is_nan=_is_nan
    ),
    binaryop=SimpleNamespace(BinaryOperator=_Names(), binary_operation=_binary),
    copying=SimpleNamespace(OutOfBoundsPolicy=_Names(), copy_if_else=_copy_if_else, gather=_gather),
    replace=SimpleNamespace(replace_nulls=_replace_nulls),
    reduce=SimpleNamespace(reduce=_reduce),
    aggregation=SimpleNamespace(any=lambda: "any"),
    transform=SimpleNamespace(encode=_encode),
)
