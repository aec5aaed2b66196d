"""Turns raw rows into a model's inputs, with NumPy alone.

`distrain export --with-workflow` writes a copy of this file beside a `program.json`. The program
gives, for each column, the type of its values and the steps to apply: those of the workflow that
the model was trained with, by the names of distrain's operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from distrain.predict.serving.rows import BadValue as BadValue, columns_of, is_single, listed
from distrain.prep.raw_values import (
    BETWEEN_TEXTS,
    READERS,
    Array,
    UnusableValue,
    each,
    refuse,
    texts_of_any,
    to_numbers,
)
from distrain.prep.steps import Values, Vocabulary, after_steps

FORMS = ("table", "csv", "json")
"""Forms of rows: values with types, fields of a text file, or values of JSON lines."""

MOST_KEPT = 1 << 16
"""Maximum number of a column's values whose ids or numbers are cached."""

_FEW_ROWS = 64
"""Above this number of rows, computing numbers is faster than reading them from the cache."""

_KEPT_TYPES = frozenset([str, int, type(None)])
_TEXTS = frozenset([str, type(None)])
_PLAIN_NUMBERS = frozenset([float, int, type(None)])


class Preprocessor:
    """Computes the inputs of a model from raw rows, as a program defines.

    Args:
        program: The content of `program.json`.
        folder: The folder of its vocabularies.
    """

    def __init__(self, program: Mapping[str, Any], folder: Path):
        known = {
            name: Vocabulary(folder, name, **of) for name, of in program["vocabularies"].items()
        }
        self._form = program["form"]
        self._columns = {c["name"]: _Column(c, program["text"], known) for c in program["columns"]}
        self._categorical = [self._columns[name] for name in program["categorical"]]
        self._whole = [n for n, column in enumerate(self._categorical) if not column.holds_text]
        self._ids_met = _getters(self._categorical)
        self._numbers = [self._columns[name] for name in program["continuous"]]
        self._matrices = _matrices(self._numbers)
        self._lists = [(self._columns[name], event) for name, event in program["lists"]]
        flat = [*self._categorical, *self._numbers]
        self._all_met = _getters(flat)
        # An `itemgetter` of one column returns no tuple, and rows have no values of crosses.
        can_be_few = flat[1:] and not (self._lists or program.get("crosses"))
        self._row_of = itemgetter(*(column.source for column in flat)) if can_be_few else None
        self._crosses = {
            cross: [_Column(_text_of(source), program["text"], known) for source in sources]
            for cross, sources in program.get("crosses", {}).items()
        }
        parts = (part.source for of_cross in self._crosses.values() for part in of_cross)
        given = (column.source for column in self._columns.values())
        sources = dict.fromkeys([*(one for one in given if one not in self._crosses), *parts])
        self.sources = tuple(sources)

    def inputs(self, rows: Any, form: str | None = None) -> dict[str, Array]:
        """Return the model's inputs by name.

        These are `categorical`, int64, and `continuous`, float32, both `[rows, columns]`. A list
        column has `NAME.values`, int64 or float32, `[items]`, and `NAME.lengths`, int64, `[rows]`.

        Args:
            rows: A list of dictionaries, or columns by name: a dictionary of lists or arrays, a
                pandas or polars DataFrame, an Arrow table. `None` and NaN are missing values.
            form: One of `FORMS`; by default the form of the sample that the export was checked
                with.

        Raises:
            BadValue: A column is missing, a value cannot be used, or a row's lists of one event
                sequence have different lengths.
            ValueError: `form` is unknown, or the columns have different numbers of rows.
        """
        form = self._known_form(form)
        if isinstance(rows, list) and 0 < len(rows) <= _FEW_ROWS and (few := self._few(rows, form)):
            return few
        given = self._given(rows, form)
        num_rows = len(next(iter(given.values()), ()))
        numbers = np.empty((num_rows, len(self._numbers)), np.float32)
        for matrix in self._matrices:
            numbers[:, matrix.places] = matrix.made(given, form)
        if self._row_of is not None and num_rows <= _FEW_ROWS:
            for column, made in zip(self._numbers, numbers.T, strict=True):
                column.keep(given[column.source], made, form)
        columns: dict[str, Array] = {
            "categorical": self._ids(given, form, num_rows),
            "continuous": numbers,
        }
        events: dict[str, tuple[str, list[int]]] = {}
        for column, event in self._lists:
            name = column.name
            values, lengths = column.ids(given[column.source], form)
            assert lengths is not None
            other, first = events.setdefault(event, (name, lengths))
            if first != lengths:
                row = next(n for n, (a, b) in enumerate(zip(first, lengths, strict=True)) if a != b)
                raise BadValue(name, row, f"its list is not as long as that of {other!r}")
            columns[f"{name}.values"] = np.asarray(values, column.dtype)
            columns[f"{name}.lengths"] = np.array(lengths, np.int64)
        return columns

    def _few(self, rows: list[Mapping[str, Any]], form: str) -> dict[str, Array] | None:
        """Return the inputs of a few rows from the caches; `None` unless all values are cached.

        Also returns `None` for rows that lack a column or have values of other types, which the
        caller then reports.
        """
        if self._row_of is None:
            return None
        try:
            raw = [*map(self._row_of, rows)]
            if not _are_kept(chain.from_iterable(raw)):
                return None
            numbers = _from_caches(self._all_met[form], [*zip(*raw, strict=True)], np.float64)
        except (IndexError, KeyError, TypeError, ValueError):
            return None
        num_ids = len(self._categorical)
        return {
            "categorical": numbers[:, :num_ids].astype(np.int64, "C"),
            "continuous": numbers[:, num_ids:].astype(np.float32, "C"),
        }

    def _ids(self, given: Mapping[str, Any], form: str, num_rows: int) -> Array:
        raw = [given[column.source] for column in self._categorical]
        if not raw or not num_rows:
            return np.zeros((num_rows, len(raw)), np.int64)
        whole = chain.from_iterable([raw[place] for place in self._whole])
        with suppress(TypeError):  # an unhashable value
            if _are_kept(whole):
                with suppress(KeyError):
                    return _from_caches(self._ids_met[form], raw, np.int64)
                for column, values in zip(self._categorical, raw, strict=True):
                    column.fill_cache(values, form)
                with suppress(KeyError):  # unusable values, or values of other types
                    return _from_caches(self._ids_met[form], raw, np.int64)
        pairs = zip(self._categorical, raw, strict=True)
        return np.array(
            [column.ids(values, form)[0] for column, values in pairs], np.int64
        ).T.copy()

    def read(self, rows: Any, form: str | None = None) -> dict[str, tuple[Any, Any]]:
        """Return, by column, its values as they are before the steps, and the lengths of its lists.

        The values of a list column are the items of all lists. The lengths are `None` for a flat
        column. Texts and integers are lists with `None` for missing values, numbers are arrays with
        NaN. Times are arrays; times with a zone are converted to UTC. Arguments and errors are
        those of `inputs`.
        """
        form = self._known_form(form)
        given = self._given(rows, form)
        return {name: c.read(given[c.source], form) for name, c in self._columns.items()}

    def _given(self, rows: Any, form: str) -> dict[str, Any]:
        """Return, by name, the raw columns that the program reads, and the texts of its crosses.

        A cross's text joins those of its columns. `form` is the form of the rows, one of `FORMS`.
        Raises the errors of `columns_of`, and `BadValue` for an unusable value of a cross.
        """
        given = columns_of(rows, self.sources)
        for name, parts in self._crosses.items():
            given[name] = crossed([part.read(given[part.source], form)[0] for part in parts])
        return given

    def _known_form(self, form: str | None) -> str:
        form = form or self._form
        if form not in FORMS:
            raise ValueError(f"form is {form!r}, not one of {', '.join(FORMS)}")
        return form


