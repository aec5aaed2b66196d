"""Raw rows to a model's inputs, with NumPy alone.

`distrain export --with-workflow` writes a copy of this file beside a `program.json`, which says for
each column how values are read and which steps they go through. Steps are those of the workflow
that the model was trained with, by the names of distrain's operators.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distrain.scoring.serving.raw_values import (
    READERS,
    Array,
    UnusableValue,
    each,
    refuse,
    to_numbers,
)

FORMS = ("table", "csv", "json")
"""What rows are: values with types, fields of a text file, or values of JSON lines."""

NULL_ID, FIRST_OOV_ID = 1, 2
MOST_KEPT = 1 << 20


class BadValue(ValueError):
    """A value that cannot be scored, told with its column and row."""

    def __init__(self, column: str, row: int | None, problem: str):
        at = "" if row is None else f", row {row}"
        super().__init__(f"column {column!r}{at}: {problem}")
        self.column, self.row = column, row


class Preprocessor:
    """The inputs of a model from raw rows, as a program says.

    Args:
        program: The content of `program.json`.
        folder: Where its vocabularies lie.
    """

    def __init__(self, program: Mapping[str, Any], folder: Path):
        known = {
            name: Vocabulary(folder, name, **of) for name, of in program["vocabularies"].items()
        }
        self._program = program
        self._columns = {c["name"]: _Column(c, program["text"], known) for c in program["columns"]}
        self.sources = tuple(dict.fromkeys(c["source"] for c in program["columns"]))

    def inputs(self, rows: Any, form: str | None = None) -> dict[str, Array]:
        """The model's inputs by name.

        Args:
            rows: A list of dictionaries, or columns by name: a dictionary of lists or arrays, a
                data frame of pandas or polars. `None` and NaN stand for missing values.
            form: One of `FORMS`; `None` for that of the rows that the export was checked with.

        Raises:
            BadValue: A column is missing, or a value cannot be used.
        """
        read = self.read(rows, form)
        made = {name: column.made(*read[name]) for name, column in self._columns.items()}
        values, lengths = next(iter(made.values()))
        num_rows = len(values if lengths is None else lengths)
        found = {
            kind: _side_by_side([made[name][0] for name in self._program[kind]], num_rows, dtype)
            for kind, dtype in (("categorical", np.int64), ("continuous", np.float32))
        }
        events: dict[str, tuple[str, list[int]]] = {}
        for name, event in self._program["lists"]:
            values, lengths = made[name]
            other, first = events.setdefault(event, (name, lengths))
            if first != lengths:
                row = next(n for n, (a, b) in enumerate(zip(first, lengths, strict=True)) if a != b)
                raise BadValue(name, row, f"its list is not as long as that of {other!r}")
            found[f"{name}.values"] = values
            found[f"{name}.lengths"] = np.array(lengths, np.int64)
        return found

    def read(self, rows: Any, form: str | None = None) -> dict[str, tuple[Any, Any]]:
        """Each column's values before its steps, and the lengths of its lists or `None`.

        Texts and whole numbers are lists with `None` for what is missing, numbers arrays with NaN,
        times two arrays: as clocks show them, and in UTC.
        """
        form = form or self._program["form"]
        if form not in FORMS:
            raise ValueError(f"form is {form!r}, not one of {', '.join(FORMS)}")
        given = columns_of(rows, self.sources)
        return {name: c.read(given[c.source], form) for name, c in self._columns.items()}


def columns_of(rows: Any, names: Iterable[str]) -> dict[str, Any]:
    """The columns of rows: arrays, or lists of Python's values."""
    if isinstance(rows, Mapping) or hasattr(rows, "columns"):
        there = rows.keys() if isinstance(rows, Mapping) else list(rows.columns)
        missing = [name for name in names if name not in there]
        if missing:
            raise BadValue(missing[0], None, f"missing, of {len(missing)} columns in all")
        found: dict[str, Any] = {name: _listed(rows[name]) for name in names}
    else:
        rows = list(rows)
        try:
            found = {name: [row[name] for row in rows] for name in names}
        except KeyError as error:
            name = str(error.args[0])
            row = next(n for n, row in enumerate(rows) if name not in row)
            raise BadValue(name, row, "not given; null stands for a missing value") from None
    sizes = {len(values) for values in found.values()}
    if len(sizes) > 1:
        raise ValueError(f"the columns have different numbers of rows: {sorted(sizes)}")
    return found


def _listed(values: Any) -> Any:
    if isinstance(values, np.ndarray):
        is_exact = values.dtype.kind in "OUiub" or values.dtype == np.float64
        return values.tolist() if is_exact else values
    return values.to_list() if hasattr(values, "to_list") else list(values)


def _side_by_side(columns: Sequence[Array], num_rows: int, dtype: type) -> Array:
    found: Array = np.empty((num_rows, len(columns)), dtype)
    for place, values in enumerate(columns):
        found[:, place] = values
    return found


