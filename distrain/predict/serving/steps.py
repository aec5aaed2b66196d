"""Steps that values of a column go through: distrain's operators with NumPy alone.

`distrain export --with-workflow` writes a copy of this file. A step's settings are an entry of
`program.json`. Numbers are float64 arrays of any shape, NaN for what is missing; other values are
lists. What takes numbers alone takes tensors of a graph, too (`onnx_steps.Tensor`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from distrain.predict.serving.raw_values import Array, UnusableValue, refuse

NULL_ID, FIRST_OOV_ID = 1, 2
_CLOCK = {"minute": (60_000_000, 60), "hour": (3_600_000_000, 24)}
"""By the part of a time, its microseconds, and how many there are."""
_DAY_US = 86_400_000_000


def _fill_missing(x: Any, step: Mapping[str, Any], _: Any) -> Any:
    if isinstance(x, list):
        return [step["value"] if value is None else value for value in x]
    return np.where(np.isnan(x), step["value"], x)


def _clip(x: Array, step: Mapping[str, Any], _: Any) -> Array:
    low, high = step["min"], step["max"]
    x = x if low is None else np.where(x < low, low, x)
    return x if high is None else np.where(x > high, high, x)


def _log(x: Array, _step: Any, _: Any) -> Array:
    refuse(x <= -1, "log(1 + x) does not exist")
    return np.log1p(x)


def _normalize(x: Array, step: Mapping[str, Any], _: Any) -> Array:
    scaled: Array = (x - step["mean"]) / step["std"]
    return scaled


def _categorify(values: list[Any], step: Mapping[str, Any], known: Mapping[str, Any]) -> Array:
    vocabulary: Vocabulary = known[step["vocabulary"]]
    return vocabulary.ids_of(values)


def _missing_flag(values: list[Any], _step: Any, _: Any) -> Array:
    return np.array([value is None for value in values], np.float64)


def _bucketize(x: Array, step: Mapping[str, Any], _: Any) -> list[int | None]:
    return _with_gaps(buckets_of(x, step), np.isnan(x))


def buckets_of(x: Any, step: Mapping[str, Any]) -> Any:
    """The bucket of each number; 0 of NaN."""
    if step["log_square"]:
        size = np.abs(x)
        log = np.log(np.minimum(np.maximum(size, 2.0), np.finfo(np.float64).max))
        above = np.copysign(np.floor(log * log) + 2, x)
        found = np.where(size <= 2, np.floor(x), above)
    else:
        found = np.searchsorted(np.array(step["edges"], np.float64), x, side="right")
    return np.where(np.isnan(x), 0, found)


def _with_gaps(numbers: Array, missing: Array) -> list[int | None]:
    whole = np.floor(numbers).astype(np.int64).tolist()
    return [None if gap else n for n, gap in zip(whole, missing.tolist(), strict=True)]


def _hash_bucket(values: list[Any], step: Mapping[str, Any], _: Any) -> list[int | None]:
    distinct = list({*values} - {None})
    buckets = bucket_of(_keys_of(distinct, values), step["num_buckets"]).tolist()
    known = dict(zip(distinct, buckets, strict=True))
    return [known.get(value) for value in values]


def _encode(values: list[Any], step: Mapping[str, Any], known: Mapping[str, Any]) -> Array:
    vocabulary: Vocabulary = known[step["vocabulary"]]
    numbers: Array = vocabulary.numbers[vocabulary.ids_of(values)]
    return numbers


def _calendar(times: Array, step: Mapping[str, Any], _: Any) -> Any:
    """A part of times, as numbers or as whole numbers."""
    missing, clock = np.isnat(times), times.astype(np.int64)
    found = clock / 1e6 if step["part"] == "seconds" else calendar_part(clock, step["part"])
    return _with_gaps(found, missing) if step["whole"] else np.where(missing, np.nan, found)


def calendar_part(clock: Any, part: str) -> Any:
    """A part of times, int64, of microseconds since 1970.

    Source: Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
    """
    if part in _CLOCK:
        size, many = _CLOCK[part]
        return clock // size % many
    days = clock // _DAY_US
    if part == "weekday":
        return (days + 3) % 7
    era, of_era = (days + 719_468) // 146_097, (days + 719_468) % 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (year * 365 + year // 4 - year // 100)  # from the first of March
    month = (of_year * 5 + 2) // 153
    later = month // 10  # of January and February 1
    if part == "day":
        return of_year - (month * 153 + 2) // 5 + 1
    return month + 3 - later * 12 if part == "month" else year + era * 400 + later


def _limits(x: Array, step: Mapping[str, Any], _: Any) -> Array:
    for bound, compare in ((step["low"], np.less), (step["high"], np.greater)):
        if bound is not None:
            refuse(compare(x, bound), "beyond float32, which ends at 3.4e38")
    return x


STEPS: dict[str, Callable[..., Any]] = {
    "FillMissing": _fill_missing,
    "Clip": _clip,
    "LogOp": _log,
    "Normalize": _normalize,
    "Categorify": _categorify,
    "MissingFlag": _missing_flag,
    "Bucketize": _bucketize,
    "QuantileBuckets": _bucketize,
    "HashBucket": _hash_bucket,
    "CountEncode": _encode,
    "TargetEncode": _encode,
    "calendar": _calendar,
    "limits": _limits,
}


class Vocabulary:
    """The ids of a column's values.

    Args:
        folder: The folder of the files `NAME.*.npy`: keys in the order of the ids, which are whole
            numbers or the CRC-32 of texts, and their rising order; of texts also their UTF-8.
        holds: "integer" or "text".
        num_oov: Over how many ids unknown values are spread.
        has_numbers: Whether there is a file `NAME.numbers.npy`, of a number for each id.
    """

    def __init__(
        self, folder: Path, name: str, holds: str, num_oov: int, has_numbers: bool = False
    ):
        def load(what: str) -> Any:  # a view: each access to a `memmap` makes another
            return np.asarray(np.load(folder / f"{name}.{what}.npy", mmap_mode="r"))

        self._keys, self._order = load("keys"), load("order")
        self._is_text, self._num_oov = holds == "text", num_oov
        self.numbers: Array = load("numbers") if has_numbers else np.zeros(0)
        if self._is_text:
            self._offsets, self._text = load("offsets"), load("text")

    def ids_of(self, values: list[Any]) -> Array:
        """The ids, `[values]`, int64; `None` has one too."""
        new = dict.fromkeys(values)
        new.pop(None, None)
        found = self._look_up(list(new), values) | {None: NULL_ID}
        return np.array([found[value] for value in values], np.int64)

    def _look_up(self, values: list[Any], column: list[Any]) -> dict[Any, int]:
        keys = _keys_of(values, column)
        wanted = keys.astype(self._keys.dtype)
        firsts = np.searchsorted(self._keys, wanted, sorter=self._order).tolist()
        unknown = (FIRST_OOV_ID + bucket_of(keys, self._num_oov)).tolist()
        found = dict(zip(values, unknown, strict=True))
        for value, key, first in zip(values, keys.tolist(), firsts, strict=True):
            for place in self._order[first:]:
                if self._keys[place] != key:
                    break
                if not self._is_text or self._text_at(place) == value.encode():
                    found[value] = FIRST_OOV_ID + self._num_oov + int(place)
                    break
        return found

    def _text_at(self, place: int) -> bytes:
        text: bytes = self._text[self._offsets[place] : self._offsets[place + 1]].tobytes()
        return text


def _keys_of(values: list[Any], column: list[Any]) -> Array:
    """What is hashed of values: whole numbers themselves, of texts the CRC-32."""
    return np.array([_key_of(value, column) for value in values], np.int64)


def _key_of(value: Any, column: list[Any]) -> int:
    try:
        return zlib.crc32(value.encode()) if isinstance(value, str) else int(value)
    except UnicodeError:
        raise UnusableValue(column.index(value), "no text: it has no UTF-8") from None


def bucket_of(keys: Any, num_buckets: int) -> Any:
    """splitmix64's step (Steele, Lea, Flood, "Fast splittable pseudorandom number generators")."""
    if num_buckets == 1:
        return keys * 0
    x = keys.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) % np.uint64(num_buckets)).astype(np.int64)
