"""Converts values of any type to texts, integers, numbers or times, with NumPy alone.

`distrain export --with-workflow` writes a copy of this file. The results equal those of `distrain
prep` for tables, text files, and JSON lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

_NONE, _INT64 = type(None), range(-(2**63), 2**63)
FIRST_TIME, END_OF_TIMES = -62_135_596_800_000_000, 253_402_300_800_000_000
"""The years 1 to 9999, in microseconds since 1970: `FIRST_TIME <= time < END_OF_TIMES`."""
BETWEEN_TEXTS = "\x1f"
"""The separator between the texts of several columns that together are one category."""
_CURRENCY = re.compile(r"^(-?)[$€£¥] ?|[ \xa0]?[€£¥]$")
_GROUPED = {
    ".": re.compile(r"-?[1-9]\d{0,2}(,\d{3})+(\.\d+)?", re.A),
    ",": re.compile(r"-?[1-9]\d{0,2}(\.\d{3})+(,\d+)?", re.A),
}
_TRUTH = {"true": "1", "false": "0"}
_EPOCHS = {"s": 1_000_000, "ms": 1000, "us": 1}
_MISSING_TYPES = ("NAType", "NaTType")
_NUMBER = re.compile(r"[-+]?((\d+\.?\d*|\.\d+)(e[-+]?\d+)?|inf(inity)?|nan)", re.A | re.I)
_NUMERAL = re.compile(
    r"-?(0|[1-9]\d*)(\.\d+([eE][-+]?\d{1,3})?|[eE][-+]?\d{1,3})|-0|(?i:true|false)", re.A
)
_WHOLE = re.compile(r"-?\d+|0[xX][0-9a-fA-F]{1,16}", re.A)
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[ T](\d\d)(?::?(\d\d)(?::?(\d\d)(?:\.(\d{1,6}))?)?)?(Z|[+-]\d\d(?::?\d\d)?)?)?",
    re.A,
)


class UnusableValue(Exception):
    """A value that cannot be used, with its index in a column."""

    def __init__(self, place: int, problem: str):
        super().__init__(problem)
        self.place, self.problem = place, problem


def refuse(bad: Any, problem: str) -> None:
    """Raise `UnusableValue` for the first `True` in the array `bad`, if there is one.

    `problem` is the text of the error.
    """
    if bad.any():
        raise UnusableValue(int(np.argmax(bad)), problem)


def to_texts(values: Any, takes: frozenset[str], _text: Any, spec: Any) -> list[Any]:
    is_canonical = spec.get("is_canonical", False)
    if not is_canonical and "text" in takes and set(map(type, values)) <= {str, _NONE}:
        return list(values)
    return each(partial(_as_text, takes=takes, is_canonical=is_canonical), values)


def texts_of_any(values: Iterable[Any]) -> list[Any]:
    """Return values of any types as texts; `None` for missing values.

    Raises `UnusableValue` if a value is a list, or of another type that has no text form.
    """
    kinds = frozenset(["text", "bool", "integer", "number", "decimal", "time"])
    return each(partial(_as_text, takes=kinds, is_canonical=False), values)


def to_integers(values: Any, takes: frozenset[str], _text: Any, _spec: Any) -> list[Any]:
    if (
        "integer" in takes
        and set(map(type, values)) <= {int, _NONE}
        and all(value is None or value in _INT64 for value in values)
    ):
        return list(values)
    return each(partial(_as_integer, takes=takes), values)


def to_numbers(values: Any, takes: frozenset[str], text: Any, spec: Mapping[str, Any]) -> Array:
    kinds = {float, int, _NONE} if {"integer", "number"} <= takes else {float, _NONE}
    if isinstance(values, np.ndarray) and values.dtype.kind == "f" and not spec.get("is_whole"):
        return values.astype(np.float64)
    if set(map(type, values)) <= kinds and not spec.get("is_whole"):
        with suppress(OverflowError):  # reported below with its index
            return np.array(values, np.float64)
    if spec.get("is_whole"):
        values, takes = to_integers(values, takes, text, spec), frozenset(["integer"])
    numbers = each(partial(_as_number, takes=takes, point=text.get("decimal_point")), values)
    return np.array(numbers, np.float64)


def to_times(values: Any, takes: frozenset[str], text: Any, spec: Mapping[str, Any]) -> Array:
    """Return values as `datetime64[us]`, NaT for missing ones.

    `takes` has the kinds of values that are accepted; `text` and `spec` are the entries of the
    program about texts and about the column, such as `epoch`. See `_as_time` for the conversion.
    """
    as_time = partial(_as_time, takes=takes, pattern=text["timestamp"], epoch=spec["epoch"])
    return np.array(each(as_time, values), "M8[us]")


def to_presence(values: Any, _takes: Any, _text: Any, _spec: Any) -> Array:
    """Return 1 for each value that is present and NaN for each missing one, float64."""
    return np.array([np.nan if is_missing(value) else 1.0 for value in values], np.float64)


READERS: dict[str, Callable[..., Any]] = {
    "text": to_texts,
    "integer": to_integers,
    "number": to_numbers,
    "time": to_times,
    "presence": to_presence,
}
"""The functions that read a column's raw values, by the type to which they convert them.