class _Column:
    def __init__(
        self, spec: Mapping[str, Any], text: Mapping[str, Any], known: Mapping[str, Vocabulary]
    ):
        self.name, self.source = spec["name"], spec["source"]
        self._spec, self._text, self._known = spec, text, known
        self._nulls = frozenset(text["null_values"])

    def read(self, values: Any, form: str) -> tuple[Any, list[int] | None]:
        try:
            return self._read(values, form)
        except UnusableValue as bad:
            raise BadValue(self.name, bad.place, bad.problem) from None

    def _read(self, values: Any, form: str) -> tuple[Any, list[int] | None]:
        spec, nulls = self._spec, self._nulls
        if form == "csv":
            values = [
                None if value.__class__ is str and value in nulls else value for value in values
            ]
        if not spec["lists"]:
            return self._items(values, form), None
        values = each(self._list_of, values)
        for start, end in spec["slices"]:
            values = [one and one[start:end] for one in values]
        lengths = [0 if one is None else len(one) for one in values]
        try:
            items = [item for one in values if one is not None for item in one]
            return self._items(items, form), lengths
        except UnusableValue as bad:
            row = int(np.searchsorted(np.cumsum(lengths), bad.place, side="right"))
            raise UnusableValue(row, bad.problem) from None

    def _list_of(self, value: Any) -> Any:
        separator = self._spec["separator"]
        if separator is not None and isinstance(value, str):
            return value.split(separator)
        if isinstance(value, str) or not hasattr(value, "__len__"):
            raise ValueError(f"{value!r} is no list")
        return value.tolist() if isinstance(value, np.ndarray) else list(value)

    def _items(self, values: Any, form: str) -> Any:
        spec = self._spec
        text = self._text if form != "table" else {"decimal_point": ".", "timestamp": None}
        takes = frozenset(spec["takes"])
        if form != "table":
            takes |= {"text", "integer", "number", "bool"}
        read = READERS[spec["to"]]
        return read(values, takes, text, spec)

    def made(self, values: Any, lengths: list[int] | None) -> tuple[Array, Any]:
        """The values after all steps: int64 ids or float32 numbers; and the lists' lengths."""
        try:
            for step in self._spec["steps"]:
                values = STEPS[step["kind"]](values, step, self._known)
            if isinstance(values, np.ndarray) and values.dtype == np.int64:
                return values, lengths
            if isinstance(values, list):  # whole numbers without a step
                values = to_numbers(values, frozenset(["integer"]), {}, {})
            with np.errstate(over="ignore"):
                numbers = values.astype(np.float32)
            refuse(~np.isfinite(numbers), "missing, or not finite as float32")
        except UnusableValue as bad:
            row = bad.place
            if lengths is not None:
                row = int(np.searchsorted(np.cumsum(lengths), row, side="right"))
            raise BadValue(self.name, row, bad.problem) from None
        return numbers, lengths


# Steps: the operators of distrain's ETL by kind. Numbers are float64, NaN for what is missing.


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
    elif part in ("minute", "hour"):
        size = {"minute": 60_000_000, "hour": 3_600_000_000}[part]
        found = counted // size % {"minute": 60, "hour": 24}[part]
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
    whole = np.floor(found).astype(np.int64).tolist()
    return [None if gap else n for n, gap in zip(whole, missing.tolist(), strict=True)]


def _limits(x: Array, step: Mapping[str, Any], _: Any) -> Array:
    low, high = step["low"], step["high"]
    far = False if low is None else x < low
    refuse(far | (False if high is None else x > high), "beyond float32, which ends at 3.4e38")
    return x


STEPS: dict[str, Callable[..., Any]] = {
    "FillMissing": _fill_missing,
    "Clip": _clip,
    "LogOp": _log,
    "Normalize": _normalize,
    "Categorify": _categorify,
    "calendar": _calendar,
    "limits": _limits,
}


class Vocabulary:
    """The ids of a column's values; those of values that were met before are kept in memory.

    Args:
        folder: The folder of the files `NAME.*.npy`: keys in rising order, which are whole numbers
            or the CRC-32 of texts, and their ids; of texts also their UTF-8 in the same order.
        holds: "integer" or "text".
        num_oov: Over how many ids unknown values are spread.
    """

    def __init__(self, folder: Path, name: str, holds: str, num_oov: int):
        def load(what: str) -> Any:
            return np.load(folder / f"{name}.{what}.npy", mmap_mode="r")

        self._keys, self._ids = load("keys"), load("ids")
        self._is_text, self._num_oov = holds == "text", num_oov
        if self._is_text:
            self._offsets, self._text = load("offsets"), load("text")
        self._met: dict[Any, int] = {None: NULL_ID}

    def ids_of(self, values: list[Any]) -> Array:
        """The ids, `[values]`, int64; `None` has one too."""
        get = self._met.get
        ids = [get(value) for value in values]
        if None in ids:
            new = [v for v, known in zip(values, ids, strict=True) if known is None]
            fresh = self._look_up(list(dict.fromkeys(new)), values)
            ids = [
                fresh[v] if known is None else known for v, known in zip(values, ids, strict=True)
            ]
            if len(self._met) + len(fresh) > MOST_KEPT:
                self._met = {None: NULL_ID}
            self._met.update(fresh)
        return np.array(ids, np.int64)

    def _look_up(self, values: list[Any], column: list[Any]) -> dict[Any, int]:
        found = {}
        keys = []
        for value in values:
            try:
                keys.append(zlib.crc32(value.encode()) if self._is_text else value)
            except UnicodeError:
                raise UnusableValue(column.index(value), "no text: it has no UTF-8") from None
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


def bucket_of(key: int, num_buckets: int) -> int:
    """splitmix64's step (Steele, Lea, Flood, "Fast splittable pseudorandom number generators")."""
    if num_buckets == 1:
        return 0
    mask = 2**64 - 1
    x = (key + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return (x ^ (x >> 31)) % num_buckets
