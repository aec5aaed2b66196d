"""Converts values to texts: a value has one spelling, independent of its type and file format."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from distrain.prep.raw_values import BETWEEN_TEXTS, canonical
from distrain.prep.vocabulary import is_text

_NUMERAL = (
    r"^(-?(0|[1-9][0-9]*)(\.[0-9]+([eE][-+]?[0-9]{1,3})?|[eE][-+]?[0-9]{1,3})|-0"
    r"|[tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$"
)


def texts_of(values: pa.Array) -> pa.Array:
    """Return values as texts; NaN becomes null, and texts are unchanged.

    Numbers, of any width or scale, have no exponent and no zeros at the end of a fraction. Times
    have a fraction only if it is not 0; times with a zone are in UTC, with a `Z`.

    Raises:
        pa.ArrowInvalid: Bytes are not UTF-8, or a time is outside the years -32767 to 32767.

    >>> from decimal import Decimal
    >>> texts_of(pa.array([Decimal("1.50"), Decimal("200.00")])).to_pylist()
    ['1.5', '200']
    >>> texts_of(pa.array([1.5, 200, 1e-7, 1e15, -0.0])).to_pylist()
    ['1.5', '200', '0.0000001', '1000000000000000', '0']
    >>> texts_of(pa.array([0, 1500], pa.timestamp("ms"))).to_pylist()
    ['1970-01-01 00:00:00', '1970-01-01 00:00:01.5']
    """
    if is_text(values.type):
        return values
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    types = pa.types
    if not (
        types.is_floating(values.type)
        or types.is_decimal(values.type)
        or types.is_temporal(values.type)
    ):
        return values.cast(pa.string())
    encoded = values.dictionary_encode()
    return _spelled(encoded.dictionary).take(encoded.indices)


def category_texts(values: pa.Array) -> pa.Array:
    """Return values as texts, like `texts_of`; texts that spell a number or boolean are respelled.

    They get the spelling that `texts_of` gives to that number or boolean, so a value has the same
    category in CSV, JSON and typed columns. Texts with leading zeros or a plus sign are unchanged.

    >>> category_texts(pa.array(["2.0", "1.50", "1e-07", "True", "007", "v1.0"])).to_pylist()
    ['2', '1.5', '0.0000001', 'true', '007', 'v1.0']
    """
    if not is_text(values.type):
        return texts_of(values)
    is_numeral = pc.match_substring_regex(values, _NUMERAL).fill_null(False)
    if not pc.any(is_numeral).as_py():
        return values
    encoded = values.filter(is_numeral).dictionary_encode()
    spelled = _canonical(encoded.dictionary)
    return pc.replace_with_mask(values, is_numeral, spelled.take(encoded.indices))


def _canonical(numerals: pa.Array) -> pa.Array:
    lower = pc.utf8_lower(numerals)
    # Python respells only texts with exponents, and texts so long that float64 may overflow.
    rare = pc.match_substring_regex(lower, "[0-9]e|^.{300}")
    digits = [canonical(text) for text in numerals.filter(rare).to_pylist()]
    lower = pc.replace_substring_regex(lower, r"(\.\d*?)0+$", r"\1")
    lower = pc.replace_substring_regex(lower, r"\.$", "")
    lower = pc.if_else(pc.equal(lower, "-0"), pa.scalar("0", lower.type), lower)
    return pc.replace_with_mask(lower, rare, pa.array(digits, lower.type))


def joined_texts(columns: Sequence[pa.Array], missing: str | None = None) -> pa.Array:
    """Join each row's texts to one text, of type large_string; different rows get different texts.

    A row with a null gives null, unless `missing` replaces nulls. A single column is only cast.
    """
    texts = [column.cast(pa.large_string()) for column in columns]
    if len(texts) == 1:
        return texts[0]
    apart = []
    for some in texts:  # escape the separator, so that different rows stay different
        some = pc.replace_substring(some, "\\", "\\\\")
        some = pc.replace_substring(some, BETWEEN_TEXTS, "\\u")
        apart.append(some if missing is None else pc.fill_null(some, missing))
    return pc.binary_join_element_wise(*apart, pa.scalar(BETWEEN_TEXTS, pa.large_string()))


def crossed(columns: Sequence[pa.Array]) -> pa.Array:
    """Return the texts of several columns joined to one category; null where all are null.

    >>> found = crossed([pa.array(["a", None]), pa.array(["x", None])]).to_pylist()
    >>> found[0].split(BETWEEN_TEXTS), found[1]
    (['a', 'x'], None)
    """
    nothing = columns[0].is_null()
    for column in columns[1:]:
        nothing = pc.and_(nothing, column.is_null())
    joined = joined_texts(columns, _MISSING)
    return pc.if_else(nothing, pa.scalar(None, joined.type), joined)


_MISSING = "\\0"  # no text has this spelling, because backslashes of texts are doubled


def _spelled(values: pa.Array) -> pa.Array:
    dtype = values.type
    if pa.types.is_timestamp(dtype) and dtype.tz is not None:
        values = values.cast(pa.timestamp(dtype.unit, "UTC"))
    texts = values.cast(pa.string())
    if pa.types.is_temporal(dtype):
        if pc.any(pc.starts_with(texts, "<")).as_py():
            raise pa.ArrowInvalid("a time beyond the years that text can represent")
    else:
        texts = _without_exponents(texts)
    texts = pc.replace_substring_regex(texts, r"(\.\d*?)0+(Z?)$", r"\1\2")
    texts = pc.replace_substring_regex(texts, r"\.(Z?)$", r"\1")
    return pc.if_else(pc.equal(texts, "-0"), "0", texts)


def _without_exponents(texts: pa.Array) -> pa.Array:
    has_exponent = pc.match_substring_regex(texts, "[eE]").fill_null(False)
    if not pc.any(has_exponent).as_py():
        return texts
    digits = [canonical(text) for text in texts.filter(has_exponent).to_pylist()]
    return pc.replace_with_mask(texts, has_exponent, pa.array(digits, pa.string()))