Each is called with the values, the accepted kinds of values, and two entries of `program.json`:
about texts, and about the column. It raises `UnusableValue` for a value of another kind.
"""


def each(convert: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
    """Return `convert` of each value, with `None` for missing values; bytes are decoded first.

    If `convert` raises a `ValueError` or `OverflowError`, raises `UnusableValue` with the index.
    """
    converted = []
    for place, value in enumerate(values):
        try:
            value = _decoded(value) if value.__class__ is bytes else value
            converted.append(None if is_missing(value) else convert(value))
        except (ValueError, OverflowError) as error:
            raise UnusableValue(place, str(error)) from None
    return converted


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{value!r} is not UTF-8") from None


def is_missing(value: Any) -> bool:
    """Return True for `None`, NaN, NaT and the missing values of pandas."""
    if value is None or type(value).__name__ in _MISSING_TYPES:
        return True
    if isinstance(value, float | np.floating | Decimal):
        return bool(value != value)
    return isinstance(value, np.datetime64) and bool(np.isnat(value))


def _kind(value: Any) -> str:
    for kinds, name in (
        (str, "text"),
        ((bool, np.bool_), "bool"),
        ((int, np.integer), "integer"),
        ((float, np.floating), "number"),
        (Decimal, "decimal"),
        ((datetime, date, np.datetime64), "time"),
        (time, "time of day"),
    ):
        if isinstance(value, kinds):
            return name
    return type(value).__name__


def _kind_in(value: Any, takes: frozenset[str]) -> str:
    kind = _kind(value)
    if kind not in takes:
        raise ValueError(f"{value!r} is of kind {kind}, not {' or '.join(sorted(takes))}")
    return kind


def _as_text(value: Any, takes: frozenset[str], is_canonical: bool) -> str:
    kind = _kind_in(value, takes)
    if kind == "text":  # `str.__str__` gives the value of an enumeration's member, as Arrow does
        text = str.__str__(value)
        return canonical(text) if is_canonical else text
    if kind == "bool":
        return "true" if value else "false"
    if kind == "integer":
        return str(int(value))
    if kind == "time":
        return _time_text(value)
    if kind == "decimal":
        return _plain(f"{value:f}")
    if kind == "number":
        shortest = repr(value) if type(value) is float else str(value)
        return _plain(f"{Decimal(shortest):f}" if "e" in shortest else shortest)
    return str(value)


def canonical(text: str) -> str:
    """Return the standard spelling of a number or boolean; other texts are returned unchanged."""
    if not _NUMERAL.fullmatch(text):
        return text
    if text.lower() in ("true", "false"):
        return text.lower()
    return text if np.isinf(float(text)) else _plain(f"{Decimal(text):f}")


def _plain(digits: str) -> str:
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return "0" if digits == "-0" else digits


def _time_text(value: Any) -> str:
    if isinstance(value, np.datetime64):
        text = str(value).replace("T", " ")
        return _plain(text)
    if not isinstance(value, datetime):
        return str(value.isoformat())
    if value.tzinfo is None:
        return _plain(value.isoformat(" "))
    return _plain(value.astimezone(UTC).replace(tzinfo=None).isoformat(" ")) + "Z"


def _as_integer(value: Any, takes: frozenset[str]) -> int:
    kind = _kind_in(value, takes)
    if kind == "text":
        trimmed = canonical(value.strip())
        trimmed = _TRUTH.get(trimmed, trimmed)
        if not _WHOLE.fullmatch(trimmed):
            raise ValueError(f"{value!r} is not an integer")
        is_hex = trimmed[:2] in ("0x", "0X")
        number = int(trimmed, 16) if is_hex else int(trimmed)
        number = number - 2**64 if is_hex and number >= 2**63 else number
    elif kind == "number" and not np.isfinite(value):
        raise ValueError(f"{value!r} is not an integer")
    else:
        number = int(value)
    if (kind in ("number", "decimal") and number != value) or number not in _INT64:
        raise ValueError(f"{value!r} is not an integer of 64 bits")
    return number


def _as_number(value: Any, takes: frozenset[str], point: str | None) -> float:
    is_text = _kind_in(value, takes) == "text"
    return number_of(value, point or ".") if is_text else float(value)


def number_of(text: str, point: str) -> float:
    """Return the number that a text spells; `point` is its decimal mark, a point or a comma.

    True and false are 1 and 0. Currency signs and thousands separators are ignored. Raises
    `ValueError` for other texts.
    """
    trimmed = text.strip()
    if point == "," or not _NUMBER.fullmatch(trimmed):
        trimmed = _plain_amount(trimmed, point)
    if trimmed.lower() in ("true", "false"):
        return float(trimmed.lower() == "true")
    if not _NUMBER.fullmatch(trimmed):
        raise ValueError(f"{text!r} is not a number")
    return float(trimmed)


def _plain_amount(text: str, point: str) -> str:
    """Return an amount such as `$1,234.56` as plain digits with a decimal point.

    `point` is the decimal mark of `text`, a point or a comma.
    """
    text = _CURRENCY.sub(r"\1", text)
    mark = "," if point == "." else "."
    if _GROUPED[point].fullmatch(text):
        text = text.replace(mark, "")
    return text if point == "." else text.replace(",", ".")


def _as_time(value: Any, takes: frozenset[str], pattern: str | None, epoch: str | None) -> int:
    """Return a value as microseconds since 1970; times with a zone are converted to UTC.

    `takes` has the accepted kinds of values; `pattern` is the format of texts (`strptime`), `None`
    for ISO 8601. With `epoch` (`s`, `ms`, `us` or `ns`), the value is a number of such units since
    1970; a fraction of a float is dropped. Raises `ValueError` for a value that is not a time in
    the years 1 to 9999.
    """
    if epoch is not None:
        is_fraction = _kind(value) == "number" and np.isfinite(value)
        counted = _as_integer(np.trunc(value) if is_fraction else value, takes)
        microseconds = _in_microseconds(counted, epoch)
    elif _kind_in(value, takes) == "text":
        microseconds = time_of(value, pattern)
    elif isinstance(value, np.datetime64):
        microseconds = int(value.astype("M8[us]").astype(np.int64))
    elif isinstance(value, datetime):
        offset = value.utcoffset() or timedelta()
        since: Any = value.replace(tzinfo=None) - datetime(1970, 1, 1) - offset
        microseconds = since // timedelta(microseconds=1)
    else:
        microseconds = (value.toordinal() - date(1970, 1, 1).toordinal()) * 86_400_000_000
    if not FIRST_TIME <= microseconds < END_OF_TIMES:
        raise ValueError(f"{value!r} is not a time in the years 1 to 9999")
    return microseconds


def time_of(text: str, pattern: str | None = None) -> int:
    """Return a text's time in microseconds since 1970; times with a zone are converted to UTC.

    Raises a `ValueError` if the text is neither an ISO 8601 time nor, if there is one, of `pattern`
    (of `strptime`).
    """
    if pattern is not None:
        with suppress(ValueError):
            read: Any = datetime.strptime(text.lstrip(), pattern)
            microseconds = (
                read.replace(tzinfo=None) - datetime(1970, 1, 1) - (read.utcoffset() or timedelta())
            )
            return int(microseconds // timedelta(microseconds=1))
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an ISO 8601 time")
    *parts, fraction, zone = match.groups()
    year, month, day, hour, minute, second = (int(part or 0) for part in parts)
    since: Any = datetime(year, month, day, hour, minute, second) - datetime(1970, 1, 1)
    microseconds = since // timedelta(microseconds=1) + int((fraction or "").ljust(6, "0"))
    if zone and zone != "Z":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        away = (int(digits[:2]) * 60 + int(digits[2:])) * 60_000_000
        microseconds -= away if zone[0] == "+" else -away
    return int(microseconds)


def _in_microseconds(counted: int, epoch: str) -> int:
    if epoch == "ns":  # truncated towards 1970, as in Arrow
        return counted // 1000 if counted >= 0 else -(-counted // 1000)
    return counted * _EPOCHS[epoch]
