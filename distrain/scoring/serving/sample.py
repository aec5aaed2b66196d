"""Raw rows that an export is checked with: the first of a file, and variants with odd values."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from distrain.etl import RawSample

SAMPLE_ROWS = 200
_ODD_TEXTS = ("", "never seen 🧿", "e\u0301\u202e", " ", "0", "true", "Ж" * 300)
_TEXT_NUMBERS = ("1e3", "-0.25", " 5 ", "1e39", "-7")


def with_edges(sample: RawSample) -> RawSample:
    """The rows, and after them variants with one odd value each, and rows without any value."""
    table = sample.table
    odd = {name: _odd_values(table.schema.field(name).type, sample) for name in table.column_names}
    every = pa.table({n: pa.nulls(1, table.schema.field(n).type) for n in table.column_names})
    pieces = [table, every]
    for name, values in odd.items():
        places = pa.array(np.arange(len(values)) % table.num_rows)
        rows = table.take(places)
        column = pa.array(values, table.schema.field(name).type)
        pieces.append(rows.set_column(rows.column_names.index(name), name, column))
    return RawSample(pa.concat_tables(pieces).combine_chunks(), sample.form)


def _odd_values(dtype: pa.DataType, sample: RawSample) -> list[Any]:
    types = pa.types
    if types.is_list(dtype) or types.is_large_list(dtype):
        items = _odd_values(dtype.value_type, sample)
        return [None, [], *([one] for one in items), items * 2]
    if types.is_boolean(dtype):
        return [None, True, False]
    if types.is_integer(dtype):
        bounds = np.iinfo(dtype.to_pandas_dtype())
        return [None, 0, 1, int(bounds.min), int(bounds.max)]
    if types.is_floating(dtype):
        return [None, float("nan"), 0.0, -0.5, 1e30, -1e30, float("inf")]
    if types.is_decimal(dtype):
        whole = dtype.precision - dtype.scale
        largest = Decimal(10) ** whole - 1
        return [None, Decimal(0), largest, -largest] if whole > 0 else [None, Decimal(0)]
    if types.is_timestamp(dtype):
        zone = datetime.UTC if dtype.tz else None
        years = (1970, 1969, 2263 if dtype.unit != "ns" else 2200)
        return [None, *(datetime.datetime(year, 12, 31, 23, 59, 59, tzinfo=zone) for year in years)]
    if types.is_date(dtype):
        return [None, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]
    if types.is_string(dtype) or types.is_large_string(dtype):
        return [None, *_ODD_TEXTS, *(_TEXT_NUMBERS if sample.form == "csv" else ())]
    return [None]


def values_of(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values as rows have them without Arrow, each as exact as in the column."""
    types = pa.types
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    dtype = values.type
    if types.is_list(dtype) or types.is_large_list(dtype) or types.is_fixed_size_list(dtype):
        return [None if one.values is None else values_of(one.values) for one in values]
    if types.is_float32(dtype) or types.is_float16(dtype):
        return [None if one is None else np.float32(one) for one in values.to_pylist()]
    if types.is_timestamp(dtype) and dtype.tz is None:
        known = values.to_numpy(zero_copy_only=False)
        return [None if np.isnat(one) else one for one in known]
    if types.is_timestamp(dtype):
        values = values.cast(pa.timestamp("us", dtype.tz), safe=False)
    found: list[Any] = values.to_pylist()
    return found