def _text_of(source: str) -> dict[str, Any]:
    """Return the description of a column that a cross reads, for `_Column`: it is read as texts."""
    takes = ["text", "integer", "number", "bool", "decimal", "time"]
    as_text = {"to": "text", "takes": takes, "lists": False, "separator": None}
    of = {"name": source, "source": source, "steps": [], "slices": []}
    return {**of, **as_text, "is_canonical": True}


def crossed(columns: Sequence[Sequence[str | None]]) -> list[str | None]:
    """Return, for each row, the texts of several columns joined; `None` if all are missing."""
    return [
        None if row.count(None) == len(row) else BETWEEN_TEXTS.join(map(_in_cross, row))
        for row in zip(*columns, strict=True)
    ]


def _in_cross(text: str | None) -> str:
    if text is None:
        return "\\0"
    return text.replace("\\", "\\\\").replace(BETWEEN_TEXTS, "\\u")


def _getters(columns: Sequence[_Column]) -> dict[str, list[Any]]:
    return {form: [column.met[form].__getitem__ for column in columns] for form in FORMS}


class _Column:
    """Reads a program's column from raw values, applies its steps, and caches results by value."""

    def __init__(
        self, spec: Mapping[str, Any], text: Mapping[str, Any], known: Mapping[str, Vocabulary]
    ):
        self.name, self.source, self.steps = spec["name"], spec["source"], spec["steps"]
        self.name_in_errors = self.name if BETWEEN_TEXTS in self.source else self.source
        self.has_ids = any(step["kind"] == "Categorify" for step in self.steps)
        self.dtype = np.int64 if self.has_ids else np.float32
        self.takes = frozenset(spec["takes"])
        self._spec, self._known = spec, known
        self.holds_text = spec["to"] == "text"
        self._nulls = frozenset(text["null_values"])
        self._text = text
        self.met: dict[str, dict[Any, Any]] = {form: {} for form in FORMS}

    @property
    def is_plain_number(self) -> bool:
        spec = self._spec
        return spec["to"] == "number" and not (spec["lists"] or spec["is_whole"])

    def ids(self, values: Any, form: str) -> tuple[Any, list[int] | None]:
        """Return the result of `made` for a column's raw values in the form `form`; cache ids."""
        values, lengths = self._flat(values, form)
        if self.has_ids and self.fill_cache(values, form):
            with suppress(KeyError):
                ids = map(self.met[form].__getitem__, values)
                return np.fromiter(ids, np.int64, len(values)), lengths
        return self.made(self._read_items(values, lengths, form), lengths)

    def fill_cache(self, values: Any, form: str) -> bool:
        """Compute and cache the ids of those of `values` that are not cached yet.

        Returns False, and caches nothing, if there are too many distinct values, or values of types
        that cannot be keys of the cache (such as bool, since True == 1). Returns True otherwise,
        even if an unusable value keeps all new values out of the cache.
        """
        if not set(map(type, values)) <= (_TEXTS if self.holds_text else _KEPT_TYPES):
            return False
        distinct = {*values}
        if len(distinct) > MOST_KEPT:
            return False
        # Not a difference of sets, which would iterate over the whole cache.
        if new := [value for value in distinct if value not in self.met[form]]:
            met = self.cache_for(form, len(new))
            new = new if met else list(distinct)
            with suppress(BadValue):  # raised later, with its row
                ids = self.made(self._read_items(new, None, form), None)[0]
                met.update(zip(new, ids.tolist(), strict=True))
        return True

    def keep(self, values: Sequence[Any], made: Array, form: str) -> None:
        """Cache `made`, the results for `values`, if all values are of cacheable types."""
        if _are_kept(values):
            self.cache_for(form, len(values)).update(zip(values, made.tolist(), strict=True))

    def cache_for(self, form: str, more: int) -> dict[Any, Any]:
        """Return the cache of results by value; first empty it if `more` new entries do not fit."""
        if len(self.met[form]) + more > MOST_KEPT:
            self.met[form].clear()
        return self.met[form]

    def read(self, values: Any, form: str) -> tuple[Any, list[int] | None]:
        values, lengths = self._flat(values, form)
        return self._read_items(values, lengths, form), lengths

    def made(self, values: Any, lengths: list[int] | None) -> tuple[Array, Any]:
        """Return the values after all steps, int64 ids or float32, and the lists' lengths.

        `lengths` is `None` unless the column holds lists. Raises `BadValue` for an unusable value.
        """
        with self._rows_of(lengths):
            made = after_steps(Values(values), self.steps, self._known)
            if self.has_ids:
                return made.x, lengths
            if isinstance(made.x, list) or made.missing is not None:  # integers
                made = Values(to_numbers(made.listed, frozenset(["integer"]), {}, {}))
            return _as_float32(made.x), lengths

    def _read_items(self, items: Any, lengths: list[int] | None, form: str) -> Any:
        if not self._spec["lists"]:
            items = self._without_nulls(items, form)
        with self._rows_of(lengths):
            return READERS[self._spec["to"]](items, self.takes, self._text, self._spec)

    def _flat(self, values: Any, form: str) -> tuple[Any, list[int] | None]:
        """Return the items of all lists, each cut by the column's `slices`, and the lists' lengths.

        For a flat column these are its values and `None`.
        """
        if not self._spec["lists"]:
            return values, None
        with self._rows_of(None):
            values = each(self._list_of, self._without_nulls(values, form))
        for start, end in self._spec["slices"]:
            values = [one and one[start:end] for one in values]
        lengths = [0 if one is None else len(one) for one in values]
        return [item for one in values if one is not None for item in one], lengths

    def _without_nulls(self, values: Any, form: str) -> Any:
        if form != "csv":
            return values
        nulls = self._nulls
        return [None if value.__class__ is str and value in nulls else value for value in values]

    def _list_of(self, value: Any) -> Any:
        separator = self._spec["separator"]
        if isinstance(value, list):
            return value
        if separator is not None and not isinstance(value, bytes | Mapping) and is_single(value):
            return texts_of_any([value])[0].split(separator)
        if is_single(value):
            raise ValueError(f"{value!r} is not a list")
        return list(listed(self.source, value))

    @contextmanager
    def _rows_of(self, lengths: list[int] | None) -> Iterator[None]:
        """Replace `UnusableValue` by `BadValue`, which names column and row.

        With `lengths`, the lengths of the rows' lists, the unusable value is an item of a list.
        """
        try:
            yield
        except UnusableValue as bad:
            row = bad.place
            if lengths is not None:
                row = int(np.searchsorted(np.cumsum(lengths), row, side="right"))
            raise BadValue(self.name_in_errors, row, bad.problem) from None


