"""Converts a column's values, from any file format, to the types that operators take.

Categories become int64 or strings, numbers float64; lists stay lists of these. The result
depends on the features document and on the type of the column's categories, never on the file
format: numbers become texts if categories are texts, and texts are parsed if numbers are needed.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distrain.prep.features.bad_values import BadValues, converted, true_positions
from distrain.prep.features.columns import (
    CALENDAR,
    CategoricalSpec,
    ColumnSpec,
    UnchangedSpec,
)
from distrain.prep.features.document import FormatSpec
from distrain.prep.features.numerals import integers_of, numbers_of
from distrain.prep.features.times import calendar, is_time, times_of
from distrain.prep.lists import Lists, holds_lists
from distrain.prep.operators.list_slice import ListSlice
from distrain.prep.operators.numbers import Clip, FillMissing, LogOp
from distrain.prep.operators.operator import concrete
from distrain.prep.operators.spelling import category_texts, texts_of as spelled
from distrain.prep.vocabulary import is_text

_NO_TEXT = "a time that text cannot represent"
_TO_THE_END = 2**31 - 1
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_BOUND_IT = "Set its clip, or log."


def staged_values(
    values: pa.Array | pa.ChunkedArray,
    column: ColumnSpec,
    text: FormatSpec | None,
    holds: str | None = None,
) -> pa.Array:
    """Return one column's values, ready for its operators.

    `text` is the format of texts; `None` means numbers with a decimal point, and ISO 8601 times.
    `holds` is the type of categories, `int64` or `string`; `None` if unknown. Raises `BadValues`
    for unusable values.
    """
    if isinstance(column, UnchangedSpec):
        return concrete(values)
    values = flat(values)
    if column.separator is not None and not holds_lists(values.type):
        values = pc.split_pattern(texts_of(values), column.separator)
    if not holds_lists(values.type):
        return _items(values, column, text, holds)
    missing = values.is_null()
    if column.list_slice is not None:
        start, end = column.list_slice.start, column.list_slice.end
        open_end = end is None and start >= 0
        values = ListSlice(start, _TO_THE_END if open_end else end).transform("", values)
    lists = Lists.of(values)
    try:
        items = _items(flat(lists.items), column, text, holds)
    except BadValues as bad:
        rows = np.searchsorted(lists.offsets, bad.items, side="right") - 1
        raise bad.of_rows(rows) from None
    offsets = pa.array(lists.offsets.astype(np.int32))
    return pa.ListArray.from_arrays(offsets, items, mask=missing if missing.true_count else None)


def flat(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array without dictionaries, in a type that Arrow's functions accept.

    Bytes and string views become strings, 32-bit and 64-bit decimals decimal128, float16 float32.

    Raises `BadValues` for texts and bytes that are not UTF-8.
    """
    values = concrete(values)
    dtype = values.type
    if is_text(dtype) and not _is_utf8(values):
        values = values.cast(pa.large_binary())
        dtype = values.type
    if holds_text(dtype) and not is_text(dtype):
        to = pa.string() if _has_short_offsets(dtype) else pa.large_string()
        hint = "Set format.encoding, for example to latin-1, if the text file is not UTF-8."
        return converted(values, lambda some: some.cast(to), "not UTF-8", hint)
    if pa.types.is_decimal32(dtype) or pa.types.is_decimal64(dtype):
        return values.cast(pa.decimal128(dtype.precision, dtype.scale))
    return values.cast(pa.float32()) if pa.types.is_float16(dtype) else values


def _is_utf8(values: pa.Array) -> bool:
    try:
        values.validate(full=True)  # Arrow does not check texts when it reads parquet
    except pa.ArrowInvalid:
        return False
    return True


def _has_short_offsets(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_binary(dtype) or pa.types.is_fixed_size_binary(dtype))


def holds_text(dtype: pa.DataType) -> bool:
    types = pa.types
    views = types.is_string_view(dtype) or types.is_binary_view(dtype)
    return is_text(dtype) or views or types.is_large_binary(dtype) or _has_short_offsets(dtype)


def mistake_of_values(dtype: pa.DataType) -> str | None:
    """Return why values of this type cannot be features, targets or keys; `None` if they can."""
    types = pa.types
    number = types.is_integer(dtype) or types.is_floating(dtype) or types.is_boolean(dtype)
    number = number or types.is_decimal(dtype) or types.is_null(dtype)
    if number or holds_text(dtype) or is_time(dtype):
        return None
    return f"{dtype}, which holds neither numbers, texts nor times"


_NO_NUMBER = (
    "Correct the value; if the column holds categories, use kind: categorical in the features "
    'document; if the text means a missing value, list it in format.null_values, beside "". For '
    "text files, --bad-lines skip drops such lines."
)


