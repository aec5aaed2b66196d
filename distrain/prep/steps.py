"""Steps: functions that apply one operator to the values of a column, with NumPy alone.

`distrain prep` calls steps on views of Arrow's buffers. `distrain export --with-workflow` writes a
copy of this file, and traces the steps to make `raw.onnx`: all except those that look values up
also accept tensors of a graph (`onnx_steps.Tensor`). The argument `step` has the operator's
settings, as in `program.json`; the third argument has the vocabularies, by name.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distrain.prep.raw_values import Array, UnusableValue, refuse

NULL_ID, FIRST_OOV_ID = 1, 2
_CLOCK = {"minute": (60_000_000, 60), "hour": (3_600_000_000, 24)}
"""For each part of the time of day: its length in microseconds, and the number of its values."""
_DAY_US = 86_400_000_000


class Values(NamedTuple):
    """Values of a column, and a mask of the missing values.

    Attributes:
        x: An array of numbers or times, `[rows]`. For texts, and for integers that are looked up,
            a list with `None` for missing values.
        missing: The mask of missing values, bool `[rows]`; `None` if no value is missing, or if
            missing values are NaN, NaT or `None` in `x`.
    """

    x: Any
    missing: Any = None

    @property
    def is_missing(self) -> Any:
        """The mask of missing values, bool `[rows]`; `x` must be an array."""
        return np.isnan(self.x) if self.missing is None else self.missing

    @property
    def listed(self) -> list[Any]:
        """The values as a list, with `None` for missing values."""
        if isinstance(self.x, list):
            return self.x
        pairs = zip(self.x.tolist(), self.is_missing.tolist(), strict=True)
        return [None if gap else value for value, gap in pairs]


Step = Mapping[str, Any]


def fill_missing(values: Values, step: Step, _: Any) -> Values:
    """Return the values with missing ones replaced by the setting `value`."""
    fill = step["value"]
    if isinstance(values.x, list):
        return Values([fill if value is None else value for value in values.x])
    return Values(np.where(values.is_missing, fill, values.x))


def clip(values: Values, step: Step, _: Any) -> Values:
    """Return numbers limited to the settings `min` and `max` (`None`: no bound).

    Missing values stay missing.
    """
    x, low, high = values.x, step["min"], step["max"]
    if isinstance(low, float) or isinstance(high, float):  # a bound may not fit the integer type
        x = x.astype(np.float64)
    x = x if low is None else np.where(x <= low, low, x)  # 0 for -0.0, too
    return values._replace(x=x if high is None else np.where(x > high, high, x))


def log(values: Values, _step: Any, _: Any) -> Values:
    """Return the logarithm of 1 + x; raises `UnusableValue` as `check_log` does."""
    check_log(values.x)
    return values._replace(x=np.log1p(values.x))


def check_log(x: Any) -> None:
    """Raise `UnusableValue` if a number is -1 or less; NaN is accepted."""
    refuse(x <= -1, "log(1 + x) is undefined")


def normalize(values: Values, step: Step, _: Any) -> Values:
    """Return (x - `mean`) / `std`, float64, and 0 for missing values.

    `mean` and `std` are settings in `step`, as are `min` and `max`, to which x is limited first
    (`None`: no bound).
    """
    x = clip(values, step, None).x.astype(np.float64)
    return Values(np.where(values.is_missing, 0.0, (x - step["mean"]) / step["std"]))


def missing_flag(values: Values, _step: Any, _: Any) -> Values:
    """Return 1 for missing values and 0 for others, float64."""
    return Values(values.is_missing.astype(np.float64))


def bucketize(values: Values, step: Step, _: Any) -> Values:
    """Return the index of each number's bucket, int64; missing values stay missing.

    The index is the number of `edges` that are at most x. With `log_square` it is x rounded down
    if the size of x is at most 2, else ln(|x|)² rounded down, plus 2, with the sign of x.
    """
    x, is_missing = values.x.astype(np.float64), values.is_missing
    if step["log_square"]:
        size = np.abs(x)
        log_of = np.log(np.minimum(np.maximum(size, 2.0), np.finfo(np.float64).max))
        above = np.copysign(np.floor(log_of * log_of) + 2, x)
        buckets = np.where(size <= 2, np.floor(x), above)
    else:
        buckets = np.searchsorted(np.array(step["edges"], np.float64), x, side="right")
    return Values(np.where(is_missing, 0, buckets).astype(np.int64), is_missing)


def limits(values: Values, step: Step, _: Any) -> Values:
    """Return the values.

    Raises `UnusableValue` if one is below the setting `low` or above `high`.
    """
    for bound, compare in ((step["low"], np.less), (step["high"], np.greater)):
        if bound is not None:
            refuse(compare(values.x, bound), "beyond the float32 limit of 3.4e38")
    return values


def _categorify(values: Values, step: Step, known: Mapping[str, Any]) -> Values:
    return Values(known[step["vocabulary"]].ids_of(values.listed))


def _encode(values: Values, step: Step, known: Mapping[str, Any]) -> Values:
    vocabulary: Vocabulary = known[step["vocabulary"]]
    return Values(vocabulary.numbers[vocabulary.ids_of(values.listed)])


def _hash_bucket(values: Values, step: Step, _: Any) -> Values:
    listed = values.listed
    distinct = list({*listed} - {None})
    buckets = bucket_of(_keys_of(distinct, listed), step["num_buckets"]).tolist()
    known = dict(zip(distinct, buckets, strict=True))
    return Values([known.get(value) for value in listed])


def _calendar(values: Values, step: Step, _: Any) -> Values:
    """Return a part of each time: integers with a mask if `step["whole"]`, else float64 with NaN.

    `values.x` is an array of type `datetime64[us]`.
    """
    missing = np.isnat(values.x)
    parts = Values(calendar_part(values.x.astype(np.int64), step["part"]), missing)
    return parts if step["whole"] else Values(np.where(missing, np.nan, parts.x))


def calendar_part(clock: Any, part: str) -> Any:
    """Return one part of each time, `[rows]`, int64; float64 if `part` is `seconds`.

    `clock` has the times in microseconds since 1970, int64 `[rows]`. `part` is `year`, `month`,
    `day`, `weekday` (Monday is 0), `hour`, `minute` or `seconds` (since 1970).
    Source: Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
    """
    if part == "seconds":
        return clock.astype(np.float64) / 1e6
    if part in _CLOCK:
        size, many = _CLOCK[part]
        return clock // size % many
    days = clock // _DAY_US
    if part == "weekday":
        return (days + 3) % 7
    era, of_era = (days + 719_468) // 146_097, (days + 719_468) % 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (year * 365 + year // 4 - year // 100)  # days since the first of March
    month = (of_year * 5 + 2) // 153
    later = month // 10  # 1 for January and February
    if part == "day":
        return of_year - (month * 153 + 2) // 5 + 1
    return month + 3 - later * 12 if part == "month" else year + era * 400 + later


STEPS: dict[str, Callable[[Values, Any, Any], Values]] = {
    "FillMissing": fill_missing,
    "Clip": clip,
    "LogOp": log,
    "Normalize": normalize,
    "Categorify": _categorify,
    "MissingFlag": missing_flag,
    "Bucketize": bucketize,
    "QuantileBuckets": bucketize,
    "HashBucket": _hash_bucket,
    "CountEncode": _encode,
    "TargetEncode": _encode,
    "calendar": _calendar,
    "limits": limits,
}
"""The functions of steps, by kind of operator.