def _as_float32(values: Array) -> Array:
    with np.errstate(over="ignore"):
        numbers = values.astype(np.float32)
    is_finite = np.isfinite(numbers)
    if not is_finite.all():
        refuse(~is_finite, "missing, or not finite as float32")
    return numbers


class _Matrix:
    """Continuous columns that are computed together, since they have the same kinds of steps.

    A column of integers, times or lists is computed alone.

    Attributes:
        places: The columns' indices among the model's continuous columns.
    """

    def __init__(self, columns: Mapping[int, _Column]):
        first, last = min(columns), max(columns)
        is_run = len(columns) == last - first + 1
        self.places: Any = slice(first, last + 1) if is_run else list(columns)
        self._columns = list(columns.values())
        self._steps = []
        if self._columns[0].is_plain_number:
            steps = zip(*(column.steps for column in self._columns), strict=True)
            self._steps = [_side_by_side(of_columns) for of_columns in steps]

    def made(self, given: Mapping[str, Any], form: str) -> Array:
        """Return the columns after all steps, `[rows, columns]`, float32.

        Raises `BadValue` for an unusable value.
        """
        columns = self._columns
        if not columns[0].is_plain_number:
            column: Array = columns[0].ids(given[columns[0].source], form)[0]
            return column[:, None]
        raw = [given[column.source] for column in columns]
        x = self._read(raw, form)
        try:
            x = _as_float32(after_steps(Values(x), self._steps, {}).x)
        except UnusableValue as bad:
            place, row = divmod(bad.place, x.shape[1])
            raise BadValue(columns[place].name_in_errors, row, bad.problem) from None
        return x.T

    def _read(self, raw: Sequence[Any], form: str) -> Array:
        if (
            {"integer", "number"} <= self._columns[0].takes
            and set(map(type, raw)) <= {list, tuple}
            and set(map(type, chain.from_iterable(raw))) <= _PLAIN_NUMBERS
        ):
            with suppress(OverflowError):  # raised later, with its row
                return np.array(raw, np.float64)
        pairs = zip(self._columns, raw, strict=True)
        return np.stack([column.read(values, form)[0] for column, values in pairs])


