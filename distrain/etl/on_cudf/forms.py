"""What each kind of operator does with a column on a GPU: the `transform` of its class, by cuDF."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from distrain.etl.on_cudf.device import Device, DeviceColumn
from distrain.etl.operators import Categorify, Clip, FillMissing, ListSlice, LogOp, Normalize

_DOUBLE = pa.float64()

Form = Callable[[Device, Any, str, DeviceColumn], DeviceColumn]


def _on_host(device: Device, operator: Any, column: str, values: DeviceColumn) -> DeviceColumn:
    """By Arrow, with its values and errors."""
    return device.upload(operator.transform(column, device.download(values)))


def _kind_after(operator: Any, column: str, kind: pa.DataType) -> pa.DataType:
    """The type that Arrow gives the operator's values."""
    return operator.transform(column, pa.array([], kind)).type


def _fill_missing(
    device: Device, operator: FillMissing, column: str, values: DeviceColumn
) -> DeviceColumn:
    kind = _kind_after(operator, column, values.kind)
    values = device.cast(values, kind)
    fill = pa.scalar(operator.value).cast(kind)
    if pa.types.is_floating(kind):
        values = device.where(device.is_nan(values), fill, values)
    return device.fill_null(values, fill)


def _clip(device: Device, operator: Clip, column: str, values: DeviceColumn) -> DeviceColumn:
    kind = _kind_after(operator, column, values.kind)
    if pa.types.is_integer(values.kind) and pa.types.is_floating(kind):
        return _on_host(device, operator, column, values)  # Arrow refuses what float64 cannot hold
    values = device.cast(values, kind)
    for name, bound in (("LESS", operator.min), ("GREATER", operator.max)):
        if bound is not None:
            limit = pa.scalar(bound).cast(kind)
            values = device.where(device.compare(name, values, limit), limit, values)
    return values


def _log(device: Device, operator: LogOp, column: str, values: DeviceColumn) -> DeviceColumn:
    x = device.cast(values, _DOUBLE)
    if device.any(device.compare("LESS_EQUAL", x, pa.scalar(-1.0))):
        return _on_host(device, operator, column, values)  # it says of which value
    # cuDF has no log1p. The rounding of 1 + x is undone by the factor: W. Kahan's formula.
    more = device.binary("ADD", x, pa.scalar(1.0))
    added = device.binary("SUB", more, pa.scalar(1.0))
    result = device.binary("MUL", x, device.binary("DIV", device.log(more), added))
    result = device.where(device.compare("EQUAL", added, pa.scalar(0.0)), x, result)
    return device.where(device.compare("EQUAL", x, pa.scalar(math.inf)), x, result)


def _normalize(
    device: Device, operator: Normalize, column: str, values: DeviceColumn
) -> DeviceColumn:
    moments = operator.moments[column]
    centred = device.binary("SUB", device.cast(values, _DOUBLE), pa.scalar(float(moments.mean)))
    return device.binary("DIV", centred, pa.scalar(float(moments.std)))


def _categorify(
    device: Device, operator: Categorify, column: str, values: DeviceColumn
) -> DeviceColumn:
    # Vocabularies may be larger than a GPU's memory, and lie in files that the host maps.
    distinct, codes = device.encode(values)
    return device.gather(device.upload(operator.transform(column, distinct)), codes)


FORMS: dict[str, Form] = {
    Categorify.kind: _categorify,
    Clip.kind: _clip,
    FillMissing.kind: _fill_missing,
    ListSlice.kind: _on_host,  # of lists it cuts the offsets, before their items are uploaded
    LogOp.kind: _log,
    Normalize.kind: _normalize,
}
"""By `Operator.kind`."""
