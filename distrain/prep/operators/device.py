"""Columns on a GPU, and what operators do with them, in terms of pylibcudf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class DeviceColumn:
    column: Any  # the column of pylibcudf
    kind: pa.DataType  # the type that Arrow has for it


class Device:
    """The GPU that pylibcudf works on; all of it on its default stream and memory resource."""

    def __init__(self, plc: Any):
        self._plc = plc

    def upload(self, values: pa.Array) -> DeviceColumn:
        return DeviceColumn(self._plc.Column.from_arrow(values), values.type)

    def download(self, values: DeviceColumn) -> pa.Array:
        found: pa.Array = values.column.to_arrow()
        return found if found.type == values.kind else found.cast(values.kind)

    def cast(self, values: DeviceColumn, kind: pa.DataType) -> DeviceColumn:
        """Numbers of another type; whole ones that float64 does not hold become the nearest."""
        if kind == values.kind:
            return values
        return DeviceColumn(self._plc.unary.cast(values.column, self._type(kind)), kind)

    def binary(
        self, name: str, left: DeviceColumn, right: DeviceColumn | pa.Scalar
    ) -> DeviceColumn:
        """Arithmetic of one type, by the name of `pylibcudf.binaryop.BinaryOperator`."""
        return self._binary(name, left, right, left.kind)

    def compare(
        self, name: str, left: DeviceColumn, right: DeviceColumn | pa.Scalar
    ) -> DeviceColumn:
        """A comparison by such a name; null where a side is null, and false of NaN."""
        return self._binary(name, left, right, pa.bool_())

    def log(self, values: DeviceColumn) -> DeviceColumn:
        operator = self._plc.unary.UnaryOperator.LOG
        return DeviceColumn(self._plc.unary.unary_operation(values.column, operator), values.kind)

    def is_nan(self, values: DeviceColumn) -> DeviceColumn:
        return DeviceColumn(self._plc.unary.is_nan(values.column), pa.bool_())

    def any(self, mask: DeviceColumn) -> bool:
        """Whether one is true. Waits for the GPU."""
        plc = self._plc
        found = plc.reduce.reduce(mask.column, plc.aggregation.any(), self._type(pa.bool_()))
        return bool(found.to_py())  # `None` where all are null

    def where(
        self, mask: DeviceColumn, yes: DeviceColumn | pa.Scalar, no: DeviceColumn
    ) -> DeviceColumn:
        chosen = self._plc.copying.copy_if_else(self._side(yes), no.column, mask.column)
        return DeviceColumn(chosen, no.kind)

    def fill_null(self, values: DeviceColumn, fill: pa.Scalar) -> DeviceColumn:
        filled = self._plc.replace.replace_nulls(values.column, self._side(fill))
        return DeviceColumn(filled, values.kind)

    def encode(self, values: DeviceColumn) -> tuple[pa.Array, DeviceColumn]:
        """The distinct values, null among them, on the host; and which of them each row has."""
        table, codes = self._plc.transform.encode(self._plc.Table([values.column]))
        distinct = self.download(DeviceColumn(table.columns()[0], values.kind))
        return distinct, DeviceColumn(codes, pa.int32())

    def gather(self, values: DeviceColumn, places: DeviceColumn) -> DeviceColumn:
        copying = self._plc.copying
        taken = copying.gather(
            self._plc.Table([values.column]), places.column, copying.OutOfBoundsPolicy.DONT_CHECK
        )
        return DeviceColumn(taken.columns()[0], values.kind)

    def _binary(
        self, name: str, left: DeviceColumn, right: DeviceColumn | pa.Scalar, kind: pa.DataType
    ) -> DeviceColumn:
        binaryop = self._plc.binaryop
        operator = getattr(binaryop.BinaryOperator, name)
        sides = (left.column, self._side(right))
        return DeviceColumn(binaryop.binary_operation(*sides, operator, self._type(kind)), kind)

    def _side(self, value: DeviceColumn | pa.Scalar) -> Any:
        if isinstance(value, DeviceColumn):
            return value.column
        return self._plc.Scalar.from_arrow(value)

    def _type(self, kind: pa.DataType) -> Any:
        return self._plc.DataType.from_arrow(kind)


def on_host(device: Device, operator: Any, column: str, values: DeviceColumn) -> DeviceColumn:
    """By Arrow, with its values and errors."""
    return device.upload(operator.transform(column, device.download(values)))


def kind_after(operator: Any, column: str, kind: pa.DataType) -> pa.DataType:
    return operator.transform(column, pa.array([], kind)).type