def _are_kept(values: Iterable[Any]) -> bool:
    return set(map(type, values)) <= _KEPT_TYPES


def _from_caches(getters: Sequence[Any], raw: Sequence[Any], dtype: Any) -> Array:
    """Return the cached results for columns of values, `[rows, columns]`.

    `getters` has, for each column, the function that looks up a value. Raises `KeyError` if a value
    is not cached. All columns are looked up at once, since for one row a call per column takes
    longer than computing the column.
    """
    results = np.fromiter(chain.from_iterable(map(map, getters, raw)), dtype)
    return np.ascontiguousarray(results.reshape(len(raw), -1).T)


def _matrices(columns: Sequence[_Column]) -> list[_Matrix]:
    alike: dict[Any, dict[int, _Column]] = {}
    for place, column in enumerate(columns):
        kinds = tuple(step["kind"] for step in column.steps)
        key = (kinds, column.takes) if column.is_plain_number else place
        alike.setdefault(key, {})[place] = column
    return [_Matrix(some) for some in alike.values()]


def _side_by_side(steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one step for several columns: each setting is an array, `[columns, 1]`.

    Missing bounds are infinite; a setting that no column has is `None`.
    """
    none = {"min": -np.inf, "low": -np.inf, "max": np.inf, "high": np.inf}
    combined: dict[str, Any] = {"kind": steps[0]["kind"]}
    for name in steps[0].keys() - combined:
        values = [none[name] if step[name] is None else step[name] for step in steps]
        some = any(step[name] is not None for step in steps)
        combined[name] = np.array(values, np.float64)[:, None] if some else None
    return combined