def _items(
    values: pa.Array,
    column: ColumnSpec,
    text: FormatSpec | None,
    holds: str | None,
) -> pa.Array:
    if column.takes == "presence":
        gaps = values.is_null(nan_is_null=pa.types.is_floating(values.type))
        return pc.if_else(gaps, pa.scalar(None, pa.float64()), 1.0)
    if column.as_ is not None and column.as_ in CALENDAR:
        times = times_of(values, column.epoch, text.timestamp if text else None)
        parts = calendar(times, column.as_)
        if column.takes == "categories":
            return pc.floor(parts).cast(pa.int64())
        return checked_numbers(parts.cast(pa.float64()), column)
    if column.takes == "numbers":
        if column.as_ == "integer":
            numbers = integers_of(values)
        else:
            numbers = numbers_of(values, text, _NO_NUMBER)
        return checked_numbers(numbers.cast(pa.float64(), safe=False), column)
    if column.as_ == "integer":
        return integers_of(values)
    if column.as_ == "text":
        return texts_of(values)
    if holds == "string":
        return category_texts_of(values)
    if holds is None and pa.types.is_null(values.type):
        return values
    return integers_of(values, "Set as: text, or kind: continuous.")


def staged_type(dtype: pa.DataType, column: ColumnSpec, is_typed: bool) -> str:
    """Return the type in which a column's categories are fitted: `int64` or `string`.

    `dtype` is the type of its values or items; `is_typed` is false for CSV and JSON lines.
    """
    if column.as_ is not None:
        return "string" if column.as_ == "text" else "int64"
    if not is_typed or column.separator is not None:
        return "string"
    # Floats may have fractions, so they are spelled as texts.
    return "int64" if pa.types.is_integer(dtype) or pa.types.is_boolean(dtype) else "string"


def mistake_of_type(dtype: pa.DataType, column: ColumnSpec) -> str | None:
    """Return why no value of this parquet type can be used for the column; `None` if some can."""
    if isinstance(column, UnchangedSpec):
        return _mistake_unchanged(dtype, column)
    if (mistake := mistake_of_values(dtype)) is not None:
        return mistake
    if column.takes == "presence" or column.cross:
        return None
    types, as_ = pa.types, column.as_
    number = not (holds_text(dtype) or is_time(dtype))
    if column.epoch is not None and is_time(dtype):
        return f"{dtype}, not integers that count since 1970"
    if as_ in CALENDAR:
        countable = column.epoch is not None or types.is_null(dtype)
        return None if countable or not number else f"{dtype}, not times; set epoch to their unit"
    if is_time(dtype) and as_ != "text":
        return f"{dtype}; choose a part with `as` ({', '.join(CALENDAR)})"
    return None


def _mistake_unchanged(dtype: pa.DataType, column: UnchangedSpec) -> str | None:
    number = pa.types.is_integer(dtype) or pa.types.is_null(dtype)
    if column.holds == "categories":
        return None if number or is_text(dtype) else f"{dtype}, not integer or string"
    fits = column.holds is None or number or pa.types.is_floating(dtype)
    return None if fits else f"{dtype}, not a number"


def texts_of(values: pa.Array) -> pa.Array:
    """Return values as texts, as `spelling.texts_of` does.

    Raises `BadValues` for values that have no text.
    """
    return converted(values, spelled, _NO_TEXT)


def category_texts_of(values: pa.Array) -> pa.Array:
    """Return values as texts of categories, as `spelling.category_texts` does.

    Raises `BadValues` for values that have no text.
    """
    return converted(values, category_texts, _NO_TEXT)


def checked_numbers(values: pa.Array, column: ColumnSpec) -> pa.Array:
    """Return the numbers, with NaN as null.

    Raises `BadValues` for numbers that the column's operators cannot use, among them missing ones
    without a replacement.
    """
    numbers = values.to_numpy(zero_copy_only=False)  # nulls become NaN
    missing = np.isnan(numbers)
    if isinstance(column, CategoricalSpec):  # any number has a bucket, and null has an id
        return pa.array(numbers, mask=missing)
    steps = {step.kind for step in column.operators}
    if FillMissing.kind not in steps and missing.any():
        gaps = pc.if_else(pa.array(missing), pa.scalar(None, pa.float64()), values)
        raise BadValues(
            true_positions(missing),
            gaps,
            "and has no replacement",
            "Set `fill` for this column in the features document.",
        )
    clips = [step for step in column.operators if isinstance(step, Clip)]
    low = all(clip.min is None for clip in clips)
    high = all(clip.max is None for clip in clips)
    with np.errstate(invalid="ignore"):
        endless = (low & (numbers == -np.inf)) | (high & (numbers == np.inf))
        high &= LogOp.kind not in steps
        far = (low & (numbers < -_FLOAT32_MAX)) | (high & (numbers > _FLOAT32_MAX))
        negative = numbers <= -1
    if endless.any():
        raise BadValues(true_positions(endless), values, "not a finite number", "Set its clip.")
    if far.any():
        raise BadValues(
            true_positions(far), values, "beyond the float32 limit of 3.4e38", _BOUND_IT
        )
    is_clipped = any(clip.min is not None and clip.min > -1 for clip in clips)
    if LogOp.kind in steps and not is_clipped and negative.any():
        problem = "for which log(1 + x) is undefined"
        raise BadValues(true_positions(negative), values, problem, "Set its clip.min to 0.")
    return pa.array(numbers, mask=missing)
