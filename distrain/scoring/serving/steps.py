"""Steps that values of a column go through: distrain's operators with NumPy alone.

`distrain export --with-workflow` writes a copy of this file. A step's settings are an entry of
`program.json`. Numbers are float64 arrays of any shape, NaN for what is missing; other values are
lists.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from distrain.scoring.serving.raw_values import Array, UnusableValue, refuse

NULL_ID, FIRST_OOV_ID = 1, 2
CLOCK = {"minute": (60_000_000, 60), "hour": (3_600_000_000, 24)}
"""By the part of a time, its microseconds, and how many there are."""


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
    missing = np.isnan(x)
    found: Array = np.searchsorted(np.array(step["edges"], np.float64), x, side="right")
    if step["log_square"]:
        sizes = np.clip(np.abs(x), 2, np.finfo(np.float64).max)
        above = np.copysign(np.floor(np.log(sizes) ** 2) + 2, x)
        found = np.where(np.abs(x) <= 2, np.floor(x), above)
    return _with_gaps(np.where(missing, 0, found), missing)


def _with_gaps(numbers: Array, missing: Array) -> list[int | None]:
    whole = np.floor(numbers).astype(np.int64).tolist()
    return [None if gap else n for n, gap in zip(whole, missing.tolist(), strict=True)]


def _hash_bucket(values: list[Any], step: Mapping[str, Any], _: Any) -> list[int | None]:
    num_buckets = step["num_buckets"]
    known = {v: bucket_of(_key_of(v, values), num_buckets) for v in {*values} - {None}}
    return [known.get(value) for value in values]


def _encode(values: list[Any], step: Mapping[str, Any], known: Mapping[str, Any]) -> Array:
    vocabulary: Vocabulary = known[step["vocabulary"]]
    numbers: Array = vocabulary.numbers[vocabulary.ids_of(values)]
    return numbers


def _calendar(times: tuple[Array, Array], step: Mapping[str, Any], _: Any) -> Any:
    """A part of times, as numbers or as whole numbers."""
    local, utc = times
    missing = np.isnat(local)
    counted = local.astype(np.int64)
    days = local.astype("M8[D]")
    months = local.astype("M8[M]")
    part = step["part"]
    found: Array
    if part == "seconds":
        found = utc.astype(np.int64) / 1e6
    elif part in CLOCK:
        size, many = CLOCK[part]
        found = counted // size % many
    elif part == "weekday":
        found = (days.astype(np.int64) + 3) % 7
    elif part == "day":
        found = (days - months.astype("M8[D]")).astype(np.int64) + 1
    elif part == "month":
        found = months.astype(np.int64) % 12 + 1
    else:
        found = months.astype("M8[Y]").astype(np.int64) + 1970
    if not step["whole"]:
        return np.where(missing, np.nan, found)
    return _with_gaps(found, missing)


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
        folder: The folder of the files `NAME.*.npy`: keys in rising order, which are whole numbers
            or the CRC-32 of texts, and their ids; of texts also their UTF-8 in the same order.
        holds: "integer" or "text".
        num_oov: Over how many ids unknown values are spread.
        has_numbers: Whether there is a file `NAME.numbers.npy`, of a number for each id.
    """

    def __init__(
        self, folder: Path, name: str, holds: str, num_oov: int, has_numbers: bool = False
    ):
        def load(what: str) -> Any:
            return np.load(folder / f"{name}.{what}.npy", mmap_mode="r")

        self._keys, self._ids = load("keys"), load("ids")
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
        found: dict[Any, int] = {}
        keys = [_key_of(value, column) for value in values]
        places = np.searchsorted(self._keys, np.array(keys, self._keys.dtype)).tolist()
        for value, key, place in zip(values, keys, places, strict=True):
            while place < len(self._keys) and self._keys[place] == key:
                if not self._is_text or self._text_at(place) == value.encode():
                    found[value] = int(self._ids[place])
                    break
                place += 1
            else:
                found[value] = FIRST_OOV_ID + bucket_of(key, self._num_oov)
        return found

    def _text_at(self, place: int) -> bytes:
        text: bytes = self._text[self._offsets[place] : self._offsets[place + 1]].tobytes()
        return text


def _key_of(value: Any, column: list[Any]) -> int:
    """What is hashed of a value: a whole number itself, of a text the CRC-32."""
    try:
        return zlib.crc32(value.encode()) if isinstance(value, str) else int(value)
    except UnicodeError:
        raise UnusableValue(column.index(value), "no text: it has no UTF-8") from None


def bucket_of(key: int, num_buckets: int) -> int:
    """splitmix64's step (Steele, Lea, Flood, "Fast splittable pseudorandom number generators")."""
    if num_buckets == 1:
        return 0
    mask = 2**64 - 1
    x = (key + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return (x ^ (x >> 31)) % num_buckets