`calendar` and `limits` are not operators; they repeat conversions and checks of features documents.
"""


def after_steps(values: Values, steps: Sequence[Step], known: Mapping[str, Any]) -> Values:
    """Return a column's values after all `steps`; `known` has the vocabularies by name."""
    for step in steps:
        values = STEPS[step["kind"]](values, step, known)
    return values


class Vocabulary:
    """Looks up the ids of a column's values, in files that any process can map into memory.

    Args:
        folder: Has the files `NAME.keys.npy` (in id order: the integers, or the CRC-32 of the
            texts), `NAME.order.npy` (their sort order) and, for texts, `NAME.offsets.npy` and
            `NAME.text.npy` (UTF-8).
        name: The `NAME` in these file names.
        holds: "integer" or "text".
        num_oov: Number of out-of-vocabulary ids.
        has_numbers: Whether there is a file `NAME.numbers.npy` with a number for each id.
    """

    def __init__(
        self, folder: Path, name: str, holds: str, num_oov: int, has_numbers: bool = False
    ):
        def load(what: str) -> Any:  # an array: each access to a `memmap` creates a new `memmap`
            return np.asarray(np.load(folder / f"{name}.{what}.npy", mmap_mode="r"))

        self._keys, self._order = load("keys"), load("order")
        self._is_text, self._num_oov = holds == "text", num_oov
        self.numbers: Array = load("numbers") if has_numbers else np.zeros(0)
        if self._is_text:
            self._offsets, self._text = load("offsets"), load("text")

    def ids_of(self, values: Sequence[Any]) -> Array:
        """Return the id of each value, `[len(values)]`, int64.

        `None` gets `NULL_ID`, and a value without an id the out-of-vocabulary id of its hash.
        """
        new = dict.fromkeys(values)
        new.pop(None, None)
        id_of = self._look_up(list(new), values) | {None: NULL_ID}
        return np.array([id_of[value] for value in values], np.int64)

    def _look_up(self, values: list[Any], column: Sequence[Any]) -> dict[Any, int]:
        keys = _keys_of(values, column)
        wanted = keys.astype(self._keys.dtype)
        firsts = np.searchsorted(self._keys, wanted, sorter=self._order).tolist()
        unknown = (FIRST_OOV_ID + bucket_of(keys, self._num_oov)).tolist()
        id_of = dict(zip(values, unknown, strict=True))
        for value, key, first in zip(values, keys.tolist(), firsts, strict=True):
            for place in self._order[first:]:
                if self._keys[place] != key:
                    break
                if not self._is_text or self._text_at(place) == value.encode():
                    id_of[value] = FIRST_OOV_ID + self._num_oov + int(place)
                    break
        return id_of

    def _text_at(self, place: int) -> bytes:
        text: bytes = self._text[self._offsets[place] : self._offsets[place + 1]].tobytes()
        return text


def _keys_of(values: Sequence[Any], column: Sequence[Any]) -> Array:
    try:
        return keys_of(values)
    except UnicodeEncodeError as error:
        raise UnusableValue(column.index(error.object), "not a text: it has no UTF-8") from None


def keys_of(values: Sequence[Any]) -> Array:
    """Return the number to hash for each value, int64: the integer, or the CRC-32 of the text."""
    if len(values) and isinstance(values[0], str):
        values = [zlib.crc32(one.encode()) for one in values]
    return np.array(values, np.int64)


def bucket_of(keys: Any, num_buckets: int) -> Any:
    """Return the bucket of each key, `0 .. num_buckets-1`, int64.

    The hash is one step of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
    generators").
    """
    if num_buckets == 1:
        return keys * 0
    x = keys.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) % np.uint64(num_buckets)).astype(np.int64)
