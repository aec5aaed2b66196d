"""Numbers from values of any type."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from distrain.prep.features.bad_values import converted
from distrain.prep.features.document import FormatSpec
from distrain.prep.operators.spelling import category_texts
from distrain.prep.vocabulary import is_text


def numbers_of(
    values: pa.Array, text: FormatSpec | None = None, hint: str | None = None
) -> pa.Array:
    """The numbers that values are or spell, float64; truth values are 0 and 1."""
    if not is_text(values.type):
        return values.cast(pa.float64(), safe=False)
    point = "." if text is None else text.decimal_point

    def parse(some: pa.Array) -> pa.Array:
        some = _plain(pc.utf8_trim_whitespace(some), point)
        return some.cast(pa.float64())

    try:
        return (values if point == "." else _plain(values, point)).cast(pa.float64())
    except pa.ArrowInvalid:  # perhaps only for blanks around numbers
        lower = pc.utf8_lower(pc.utf8_trim_whitespace(values))
        truth = pc.is_in(lower, value_set=pa.array(["true", "false"], values.type))
        numerals = pc.if_else(pc.equal(lower, "true"), "1", pc.if_else(truth, "0", values))
        return converted(numerals, parse, "not a number", hint)


# A group of digits after a 0 is a fraction: 0,125 is never 125.
_GROUPED = r"^-?[1-9]\d{{0,2}}([{mark}]\d{{3}})+([{point}]\d+)?$"


def _plain(values: pa.Array, point: str) -> pa.Array:
    """Return amounts such as `$1,234.56` as plain digits with a decimal point."""
    values = pc.replace_substring_regex(values, r"^(-?)[$€£¥] ?|[ \x{a0}]?[€£¥]$", r"\1")
    mark = "," if point == "." else "."
    grouped = pc.match_substring_regex(values, _GROUPED.format(mark=mark, point=point))
    values = pc.if_else(grouped, pc.replace_substring(values, mark, ""), values)
    return values if point == "." else pc.replace_substring(values, ",", ".")


def integers_of(values: pa.Array, hint: str | None = None) -> pa.Array:
    """Return the whole numbers that values are or spell, int64; NaN is missing."""
    dtype = values.type
    if pa.types.is_floating(dtype):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, dtype), values)
    try:
        return values.cast(pa.int64())
    except pa.ArrowInvalid:  # perhaps only because of blanks, or of fractions that are 0
        return converted(values, _whole, "not a whole number of 64 bits", hint)


def _whole(values: pa.Array) -> pa.Array:
    if is_text(values.type):
        values = category_texts(pc.utf8_trim_whitespace(values))
        truth = pc.index_in(values, value_set=pa.array(["false", "true"], values.type))
        values = pc.coalesce(truth.cast(values.type), values)
    return values.cast(pa.int64())
