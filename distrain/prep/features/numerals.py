"""Converts values of any type to numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from distrain.prep.features.bad_values import converted, parsed
from distrain.prep.features.document import FormatSpec
from distrain.prep.operators.spelling import category_texts
from distrain.prep.raw_values import number_of
from distrain.prep.vocabulary import is_text

EXACT_DOUBLES = 2**53 - 1
"""Up to this number, different integers stay different as float64; `2**53 + 1` becomes `2**53`."""


def numbers_of(
    values: pa.Array, text: FormatSpec | None = None, hint: str | None = None
) -> pa.Array:
    """Return values as float64, parsing texts; booleans are 0 and 1.

    Texts may be amounts such as `$1,234.50`; `text` has their decimal mark, by default a point.
    Raises `BadValues` for texts that are not numbers. `hint` is the hint of that error.
    """
    if not is_text(values.type):
        return values.cast(pa.float64(), safe=False)
    point = "." if text is None else text.decimal_point
    for plain in _plain_texts(values, point):
        with suppress(pa.ArrowInvalid):
            return plain.cast(pa.float64())
    return parsed(values, partial(number_of, point=point), pa.float64(), "not a number", hint)


def _plain_texts(values: pa.Array, point: str) -> Iterator[pa.Array]:
    """Yield variants of the texts that Arrow's fast cast to float64 may accept.

    A cast that succeeds gives the same numbers as `number_of`. The first variant has a point for a
    decimal comma; the second also has no blanks around the texts. Yields nothing if `point` is a
    comma and a text has a point, which may separate thousands.
    """
    if point == ",":
        if pc.any(pc.match_substring(values, ".")).as_py():
            return  # possibly a thousands separator
        values = pc.replace_substring(values, ",", ".")
    yield values
    yield pc.utf8_trim_whitespace(values)


def integers_of(values: pa.Array, hint: str | None = None) -> pa.Array:
    """Return values as int64, parsing texts; NaN becomes null.

    Raises `BadValues` for values that are not integers of 64 bits. `hint` is the hint of that
    error.
    """
    dtype = values.type
    if pa.types.is_floating(dtype):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, dtype), values)
    try:
        return values.cast(pa.int64())
    except pa.ArrowInvalid:  # perhaps only because of blanks, or of fractions that are 0
        return converted(values, _whole, "not an integer of 64 bits", hint)


def _whole(values: pa.Array) -> pa.Array:
    if is_text(values.type):
        values = category_texts(pc.utf8_trim_whitespace(values))
        truth = pc.index_in(values, value_set=pa.array(["false", "true"], values.type))
        values = pc.coalesce(truth.cast(values.type), values)
    return values.cast(pa.int64())
