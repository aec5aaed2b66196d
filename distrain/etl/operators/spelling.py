"""Values as texts: a value has one spelling, whatever its type."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from distrain.vocabulary import is_text

AS_TYPED, PLAIN = 1, 2
"""How texts are made of values: 2 gives a value one spelling, 1 is what was done before."""


def texts_of(values: pa.Array, spelling: int = PLAIN) -> pa.Array:
    """The texts of values, NaN as missing; texts stay as they are.

    Numbers are plain digits without an exponent or trailing zeros, whatever their width or scale.
    Times have a fraction only if it is not 0; those with a zone are told in UTC, with a `Z`.

    Raises:
        pa.ArrowInvalid: Bytes are not UTF-8, or a year has more than five digits.

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
    if spelling == AS_TYPED or not (
        types.is_floating(values.type)
        or types.is_decimal(values.type)
        or types.is_temporal(values.type)
    ):
        return values.cast(pa.string())
    encoded = values.dictionary_encode()
    return _spelled(encoded.dictionary).take(encoded.indices)


def _spelled(values: pa.Array) -> pa.Array:
    dtype = values.type
    if pa.types.is_timestamp(dtype) and dtype.tz is not None:
        values = values.cast(pa.timestamp(dtype.unit, "UTC"))
    texts = values.cast(pa.string())
    if pa.types.is_temporal(dtype):
        if pc.any(pc.starts_with(texts, "<")).as_py():
            raise pa.ArrowInvalid("a time too far away to be told")
    else:
        texts = _without_exponents(texts)
    texts = pc.replace_substring_regex(texts, r"(\.\d*?)0+(Z?)$", r"\1\2")
    texts = pc.replace_substring_regex(texts, r"\.(Z?)$", r"\1")
    return pc.if_else(pc.equal(texts, "-0"), "0", texts)


def _without_exponents(texts: pa.Array) -> pa.Array:
    found = pc.match_substring_regex(texts, "[eE]").fill_null(False)
    if not pc.any(found).as_py():
        return texts
    digits = [f"{Decimal(text):f}" for text in texts.filter(found).to_pylist()]
    return pc.replace_with_mask(texts, found, pa.array(digits, pa.string()))
