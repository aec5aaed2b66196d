"""Converts values to times, and times to parts such as the hour."""

from __future__ import annotations

import datetime
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from distrain.prep.features.bad_values import BadValues, converted, parsed, true_positions
from distrain.prep.features.numerals import integers_of
from distrain.prep.raw_values import END_OF_TIMES, FIRST_TIME, time_of
from distrain.prep.vocabulary import is_text

_PARTS = {
    "minute": pc.minute,
    "hour": pc.hour,
    "weekday": pc.day_of_week,
    "day": pc.day,
    "month": pc.month,
    "year": pc.year,
}
_UTC = datetime.UTC
_FAR = "not a time in the years 1 to 9999"
_SET_EPOCH = "If numbers count from 1970, set epoch to their unit in the features document."


def is_time(dtype: pa.DataType) -> bool:
    """Return True for timestamps and dates, not for times of day."""
    return bool(pa.types.is_timestamp(dtype) or pa.types.is_date(dtype))


def times_of(values: pa.Array, epoch: str | None, pattern: str | None) -> pa.Array:
    """Return the values as timestamps in microseconds, in the years 1 to 9999.

    Typed times keep their time zone. Numbers count `epoch` units since 1970, without a fraction of
    a unit. Texts are parsed by `pattern`; those of another form, or all if it is `None`, as ISO
    8601. With offsets in ISO 8601, the times are in UTC. Raises `BadValues` for values that are not
    such times.
    """
    if epoch is not None:
        if pa.types.is_floating(values.type):
            values = pc.trunc(values)
        counted = integers_of(values, "With epoch, values must be integers.")
        return _near(counted.view(pa.timestamp(epoch)), counted, "Is epoch the right unit?")
    if is_text(values.type):
        return _parsed(values, pattern)
    if pa.types.is_null(values.type):
        return values.cast(pa.timestamp("us"))
    if not is_time(values.type):  # such as numbers of JSON lines
        raise BadValues(true_positions(values.is_valid()), values, "not a time", _SET_EPOCH)
    return _near(values, values)


def _near(times: pa.Array, originals: pa.Array, hint: str | None = None) -> pa.Array:
    """Return times, converted to microseconds.

    Raises `BadValues` for times outside the years 1 to 9999. The error shows the values of
    `originals`, from which the times were computed.
    """
    zone = times.type.tz if pa.types.is_timestamp(times.type) else None
    # Nanoseconds are truncated, and never out of range.
    nanoseconds = times.type == pa.timestamp("ns", zone)

    def in_microseconds(some: pa.Array) -> pa.Array:
        return pc.cast(some, pa.timestamp("us", zone), safe=not nanoseconds)

    try:
        near = converted(times, in_microseconds, _FAR)
        counted = near.view(pa.int64())
        far = true_positions(
            pc.or_(pc.less(counted, FIRST_TIME), pc.greater_equal(counted, END_OF_TIMES))
        )
    except BadValues as bad:
        far = bad.places
    if len(far):
        raise BadValues(far, originals, _FAR, hint)
    return near


def _parsed(values: pa.Array, pattern: str | None) -> pa.Array:
    if pattern is not None:
        times = pc.strptime(values, format=pattern, unit="us", error_is_null=True)
        bad = pc.and_(times.is_null(), values.is_valid())
        if "%Y" in pattern:  # Arrow accepts two digits, and reads 24 as the year 24
            bad = pc.or_(bad, pc.less(pc.year(times), 1000).fill_null(False))
        if not pc.any(bad).as_py():
            return times
        others = pc.if_else(bad, values, pa.scalar(None, values.type))
        try:
            iso = microseconds(_parsed(others, None)).view(times.type)
        except BadValues as neither:
            hint = "In format.timestamp, %Y is a year of four digits, %y of two."
            problem = f"not a time in the form of format.timestamp, {pattern!r}, nor of ISO 8601"
            raise BadValues(neither.places, values, problem, hint) from None
        return pc.if_else(bad, iso, times)
    for zone in (None, "UTC"):  # Arrow's cast needs an offset in all texts, or in none
        with suppress(pa.ArrowInvalid):
            return values.cast(pa.timestamp("us", zone))
    return parsed(values, time_of, pa.timestamp("us", "UTC"), "not an ISO 8601 time", _hint(values))


def _hint(values: pa.Array) -> str:
    if pc.all(pc.match_substring_regex(values, r"^\s*-?\d{9,}\s*$")).as_py():
        return (
            "These values count from 1970: set epoch: s (or ms, us, ns) of a column, and a number "
            "such as from: 1451606400 in a split by time."
        )
    return "Set format.timestamp to the form of these times; those of ISO 8601 are read as well."


def calendar(times: pa.Array, part: str) -> pa.Array:
    """Return a part of each time, int64 (`seconds` since 1970: float64).

    Times with a zone are converted to UTC, so that an instant has the same hour in all files.
    """
    if part == "seconds":
        return pc.divide(microseconds(times).cast(pa.float64(), safe=False), 1e6)
    return _PARTS[part](microseconds(times).view(pa.timestamp("us"))).cast(pa.int64())


def microseconds(times: pa.Array) -> pa.Array:
    """Return timestamps or dates as int64 microseconds since 1970; nulls stay nulls."""
    return times.cast(pa.timestamp("us", times.type.tz)).view(pa.int64())


def microseconds_from(text: str) -> int:
    """Return the microseconds since 1970 of a time as text; without a zone it is UTC.

    >>> microseconds_from("1970-01-02")
    86400000000
    """
    time = datetime.datetime.fromisoformat(text)
    time = time.replace(tzinfo=_UTC) if time.tzinfo is None else time
    since: Any = time - datetime.datetime(1970, 1, 1, tzinfo=_UTC)
    return int(since // datetime.timedelta(microseconds=1))
