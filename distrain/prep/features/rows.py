"""Computes the label, the weight and the window of each row, and which rows are for validation.

Windows are groups of rows, such as days, on which jobs train one after another (`TableWindows`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distrain.prep.features.bad_values import BadValues, Places, guess, true_positions
from distrain.prep.features.document import ColumnSplit, FormatSpec, HashSplit, TimeSplit
from distrain.prep.features.numerals import EXACT_DOUBLES, numbers_of
from distrain.prep.features.targets import TableWindows, TargetSpec
from distrain.prep.features.times import is_time, microseconds, microseconds_from, times_of
from distrain.prep.features.values import category_texts_of, flat, holds_text, mistake_of_values
from distrain.prep.lists import holds_lists
from distrain.prep.operators.spelling import category_texts
from distrain.prep.vocabulary import is_text, stable_buckets

RowSplit = TimeSplit | HashSplit | ColumnSplit
Mask = np.ndarray[Any, np.dtype[np.bool_]]

_HASH_PLACES = 1 << 20
FEWEST_HASHED = 30
"""A split by hash needs this number of different values; with fewer, the share of rows depends on
chance."""
_COMPARE = {
    "at_least": pc.greater_equal,
    "above": pc.greater,
    "at_most": pc.less_equal,
    "below": pc.less,
}
_COMPARE_IT = (
    "Compare the values: {column: ..., equals: ...} (or at_least, one_of, ...) under target or "
    "more_targets."
)
_SPELT_TRUTH = {"yes": "true", "on": "true", "no": "false", "off": "false"}


class Unlabelled(BadValues):
    """Some rows have no label, or no weight."""


class NeitherValue(BadValues):
    """Some values of a binary target are neither the value of class 1 nor that of class 0."""

    def __init__(self, places: Places, values: pa.Array, target: TargetSpec):
        two = (target.equals, target.otherwise)
        self._two = [str(value) for value in two]
        super().__init__(
            places,
            values,
            "neither {!r} nor {!r}".format(*two),
            "Correct the value, or write a null if it means a missing value. To count further "
            "values as 1, and all others as 0, use a features document with "
            f"target: {{column: {target.column}, one_of: [{two[0]}, ...]}}.",
        )

    def described(self, number: int) -> str:
        text = str(self.values[int(self.items[number])]).strip()
        return super().described(number) + (guess(text, self._two) if text else "")


def labels_of(
    values: pa.Array | pa.ChunkedArray, target: TargetSpec, text: FormatSpec | None
) -> pa.Array:
    """Return each row's label, `[rows]`.

    Labels are 0 or 1 (int8) for a binary target, numbers (float32) for regression, and class
    numbers from 0 on (float32) for a multiclass target. `text` is the format of texts. Raises
    `Unlabelled` for missing labels, and `BadValues` for unusable values.
    """
    values = _labelled(flat(values))
    if target.kind == "regression":
        return finite_numbers(values, text)
    if target.kind == "multiclass":
        return _classes(values, target.classes, text)
    if target.comparison is None:
        numbers = _labelled(numbers_of(values, text, _COMPARE_IT))
        bad = true_positions(pc.and_(pc.not_equal(numbers, 0), pc.not_equal(numbers, 1)))
        if len(bad):
            raise BadValues(bad, values, "neither 0 nor 1", _COMPARE_IT)
        return numbers.cast(pa.int8())
    kind, wanted = target.comparison
    if kind in _COMPARE:
        numbers = _labelled(numbers_of(values, text))
        return _COMPARE[kind](numbers, float(wanted)).cast(pa.int8())
    is_one = np.zeros(len(values), bool)
    for value in wanted if kind == "one_of" else (wanted,):
        is_one |= equal_to(values, value, text)
    if target.otherwise is not None:
        bad = true_positions(~(is_one | equal_to(values, target.otherwise, text)))
        if len(bad):
            raise NeitherValue(bad, values, target)
    return pa.array(is_one.astype(np.int8))


def known_labels_of(
    values: pa.Array | pa.ChunkedArray, target: TargetSpec, text: FormatSpec | None
) -> tuple[pa.Array, pa.Array]:
    """Return all labels of a target that some rows may lack, and which of them are known.

    The labels are those of `labels_of`, with 0 for missing labels. The second array is float32: 1
    for a known label, 0 for a missing one. Raises `BadValues` for unusable values.
    """
    values = flat(values)
    rows = np.delete(np.arange(len(values)), _gaps(values))
    while True:
        try:
            labels = labels_of(values.take(pa.array(rows)), target, text)
            break
        except Unlabelled as missing:  # a text that spells NaN
            rows = np.delete(rows, missing.places)
        except BadValues as bad:
            raise bad.of_rows(rows[bad.places]) from None
    all_labels = np.zeros(len(values), labels.type.to_pandas_dtype())
    all_labels[rows] = labels.to_numpy(zero_copy_only=False)
    known = np.zeros(len(values), np.float32)
    known[rows] = 1
    return pa.array(all_labels), pa.array(known)


def finite_numbers(
    values: pa.Array | pa.ChunkedArray, text: FormatSpec | None, least: float = -np.inf
) -> pa.Array:
    """Return each row's number, float32 `[rows]`.

    Raises `Unlabelled` for missing numbers, and `BadValues` for numbers that are infinite, beyond
    float32 or below `least`. The error names weights if `least` is 0, otherwise labels.
    """
    role = "weight" if least == 0 else "label"
    numbers = _labelled(numbers_of(flat(values), text), role).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        floats = numbers.astype(np.float32)
    bad = true_positions(~np.isfinite(floats) | (floats < least))
    if len(bad):
        problem = "not a finite number" + (", 0 or more" if least == 0 else "")
        if (np.isfinite(numbers[bad]) & ~np.isfinite(floats[bad])).all():
            problem = "beyond the float32 limit of 3.4e38"
        raise BadValues(bad, values, problem, f"Correct the {role}, or leave the row out.")
    return pa.array(floats)


def _classes(
    values: pa.Array, classes: int | tuple[Any, ...] | None, text: FormatSpec | None
) -> pa.Array:
    if isinstance(classes, int):
        numbers = _labelled(numbers_of(values, text)).to_numpy(zero_copy_only=False)
        class_numbers = np.where(
            (numbers >= 0) & (numbers < classes) & (numbers % 1 == 0), numbers, -1
        )
    else:
        class_numbers = np.full(len(values), -1.0)
        for place, value in enumerate(classes or ()):
            class_numbers[equal_to(values, value, text)] = place
    bad = true_positions(class_numbers < 0)
    if len(bad):
        raise BadValues(bad, values, "not one of the target's classes", "Correct target.classes.")
    return pa.array(class_numbers.astype(np.float32))


def window_values(
    values: pa.Array | pa.ChunkedArray, windows: TableWindows, text: FormatSpec | None
) -> pa.Array:
    """Return the values by which rows are divided into windows, `[rows]`.

    They are timestamps, integers or float64. Raises `BadValues` for missing or unusable values.
    """
    values = flat(values)
    if len(gaps := _gaps(values)):
        raise BadValues(gaps, pa.nulls(len(values), values.type), "but windows.by needs it")
    form = text.timestamp if text else None
    if windows.size_ns is not None or (windows.size is None and is_time(values.type)):
        return times_of(values, windows.epoch, form)
    if windows.size is None and pa.types.is_integer(values.type):
        return values
    try:
        return numbers_of(values, text)
    except BadValues:
        if windows.size is not None or not is_text(values.type):
            raise
        return times_of(values, None, form)


def window_numbers(values: pa.Array, windows: TableWindows) -> Places:
    """Return the number of each value's window, int64 `[rows]`; later windows have larger numbers.

    `values` are from `window_values`. If the document gives windows no size, each distinct value is
    a window, numbered from 0.
    """
    if windows.size_ns is not None:
        # In microseconds: dates such as 9999-12-31 do not fit into nanoseconds.
        numbers: Places = microseconds(values).to_numpy() // (windows.size_ns // 1000)
    elif windows.size is not None:
        numbers = np.floor_divide(values.to_numpy(), float(windows.size))
    else:
        numbers = np.unique(values.to_numpy(zero_copy_only=False), return_inverse=True)[1]
    return numbers.astype(np.int64)


def validation_mask(
    values: pa.Array | pa.ChunkedArray, split: TimeSplit | ColumnSplit, text: FormatSpec | None
) -> Mask:
    """Return a mask of validation rows, `[rows]`.

    Raises `BadValues` if rows are split by time and a time is missing or unusable.
    """
    values = flat(values)
    match split:
        case ColumnSplit(equals=value):
            return equal_to(values, value, text)
        case TimeSplit(start=start):
            if len(gaps := _gaps(values)):
                nothing = pa.nulls(len(values), values.type)
                raise BadValues(gaps, nothing, "but split.by time needs it")
            if isinstance(start, str):
                times = microseconds(times_of(values, None, text.timestamp if text else None))
                first: float = microseconds_from(start)
            else:
                times, first = numbers_of(values, text), float(start)
            return np.asarray(pc.greater_equal(times, first).fill_null(False))


def hashed_rows(
    values: pa.Array, share: float, *, is_test: bool = False
) -> tuple[Mask, frozenset[int]]:
    """Return a mask of the rows that a split by hash selects, `[rows]`, and some hashes.

    `share` is the share of the values, not of the rows. Validation rows have the lowest hashes,
    test rows (`is_test`) the highest. Rows with a missing value are training rows. The hashes are
    at most `FEWEST_HASHED` different hashes of the values, which show whether there are enough
    different values.
    """
    distinct = category_texts_of(values).dictionary_encode()
    hashes = stable_buckets(distinct.dictionary, _HASH_PLACES)
    if is_test:
        hashes = _HASH_PLACES - 1 - hashes
    chosen = np.append(hashes < share * _HASH_PLACES, False)
    mask: Mask = chosen[distinct.indices.fill_null(len(hashes)).to_numpy(zero_copy_only=False)]
    return mask, frozenset(np.unique(hashes)[:FEWEST_HASHED].tolist())


def equal_to(
    values: pa.Array, wanted: bool | int | float | str, text: FormatSpec | None = None
) -> Mask:
    """Return a mask of the values that equal `wanted`, `[rows]`; false for nulls.

    Texts are compared as texts, or as the numbers or booleans that they spell.
    """
    dtype = values.type
    is_exact = is_text(dtype) or pa.types.is_integer(dtype) or pa.types.is_decimal(dtype)
    if is_exact and isinstance(wanted, int) and abs(wanted) > EXACT_DOUBLES:
        wanted = str(wanted)  # float64 would round it
    if is_text(values.type) and not isinstance(wanted, bool | str):
        matches = pc.equal(_spelt_numbers(values, text), float(wanted))
    elif is_text(values.type):
        wanted_text = category_texts(pa.array([str(wanted)], values.type))[0]
        matches = pc.equal(category_texts(values), wanted_text)
    elif isinstance(wanted, str):
        wanted_text = (
            _SPELT_TRUTH.get(wanted.lower(), wanted) if pa.types.is_boolean(values.type) else wanted
        )
        try:
            wanted_text = category_texts(pa.array([wanted_text]))[0]
            matches = pc.equal(values, wanted_text.cast(values.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # `wanted` is of another type
            matches = pa.array(np.zeros(len(values), bool))
    else:
        matches = pc.equal(numbers_of(values), float(wanted))
    mask: Mask = matches.fill_null(False).to_numpy(zero_copy_only=False)
    return mask


def _spelt_numbers(values: pa.Array, text: FormatSpec | None) -> pa.Array:
    try:
        return numbers_of(values, text)
    except BadValues as bad:
        spelt = np.ones(len(values), bool)
        spelt[bad.places] = False
        nothing = pa.scalar(None, values.type)
        return numbers_of(pc.if_else(pa.array(spelt), values, nothing), text)


def mistake_of_target(dtype: pa.DataType, target: TargetSpec) -> str | None:
    """Return why a parquet column of this type cannot be the target; `None` if it can."""
    if holds_lists(dtype) or pa.types.is_nested(dtype) or is_time(dtype):
        return f"{dtype}, which cannot be a target"
    return mistake_of_values(dtype)


def mistake_of_split(dtype: pa.DataType, split: RowSplit) -> str | None:
    """Return why rows cannot be split by a parquet column of this type; `None` if they can.

    Lists and nested values cannot split rows. Times must be compared with times, and numbers with
    numbers.
    """
    if holds_lists(dtype) or pa.types.is_nested(dtype):
        return f"{dtype}, which cannot split rows"
    if isinstance(split, TimeSplit):
        wants_time = isinstance(split.start, str)
        if wants_time and not (is_time(dtype) or holds_text(dtype)):
            return f"{dtype}, not times; give split.from as a number"
        if not wants_time and is_time(dtype):
            return f"{dtype}, not numbers; give split.from as a time"
    if isinstance(split, ColumnSplit) and is_time(dtype) and not isinstance(split.equals, str):
        return f"{dtype}, not numbers; give split.equals as a time"
    return mistake_of_values(dtype)


def _labelled(values: pa.Array, role: str = "label") -> pa.Array:
    gaps = _gaps(values)
    if len(gaps):
        hint = "target: {column: ..., missing: drop} drops rows without a label; "
        hint += "in more_targets, missing: unknown keeps them."
        if role == "weight":
            hint = "Give each row a weight, 0 or more."
        nothing = pa.nulls(len(values), values.type)
        raise Unlabelled(gaps, nothing, f"but each row needs a {role}", hint)
    return values


def _gaps(values: pa.Array) -> Places:
    return true_positions(values.is_null(nan_is_null=pa.types.is_floating(values.type)))
